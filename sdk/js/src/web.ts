/**
 * SteadyArm for the OpenFeature SDK of browsers. That SDK asks for values and gets them at once,
 * so variants are fetched before: the declared flags each for itself, which assigns the visitor,
 * and whatever else may be given without spending the budget of a test that is not shown.
 */

import type {
  EvaluationContext,
  JsonValue,
  Provider,
  ResolutionDetails,
  TrackingEventDetails,
} from "@openfeature/web-sdk";
import { ErrorCode, OpenFeatureEventEmitter, ProviderEvents } from "@openfeature/web-sdk";

import { detailsOf, evaluate, evaluateAll, isAnswer, NO_UNIT, stale, unitOf, type Answer, type Failure, type Outcome } from "./evaluation.js";
import { EventQueue, type EventCounts, type EventStore, type TrackedEvent } from "./events.js";
import { trackedEvent } from "./tracking.js";
import { positive, Transport, Warnings, type ServiceOptions } from "./transport.js";

export type { EventCounts } from "./events.js";
export type { Log, ServiceOptions } from "./transport.js";

/** The part of `localStorage` that is used. */
export type KeyValueStore = Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">;

export interface SteadyArmWebOptions extends ServiceOptions {
  /** A publishable key, `pk_…`; never another token, as every visitor can read it. */
  key?: string;
  /** The experiments that this page shows. Each of them assigns the visitor when the page is loaded. */
  flags?: readonly string[];
  /** Whether to fetch, in one request, also what else is known of the visitor and experiments made for that. true. */
  bulk?: boolean;
  /** Proof that the visitor is who the context says, where the key demands one: a token, or who gives it for a unit. */
  unitToken?: string | ((unit: string) => string | Promise<string>);
  /** How many events may wait; the oldest are dropped when there are more. 1000. */
  bufferLimit?: number;
  /** Where events and last answers survive the page; null for nowhere. `localStorage`. */
  storage?: KeyValueStore | null;
}

/** Variants that this visitor is shown, and events that are their rewards. */
export class SteadyArmWebProvider implements Provider {
  readonly runsOn = "client";
  readonly metadata = { name: "SteadyArm" } as const;
  readonly events = new OpenFeatureEventEmitter();
  readonly #transport: Transport;
  readonly #queue: EventQueue;
  readonly #warnings: Warnings;
  readonly #flags: Set<string>;
  readonly #bulk: boolean;
  readonly #unitToken: SteadyArmWebOptions["unitToken"];
  readonly #memory: AnswerMemory;
  readonly #unwatch: () => void;
  #context: EvaluationContext = {};
  #token: string | undefined;
  #outcomes = new Map<string, Outcome>();
  #changes = 0; // of the context: what was fetched for an earlier one is not used

  constructor(options: SteadyArmWebOptions) {
    if (options.key?.startsWith("sa_")) {
      throw new TypeError(
        "key is a secret token (sa_…), which every visitor of the page could read; create a publishable " +
          "one with: steadyarm token create --scope assign --experiment NAME --origin ORIGIN",
      );
    }
    const storage = options.storage === undefined ? localStore() : options.storage;
    this.#warnings = new Warnings(options.logger);
    this.#flags = new Set(options.flags ?? []);
    this.#bulk = options.bulk ?? true;
    this.#unitToken = options.unitToken;
    this.#transport = new Transport(options, options.key, () => this.#queue.wake());
    const space = `steadyarm:${this.#transport.url}:`;
    this.#memory = new AnswerMemory(storage, `${space}answers`);
    this.#queue = new EventQueue(
      this.#transport,
      storage === null ? undefined : new KeyedStore(storage, `${space}event:`),
      { limit: positive(options.bufferLimit ?? 1000, "bufferLimit"), delay: 20, timeout: 10_000 },
      this.#warnings,
    );
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

