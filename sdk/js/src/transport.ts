/**
 * Requests to the service: within a time limit, tried again where that may help, and not at all
 * for a few seconds after the service could not be reached.
 */

/** Where messages go; `console` is one. */
export interface Log {
  warn(...words: unknown[]): void;
  debug(...words: unknown[]): void;
}

/** What both providers need to reach a service. Times are in milliseconds. */
export interface ServiceOptions {
  /** Address of the service, such as `https://tests.example`; a path before `/ofrep` and `/v1` is kept. */
  url: string;
  /** How long an evaluation may take, all tries together; then the default of the code is shown. 2000. */
  timeout?: number;
  /** How often an evaluation is tried again within that time. 1. */
  retries?: number;
  /** For how long after a failure no evaluation waits for the service; then one tries again. 5000. */
  cooldown?: number;
  /** Where warnings go, each kind at most once a minute. `console`. */
  logger?: Log;
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
}

/** An answer of the service, good or bad. */
export interface Reply {
  status: number;
  /** The JSON of the answer; undefined if it has none. */
  body: unknown;
  /** For how long the service wants to be left alone; 0 if it does not say. */
  retryAfter: number;
}

/** The service gave no usable answer; the same request may work later. */
export class ServiceDownError extends Error {
  override name = "ServiceDownError";

