/** SteadyArm for the OpenFeature SDK of servers: the community's OFREP provider, and `track`. */

import { appendFileSync, copyFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";

import { OFREPProvider } from "@openfeature/ofrep-provider";
import type {
  EvaluationContext,
  JsonValue,
  Provider,
  ResolutionDetails,
  TrackingEventDetails,
} from "@openfeature/server-sdk";

import { EventQueue, type EventCounts, type EventStore, type TrackedEvent } from "./events.js";
import { positive, Service, type ServiceOptions } from "./service.js";

export type { EventCounts } from "./events.js";
export type { Log, ServiceOptions } from "./service.js";

export interface SteadyArmOptions extends ServiceOptions {
  /** A token with the scope `write`; not needed as long as the service has none. */
  token?: string;
  /** A file that keeps events which the service has not got, for the next process; by default they are in memory. */
  buffer?: string;
}

/** Variants of experiments, and events that are their rewards. One for the whole program. */
export class SteadyArmProvider implements Provider {
  readonly runsOn = "server";
  readonly metadata = { name: "SteadyArm" } as const;
  readonly #service: Service;
  readonly #flags: OFREPProvider;
  readonly #queue: EventQueue;

  constructor(options: SteadyArmOptions) {
    this.#service = new Service(options, options.token);
    const { url, headers, fetch } = this.#service;
    this.#flags = new OFREPProvider({ baseUrl: url, headers, fetchImplementation: fetch });
    const store = options.buffer === undefined ? undefined : new FileStore(options.buffer);
    const limit = positive(options.bufferLimit ?? 10_000, "bufferLimit");
    this.#queue = new EventQueue(this.#service, store, { limit, batch: 250, delay: 200 });
  }

  resolveBooleanEvaluation(flag: string, fallback: boolean, context: EvaluationContext): Promise<ResolutionDetails<boolean>> {
    return this.#evaluate(flag, fallback, (name) => this.#flags.resolveBooleanEvaluation(name, fallback, context));
  }

  resolveStringEvaluation(flag: string, fallback: string, context: EvaluationContext): Promise<ResolutionDetails<string>> {
    return this.#evaluate(flag, fallback, (name) => this.#flags.resolveStringEvaluation(name, fallback, context));
  }

  resolveNumberEvaluation(flag: string, fallback: number, context: EvaluationContext): Promise<ResolutionDetails<number>> {
    return this.#evaluate(flag, fallback, (name) => this.#flags.resolveNumberEvaluation(name, fallback, context));
  }

  resolveObjectEvaluation<T extends JsonValue>(flag: string, fallback: T, context: EvaluationContext): Promise<ResolutionDetails<T>> {
    return this.#evaluate(flag, fallback, (name) => this.#flags.resolveObjectEvaluation(name, fallback, context));
  }

  /**
   * Report an event of the unit in the context to every experiment that counts events of this
   * name. `details.value` is its number (1 if there is none), `details.id` its key, such as the
   * number of an order, and `details.at` its time. Returns at once; the event is sent soon.
   */
  track(name: string, context: EvaluationContext, details?: TrackingEventDetails): void {
    this.#queue.track(name, context, details);
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

  async #evaluate<T>(
    flag: string,
    fallback: T,
    resolve: (flag: string) => Promise<ResolutionDetails<T>>,
  ): Promise<ResolutionDetails<T>> {
    try {
      return await resolve(encodeURIComponent(flag));
    } catch (error) {
      const { response } = error as { response?: Response };
      const json = response?.headers.get("Content-Type")?.includes("json");
      // The test gives no variant now, since it is paused, say: an answer without a value.
      if (response?.status === 200 && json) return { value: fallback, reason: "DISABLED" };
      const { message, cause } = error as Error;
      const reason = cause instanceof Error ? cause.message : message;
      this.#service.warn(`flag ${flag}`, `no variant of ${flag}: ${reason}`);
      throw error;
    }
  }
}

/**
 * Events in a file of lines, for one process at a time. A file with other lines, or a line that a
 * crash cut off, is set aside; its events are kept.
 */
class FileStore implements EventStore {
  constructor(readonly path: string) {}

  load(): TrackedEvent[] {
    const text = existsSync(this.path) ? readFileSync(this.path, "utf8") : "";
    const lines = text.split("\n").filter((line) => line !== "");
    const events = lines.map(parsedEvent).filter((event) => event !== undefined);
    if (events.length < lines.length) copyFileSync(this.path, `${this.path}.damaged-${Date.now()}`);
    this.remove([], events);
    return events;
  }

  add(event: TrackedEvent): void {
    appendFileSync(this.path, `${JSON.stringify(event)}\n`);
  }

  remove(_: readonly TrackedEvent[], left: readonly TrackedEvent[]): void {
    writeFileSync(`${this.path}.new`, left.map((event) => `${JSON.stringify(event)}\n`).join(""));
    renameSync(`${this.path}.new`, this.path);
  }
}

function parsedEvent(line: string): TrackedEvent | undefined {
  try {
    const event = JSON.parse(line) as TrackedEvent;
    return typeof event.id === "string" && typeof event.unit === "string" ? event : undefined;
  } catch {
    return undefined;
  }
}
