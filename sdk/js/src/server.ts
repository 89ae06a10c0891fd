/**
 * SteadyArm for the OpenFeature SDK of servers: each evaluation asks the service for the unit in
 * its context.
 */

import { randomUUID } from "node:crypto";
import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

import type {
  EvaluationContext,
  JsonValue,
  Provider,
  ResolutionDetails,
  TrackingEventDetails,
} from "@openfeature/server-sdk";

import { detailsOf, evaluate, isAnswer, NO_UNIT, stale, unitOf, type Answer, type Kind, type Outcome } from "./evaluation.js";
import { EventQueue, type EventCounts, type EventStore, type TrackedEvent } from "./events.js";
import { trackedEvent } from "./tracking.js";
import { positive, Transport, Warnings, whole, type ServiceOptions } from "./transport.js";

export type { EventCounts } from "./events.js";
export type { Log, ServiceOptions } from "./transport.js";

export interface SteadyArmOptions extends ServiceOptions {
  /** A token with the scope `write`; not needed as long as the service has none. */
  token?: string;
  /** How many answers are remembered, so that units keep their variant while the service is down. 10,000. */
  remember?: number;
  /** A file that keeps events which the service has not got, for the next process; by default they are in memory. */
  buffer?: string;
  /** How many events may wait; the oldest are dropped when there are more. 10,000. */
  bufferLimit?: number;
  /** How long an event waits for others to be sent with. 200. */
  flushDelay?: number;
}

/** Variants of experiments, and events that are their rewards. One for the whole program. */
export class SteadyArmProvider implements Provider {
  readonly runsOn = "server";
  readonly metadata = { name: "SteadyArm" } as const;
  readonly #transport: Transport;
  readonly #queue: EventQueue;
  readonly #warnings: Warnings;
  readonly #answers: RecentAnswers;

  constructor(options: SteadyArmOptions) {
    this.#warnings = new Warnings(options.logger);
    this.#answers = new RecentAnswers(whole(options.remember ?? 10_000, "remember"));
    this.#transport = new Transport(options, options.token, () => this.#queue.wake());
    this.#queue = new EventQueue(
      this.#transport,
      options.buffer === undefined ? undefined : new FileStore(options.buffer),
      {
        limit: positive(options.bufferLimit ?? 10_000, "bufferLimit"),
        delay: whole(options.flushDelay ?? 200, "flushDelay"),
        timeout: 10_000,
      },
      this.#warnings,
    );
  }

  resolveBooleanEvaluation(
    flagKey: string,
    defaultValue: boolean,
    context: EvaluationContext,
  ): Promise<ResolutionDetails<boolean>> {
    return this.#resolve(flagKey, defaultValue, context, "boolean");
  }

  resolveStringEvaluation(
    flagKey: string,
    defaultValue: string,
    context: EvaluationContext,
  ): Promise<ResolutionDetails<string>> {
    return this.#resolve(flagKey, defaultValue, context, "string");
  }

  resolveNumberEvaluation(
    flagKey: string,
    defaultValue: number,
    context: EvaluationContext,
  ): Promise<ResolutionDetails<number>> {
    return this.#resolve(flagKey, defaultValue, context, "number");
  }

  resolveObjectEvaluation<T extends JsonValue>(
    flagKey: string,
    defaultValue: T,
    context: EvaluationContext,
  ): Promise<ResolutionDetails<T>> {
    return this.#resolve(flagKey, defaultValue, context, "object");
  }

  /**
   * Report an event of the unit in the context to every experiment that counts events of this
   * name. `details.value` is its number (1 if there is none), `details.id` its key, such as the
   * number of an order, and `details.at` its time. Returns at once; the event is sent soon.
   */
  track(name: string, context: EvaluationContext, details?: TrackingEventDetails): void {
    const event = trackedEvent(name, context, details, randomUUID, this.#warnings);
    if (event !== undefined) this.#queue.add(event);
  }

  /** Send events that wait now. */
  flush(): Promise<void> {
    return this.#queue.flush();
  }

  /** What has become of tracked events so far. */
  get counts(): EventCounts {
    return this.#queue.counts;
  }

  /** OpenFeature calls this when the program ends or takes another provider. */
  onClose(): Promise<void> {
    return this.#queue.close();
  }

  async #resolve<T extends JsonValue>(
    flag: string,
    fallback: T,
    context: EvaluationContext,
    kind: Kind,
  ): Promise<ResolutionDetails<T>> {
    const unit = unitOf(context);
    if (unit === undefined) return detailsOf(NO_UNIT, fallback, kind);
    const outcome = await evaluate(this.#transport, flag, context, {});
    return detailsOf(this.#remembered(flag, unit, outcome), fallback, kind);
  }

  #remembered(flag: string, unit: string, outcome: Outcome): Outcome {
    if (isAnswer(outcome)) {
      this.#answers.set(flag, unit, outcome);
      return outcome;
    }
    this.#warnings.show(`${flag} ${outcome.code}`, `no variant of ${flag}: ${outcome.message}`);
    const known = outcome.down ? this.#answers.get(flag, unit) : undefined;
    return known === undefined ? outcome : stale(known);
  }
}