  constructor(
    message: string,
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

export interface Post {
  body: unknown;
  headers?: Record<string, string>;
  /** The request goes on when the page is left. */
  keepalive?: boolean;
}

const BUSY = [429, 502, 503, 504]; // answers after which the same request may succeed
const FIRST_PAUSE = 50; // doubled with every further try
const MOST_KINDS = 1000; // of warnings: names of events may be anything
const LONGEST_COOLDOWN = 60_000; // whatever Retry-After says

/** One service, and whether it was up when it was last needed. */
export class Transport {
  readonly url: string;
  readonly #timeout: number;
  readonly #retries: number;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof fetch;
  readonly #breaker: Breaker;
  #failure = "";

  /** `recovered` is called when the service answers again after it did not. */
  constructor(options: ServiceOptions, token: string | undefined, recovered: () => void) {
    this.url = checkedUrl(options.url);
    this.#timeout = positive(options.timeout ?? 2000, "timeout");
    this.#retries = whole(options.retries ?? 1, "retries");
    this.#breaker = new Breaker(positive(options.cooldown ?? 5000, "cooldown"), recovered);
    this.#headers = { "Content-Type": "application/json" };
    if (token !== undefined) this.#headers["Authorization"] = `Bearer ${token}`;
    // The global one is looked up at each call, as whoever instruments it replaces it later.
    this.#fetch = options.fetch ?? ((...request) => globalThis.fetch(...request));
  }

  /** What the service answers to a request that somebody waits for. */
  async call(path: string, post: Post): Promise<Reply> {
    if (!this.#breaker.allows()) throw new ServiceDownError(this.#failure);
    const deadline = Date.now() + this.#timeout;
    let problem: ServiceDownError;
    for (let attempt = 0; ; attempt++) {
      const last = attempt >= this.#retries;
      const left = Math.max(deadline - Date.now(), 1);
      try {
        const reply = await this.send(path, post, last ? left : left / 2);
        if (!BUSY.includes(reply.status)) {
          this.#breaker.worked();
          return reply;
        }
        problem = new ServiceDownError(`${this.url} answered ${reply.status}`, reply.retryAfter);
      } catch (error) {
        problem = error as ServiceDownError;
      }
      const pause = Math.max(problem.retryAfter, jittered(FIRST_PAUSE * 2 ** attempt));
      if (last || Date.now() + pause >= deadline) break;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
    this.#failure = problem.message;
    this.#breaker.failed(Math.min(problem.retryAfter, LONGEST_COOLDOWN));
    throw problem;
  }

  /** One request, tried once; `ServiceDownError` if nobody answers within that time. */
  async send(path: string, post: Post, within: number): Promise<Reply> {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), within);
    try {
      const response = await this.#fetch(`${this.url}${path}`, {
        method: "POST",
        headers: { ...this.#headers, ...post.headers },
        body: JSON.stringify(post.body),
        signal: abort.signal,
        keepalive: post.keepalive ?? false,
        credentials: "omit",
        redirect: "error",
      });
      const text = await response.text();
      return {
        status: response.status,
        body: parsed(text),
        retryAfter: retryAfter(response.headers.get("Retry-After")),
      };
    } catch (error) {
      const reason = abort.signal.aborted
        ? `did not answer within ${Math.round(within)} ms`
        : `cannot be reached (${reasonOf(error)})`;
      throw new ServiceDownError(`${this.url} ${reason}`);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Remembers that the service is down, so that a page need not find out each time. */
class Breaker {
  #until: number | undefined; // undefined: all is well

  constructor(
    readonly cooldown: number,
    readonly recovered: () => void,
  ) {}

  /** Whether to try; after the cooldown one caller tries on behalf of all. */
  allows(): boolean {
    if (this.#until === undefined) return true;
    if (Date.now() < this.#until) return false;
    this.#until = Date.now() + this.cooldown;
    return true;
  }

  failed(atLeast: number): void {
    this.#until = Date.now() + Math.max(this.cooldown, atLeast);
  }

  worked(): void {
    if (this.#until === undefined) return;
    this.#until = undefined;
    this.recovered();
  }
}

/** Warnings, of which each kind is shown at most once a minute, or once. */
export class Warnings {
  readonly #shown = new Map<string, number>();

  constructor(readonly log: Log = console) {}

  show(kind: string, message: string): void {
    const now = Date.now();
    if (now - (this.#shown.get(kind) ?? -Infinity) < 60_000) {
      this.log.debug(`SteadyArm: ${message}`);
      return;
    }
    this.#shown.set(kind, now);
    this.log.warn(`SteadyArm: ${message}`);
  }

  /** Show a warning of this kind the first time, for as long as there are not too many kinds. */
  once(kind: string, message: string): void {
    if (!this.#shown.has(kind) && this.#shown.size < MOST_KINDS) this.show(kind, message);
    else this.log.debug(`SteadyArm: ${message}`);
  }
}

/** That time, more or less, so that many clients do not come at once. */
export function jittered(time: number): number {
  return time * (0.5 + Math.random());
}

/** Whether the same request may be answered otherwise later, whatever is in it. */
export function temporary(status: number): boolean {
  return status === 408 || status === 425 || status === 429 || status >= 500;
}

/** A number of milliseconds or of things that is above 0. */
export function positive(given: number, name: string): number {
  if (typeof given !== "number" || !(given > 0)) {
    throw new TypeError(`${name} is ${String(given)}; expected a number above 0.`);
  }
  return given;
}

/** A whole number that is not negative. */
export function whole(given: number, name: string): number {
  if (!Number.isInteger(given) || given < 0) {
    throw new TypeError(`${name} is ${String(given)}; expected a whole number of at least 0.`);
  }
  return given;
}

function checkedUrl(given: string): string {
  let scheme = "";
  try {
    scheme = new URL(given).protocol;
  } catch {
    // It is no address at all, which is said below.
  }
  if (scheme !== "http:" && scheme !== "https:") {
    throw new TypeError(
      `url is ${String(given)}; expected the address of a service, such as http://localhost:8000.`,
    );
  }
  return given.replace(/\/+$/, "").replace(/\/v1$/, "");
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function retryAfter(header: string | null): number {
  if (header === null) return 0;
  const time = Number.isFinite(Number(header))
    ? Number(header) * 1000
    : Date.parse(header) - Date.now();
  return time > 0 ? time : 0;
}

function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause; // Node's fetch says there what happened
  if (!(cause instanceof Error)) return error.message;
  return cause.message || (cause as { code?: string }).code || error.message;
}
