/**
 * SteadyArm for the OpenFeature SDK of browsers: the community's OFREP provider, and `track`.
 *
 * That SDK asks for values and gets them at once, so variants are fetched before. The provider of
 * the community fetches all flags of a visitor, for which the service assigns nobody, as that would
 * spend the budget of tests that are not shown. This one has the visitor assigned in the experiments
 * that the page declares, and then lets it fetch.
 */

import { OFREPWebProvider } from "@openfeature/ofrep-web-provider";
import type {
  EvaluationContext,
  JsonValue,
  Provider,
  ResolutionDetails,
  TrackingEventDetails,
} from "@openfeature/web-sdk";
import { ErrorCode, OpenFeatureEventEmitter, ProviderEvents } from "@openfeature/web-sdk";

import { EventQueue, type EventCounts, type EventStore, type TrackedEvent } from "./events.js";
import { newId, positive, Service, type ServiceOptions } from "./service.js";

export type { EventCounts } from "./events.js";
export type { Log, ServiceOptions } from "./service.js";

export interface SteadyArmWebOptions extends ServiceOptions {
  /** A publishable key, `pk_…`; never another token, as every visitor can read it. */
  key?: string;
  /** The experiments that this page shows. Each of them assigns the visitor when the page is loaded. */
  flags?: readonly string[];
  /** Proof that the visitor is who the context says, where the key demands one: a token, or who gives it for a unit. */
  unitToken?: string | ((unit: string) => string | Promise<string>);
}

/** Variants that this visitor is shown, and events that are their rewards. */
export class SteadyArmWebProvider implements Provider {
  readonly runsOn = "client";
  readonly metadata = { name: "SteadyArm" } as const;
  readonly events = new OpenFeatureEventEmitter();
  readonly #service: Service;
  readonly #queue: EventQueue;
  readonly #declared: Set<string>;
  readonly #unitToken: SteadyArmWebOptions["unitToken"];
  readonly #unwatch: () => void;
  #flags: OFREPWebProvider | undefined;
  #context: EvaluationContext = {};
  #token: string | undefined;
  #changes = 0; // of the context: what was fetched for an earlier one is not used

  constructor(options: SteadyArmWebOptions) {
    if (options.key?.startsWith("sa_")) {
      throw new TypeError(
        "key is a secret token (sa_…), which every visitor of the page could read; create a publishable " +
          "one with: steadyarm token create --scope assign --experiment NAME --origin ORIGIN",
      );
    }
    this.#service = new Service(options, options.key);
    this.#declared = new Set(options.flags ?? []);
    this.#unitToken = options.unitToken;
    const limit = positive(options.bufferLimit ?? 1000, "bufferLimit");
    const store = new KeyedStore(`steadyarm:${this.#service.url}:event:`);
    // 50 events have less than the 64 KiB that browsers allow in what outlives its page.
    this.#queue = new EventQueue(this.#service, store, { limit, batch: 50, delay: 20 });
    this.#unwatch = whenLeft(this.#queue);
  }

  /** OpenFeature calls this when the provider is set. The service may be down: then defaults are shown. */
  initialize(context: EvaluationContext = {}): Promise<void> {
    return this.#fetch(context);
  }

  /** OpenFeature calls this when the visitor, or what is known of them, has changed. */
  onContextChange(_: EvaluationContext, context: EvaluationContext): Promise<void> {
    return this.#fetch(context);
  }

  /** Have the visitor assigned in experiments that the page is about to show, and fetch them. */
  async load(...flags: string[]): Promise<void> {
    for (const flag of flags) this.#declared.add(flag);
    await this.#fetch(this.#context, flags);
    this.events.emit(ProviderEvents.ConfigurationChanged, { flagsChanged: flags });
  }

  resolveBooleanEvaluation(flag: string, fallback: boolean): ResolutionDetails<boolean> {
    return this.#checked(fallback, this.#flags?.resolveBooleanEvaluation(flag, fallback, this.#context));
  }

  resolveStringEvaluation(flag: string, fallback: string): ResolutionDetails<string> {
    return this.#checked(fallback, this.#flags?.resolveStringEvaluation(flag, fallback, this.#context));
  }

  resolveNumberEvaluation(flag: string, fallback: number): ResolutionDetails<number> {
    return this.#checked(fallback, this.#flags?.resolveNumberEvaluation(flag, fallback, this.#context));
  }

  resolveObjectEvaluation<T extends JsonValue>(flag: string, fallback: T): ResolutionDetails<T> {
    return this.#checked(fallback, this.#flags?.resolveObjectEvaluation(flag, fallback, this.#context));
  }

  /**
   * Report an event of the visitor to every experiment that counts events of this name.
   * `details.value` is its number (1 if there is none), `details.id` its key, such as the number
   * of an order, and `details.at` its time. Returns at once; the event is sent soon, also if the
   * page is left, and by the next page if it could not be.
   */
  track(name: string, context: EvaluationContext, details?: TrackingEventDetails): void {
    this.#queue.track(name, context, details, this.#token);
  }

  /** Send events that wait now. */
  flush(): Promise<void> {
    return this.#queue.flush();
  }

  /** What has become of tracked events so far, of this page and of those that earlier ones left. */
  get counts(): EventCounts {
    return this.#queue.counts;
  }

  /** OpenFeature calls this when another provider is taken. */
  async onClose(): Promise<void> {
    this.#unwatch();
    await this.#flags?.onClose?.();
    await this.#queue.close();
  }

