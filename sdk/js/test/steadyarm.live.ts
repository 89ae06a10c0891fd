/** Our provider for servers against the service at STEADYARM_URL. */

import assert from "node:assert/strict";
import { afterEach, before, it } from "node:test";

import { OpenFeature, type Client } from "@openfeature/server-sdk";
import { SteadyArmProvider } from "@steadyarm/openfeature/server";

const url = process.env["STEADYARM_URL"]!;
const token = process.env["STEADYARM_TOKEN"]!;
let provider: SteadyArmProvider;
let client: Client;
const warnings: string[] = [];

before(async () => {
  // Other tests keep the machine busy.
  const logger = { warn: (message: unknown) => warnings.push(String(message)) };
  provider = new SteadyArmProvider({ url, token, timeout: 20_000, logger });
  await OpenFeature.setProviderAndWait(provider);
  client = OpenFeature.getClient();
});

afterEach(() => assert.deepEqual(warnings.splice(0), []));

it("units get variants and keep them, and their events are rewards", async () => {
  for (let k = 100; k < 160; k++) {
    const context = { targetingKey: `visitor ${k}`, device: "mobile" };
    const { value, reason, flagMetadata } = await client.getStringDetails("shop", "default", context);
    assert.equal(reason, "SPLIT");
    assert.equal(flagMetadata["inTest"], true);
    assert.equal(await client.getStringValue("shop", "default", context), value);
    client.track("purchase", context, { value: value === "B" ? 1 : 0, id: `order ${k}` });
    client.track("purchase", context, { value: value === "B" ? 1 : 0, id: `order ${k}` });
    client.track("unknown", context);
  }
  await provider.flush();
  assert.deepEqual(provider.counts, { pending: 0, delivered: 60, rejected: 60, dropped: 0 });
  const [reason, ...others] = warnings.splice(0);
  assert.match(reason!, /the event unknown is refused: No experiment measures the event 'unknown'; the events are purchase/);
  assert.deepEqual(others, []);
});

it("values of other types come as such", async () => {
  const context = { targetingKey: "visitor 1" };
  assert.ok([9.5, 12].includes(await client.getNumberValue("price", -1, context)));
  const page = await client.getObjectValue("page", {}, context);
  assert.deepEqual(Object.keys(page as object).sort(), ["headline", "image"]);
  assert.equal(typeof (await client.getBooleanDetails("banner", false, context)).value, "boolean");
});

it("faults are those of OpenFeature", async () => {
  const visitor = { targetingKey: "visitor 1" };
  const unknown = await client.getStringDetails("nosuch", "default", visitor);
  assert.equal(unknown.errorCode, "FLAG_NOT_FOUND");
  const draft = await client.getStringDetails("draft", "default", visitor);
  assert.deepEqual([draft.value, draft.reason], ["default", "DISABLED"]);
  const wrong = new SteadyArmProvider({ url, token: "sa_wrong", logger: { warn() {} } });
  await assert.rejects(wrong.resolveStringEvaluation("shop", "default", visitor));
  assert.match(warnings.splice(0).join(), /no variant of nosuch/);
});