  /**
   * Fetch experiments that were not declared, when the page is about to show them; they stay
   * declared from then on.
   */
  async load(...flags: string[]): Promise<void> {
    const changes = this.#changes;
    for (const flag of flags) this.#flags.add(flag);
    const found = await this.#evaluate(flags);
    if (changes !== this.#changes) return;
    for (const [flag, outcome] of found) this.#outcomes.set(flag, outcome);
    this.#remember();
    this.events.emit(ProviderEvents.ConfigurationChanged, { flagsChanged: flags });
  }

  resolveBooleanEvaluation(flagKey: string, defaultValue: boolean): ResolutionDetails<boolean> {
    return detailsOf(this.#outcome(flagKey), defaultValue, "boolean");
  }

  resolveStringEvaluation(flagKey: string, defaultValue: string): ResolutionDetails<string> {
    return detailsOf(this.#outcome(flagKey), defaultValue, "string");
  }

  resolveNumberEvaluation(flagKey: string, defaultValue: number): ResolutionDetails<number> {
    return detailsOf(this.#outcome(flagKey), defaultValue, "number");
  }

  resolveObjectEvaluation<T extends JsonValue>(flagKey: string, defaultValue: T): ResolutionDetails<T> {
    return detailsOf(this.#outcome(flagKey), defaultValue, "object");
  }

  /**
   * Report an event of the visitor to every experiment that counts events of this name.
   * `details.value` is its number (1 if there is none), `details.id` its key, such as the number
   * of an order, and `details.at` its time. Returns at once; the event is sent soon, also if the
   * page is left, and by the next page if it could not be.
   */
  track(name: string, context: EvaluationContext, details?: TrackingEventDetails): void {
    const event = trackedEvent(name, context, details, newId, this.#warnings);
    if (event === undefined) return;
    this.#queue.add(this.#token === undefined ? event : { ...event, unitToken: this.#token });
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
  onClose(): Promise<void> {
    this.#unwatch();
    return this.#queue.close();
  }

  #outcome(flag: string): Outcome {
    const found = this.#outcomes.get(flag);
    if (found !== undefined) return found;
    if (unitOf(this.#context) === undefined) return NO_UNIT;
    const message = `${flag} was not fetched; declare it in flags, or call load(${JSON.stringify(flag)}) before it is shown.`;
    return { code: "FLAG_NOT_FOUND", message, down: false };
  }

  async #fetch(context: EvaluationContext): Promise<void> {
    const changes = ++this.#changes;
    const same = unitOf(context) === unitOf(this.#context);
    this.#context = context;
    if (!same) this.#outcomes = new Map(); // nobody is shown what another visitor was assigned
    const token = await this.#tokenOf(context);
    if (changes !== this.#changes) return;
    this.#token = token;
    const [own, all] = await Promise.all([this.#evaluate([...this.#flags]), this.#evaluateAll()]);
    if (changes !== this.#changes) return;
    this.#outcomes = new Map([...all, ...own]);
    this.#remember();
    this.#report();
  }

  async #tokenOf(context: EvaluationContext): Promise<string | undefined> {
    const unit = unitOf(context);
    if (unit === undefined || typeof this.#unitToken !== "function") return this.#unitToken as string | undefined;
    try {
      return await this.#unitToken(unit);
    } catch (error) {
      this.#warnings.show("unit token", `there is no unitToken: ${String(error)}`);
      return undefined;
    }
  }

  async #evaluate(flags: string[]): Promise<Map<string, Outcome>> {
    const context = this.#context;
    const unit = unitOf(context);
    const found = await Promise.all(
      flags.map(async (flag): Promise<[string, Outcome]> => {
        if (unit === undefined) return [flag, NO_UNIT];
        const outcome = await evaluate(this.#transport, flag, context, this.#proof());
        const known = isAnswer(outcome) || !outcome.down ? undefined : this.#memory.get(unit, flag);
        return [flag, known === undefined ? outcome : stale(known)];
      }),
    );
    return new Map(found);
  }

  async #evaluateAll(): Promise<Map<string, Outcome>> {
    const unit = unitOf(this.#context);
    if (!this.#bulk || unit === undefined) return new Map();
    const found = await evaluateAll(this.#transport, this.#context, this.#proof());
    if (found instanceof Map) return found;
    this.#warnings.show(`bulk ${found.code}`, `flags that were not declared are unknown: ${found.message}`);
    const known = found.down ? this.#memory.all(unit) : [];
    return new Map(known.map(([flag, answer]) => [flag, stale(answer)]));
  }

  #proof(): Record<string, string> {
    return this.#token === undefined ? {} : { "X-SteadyArm-Unit": this.#token };
  }

  #remember(): void {
    const unit = unitOf(this.#context);
    const answers = [...this.#outcomes].filter((one): one is [string, Answer] => isAnswer(one[1]));
    if (unit !== undefined) this.#memory.set(unit, answers);
  }

  /** Say what is missing: in the log, and as an event, for programs that listen. */
  #report(): void {
    const failed = [...this.#outcomes].filter((one): one is [string, Failure] => !isAnswer(one[1]));
    for (const [flag, failure] of failed) {
      this.#warnings.show(`${flag} ${failure.code}`, `no variant of ${flag}: ${failure.message}`);
    }
    const first = failed.find(([, failure]) => failure.code === "GENERAL"); // others are about one flag
    if (first === undefined) return;
    // OpenFeature says "ready" when this function has returned, and would outvote what is said now.
    setTimeout(() => {
      this.events.emit(ProviderEvents.Error, {
        message: first[1].message,
        errorCode: ErrorCode.GENERAL,
      });
    }, 0);
  }
}

/**
 * The id of this browser, made at random when it is first asked for and kept in `localStorage`. For
 * visitors who have signed in, take the id that you know them by instead.
 */
export function visitorId(storage: KeyValueStore | null = localStore()): string {
  const key = "steadyarm:visitor";
  try {
    const known = storage?.getItem(key);
    if (known) return known;
    const made = (pageVisitor ??= newId());
    storage?.setItem(key, made);
    return made;
  } catch {
    return (pageVisitor ??= newId()); // nothing can be stored: for as long as the page lasts
  }
}

let pageVisitor: string | undefined;

/** The last answers to one visitor, for pages that are loaded while the service is down. */
class AnswerMemory {
  constructor(
    readonly storage: KeyValueStore | null,
    readonly key: string,
  ) {}

  get(unit: string, flag: string): Answer | undefined {
    return this.all(unit).find(([name]) => name === flag)?.[1];
  }

  all(unit: string): [string, Answer][] {
    try {
      const kept = JSON.parse(this.storage?.getItem(this.key) ?? "null");
      return kept?.unit === unit && Array.isArray(kept.answers) ? kept.answers : [];
    } catch {
      return [];
    }
  }

  set(unit: string, answers: [string, Answer][]): void {
    const known = this.all(unit).filter(([flag]) => answers.every(([name]) => name !== flag));
    const kept = [...answers.map(([flag, answer]) => [flag, answer]), ...known].slice(0, 100);
    try {
      this.storage?.setItem(this.key, JSON.stringify({ unit, answers: kept }));
    } catch {
      // The store is full or closed to us: the next page asks the service, as it does anyway.
    }
  }
}

/**
 * Events in `localStorage`, an entry for each, so that pages in several tabs do not overwrite each
 * other's. Two of them may send the same event; it counts once.
 */
class KeyedStore implements EventStore {
  constructor(
    readonly storage: KeyValueStore,
    readonly prefix: string,
  ) {}

  load(): TrackedEvent[] {
    const found: TrackedEvent[] = [];
    try {
      for (const key of this.#keys()) {
        const event = parsed(this.storage.getItem(key));
        if (event === undefined) this.storage.removeItem(key);
        else found.push(event);
      }
    } catch {
      return []; // the page may not read its store
    }
    return found.sort((one, other) => (one.at < other.at ? -1 : 1));
  }

  add(event: TrackedEvent): void {
    this.storage.setItem(this.prefix + event.id, JSON.stringify(event));
  }

  remove(events: readonly TrackedEvent[]): void {
    for (const event of events) this.storage.removeItem(this.prefix + event.id);
  }

  #keys(): string[] {
    const places = Array.from({ length: this.storage.length }, (_, place) => this.storage.key(place));
    return places.filter((key): key is string => key?.startsWith(this.prefix) ?? false);
  }
}

function parsed(text: string | null): TrackedEvent | undefined {
  try {
    const event = JSON.parse(text ?? "null") as TrackedEvent | null;
    return typeof event?.id === "string" && typeof event.unit === "string" ? event : undefined;
  } catch {
    return undefined;
  }
}

/** Send what waits when the page is hidden or left, and when the network is back. */
function whenLeft(queue: EventQueue): () => void {
  if (typeof document === "undefined") return () => undefined;
  const hidden = () => {
    if (document.visibilityState === "hidden") queue.sendNow();
  };
  const left = () => queue.sendNow();
  const online = () => queue.wake();
  document.addEventListener("visibilitychange", hidden);
  addEventListener("pagehide", left);
  addEventListener("online", online);
  return () => {
    document.removeEventListener("visibilitychange", hidden);
    removeEventListener("pagehide", left);
    removeEventListener("online", online);
  };
}

function localStore(): KeyValueStore | null {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null; // the visitor allows no storage
  }
}

/** A random UUID, also on pages without TLS, where `randomUUID` is missing. */
function newId(): string {
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
