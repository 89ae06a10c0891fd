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
  const provider = new SteadyArmProvider({ url: service.url, logger: log, ...options });
  await OpenFeature.setProviderAndWait(provider);
  return OpenFeature.getClient();
}

describe("an evaluation", () => {
  it("gives value, variant, reason and metadata of the service", async () => {
    const client = await clientOf({ token: "sa_secret" });
    const details = await client.getStringDetails("shop", "blue", { ...ANNA, device: "mobile" });
    assert.equal(details.value, "red");
    assert.equal(details.variant, "A");
    assert.equal(details.reason, "SPLIT");
    assert.deepEqual(details.flagMetadata, {
      assignmentId: "id of anna",
      probability: 0.5,
      inTest: true,
      experiment: "shop",
    });
    const [request] = service.requests;
    assert.equal(request!.path, "/ofrep/v1/evaluate/flags/shop");
    assert.equal(request!.headers.authorization, "Bearer sa_secret");
    assert.deepEqual(request!.body, { context: { targetingKey: "anna", device: "mobile" } });
  });

  it("sends no Authorization without a token, and keeps a path of the address", async () => {
    const client = await clientOf({ url: `${service.url}/ab/` });
    await client.getStringValue("shop", "blue", ANNA);
    assert.equal(service.requests[0]!.headers.authorization, undefined);
    assert.deepEqual(service.paths, ["/ab/ofrep/v1/evaluate/flags/shop"]);
  });

  for (const [value, kind] of [
    [true, "Boolean"],
    ["red", "String"],
    [9.5, "Number"],
    [{ headline: "long", image: "dog" }, "Object"],
    [["a", "b"], "Object"],
  ] as const) {
    it(`gives ${JSON.stringify(value)} to whoever asks for it as ${kind}, and to nobody else`, async () => {
      service.flags["shop"] = () => ({ value, variant: "A", reason: "SPLIT" });
      const client = await clientOf();
      const all = {
        Boolean: await client.getBooleanDetails("shop", false, ANNA),
        String: await client.getStringDetails("shop", "default", ANNA),
        Number: await client.getNumberDetails("shop", -1, ANNA),
        Object: await client.getObjectDetails("shop", { default: 1 }, ANNA),
      };
      const defaults = { Boolean: false, String: "default", Number: -1, Object: { default: 1 } };
      for (const name of ["Boolean", "String", "Number", "Object"] as const) {
        assert.deepEqual(all[name].value, name === kind ? value : defaults[name]);
        assert.equal(all[name].errorCode, name === kind ? undefined : "TYPE_MISMATCH");
      }
    });
  }

  it("gives the default, and no error, where the service has no value", async () => {
    service.flags["shop"] = () => ({ reason: "DISABLED" });
    const details = await (await clientOf()).getStringDetails("shop", "blue", ANNA);
    assert.equal(details.value, "blue");
    assert.equal(details.reason, "DISABLED");
    assert.equal(details.errorCode, undefined);
  });

  it("of no unit is an error without a request", async () => {
    const details = await (await clientOf()).getStringDetails("shop", "blue", {});
    assert.equal(details.value, "blue");
    assert.equal(details.errorCode, "TARGETING_KEY_MISSING");
    assert.equal(service.requests.length, 0);
  });

  it("of an unknown experiment says so, in the service's words", async () => {
    const details = await (await clientOf()).getStringDetails("no/such", "blue", ANNA);
    assert.equal(details.value, "blue");
    assert.equal(details.errorCode, "FLAG_NOT_FOUND");
    assert.match(details.errorMessage!, /there is no experiment no\/such/);
    assert.deepEqual(service.paths, ["/ofrep/v1/evaluate/flags/no%2Fsuch"]);
    assert.match(log.warnings.join(), /no variant of no\/such/);
  });

  it("by another program on that port is an error that says so", async () => {
    service.mode = 200;
    const details = await (await clientOf()).getStringDetails("shop", "blue", ANNA);
    assert.equal(details.value, "blue");
    assert.equal(details.errorCode, "PARSE_ERROR");
    assert.match(details.errorMessage!, /is the url right/);
  });
});

