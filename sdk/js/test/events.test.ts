import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";

import { OpenFeature } from "@openfeature/server-sdk";
import { SteadyArmProvider, type SteadyArmOptions } from "@steadyarm/openfeature/server";

import { TestLog, TestService, until } from "./service.js";

const ANNA = { targetingKey: "anna" };
let service: TestService;
let log: TestLog;
let folder: string;
let opened: SteadyArmProvider[];

beforeEach(async () => {
  service = await new TestService().start();
  log = new TestLog();
  folder = mkdtempSync(join(tmpdir(), "steadyarm-"));
  opened = [];
});

afterEach(async () => {
  for (const provider of opened) await provider.onClose();
  await service.stop();
  rmSync(folder, { recursive: true });
});

function provider(options: Partial<SteadyArmOptions> = {}): SteadyArmProvider {
  opened.push(new SteadyArmProvider({ url: service.url, logger: log, ...options }));
  return opened.at(-1)!;
}

function sent(): string[] {
  return [...service.counted.values()].map((event) => event.event);
}

describe("an event", () => {
  it("reaches the service by itself, through OpenFeature's client", async () => {
    await OpenFeature.setProviderAndWait(provider({ token: "sa_secret" }));
    const before = Date.now();
    OpenFeature.getClient().track("purchase", ANNA, { value: 20, currency: "EUR" });
    await until(() => service.counted.size === 1);
    const [event] = service.counted.values();
    assert.deepEqual(
      { ...event, id: "", at: "" },
      { id: "", at: "", unit: "anna", event: "purchase", value: 20 },
    );
    assert.match(event!.id, /^[0-9a-f]{32}$/);
    assert.ok(Date.parse(event!.at) >= before && Date.parse(event!.at) <= Date.now());
    assert.ok(Date.parse(service.requests[0]!.body.sent) >= before);
    assert.equal(service.requests[0]!.headers.authorization, "Bearer sa_secret");
    await OpenFeature.clearProviders();
  });

  it("may have the id and the time that the program knows it by", async () => {
    const one = provider();
    const at = new Date("2025-01-31T12:00:00Z");
    one.track("purchase", ANNA, { value: 20, id: "order 17", at });
    one.track("purchase", ANNA, { value: 20, id: "order 17", at });
    one.track("refund", ANNA, { value: 0, id: 18 });
    await one.flush();
    assert.deepEqual([...service.counted.keys()], ["order 17", "18"]);
    assert.equal(service.counted.get("18")!.value, 0);
    assert.equal(service.counted.get("order 17")!.at, at.toISOString());
  });

  it("of nobody, without a number or without a time is not sent, and a warning says so", async () => {
    const one = provider();
    one.track("nobody's", {});
    one.track("nothing", ANNA, { value: Number.NaN });
    one.track("never", ANNA, { at: "yesterday" });
    await one.flush();
    assert.equal(service.requests.length, 0);
    assert.match(log.warnings.join(), /nobody's is not reported: the context has no targetingKey/);
  });

  it("that is refused is not sent again, and each reason is shown once", async () => {
    service.refused = ["bad", "worse"];
    const one = provider();
    for (const name of ["bad", "worse", "bad", "bad"]) one.track(name, ANNA);
    await one.flush();
    await one.flush();
    assert.equal(service.received, 4);
    assert.deepEqual(one.counts, { pending: 0, delivered: 0, rejected: 4, dropped: 0 });
    assert.deepEqual(log.warnings, [
      "SteadyArm: the event bad is refused: bad is refused.",
      "SteadyArm: the event worse is refused: worse is refused.",
    ]);
  });

  it("counts if one experiment counts it, and a warning says why others do not", async () => {
    service.partly = { conflict: "reward-conflict" };
    const one = provider();
    for (const _ of [1, 2]) one.track("conflict", ANNA);
    await one.flush();
    assert.deepEqual(one.counts, { pending: 0, delivered: 2, rejected: 0, dropped: 0 });
    assert.deepEqual(log.warnings, ["SteadyArm: the event conflict does not count everywhere: conflict does not count here."]);
  });

  it("that one experiment cannot store now is sent again", async () => {
    service.problems = { click: 503 };
    const one = provider();
    one.track("click", ANNA);
    one.track("other", ANNA);
    await one.flush();
    assert.deepEqual(one.counts, { pending: 1, delivered: 1, rejected: 0, dropped: 0 });
    service.problems = {};
    await until(() => one.counts.delivered === 2);
  });
});

describe("when the service fails", () => {
  for (const mode of ["drop", 401, 429, 503] as const) {
    it(`${mode}: events wait and are sent later by themselves`, async () => {
      service.mode = mode;
      const one = provider();
      one.track("click", ANNA);
      await one.flush();
      assert.equal(one.counts.pending, 1);
      service.mode = "well";
      await until(() => one.counts.delivered === 1);
      assert.deepEqual(sent(), ["click"]);
    });
  }

  it("an evaluation that works again sends them at once", async () => {
    const one = provider({ cooldown: 1 });
    service.mode = "drop";
    one.track("click", ANNA);
    for (let k = 0; k < 6; k++) await one.flush(); // the next try is far away
    await assert.rejects(one.resolveStringEvaluation("shop", "blue", ANNA));
    service.mode = "well";
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal((await one.resolveStringEvaluation("shop", "blue", ANNA)).value, "red");
    await until(() => one.counts.delivered === 1);
  });

  it("an event whose answer was lost is sent again, with the same id, and counts once", async () => {
    service.mode = { after: 300 };
    const one = provider();
    one.track("click", ANNA);
    const flushed = one.flush();
    await until(() => service.requests.length === 1);
    await service.stop(); // it has the event, and nobody hears of it
    await flushed;
    assert.equal(one.counts.pending, 1);
    await until(() => service.counted.size === 1);
    service.mode = "well";
    await service.start();
    await until(() => one.counts.delivered === 1);
    assert.equal(service.received, 2);
    assert.equal(service.counted.size, 1);
  });

  it("lets only so many events through: smaller requests pass", async () => {
    const one = provider();
    for (let k = 0; k < 100; k++) one.track("click", ANNA);
    service.rate = 60;
    await one.flush();
    assert.equal(service.received, 0);
    await until(() => service.received >= 50);
    service.rate = Infinity;
    await until(() => one.counts.delivered === 100);
  });

  it("Retry-After is obeyed", async () => {
    service.mode = 429;
    service.retryAfter = "30";
    const one = provider();
    one.track("click", ANNA);
    await one.flush();
    one.track("click", ANNA);
    await new Promise((resolve) => setTimeout(resolve, 2500));
    assert.equal(service.requests.length, 1);
    assert.equal(one.counts.pending, 2);
  });

  it("too many wait: the oldest are dropped, and a warning says so", async () => {
    service.mode = "drop";
    const one = provider({ bufferLimit: 3 });
    for (const name of ["one", "two", "three", "four", "five"]) one.track(name, ANNA);
    assert.deepEqual(one.counts, { pending: 3, delivered: 0, rejected: 0, dropped: 2 });
    assert.match(log.warnings.join(), /dropped/);
    service.mode = "well";
    await one.flush();
    assert.deepEqual(sent(), ["three", "four", "five"]);
  });
});

it("closing sends what waits, or says what is lost", async () => {
  const one = provider();
  one.track("click", ANNA);
  await one.onClose();
  assert.deepEqual(sent(), ["click"]);
  service.mode = "drop";
  const other = provider();
  other.track("click", ANNA);
  await other.onClose();
  assert.match(log.warnings.join(), /1 events were not delivered, and are lost/);
});

describe("a buffer in a file", () => {
  it("keeps events for the next process, each counted once", async () => {
    const buffer = join(folder, "events.jsonl");
    service.mode = "drop";
    const one = provider({ buffer });
    for (const name of ["click", "purchase"]) one.track(name, ANNA);
    // The process is killed here: nothing is closed.
    service.mode = "well";
    const next = provider({ buffer });
    assert.equal(next.counts.pending, 2);
    await next.flush();
    assert.deepEqual(sent(), ["click", "purchase"]);
    await next.onClose();
    assert.equal(readFileSync(buffer, "utf8"), "");
    assert.equal(provider({ buffer }).counts.pending, 0);
  });

  it("is whole after a crash in the middle of a line", async () => {
    const buffer = join(folder, "events.jsonl");
    service.mode = "drop";
    provider({ buffer }).track("click", ANNA);
    appendFileSync(buffer, '{"id":"half');
    const next = provider({ buffer });
    assert.equal(next.counts.pending, 1);
    next.track("purchase", ANNA);
    assert.equal(provider({ buffer }).counts.pending, 2);
  });

  it("with other lines is set aside", () => {
    const buffer = join(folder, "notes.txt");
    writeFileSync(buffer, "my notes\n");
    assert.equal(provider({ buffer }).counts.pending, 0);
    const [aside] = readdirSync(folder).filter((name) => name.includes("damaged"));
    assert.equal(readFileSync(join(folder, aside!), "utf8"), "my notes\n");
  });

  it("that cannot be written does not stop the program", async () => {
    const one = provider({ buffer: join(folder, "no", "such", "folder") });
    one.track("click", ANNA);
    await one.flush();
    assert.deepEqual(sent(), ["click"]);
    assert.match(log.warnings.join(), /kept in memory only: Error: ENOENT/);
  });
});
