/**
 * Events of units on their way to the service. Each has an id of its own, so that it counts once
 * however often it is sent; those that could not be sent wait, up to a bound, and are sent later.
 */

import { jittered, temporary, type Reply, type Transport, type Warnings } from "./transport.js";

/** One event, as it is kept until the service has it. */
export interface TrackedEvent {
  id: string;
  unit: string;
  event: string;
  value: number;
  /** When it happened, by the clock of this machine. */
  at: string;
  /** Proof of the unit, where the key demands one. */
  unitToken?: string;
}

/** Where events survive the page or the process. */
export interface EventStore {
  /** The events that an earlier page or process left, oldest first. */
  load(): TrackedEvent[];
  add(event: TrackedEvent): void;
  remove(events: readonly TrackedEvent[]): void;
  close?(): void;
}

export interface QueueOptions {
  /** How many events may wait; the oldest are dropped when there are more. */
  limit: number;
  /** How long to wait for further events before the first is sent. */
  delay: number;
  /** How long one request may take. */
  timeout: number;
}

/** What has become of tracked events so far. */
export interface EventCounts {
  /** They wait to be sent. */
  pending: number;
  /** The service has them. */
  delivered: number;
  /** No experiment counted them, and none will; a warning said why. */
  rejected: number;
  /** Too many waited, or they waited for more than a week. */
  dropped: number;
}

/** What a batch was answered with: every event is done, or when to try again. */
type Outcome = "done" | "aside" | ServicePause;
interface ServicePause {
  retryAfter: number;
}

const BATCH = 250; // events of one request: well below what services accept
const KEEPALIVE_BYTES = 60_000; // browsers allow 64 KiB in all that outlives its page
const OLDEST = 7 * 24 * 3600 * 1000;
const FIRST_BACKOFF = 1000;
const LONGEST_BACKOFF = 300_000;

export class EventQueue {
  readonly #waiting = new Map<string, TrackedEvent>(); // by id, oldest first
  readonly #sending = new Set<string>();
  readonly #counts = { delivered: 0, rejected: 0, dropped: 0 };
  readonly #transport: Transport;
  readonly #store: EventStore | undefined;
  readonly #options: QueueOptions;
  readonly #warnings: Warnings;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #flushing: Promise<void> | undefined;
  #failures = 0;
  #most = BATCH; // events of the next request: fewer after 429, as each may count against a rate
  #closed = false;

