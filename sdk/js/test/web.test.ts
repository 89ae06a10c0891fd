import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "node:test";

import { OpenFeature, ProviderEvents, type Client, type EvaluationContext } from "@openfeature/web-sdk";
import { SteadyArmWebProvider, visitorId, type SteadyArmWebOptions } from "@steadyarm/openfeature/web";

import { TestLog, TestService, TestStorage, until } from "./service.js";

const ANNA = { targetingKey: "anna" };
let service: TestService;
let log: TestLog;
let storage: TestStorage;
let provider: SteadyArmWebProvider;

beforeEach(async () => {
  service = await new TestService().start();
  service.flags["price"] = (unit) => ({ value: unit.length, variant: unit, reason: "SPLIT" });
  log = new TestLog();
  storage = new TestStorage();
  TestStorage.full = false;
  Object.defineProperty(globalThis, "localStorage", { value: storage, configurable: true });
});

afterEach(async () => {
  await OpenFeature.clearProviders();
  OpenFeature.clearHandlers();
  await service.stop();
});

/** What a page does when it is loaded. */
async function page(options: Partial<SteadyArmWebOptions> = {}, context: EvaluationContext = ANNA): Promise<Client> {
  provider = new SteadyArmWebProvider({
    url: service.url,
    timeout: 20_000,
    logger: log,
    flags: ["shop"],
    ...options,
  });
  await OpenFeature.setProviderAndWait(provider, context);
  return OpenFeature.getClient();
}

describe("a page", () => {
  it("is assigned in declared experiments, and gets what else is known of it", async () => {
    service.bulk = ["price"];
    const client = await page({ key: "pk_web" });
    assert.deepEqual(service.paths, ["/ofrep/v1/evaluate/flags/shop", "/ofrep/v1/evaluate/flags"]);
    assert.equal(service.requests[0]!.headers.authorization, "Bearer pk_web");
    const details = client.getStringDetails("shop", "blue");
    assert.equal(details.value, "red");
    assert.equal(details.variant, "A");
    assert.equal(details.reason, "SPLIT");
    assert.equal(details.flagMetadata["assignmentId"], "id of anna");
    assert.equal(client.getNumberValue("price", -1), 4);
    assert.equal(client.getNumberDetails("shop", -1).errorCode, "TYPE_MISMATCH");
    assert.equal(client.getBooleanValue("shop", true), true);
    assert.deepEqual(client.getObjectValue("shop", { a: 1 }), { a: 1 });
  });

  it("may load a flag when it is about to be shown", async () => {
    const client = await page();
    const changed: unknown[] = [];
    client.addHandler(ProviderEvents.ConfigurationChanged, (event) => changed.push(event?.flagsChanged));
    await provider.load("price");
    assert.equal(client.getNumberValue("price", -1), 4);
    assert.equal(client.getStringValue("shop", "blue"), "red");
    await until(() => changed.length === 1);
    assert.deepEqual(changed, [["price"]]);
    await OpenFeature.setContext({ targetingKey: "bob" });
    assert.equal(client.getNumberValue("price", -1), 3);
  });

  it("of nobody in particular shows defaults, and asks for nothing", async () => {
    const client = await page({}, {});
    const details = client.getStringDetails("shop", "blue");
    assert.equal(details.value, "blue");
    assert.match(log.warnings.join(), /the context has no targetingKey/);
    assert.equal(service.requests.length, 0);
  });

  it("never shows a visitor what another one was assigned", async () => {
    service.flags["shop"] = (unit) => ({ value: `page of ${unit}`, variant: unit, reason: "SPLIT" });
    const client = await page();
    service.mode = "drop";
    await OpenFeature.setContext({ targetingKey: "bob" });
    assert.equal(client.getStringValue("shop", "default"), "default");
  });

  it("is not confused by answers that come late, to an earlier context", async () => {
    service.flags["shop"] = (unit) => ({ value: `page of ${unit}`, variant: unit, reason: "SPLIT" });
    const client = await page();
    service.script = [{ after: 200 }];
    const slow = OpenFeature.setContext({ targetingKey: "bob" });
    await until(() => service.requests.length === 3);
    const quick = OpenFeature.setContext({ targetingKey: "carla" });
    await Promise.all([slow, quick]);
    assert.equal(client.getStringValue("shop", ""), "page of carla");
  });

  it("shows the default, without an error, where the service has no value", async () => {
    service.flags["shop"] = () => ({ reason: "DISABLED", variant: "" });
    const client = await page();
    const details = client.getStringDetails("shop", "blue");
    assert.equal(details.value, "blue");
    assert.equal(details.errorCode, undefined);
    assert.equal(client.providerStatus, "READY");
  });
});

