/**
 * Events of units on their way to the service. Each has an id of its own, so that it counts once
 * however often it is sent; those that could not be sent wait, up to a bound, and are sent later.
 */

import type { EvaluationContext, TrackingEventDetails } from "@openfeature/core";

import { newId, type Service } from "./service.js";

/** One event, as it is kept until the service has it. */
export interface TrackedEvent {
  id: string;
  unit: string;
  event: string;
  value: number;
  /** When it happened, by the clock of this machine. */
  at: string;
  /** Proof of the unit, where the key demands one. */
  unitToken?: string | undefined;
}

/** Where events survive the page or the process. */
export interface EventStore {
  /** The events that an earlier page or process left. */
  load(): TrackedEvent[];
  add(event: TrackedEvent): void;
  /** Remove events; `left` are those that still wait. */
  remove(events: readonly TrackedEvent[], left: readonly TrackedEvent[]): void;
}

/** What has become of tracked events so far. */
export interface EventCounts {
  /** They wait to be sent. */
  pending: number;
  /** The service has them. */
  delivered: number;
  /** No experiment counted them, and none will; a warning said why. */
  rejected: number;
  /** Too many waited. */
  dropped: number;
}

interface Problem {
  status?: number;
  type?: string;
  detail?: string;
  hint?: string;
  experiments?: { error?: Problem }[];
}

interface EventResult {
  error?: Problem;
  experiments?: { status?: string; error?: Problem }[];
}

const TIMEOUT = 10_000; // milliseconds for a request
const FIRST_BACKOFF = 1000;
const LONGEST_BACKOFF = 300_000;

export class EventQueue {
  readonly #waiting = new Map<string, TrackedEvent>(); // by id, oldest first
  readonly #counts = { delivered: 0, rejected: 0, dropped: 0 };
  #timer: ReturnType<typeof setTimeout> | undefined;
  #flushing: Promise<void> | undefined;
  #failures = 0;
  #most: number; // events of the next request: fewer after a refusal
  #wanted = 0; // milliseconds for which the service wants to be left alone

