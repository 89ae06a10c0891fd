/** What the service answers to an evaluation, and what OpenFeature is given of it. */

import type { ErrorCode, EvaluationContext, FlagMetadata, JsonValue, ResolutionDetails } from "@openfeature/core";

import { ServiceDownError, type Reply, type Transport } from "./transport.js";

/** What a unit is to be shown. Without a value the default of the code is. */
export interface Answer {
  value?: JsonValue;
  variant?: string;
  reason: string;
  metadata?: FlagMetadata;
}

/** Why there is no answer. */
export interface Failure {
  code: `${ErrorCode}`;
  message: string;
  /** Whether the service was not there, in contrast to an answer that says no. */
  down: boolean;
}

export type Outcome = Answer | Failure;
export type Kind = "boolean" | "string" | "number" | "object";

const CODES = new Set<string>([
  "FLAG_NOT_FOUND",
  "PARSE_ERROR",
  "TARGETING_KEY_MISSING",
  "INVALID_CONTEXT",
  "GENERAL",
]);

export function isAnswer(outcome: Outcome): outcome is Answer {
  return !("code" in outcome);
}

/** The unit that a context is about; undefined if it names none. */
export function unitOf(context: EvaluationContext | undefined): string | undefined {
  return context?.targetingKey || undefined;
}

export const NO_UNIT: Failure = {
  code: "TARGETING_KEY_MISSING",
  message: "the context has no targetingKey; give it the id of the visitor, session or device.",
  down: false,
};

/** Ask for one flag: this assigns the unit, if its experiment runs and it is new there. */
export async function evaluate(
  transport: Transport,
  flag: string,
  context: EvaluationContext,
  headers: Record<string, string>,
): Promise<Outcome> {
  const path = `/ofrep/v1/evaluate/flags/${encodeURIComponent(flag)}`;
  try {
    const reply = await transport.call(path, { body: { context }, headers });
    return reply.status === 200 ? answerIn(reply.body) : failureIn(reply);
  } catch (error) {
    return downAs(error);
  }
}

/** Ask for all flags that may be given at once: experiments that opted in, and what is known. */
export async function evaluateAll(
  transport: Transport,
  context: EvaluationContext,
  headers: Record<string, string>,
): Promise<Map<string, Outcome> | Failure> {
  try {
    const reply = await transport.call("/ofrep/v1/evaluate/flags", { body: { context }, headers });
    if (reply.status !== 200) return failureIn(reply);
    const flags = (reply.body as { flags?: unknown } | undefined)?.flags;
    if (!Array.isArray(flags)) return unreadable();
    return new Map(
      flags.map((one: Record<string, unknown>) => [
        String(one["key"]),
        "errorCode" in one ? failureIn({ status: 400, body: one, retryAfter: 0 }) : answerIn(one),
      ]),
    );
  } catch (error) {
    return downAs(error);
  }
}

/** What OpenFeature is given: the value if it is of the kind that the code wants, else the default. */
export function detailsOf<T extends JsonValue>(
  outcome: Outcome,
  fallback: T,
  kind: Kind,
): ResolutionDetails<T> {
  if (!isAnswer(outcome)) {
    return {
      value: fallback,
      reason: "ERROR",
      errorCode: outcome.code as ErrorCode,
      errorMessage: outcome.message,
    };
  }
  const { value, reason, variant, metadata } = outcome;
  if (value === undefined) return { value: fallback, reason, ...given({ flagMetadata: metadata }) };
  if (typeof value !== kind || value === null) {
    const found = value === null ? "null" : Array.isArray(value) ? "a list" : `a ${typeof value}`;
    const message = `the value of variant ${String(variant)} is ${found}; the code asks for a ${kind}.`;
    return detailsOf({ code: "TYPE_MISMATCH", message, down: false }, fallback, kind);
  }
  return { value: value as T, reason, ...given({ variant, flagMetadata: metadata }) };
}

/** The same answer, from memory. */
export function stale(answer: Answer): Answer {
  return { ...answer, reason: "STALE" };
}

function answerIn(body: unknown): Outcome {
  if (typeof body !== "object" || body === null) return unreadable();
  const { value, variant, reason, metadata } = body as Record<string, unknown>;
  if (value === undefined && reason === undefined) return unreadable();
  return {
    reason: typeof reason === "string" ? reason : "UNKNOWN",
    ...given({
      value: value as JsonValue | undefined,
      variant: typeof variant === "string" ? variant : undefined,
      metadata: metadata as FlagMetadata | undefined,
    }),
  };
}

function failureIn(reply: Reply): Failure {
  const { errorCode, errorDetails, detail } = (reply.body ?? {}) as Record<string, unknown>;
  const code = typeof errorCode === "string" && CODES.has(errorCode) ? errorCode : undefined;
  return {
    code: (code ?? (reply.status === 404 ? "FLAG_NOT_FOUND" : "GENERAL")) as Failure["code"],
    message: String(errorDetails ?? detail ?? `the service answered ${reply.status}.`),
    down: reply.status >= 500,
  };
}

function unreadable(): Failure {
  const message = "the answer is not of the OpenFeature Remote Evaluation Protocol; is the url right?";
  return { code: "PARSE_ERROR", message, down: false };
}

function downAs(error: unknown): Failure {
  if (!(error instanceof ServiceDownError)) throw error;
  return { code: "GENERAL", message: `${error.message}.`, down: true };
}

/** Without what is undefined. */
function given<T extends object>(values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  const found = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(found) as { [K in keyof T]?: NonNullable<T[K]> };
}