describe("when the service fails", () => {
  it("a lost connection is tried once more", async () => {
    service.script = ["drop"];
    const client = await clientOf();
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "red");
    assert.equal(service.requests.length, 2);
    assert.deepEqual(log.warnings, []);
  });

  for (const status of [429, 502, 503, 504]) {
    it(`${status} is tried once more`, async () => {
      service.script = [status];
      const client = await clientOf();
      assert.equal(await client.getStringValue("shop", "blue", ANNA), "red");
      assert.equal(service.requests.length, 2);
    });
  }

  for (const status of [400, 401, 403, 500]) {
    it(`${status} is not tried again, and gives the default`, async () => {
      service.mode = status;
      const details = await (await clientOf()).getStringDetails("shop", "blue", ANNA);
      assert.equal(details.value, "blue");
      assert.equal(details.reason, "ERROR");
      assert.equal(details.errorCode, "GENERAL");
      assert.equal(service.requests.length, 1);
    });
  }

  it("nobody waits longer than the timeout, and then nobody waits at all", async () => {
    service.mode = { after: 60_000 };
    const client = await clientOf({ timeout: 200 });
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "blue");
    const tries = service.requests.length;
    assert.equal(tries, 2);
    for (let k = 0; k < 20; k++) {
      assert.equal(await client.getStringValue("shop", "blue", { targetingKey: `unit ${k}` }), "blue");
    }
    assert.equal(service.requests.length, tries);
    assert.match(log.warnings.join(), /did not answer within/);
    assert.equal(log.warnings.length, 1); // of a kind, within a minute
  });

  it("after the cooldown one evaluation tries, and all is well if it works", async () => {
    const client = await clientOf({ cooldown: 300, retries: 0 });
    service.mode = "drop";
    await client.getStringValue("shop", "blue", ANNA);
    assert.equal(service.requests.length, 1);
    await new Promise((resolve) => setTimeout(resolve, 400));
    const values = await Promise.all([1, 2, 3].map(() => client.getStringValue("shop", "blue", ANNA)));
    assert.deepEqual(values, ["blue", "blue", "blue"]);
    assert.equal(service.requests.length, 2);
    service.mode = "well";
    await new Promise((resolve) => setTimeout(resolve, 400));
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "red");
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "red");
  });

  it("Retry-After is obeyed: neither a second try nor another evaluation comes earlier", async () => {
    service.mode = 429;
    service.retryAfter = "30";
    const client = await clientOf({ cooldown: 1 });
    await client.getStringValue("shop", "blue", ANNA);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await client.getStringValue("shop", "blue", ANNA);
    assert.equal(service.requests.length, 1);
  });

  it("units that were answered keep their variant, others get the default", async () => {
    const client = await clientOf({ retries: 0 });
    await client.getStringValue("shop", "blue", ANNA);
    await service.stop();
    const known = await client.getStringDetails("shop", "blue", ANNA);
    assert.equal(known.value, "red");
    assert.equal(known.reason, "STALE");
    assert.equal(known.variant, "A");
    const other = await client.getStringDetails("shop", "blue", { targetingKey: "bob" });
    assert.equal(other.value, "blue");
    assert.equal(other.errorCode, "GENERAL");
    assert.match(other.errorMessage!, /cannot be reached/);
  });

  it("as many answers are remembered as was asked for", async () => {
    const client = await clientOf({ retries: 0, remember: 2 });
    for (const unit of ["a", "b", "a", "c"]) await client.getStringValue("shop", "blue", { targetingKey: unit });
    await service.stop();
    const reasons = await Promise.all(
      ["a", "b", "c"].map(async (unit) => (await client.getStringDetails("shop", "blue", { targetingKey: unit })).reason),
    );
    assert.deepEqual(reasons, ["STALE", "ERROR", "STALE"]);
  });

  it("a restart on the same port goes unnoticed after the cooldown", async () => {
    const client = await clientOf({ cooldown: 50 });
    await client.getStringValue("shop", "blue", ANNA);
    await service.stop();
    assert.equal(await client.getStringValue("shop", "blue", { targetingKey: "bob" }), "blue");
    await service.start();
    await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(await client.getStringValue("shop", "blue", { targetingKey: "bob" }), "red");
  });

  it("a service that is down when the program starts does not stop it", async () => {
    await service.stop();
    const client = await clientOf({ url: service.url });
    assert.equal(client.providerStatus, "READY");
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "blue");
  });

  it("redirects are not followed, as they would carry the token elsewhere", async () => {
    service.mode = 302;
    const client = await clientOf({ token: "sa_secret" });
    assert.equal(await client.getStringValue("shop", "blue", ANNA), "blue");
  });
});

describe("options", () => {
  for (const [options, reason] of [
    [{ url: "tests.example" }, /url is tests\.example; expected the address/],
    [{ url: "ftp://tests.example" }, /url is ftp/],
    [{ timeout: 0 }, /timeout is 0; expected a number above 0/],
    [{ timeout: Number.NaN }, /timeout is NaN/],
    [{ cooldown: -1 }, /cooldown is -1/],
    [{ retries: 1.5 }, /retries is 1\.5; expected a whole number/],
    [{ remember: -1 }, /remember is -1/],
    [{ bufferLimit: 0 }, /bufferLimit is 0/],
  ] as const) {
    it(`refuse ${JSON.stringify(options)}`, () => {
      assert.throws(() => new SteadyArmProvider({ url: service.url, ...options }), reason);
    });
  }
});