  constructor(
    readonly service: Service,
    private store: EventStore | undefined,
    readonly options: { limit: number; batch: number; delay: number },
  ) {
    this.#most = options.batch;
    this.#stored(() => {
      this.store = undefined; // unless it can be read
      for (const event of store?.load() ?? []) this.#waiting.set(event.id, event);
      this.store = store;
    });
    if (this.#waiting.size > 0) this.#schedule(options.delay);
    service.recovered = () => this.wake();
  }

  get counts(): EventCounts {
    return { pending: this.#waiting.size, ...this.#counts };
  }

  /** Keep an event until the service has it. */
  track(name: string, context: EvaluationContext, details?: TrackingEventDetails, unitToken?: string): void {
    const { value = 1, id, at } = details ?? {};
    const unit = context.targetingKey;
    const time = at === undefined ? new Date() : new Date(at as string | number | Date);
    if (!unit || !Number.isFinite(value) || Number.isNaN(time.getTime())) {
      const reason = !unit ? "the context has no targetingKey" : "its value or its time is wrong";
      return this.service.warn("track", `the event ${name} is not reported: ${reason}.`);
    }
    const key = typeof id === "string" || typeof id === "number" ? String(id) : "";
    const event = { id: key || newId(), unit, event: name, value, at: time.toISOString(), unitToken };
    if (this.#waiting.has(event.id)) return;
    this.#waiting.set(event.id, event);
    this.#stored(() => this.store?.add(event));
    const excess = [...this.#waiting.values()].slice(0, Math.max(0, this.#waiting.size - this.options.limit));
    if (excess.length > 0) {
      this.#counts.dropped += excess.length;
      this.#remove(excess);
      this.service.warn("dropped", `the oldest of more than ${this.options.limit} events are dropped.`);
    }
    if (this.#failures === 0) this.#schedule(this.options.delay);
  }

  /** Send what waits now; ends when all was sent or the service did not take it. */
  async flush(): Promise<void> {
    await this.#flushing; // which may have begun before the last event came
    this.#flushing ??= this.#deliver().finally(() => (this.#flushing = undefined));
    await this.#flushing;
  }

  /** Send what waits without waiting for anything: the page is being left. */
  sendNow(): void {
    for (const batch of this.#batches()) void this.#send(batch);
  }

  /** The service is back: try now what waited for it. */
  wake(): void {
    if (this.#waiting.size > 0 && this.#failures > 0) this.#schedule(0);
  }

  /** Send what waits a last time. What is left stays in the store, if there is one. */
  async close(): Promise<void> {
    await this.flush();
    clearTimeout(this.#timer);
    if (this.#waiting.size > 0 && this.store === undefined) {
      this.service.warn("lost", `${this.#waiting.size} events were not delivered, and are lost.`);
    }
  }

  async #deliver(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    let failed = false;
    for (const batch of this.#batches()) {
      const problem = await this.#send(batch);
      failed ||= batch.some((event) => this.#waiting.has(event.id));
      if (problem === undefined) continue;
      this.service.warn("down", `${this.#waiting.size} events wait: ${explanation(problem)}`);
      const { status = 0 } = problem;
      const refused = status >= 400 && status < 429 && status !== 413; // another unit may be welcome
      if (!refused) break;
    }
    if (!failed) this.#failures = 0;
    else {
      const backoff = Math.min(FIRST_BACKOFF * 2 ** this.#failures++, LONGEST_BACKOFF);
      this.#schedule(Math.max(this.#wanted, backoff * (0.5 + Math.random())));
    }
  }

  /** What waits, in parts for one request each: of one unit, if it must be proven. */
  *#batches(): Generator<TrackedEvent[]> {
    const left = [...this.#waiting.values()];
    while (left.length > 0) {
      const { unit, unitToken } = left[0]!;
      const other = left.findIndex((event) => event.unitToken !== unitToken || (unitToken && event.unit !== unit));
      yield left.splice(0, Math.min(this.#most, other < 0 ? left.length : other));
    }
  }

  /** Send events; the problem if the service takes none of them. */
  async #send(batch: TrackedEvent[]): Promise<Problem | undefined> {
    const { unitToken } = batch[0]!;
    const events = batch.map(({ unitToken: _, ...event }) => event);
    const headers: Record<string, string> = { ...this.service.headers, "Content-Type": "application/json" };
    if (unitToken !== undefined) headers["X-SteadyArm-Unit"] = unitToken;
    const init = {
      method: "POST",
      headers,
      body: JSON.stringify({ events, sent: new Date().toISOString() }),
      keepalive: true, // the request goes on when the page is left
    };
    let problem: Problem;
    try {
      const response = await this.service.send(`${this.service.url}/v1/events:batch`, init, TIMEOUT);
      this.#wanted = 1000 * Number(response.headers.get("Retry-After") ?? 0) || 0;
      const body = (await response.json()) as { events?: EventResult[] } & Problem;
      if (response.ok && body.events?.length === batch.length) {
        this.#most = Math.min(this.options.batch, 2 * this.#most);
        this.#remove(batch.filter((event, place) => this.#settles(event, body.events![place]!)));
        return undefined;
      }
      problem = { ...body, status: response.status };
    } catch (error) {
      problem = { detail: (error as Error).message };
    }
    if (problem.status === 413 && batch.length === 1 && this.#rejects(batch[0]!, problem)) this.#remove(batch);
    if (problem.status === 413 || problem.status === 429) this.#most = Math.max(1, batch.length >> 1);
    return problem;
  }

  /** Whether the service needs an event no more: some experiment has it, or all refuse it. */
  #settles(event: TrackedEvent, { error, experiments = [] }: EventResult): boolean {
    const problems = [error, ...experiments.map((one) => one.error)].filter((one) => one !== undefined);
    if (problems.some((one) => (one.status ?? 0) >= 500 || one.status === 429)) return false;
    if (!experiments.some((one) => one.status !== undefined)) return this.#rejects(event, problems[0] ?? {});
    for (const problem of problems) this.#explain(event, problem, "does not count everywhere");
    if (this.#waiting.has(event.id)) this.#counts.delivered += 1; // else a second request was faster
    return true;
  }

  #rejects(event: TrackedEvent, problem: Problem): boolean {
    if (this.#waiting.has(event.id)) this.#counts.rejected += 1;
    this.#explain(event, problem, "is refused");
    return true;
  }

  /** Say what is wrong with an event, once for each name of an event and kind of problem. */
  #explain(event: TrackedEvent, problem: Problem, effect: string): void {
    const kinds = [problem, ...(problem.experiments ?? []).map((one) => one.error)].map((one) => one?.type);
    const message = `the event ${event.event} ${effect}: ${explanation(problem)}`;
    this.service.warn(`${event.event} ${kinds.join(" ")}`, message, Infinity);
  }

  #remove(events: readonly TrackedEvent[]): void {
    for (const event of events) this.#waiting.delete(event.id);
    this.#stored(() => this.store?.remove(events, [...this.#waiting.values()]));
  }

  #stored(change: () => void): void {
    try {
      change();
    } catch (error) {
      this.service.warn("store", `events are kept in memory only: ${String(error)}`);
    }
  }

  #schedule(delay: number): void {
    if (this.#timer !== undefined && delay > 0) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.flush();
    }, delay);
    // In Node, events that wait do not keep a program from ending; `close` sends them.
    (this.#timer as { unref?: () => void }).unref?.();
  }
}

function explanation({ detail, hint, status }: Problem): string {
  return [detail ?? `the service answered ${status ?? "nothing"}.`, hint].filter(Boolean).join(" ");
}