describe("when the service fails, a page", () => {
  for (const mode of ["drop", 401, 403, 429, 500, { after: 60_000 }] as const) {
    it(`is loaded with defaults: ${JSON.stringify(mode)}`, async () => {
      service.mode = mode;
      const client = await page({ timeout: 300 });
      const details = client.getStringDetails("shop", "blue");
      assert.equal(details.value, "blue");
      assert.ok(details.errorCode);
      await until(() => client.providerStatus === "ERROR"); // for programs that want to know
      assert.equal(client.getStringValue("shop", "blue"), "blue");
    });
  }

  it("knows an unknown experiment from a service that is down", async () => {
    const client = await page({ flags: ["shop", "nosuch"] });
    assert.equal(client.getStringDetails("nosuch", "blue").errorCode, "FLAG_NOT_FOUND");
    assert.equal(client.getStringValue("shop", "blue"), "red");
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(client.providerStatus, "READY");
    assert.match(log.warnings.join(), /no variant of nosuch: there is no experiment nosuch/);
  });

  it("shows this visitor what earlier pages showed, and another one defaults", async () => {
    service.bulk = ["price"];
    await page();
    service.mode = "drop";
    const client = await page({ timeout: 300 });
    assert.equal(client.getStringDetails("shop", "blue").value, "red");
    assert.equal(client.getStringDetails("shop", "blue").reason, "CACHED");
    assert.equal(client.getNumberDetails("price", -1).reason, "CACHED");
    const other = await page({ timeout: 300 }, { targetingKey: "bob" });
    assert.equal(other.getStringValue("shop", "blue"), "blue");
    assert.equal(other.getNumberValue("price", -1), -1);
  });

  it("works with a store that is full, or has something else in it", async () => {
    TestStorage.full = true;
    assert.equal((await page()).getStringValue("shop", "blue"), "red");
    TestStorage.full = false;
    storage.setItem(`steadyarm:${service.url}:event:x`, "{nonsense");
    assert.equal((await page()).getStringValue("shop", "blue"), "red");
    assert.equal(provider.counts.pending, 0);
  });
});

describe("events of a page", () => {
  it("are those of the visitor, and reach the service by themselves", async () => {
    const client = await page();
    client.track("click");
    client.track("purchase", { value: 20, id: "order 17" });
    await until(() => service.counted.size === 2);
    const [click, purchase] = service.counted.values();
    assert.deepEqual([click!.unit, click!.event, click!.value], ["anna", "click", 1]);
    assert.deepEqual([purchase!.id, purchase!.value], ["order 17", 20]);
    await until(() => provider.counts.delivered === 2);
    assert.deepEqual(Object.keys(storage).filter((key) => key.includes(":event:")), []);
  });

  it("of two tabs do not overwrite each other, and count once", async () => {
    service.mode = 503;
    const tabs = [1, 2].map(() => new SteadyArmWebProvider({ url: service.url, logger: log }));
    for (const [k, tab] of tabs.entries()) tab.track(`click in tab ${k}`, ANNA);
    const third = new SteadyArmWebProvider({ url: service.url, logger: log });
    assert.equal(third.counts.pending, 2);
    service.mode = "well";
    await Promise.all([...tabs, third].map((tab) => tab.flush()));
    assert.equal(service.counted.size, 2);
    assert.equal(service.received, 4);
    assert.deepEqual(Object.keys(storage), []);
  });

  it("are bounded, in the store too", async () => {
    service.mode = "drop";
    await page({ bufferLimit: 5, timeout: 300 });
    for (let k = 0; k < 12; k++) provider.track("click", ANNA);
    assert.deepEqual(provider.counts, { pending: 5, delivered: 0, rejected: 0, dropped: 7 });
    assert.equal(Object.keys(storage).filter((key) => key.includes(":event:")).length, 5);
  });

  it("are kept in memory if the store is full", async () => {
    const client = await page();
    TestStorage.full = true;
    client.track("click");
    await until(() => service.counted.size === 1);
    assert.match(log.warnings.join(), /kept in memory only/);
  });
});

describe("proof of the visitor", () => {
  it("goes with evaluations and events", async () => {
    const client = await page({ unitToken: "v1.anna" });
    client.track("click");
    await until(() => service.counted.size === 1);
    assert.deepEqual(
      service.requests.map((request) => request.headers["x-steadyarm-unit"]),
      ["v1.anna", "v1.anna", "v1.anna"],
    );
    assert.equal("unitToken" in service.requests.at(-1)!.body.events[0], false);
  });

  it("is asked for anew for another visitor, and events keep theirs", async () => {
    const client = await page({ unitToken: async (unit) => `v1.${unit}` });
    service.mode = "drop";
    client.track("click");
    await provider.flush();
    service.mode = "well";
    service.requests = [];
    await OpenFeature.setContext({ targetingKey: "bob" });
    client.track("click");
    await provider.flush();
    await until(() => service.counted.size === 2);
    for (const { headers, body } of service.requests.filter((request) => request.path.startsWith("/v1"))) {
      for (const event of body.events) assert.equal(headers["x-steadyarm-unit"], `v1.${event.unit}`);
    }
  });

  it("that cannot be had does not stop the page", async () => {
    const client = await page({ unitToken: () => Promise.reject(new Error("signed out")) });
    assert.equal(client.getStringValue("shop", "blue"), "red"); // this service demands none
    assert.match(log.warnings.join(), /there is no unitToken: Error: signed out/);
  });

  it("for one visitor that is refused does not hold up events of others", async () => {
    const client = await page({ unitToken: async (unit) => `v1.${unit}` });
    service.mode = 403;
    client.track("click");
    await provider.flush();
    await OpenFeature.setContext({ targetingKey: "bob" });
    client.track("click");
    service.mode = "well";
    service.script = [403];
    await provider.flush();
    assert.deepEqual([...service.counted.values()].map((event) => event.unit), ["bob"]);
    assert.equal(provider.counts.pending, 1);
  });
});

describe("keys and ids", () => {
  it("a secret token is refused, as every visitor could read it", () => {
    assert.throws(() => new SteadyArmWebProvider({ url: service.url, key: "sa_secret" }), /every visitor/);
  });

  it("a visitor keeps the id", () => {
    const id = visitorId();
    assert.match(id, /^[0-9a-f]{32}$/);
    assert.equal(storage.getItem("steadyarm:visitor"), id);
    TestStorage.full = true;
    assert.equal(visitorId(), id);
  });
});