  #checked<T>(fallback: T, found: ResolutionDetails<T> | undefined): ResolutionDetails<T> {
    if (found === undefined) {
      return failure(fallback, ErrorCode.PROVIDER_NOT_READY, "the service gave no variants.");
    }
    if (found.value === undefined) return { ...found, value: fallback };
    if (typeof found.value === typeof fallback) return found;
    const message = `the value is a ${typeof found.value}; the code asks for a ${typeof fallback}.`;
    return failure(fallback, ErrorCode.TYPE_MISMATCH, message);
  }

  async #fetch(context: EvaluationContext, assign: Iterable<string> = this.#declared): Promise<void> {
    const changes = ++this.#changes;
    const unit = context.targetingKey;
    // Nobody is shown what another visitor was assigned.
    if (unit !== this.#context.targetingKey) this.#flags = undefined;
    this.#context = context;
    if (!unit) return this.#warn("the context has no targetingKey; give it the id of the visitor.");
    const token = await this.#tokenOf(unit);
    const headers = { ...this.#service.headers, ...(token === undefined ? {} : { "X-SteadyArm-Unit": token }) };
    await Promise.all([...assign].map((flag) => this.#assign(flag, context, headers)));
    const { url, fetch } = this.#service;
    const cached = { cacheMode: "network-first", changeDetection: "none", disableVisibilityRefresh: true } as const;
    const flags = new OFREPWebProvider({ baseUrl: url, headers: Object.entries(headers), fetchImplementation: fetch, ...cached });
    try {
      await flags.initialize?.(context);
    } catch (error) {
      this.#warn(causeOf(error));
    }
    if (changes !== this.#changes) return flags.onClose?.();
    this.#token = token;
    this.#flags = flags;
  }

  /** Ask for one flag, which assigns the visitor; its value comes with the others. */
  async #assign(flag: string, context: EvaluationContext, headers: Record<string, string>): Promise<void> {
    const path = `${this.#service.url}/ofrep/v1/evaluate/flags/${encodeURIComponent(flag)}`;
    const init = { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify({ context }) };
    try {
      const response = await this.#service.fetch(path, init);
      if (response.ok) return;
      const { errorDetails, detail } = (await response.json()) as Record<string, unknown>;
      this.#service.warn(`flag ${flag}`, `no variant of ${flag}: ${String(errorDetails ?? detail ?? response.status)}`);
    } catch (error) {
      this.#service.warn("down", `no variant of ${flag}: ${causeOf(error)}`);
    }
  }

  async #tokenOf(unit: string): Promise<string | undefined> {
    try {
      return typeof this.#unitToken === "function" ? await this.#unitToken(unit) : this.#unitToken;
    } catch (error) {
      this.#service.warn("unit token", `there is no unitToken: ${String(error)}`);
      return undefined;
    }
  }

  /** Say what is missing: in the log, and as an event, for programs that listen. */
  #warn(message: string): void {
    this.#service.warn("flags", `no variants: ${message}`);
    // OpenFeature says "ready" when the provider is initialized, and would outvote what is said now.
    setTimeout(() => this.events.emit(ProviderEvents.Error, { message, errorCode: ErrorCode.GENERAL }), 0);
  }
}

/**
 * The id of this browser, made at random when it is first asked for and kept in `localStorage`. For
 * visitors who have signed in, take the id that you know them by instead.
 */
export function visitorId(): string {
  const key = "steadyarm:visitor";
  try {
    pageVisitor ??= localStorage.getItem(key) ?? newId();
    localStorage.setItem(key, pageVisitor);
  } catch {
    pageVisitor ??= newId(); // nothing can be stored: for as long as the page lasts
  }
  return pageVisitor;
}

let pageVisitor: string | undefined;

/**
 * Events in `localStorage`, an entry for each, so that pages in several tabs do not overwrite each
 * other's. Two of them may send the same event; it counts once.
 */
class KeyedStore implements EventStore {
  constructor(readonly prefix: string) {}

  load(): TrackedEvent[] {
    try {
      const keys = Object.keys(localStorage).filter((key) => key.startsWith(this.prefix));
      const events = keys.map((key) => JSON.parse(localStorage.getItem(key)!) as TrackedEvent);
      return events.sort((one, other) => (one.at < other.at ? -1 : 1));
    } catch {
      return []; // the page may not read its store
    }
  }

  add(event: TrackedEvent): void {
    localStorage.setItem(this.prefix + event.id, JSON.stringify(event));
  }

  remove(events: readonly TrackedEvent[]): void {
    for (const event of events) localStorage.removeItem(this.prefix + event.id);
  }
}

/** Send what waits when the page is hidden or left, and when the network is back. */
function whenLeft(queue: EventQueue): () => void {
  if (typeof document === "undefined") return () => undefined;
  const left = () => {
    if (document.visibilityState === "hidden") queue.sendNow();
  };
  const online = () => queue.wake();
  document.addEventListener("visibilitychange", left);
  addEventListener("pagehide", left);
  addEventListener("online", online);
  return () => {
    document.removeEventListener("visibilitychange", left);
    removeEventListener("pagehide", left);
    removeEventListener("online", online);
  };
}

function failure<T>(value: T, errorCode: ErrorCode, errorMessage: string): ResolutionDetails<T> {
  return { value, reason: "ERROR", errorCode, errorMessage };
}

function causeOf(error: unknown): string {
  const { cause, message } = error as Error;
  return cause instanceof Error ? causeOf(cause) : message;
}
