import assert from "node:assert/strict";
import { afterEach, beforeEach, describe, it } from "node:test";

import { OpenFeature, type Client } from "@openfeature/server-sdk";
import { SteadyArmProvider, type SteadyArmOptions } from "@steadyarm/openfeature/server";

import { TestLog, TestService } from "./service.js";

const ANNA = { targetingKey: "anna" };
let service: TestService;
let log: TestLog;

beforeEach(async () => {
  service = await new TestService().start();
  log = new TestLog();
});

afterEach(async () => {
  await OpenFeature.clearProviders();
  await service.stop();
});

async function clientOf(options: Partial<SteadyArmOptions> = {}): Promise<Client> {
  const provider = new SteadyArmProvider({ url: service.url, timeout: 20_000, logger: log, ...options });
  await OpenFeature.setProviderAndWait(provider);
  return OpenFeature.getClient();
}

describe("an evaluation", () => {
  it("gives value, variant, reason and metadata of the service", async () => {
    const client = await clientOf({ url: `${service.url}/v1/`, token: "sa_secret" });
    const details = await client.getStringDetails("shop", "blue", { ...ANNA, device: "mobile" });
    assert.deepEqual([details.value, details.variant, details.reason], ["red", "A", "SPLIT"]);
    assert.equal(details.flagMetadata["assignmentId"], "id of anna");
    const [request] = service.requests;
    assert.equal(request!.path, "/ofrep/v1/evaluate/flags/shop");
    assert.equal(request!.headers.authorization, "Bearer sa_secret");
    assert.deepEqual(request!.body, { context: { targetingKey: "anna", device: "mobile" } });
  });

  it("gives values of every type, to whoever asks for that type", async () => {
    const client = await clientOf();
    for (const value of [true, 9.5, { headline: "long" }]) {
      service.flags["shop"] = () => ({ value, variant: "A", reason: "SPLIT" });
      assert.equal((await client.getStringDetails("shop", "blue", ANNA)).errorCode, "TYPE_MISMATCH");
      const found =
        typeof value === "boolean"
          ? await client.getBooleanValue("shop", false, ANNA)
          : typeof value === "number"
            ? await client.getNumberValue("shop", -1, ANNA)
            : await client.getObjectValue("shop", {}, ANNA);
      assert.deepEqual(found, value);
    }
  });

  it("gives the default, and no error, where the service has no value", async () => {
    service.flags["shop"] = () => ({ reason: "DISABLED", variant: "" });
    const details = await (await clientOf()).getStringDetails("shop", "blue", ANNA);
    assert.deepEqual([details.value, details.reason, details.errorCode], ["blue", "DISABLED", undefined]);
  });

  it("of an unknown experiment says so, in the service's words", async () => {
    const details = await (await clientOf()).getStringDetails("no/such", "blue", ANNA);
    assert.deepEqual([details.value, details.errorCode], ["blue", "FLAG_NOT_FOUND"]);
    assert.deepEqual(service.paths, ["/ofrep/v1/evaluate/flags/no%2Fsuch"]);
    assert.match(log.warnings.join(), /no variant of no\/such: there is no experiment no\/such/);
  });
});

describe("when the service fails", () => {
  for (const mode of ["drop", 502, 503, 504] as const) {
    it(`${mode} is tried once more`, async () => {
      service.script = [mode];
      const client = await clientOf();
      assert.equal(await client.getStringValue("shop", "blue", ANNA), "red", log.warnings.join());
      assert.equal(service.requests.length, 2);
    });
  }

  for (const status of [302, 400, 401, 403, 429, 500]) {
    it(`${status} is not tried again, and gives the default`, async () => {
      service.mode = status;
      const details = await (await clientOf()).getStringDetails("shop", "blue", ANNA);
      assert.deepEqual([details.value, details.reason], ["blue", "ERROR"]);
      assert.ok(service.requests.length <= 2);
    });
  }

  it("nobody waits longer than the timeout, and then nobody waits at all", async () => {
    service.mode = { after: 60_000 };
    const client = await clientOf({ timeout: 200, cooldown: 300 });
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "blue");
    const before = Date.now();
    for (let k = 0; k < 20; k++) assert.equal(await client.getStringValue("shop", "blue", { targetingKey: `u${k}` }), "blue");
    assert.ok(Date.now() - before < 150);
    assert.equal(service.requests.length, 2);
    assert.match(log.warnings.join(), /did not answer within/);
    assert.equal(log.warnings.length, 1); // of a kind, within a minute
    service.mode = "drop";
    await new Promise((resolve) => setTimeout(resolve, 400));
    await Promise.all([1, 2, 3].map(() => client.getStringValue("shop", "blue", ANNA)));
    assert.equal(service.requests.length, 4); // one of them tried
    service.mode = "well";
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "red");
  });

  it("a service that is down when the program starts does not stop it", async () => {
    await service.stop();
    const client = await clientOf();
    assert.equal(client.providerStatus, "READY");
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "blue");
  });
});

it("options that make no sense are refused", () => {
  for (const [options, reason] of [
    [{ url: "tests.example" }, /url is tests\.example; expected the address/],
    [{ url: "ftp://tests.example" }, /url is ftp/],
    [{ timeout: 0 }, /timeout is 0; expected a number above 0/],
    [{ cooldown: -1 }, /cooldown is -1/],
    [{ bufferLimit: Number.NaN }, /bufferLimit is NaN/],
  ] as const) {
    assert.throws(() => new SteadyArmProvider({ url: service.url, ...options }), reason);
  }
});
