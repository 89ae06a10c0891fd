/**
 * Requests to the service: within a time limit, tried once more, and not at all for a few seconds
 * after the service could not be reached.
 */

/** Where warnings go; `console` is one. */
export interface Log {
  warn(...words: unknown[]): void;
}

/** What both providers need to reach a service. Times are in milliseconds. */
export interface ServiceOptions {
  /** Address of the service, such as `https://tests.example`; a path before `/ofrep` and `/v1` is kept. */
  url: string;
  /** How long an evaluation may take, both tries together; then the default of the code is shown. 2000. */
  timeout?: number;
  /** For how long after a failure no evaluation waits for the service; then one tries again. 5000. */
  cooldown?: number;
  /** How many events may wait; the oldest are dropped when there are more. 10,000; in browsers 1000. */
  bufferLimit?: number;
  /** Where warnings go, each kind at most once a minute. `console`. */
  logger?: Log;
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
}

const BUSY = [502, 503, 504]; // answers after which the same request may succeed
const PAUSE = 50; // milliseconds before the second try
const MOST_KINDS = 1000; // of warnings: names of events may be anything

/** One service, and whether it was up when it was last needed. */
export class Service {
  readonly url: string;
  readonly headers: Record<string, string>;
  /** Called when the service answers again after it did not. */
  recovered: () => void = () => undefined;
  readonly #timeout: number;
  readonly #cooldown: number;
  readonly #fetch: typeof fetch;
  readonly #log: Log;
  readonly #warned = new Map<string, number>();
  #failure = "";
  #until: number | undefined; // nobody waits for the service before; undefined: it is up

  constructor(options: ServiceOptions, token: string | undefined) {
    this.url = checkedUrl(options.url);
    this.headers = token === undefined ? {} : { Authorization: `Bearer ${token}` };
    this.#timeout = positive(options.timeout ?? 2000, "timeout");
    this.#cooldown = positive(options.cooldown ?? 5000, "cooldown");
    this.#log = options.logger ?? console;
    // The global one is looked up at each call, as whoever instruments it replaces it later.
    this.#fetch = options.fetch ?? ((...request) => globalThis.fetch(...request));
  }

  /** `fetch` for evaluations, which somebody waits for. */
  readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const now = Date.now();
    if (this.#until !== undefined) {
      if (now < this.#until) throw new Error(this.#failure);
      this.#until = now + this.#cooldown; // this one tries on behalf of all
    }
    const request = new Request(input, init);
    for (const last of [false, true]) {
      const left = Math.max(now + this.#timeout - Date.now(), 1);
      try {
        const response = await this.send(request.clone(), {}, last ? left : left / 2);
        if (!BUSY.includes(response.status)) {
          if (this.#until !== undefined) this.recovered();
          this.#until = undefined;
          return response;
        }
        this.#failure = `${this.url} answered ${response.status}`;
      } catch (error) {
        this.#failure = (error as Error).message;
      }
      if (!last) await new Promise((resolve) => setTimeout(resolve, PAUSE));
    }
    this.#until = Date.now() + this.#cooldown;
    throw new Error(this.#failure);
  };

  /** One request, tried once; an error if nobody answers within that time. */
  async send(input: RequestInfo | URL, init: RequestInit, within: number): Promise<Response> {
    const signal = AbortSignal.timeout(Math.ceil(within));
    try {
      return await this.#fetch(input, { ...init, signal, credentials: "omit", redirect: "error" });
    } catch (error) {
      const cause = (error as Error).cause ?? error; // Node's fetch says there what happened
      const reason = signal.aborted ? `did not answer within ${Math.round(within)} ms` : `cannot be reached (${String(cause)})`;
      throw new Error(`${this.url} ${reason}`);
    }
  }

  /** Show a warning, each kind at most once in so many milliseconds. */
  warn(kind: string, message: string, every = 60_000): void {
    const now = Date.now();
    const before = this.#warned.get(kind);
    if (before === undefined ? this.#warned.size >= MOST_KINDS : now - before < every) return;
    this.#warned.set(kind, now);
    this.#log.warn(`SteadyArm: ${message}`);
  }
}

/** A number of milliseconds or of things that is above 0. */
export function positive(given: number, name: string): number {
  if (typeof given === "number" && given > 0) return given;
  throw new TypeError(`${name} is ${String(given)}; expected a number above 0.`);
}

/** A random id; `crypto.randomUUID` is missing on pages without TLS. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function checkedUrl(given: string): string {
  if (!/^https?:\/\/[^/]/.test(String(given))) {
    throw new TypeError(`url is ${String(given)}; expected the address of a service, such as http://localhost:8000.`);
  }
  return given.replace(/\/+$/, "").replace(/\/v1$/, "");
}
