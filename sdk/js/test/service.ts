/** A service that follows the protocol, in memory, and fails when it is told to. */

import { webcrypto } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

(globalThis as any).crypto ??= webcrypto; // Node 18 lacks what every browser has

/** How requests are answered: as they should be, or with this status, not at all, or after this time. */
export type Mode = "well" | "drop" | number | { after: number };

export interface SeenRequest {
  path: string;
  headers: IncomingMessage["headers"];
  body: any;
}

export interface SentEvent {
  id: string;
  unit: string;
  event: string;
  value: number;
  at: string;
}

export class TestService {
  mode: Mode = "well";
  /** Takes the place of the mode for as many requests as it is long. */
  script: Mode[] = [];
  retryAfter: string | undefined;
  /** What is answered about a flag; undefined for one that is unknown. */
  flags: Record<string, (unit: string, context: any) => object> = {
    shop: (unit) => ({
      value: "red",
      variant: "A",
      reason: "SPLIT",
      metadata: { assignmentId: `id of ${unit}`, probability: 0.5, inTest: true, experiment: "shop" },
    }),
  };
  /** Flags that every unit gets in bulk; else it gets those that it was assigned. */
  bulk: string[] = [];
  #assigned = new Map<string, Set<string>>(); // by unit
  requests: SeenRequest[] = [];
  /** What events count as, each once: by id. */
  counted = new Map<string, SentEvent>();
  /** How often events came, repeated ones too. */
  received = 0;
  /** Names of events that are refused. */
  refused: string[] = [];
  /** The type of the problem that one of two experiments has with events of a name, for good. */
  partly: Record<string, string> = {};
  /** The status of the problem that one of two experiments has with events of a name, for now. */
  problems: Record<string, number> = {};
  /** Most events in all; further ones are too many for now. */
  rate = Infinity;
  #server: Server | undefined;
  #port = 0;

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get paths(): string[] {
    return this.requests.map((request) => request.path);
  }

  async start(): Promise<this> {
    this.#server = createServer((request, response) => void this.#answer(request, response));
    await new Promise<void>((resolve) => this.#server!.listen(this.#port, "127.0.0.1", resolve));
    this.#port = (this.#server.address() as AddressInfo).port;
    return this;
  }

  /** Nobody listens any more; `start` comes back on the same port. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const body = JSON.parse(Buffer.concat(parts).toString());
    this.requests.push({ path: request.url!, headers: request.headers, body });
    const mode = this.script.shift() ?? this.mode;
    if (mode === "drop") return void request.socket.destroy();
    if (typeof mode === "object") {
      await new Promise((resolve) => setTimeout(resolve, mode.after).unref()); // it keeps no test from ending
    }
    const [status, answer] = typeof mode === "number" ? [mode, {}] : this.#good(request.url!, body);
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    if (this.retryAfter !== undefined) headers["Retry-After"] = this.retryAfter;
    response.writeHead(status, headers).end(JSON.stringify(answer));
  }

  #good(path: string, body: any): [number, object] {
    const unit = body.context?.targetingKey;
    if (path === "/ofrep/v1/evaluate/flags") {
      const keys = new Set([...this.bulk, ...(this.#assigned.get(unit) ?? [])]);
      const flags = [...keys].map((key) => ({ key, ...this.flags[key]!(unit, body.context) }));
      return [200, { flags }];
    }
    if (path.startsWith("/ofrep/v1/evaluate/flags/")) {
      const key = decodeURIComponent(path.slice("/ofrep/v1/evaluate/flags/".length));
      const flag = this.flags[key];
      if (flag === undefined) {
        return [404, { key, errorCode: "FLAG_NOT_FOUND", errorDetails: `there is no experiment ${key}.` }];
      }
      this.#assigned.set(unit, (this.#assigned.get(unit) ?? new Set()).add(key));
      return [200, { key, ...flag(unit, body.context) }];
    }
    if (path === "/v1/events:batch") {
      if (this.received + body.events.length > this.rate) return [429, { detail: "too many for now." }];
      return [200, { events: body.events.map((event: SentEvent) => this.#count(event)) }];
    }
    return [404, { detail: "no such route." }];
  }

  #count(event: SentEvent): object {
    this.received += 1;
    if (this.refused.includes(event.event)) {
      return { error: { type: "event-not-counted", status: 422, detail: `${event.event} is refused.` } };
    }
    const reason = this.partly[event.event];
    if (reason !== undefined) {
      const error = { type: reason, status: 409, detail: `${event.event} does not count here.` };
      return { experiments: [{ name: "other", status: "stored" }, { name: "shop", error }] };
    }
    const problem = this.problems[event.event];
    if (problem !== undefined) {
      const error = { status: problem, detail: `${event.event} cannot be stored.` };
      return { experiments: [{ name: "other", status: "stored" }, { name: "shop", error }] };
    }
    const status = this.counted.has(event.id) ? "repeated" : "stored";
    this.counted.set(event.id, event);
    return { experiments: [{ name: "shop", status }] };
  }
}

/** Messages that were logged. */
export class TestLog {
  warnings: string[] = [];

  warn(...words: unknown[]): void {
    this.warnings.push(words.join(" "));
  }
}

/** `localStorage` without a browser: its entries are its properties. */
export class TestStorage {
  static full = false;
  [key: string]: any;

  getItem(key: string): string | null {
    return this[key] ?? null;
  }

  setItem(key: string, value: string): void {
    if (TestStorage.full) throw new Error("QuotaExceededError");
    this[key] = value;
  }

  removeItem(key: string): void {
    delete this[key];
  }
}

/** Waits until that is so, for at most 20 seconds. */
export async function until(condition: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`it never came true: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