/** The last answer to each of the units that came last. */
class RecentAnswers {
  readonly #answers = new Map<string, Answer>();

  constructor(readonly most: number) {}

  get(flag: string, unit: string): Answer | undefined {
    return this.#answers.get(`${flag}/${unit}`); // names of experiments have no slash
  }

  set(flag: string, unit: string, answer: Answer): void {
    const key = `${flag}/${unit}`;
    this.#answers.delete(key); // so that it is the newest
    this.#answers.set(key, answer);
    if (this.#answers.size > this.most) this.#answers.delete(this.#answers.keys().next().value!);
  }
}

/**
 * Events in a file of lines, for one process at a time: an event as it comes, and its id when it
 * is done with. A line that a crash cut off is left out.
 */
class FileStore implements EventStore {
  readonly #path: string;
  readonly #kept = new Map<string, TrackedEvent>();
  #lines = 0;

  constructor(path: string) {
    this.#path = path;
  }

  load(): TrackedEvent[] {
    const lines = existsSync(this.#path) ? readFileSync(this.#path, "utf8").split("\n") : [""];
    lines.pop(); // nothing, or what a crash cut off
    for (const line of lines) {
      const { event, done } = this.#parsed(line);
      if (event !== undefined) this.#kept.set(event.id, event);
      for (const id of done ?? []) this.#kept.delete(id);
    }
    this.#rewrite(); // so that a path which cannot be written fails here, not with the first event
    return [...this.#kept.values()];
  }

  add(event: TrackedEvent): void {
    this.#kept.set(event.id, event);
    this.#append({ event });
  }

  remove(events: readonly TrackedEvent[]): void {
    for (const event of events) this.#kept.delete(event.id);
    if (this.#lines > 2 * this.#kept.size + 1000) this.#rewrite();
    else this.#append({ done: events.map((event) => event.id) });
  }

  close(): void {
    this.#rewrite();
  }

  #parsed(line: string): { event?: TrackedEvent; done?: string[] } {
    let found: { event?: TrackedEvent; done?: string[] } | null = null;
    try {
      found = JSON.parse(line);
    } catch {
      // It is none of these lines, which is said below.
    }
    if (typeof found?.event?.id !== "string" && !Array.isArray(found?.done)) {
      throw new TypeError(`buffer is ${this.#path}, a file of something else; give events a file of their own.`);
    }
    return found as { event?: TrackedEvent; done?: string[] };
  }

  #append(line: object): void {
    appendFileSync(this.#path, `${JSON.stringify(line)}\n`);
    this.#lines += 1;
  }

  #rewrite(): void {
    const lines = [...this.#kept.values()].map((event) => `${JSON.stringify({ event })}\n`);
    writeFileSync(`${this.#path}.new`, lines.join(""));
    renameSync(`${this.#path}.new`, this.#path);
    this.#lines = lines.length;
  }
}
