/** The community's provider for servers, unmodified, against the service at STEADYARM_URL. */

import assert from "node:assert/strict";
import { before, it } from "node:test";

import { OFREPProvider } from "@openfeature/ofrep-provider";
import { OpenFeature, type Client } from "@openfeature/server-sdk";

const url = process.env["STEADYARM_URL"]!;
const token = process.env["STEADYARM_TOKEN"]!;
let client: Client;

before(async () => {
  const provider = new OFREPProvider({ baseUrl: url, headers: [["Authorization", `Bearer ${token}`]] });
  await OpenFeature.setProviderAndWait(provider);
  client = OpenFeature.getClient();
});

it("units get variants, and keep them", async () => {
  const seen = new Set<string>();
  for (let k = 0; k < 30; k++) {
    const context = { targetingKey: `community ${k}`, device: k % 2 === 0 ? "mobile" : "desktop" };
    const first = await client.getStringDetails("shop", "default", context);
    assert.equal(first.reason, "SPLIT");
    assert.equal(first.flagMetadata["inTest"], true);
    assert.ok(first.flagMetadata["assignmentId"]);
    assert.equal(typeof first.flagMetadata["probability"], "number");
    assert.equal(first.value, first.variant);
    assert.equal(await client.getStringValue("shop", "default", context), first.value);
    seen.add(first.value);
  }
  assert.deepEqual([...seen].sort(), ["A", "B", "C"]);
});

it("values of other types come as such", async () => {
  const context = { targetingKey: "visitor 1" };
  const price = await client.getNumberDetails("price", -1, context);
  assert.ok([9.5, 12].includes(price.value));
  const page = await client.getObjectDetails("page", {}, context);
  assert.deepEqual(Object.keys(page.value as object).sort(), ["headline", "image"]);
  assert.equal(typeof (await client.getBooleanDetails("banner", false, context)).value, "boolean");
  assert.equal((await client.getBooleanDetails("price", false, context)).errorCode, "TYPE_MISMATCH");
});

it("faults are those of the protocol", async () => {
  const codes = [
    await client.getStringDetails("shop", "default", {}),
    await client.getStringDetails("nosuch", "default", { targetingKey: "visitor 1" }),
  ];
  assert.deepEqual(codes.map((one) => one.errorCode), ["TARGETING_KEY_MISSING", "FLAG_NOT_FOUND"]);
  assert.deepEqual(codes.map((one) => one.value), ["default", "default"]);
});

it("where nothing can be shown, the default of the code is", async () => {
  assert.equal(await client.getStringValue("draft", "default", { targetingKey: "visitor 1" }), "default");
});