  constructor(
    transport: Transport,
    store: EventStore | undefined,
    options: QueueOptions,
    warnings: Warnings,
  ) {
    this.#transport = transport;
    this.#store = store;
    this.#options = options;
    this.#warnings = warnings;
    this.#adopt(store?.load() ?? []);
    if (this.#waiting.size > 0) this.#schedule(options.delay);
  }

  get counts(): EventCounts {
    return { pending: this.#waiting.size, ...this.#counts };
  }

  /** Keep an event until the service has it. The same id is kept once. */
  add(event: TrackedEvent): void {
    if (this.#closed) {
      this.#warnings.show("closed", `${event.event} was tracked after the provider was closed; it is lost.`);
      return;
    }
    if (this.#waiting.has(event.id)) return;
    this.#waiting.set(event.id, event);
    try {
      this.#store?.add(event);
    } catch (error) {
      this.#warnings.show("store", `an event is kept in memory only, as it cannot be stored: ${String(error)}`);
    }
    this.#makeRoom();
    if (this.#failures === 0) this.#schedule(this.#options.delay);
  }

  /** Send what waits now; ends when all was sent or the service did not take it. */
  async flush(): Promise<void> {
    await this.#flushing; // which may have begun before the last event came
    this.#flushing ??= this.#deliver().finally(() => (this.#flushing = undefined));
    await this.#flushing;
  }

  /** Send what waits without waiting for anything: the page is being left. */
  sendNow(): void {
    const left = this.#unsent();
    for (let batch = this.#nextBatch(left); batch.length > 0; batch = this.#nextBatch(left)) {
      void this.#send(batch).then((outcome) => {
        if (outcome !== "done" && !this.#closed) this.#schedule(this.#backoff(0));
      });
    }
  }

  /** The service is back: try now what waited for it. */
  wake(): void {
    if (this.#waiting.size > 0 && this.#failures > 0) this.#schedule(0);
  }

  /** Send what waits a last time. What is left stays in the store, if there is one. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.flush();
    this.#cancel();
    if (this.#waiting.size > 0 && this.#store === undefined) {
      this.#warnings.show("lost", `${this.#waiting.size} events were not delivered, and are lost.`);
    }
    this.#store?.close?.();
  }

  async #deliver(): Promise<void> {
    this.#cancel();
    const left = this.#unsent();
    let failed = false;
    let wanted = 0;
    for (let batch = this.#nextBatch(left); batch.length > 0; batch = this.#nextBatch(left)) {
      const outcome = await this.#send(batch);
      if (outcome === "done") continue;
      failed = true;
      if (outcome === "aside") continue; // it says nothing about the others
      wanted = outcome.retryAfter;
      break;
    }
    this.#failures = failed && this.#waiting.size > 0 ? this.#failures + 1 : 0;
    if (this.#closed || this.#waiting.size === 0) return;
    this.#schedule(failed ? this.#backoff(wanted) : this.#options.delay);
  }

  /** The events that are in no request, oldest first. */
  #unsent(): TrackedEvent[] {
    return [...this.#waiting.values()].filter((event) => !this.#sending.has(event.id));
  }

  /** Takes the next events that one request may have: of one unit, if it must be proven. */
  #nextBatch(left: TrackedEvent[]): TrackedEvent[] {
    const batch: TrackedEvent[] = [];
    let bytes = 0;
    while (left.length > 0 && batch.length < this.#most) {
      const next = left[0]!;
      const first = batch[0] ?? next;
      const proven = first.unitToken !== undefined || next.unitToken !== undefined;
      if (proven && (first.unitToken !== next.unitToken || first.unit !== next.unit)) break;
      bytes += new TextEncoder().encode(JSON.stringify(next)).length;
      if (batch.length > 0 && bytes > KEEPALIVE_BYTES) break;
      batch.push(next);
      left.shift();
    }
    return batch;
  }

  async #send(batch: TrackedEvent[]): Promise<Outcome> {
    for (const event of batch) this.#sending.add(event.id);
    try {
      return this.#settle(batch, await this.#request(batch));
    } catch (error) {
      this.#warnings.show("down", `${(error as Error).message}; ${this.#waiting.size} events wait.`);
      return { retryAfter: 0 };
    } finally {
      for (const event of batch) this.#sending.delete(event.id);
    }
  }

  #request(batch: TrackedEvent[]): Promise<Reply> {
    const events = batch.map(({ unitToken: _, ...event }) => event);
    const body = { events, sent: new Date().toISOString() };
    const token = batch[0]?.unitToken;
    const headers: Record<string, string> = token === undefined ? {} : { "X-SteadyArm-Unit": token };
    const keepalive = JSON.stringify(body).length <= KEEPALIVE_BYTES;
    return this.#transport.send("/v1/events:batch", { body, headers, keepalive }, this.#options.timeout);
  }

  async #settle(batch: TrackedEvent[], reply: Reply): Promise<Outcome> {
    if (reply.status >= 200 && reply.status < 300) return this.#settleEach(batch, reply);
    if (temporary(reply.status)) {
      if (reply.status === 429) this.#most = Math.max(1, batch.length >> 1);
      this.#warnings.show("down", `${this.#transport.url} answered ${reply.status}; ${this.#waiting.size} events wait.`);
      return { retryAfter: reply.retryAfter };
    }
    if ([400, 413, 422].includes(reply.status)) {
      if (batch.length === 1) {
        this.#reject(batch[0]!, problemOf(reply.body, reply.status));
        return "done";
      }
      // One of them, or that they are so many, makes the service refuse all.
      const middle = batch.length >> 1;
      const first = await this.#send(batch.slice(0, middle));
      if (typeof first === "object") return first;
      const second = await this.#send(batch.slice(middle));
      return second === "done" ? first : second;
    }
    // The key, the origin or the address may be put right while these wait.
    this.#warnings.show(
      `refused ${reply.status}`,
      `events are refused: ${explanation(reply.body, reply.status)} They wait, and are sent again later.`,
    );
    return "aside";
  }

  #settleEach(batch: TrackedEvent[], reply: Reply): Outcome {
    const answers = resultsIn(reply.body);
    if (answers === undefined || answers.length !== batch.length) {
      this.#warnings.show("answer", `${this.#transport.url} answered events as no SteadyArm service does.`);
      return "aside";
    }
    this.#most = Math.min(BATCH, 2 * this.#most);
    let outcome: Outcome = "done";
    const done: TrackedEvent[] = [];
    batch.forEach((event, place) => {
      const { problems, counted } = answers[place]!;
      if (problems.some((problem) => temporary(problem.status))) {
        outcome = { retryAfter: 0 }; // where it is stored already, it counts once
      } else if (counted) {
        done.push(event);
        for (const problem of problems) this.#explain(event, problem, "does not count everywhere");
      } else {
        this.#reject(event, problems[0] ?? { status: 422 });
      }
    });
    this.#counts.delivered += done.filter((event) => this.#waiting.has(event.id)).length;
    this.#takeOut(done);
    return outcome;
  }

  #reject(event: TrackedEvent, problem: Problem): void {
    this.#counts.rejected += 1;
    this.#takeOut([event]);
    this.#explain(event, problem, "is refused");
  }

  /** Say what is wrong with an event, once for each name of an event and kind of problem. */
  #explain(event: TrackedEvent, problem: Problem, effect: string): void {
    const reason = explanation(problem, problem.status);
    const kinds = [problem, ...(problem.experiments ?? []).map((one) => one.error)].map((one) => one?.type);
    this.#warnings.once(`rejected ${event.event} ${kinds.join(" ")}`, `the event ${event.event} ${effect}: ${reason}`);
  }

  /** Take over what an earlier page or process left. */
  #adopt(events: TrackedEvent[]): void {
    const stale = Date.now() - OLDEST;
    for (const event of events) this.#waiting.set(event.id, event);
    this.#drop(events.filter((event) => !(Date.parse(event.at) >= stale)), "are older than a week");
    this.#makeRoom();
  }

  #makeRoom(): void {
    const excess = Math.max(0, this.#waiting.size - this.#options.limit);
    const oldest = excess > 0 ? [...this.#waiting.values()].slice(0, excess) : [];
    this.#drop(oldest, `were the oldest of more than ${this.#options.limit}`);
  }

  #drop(events: TrackedEvent[], why: string): void {
    if (events.length === 0) return;
    this.#counts.dropped += events.length;
    this.#takeOut(events);
    this.#warnings.show("dropped", `undelivered events are dropped, now ${events.length}, which ${why}.`);
  }

  #takeOut(events: readonly TrackedEvent[]): void {
    for (const event of events) this.#waiting.delete(event.id);
    try {
      this.#store?.remove(events);
    } catch (error) {
      // They are sent once more by the next page or process, and count once all the same.
      this.#warnings.show("store", `delivered events cannot be taken out of the store: ${String(error)}`);
    }
  }

  #backoff(wanted: number): number {
    const doubled = FIRST_BACKOFF * 2 ** Math.max(0, this.#failures - 1);
    return Math.max(wanted, jittered(Math.min(doubled, LONGEST_BACKOFF)));
  }

  #schedule(delay: number): void {
    if (this.#timer !== undefined && delay > 0) return;
    this.#cancel();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.flush();
    }, delay);
    // In Node, events that wait do not keep a program from ending; `close` sends them.
    (this.#timer as { unref?: () => void }).unref?.();
  }

  #cancel(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

interface Problem {
  status: number;
  type?: string;
  detail?: string;
  experiments?: { error?: Problem }[];
}

interface EventResult {
  problems: Problem[];
  /** Whether at least one experiment counts it. */
  counted: boolean;
}

/** For each event of a batch its problems: its own, or those that single experiments have with it. */
function resultsIn(body: unknown): EventResult[] | undefined {
  const events = (body as { events?: unknown } | undefined)?.events;
  if (!Array.isArray(events)) return undefined;
  return events.map((one: { error?: Problem; experiments?: { error?: Problem; status?: string }[] } | null) => ({
    problems: [one, ...(one?.experiments ?? [])]
      .map((part) => part?.error)
      .filter((error): error is Problem => error !== undefined)
      .map((error) => problemOf(error, 422)),
    counted: (one?.experiments ?? []).some((part) => part.status !== undefined),
  }));
}

function problemOf(body: unknown, status: number): Problem {
  return { ...(body as Problem), status: Number((body as Problem | undefined)?.status) || status };
}

function explanation(body: unknown, status: number): string {
  const { detail, hint, title } = (body ?? {}) as Record<string, unknown>;
  return [detail ?? title ?? `the service answered ${status}.`, hint].filter(Boolean).join(" ");
}
