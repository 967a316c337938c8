import assert from "node:assert/strict";
import { test } from "node:test";
import { loadCapacityHardware, loadCapacityIndex, loadCapacityModel } from "fv-estimator/catalog";
import { json, serve } from "./catalog.mjs";

const URL_ = "https://example.org/catalog/index.json";
const index = async (files) => {
  const { fetcher } = serve(files);
  return loadCapacityIndex(URL_, { fetcher });
};

test("index, model and hardware are what the files say, and where they came from", async () => {
  const { fetcher, asked } = serve();
  const index = await loadCapacityIndex(URL_, { fetcher });
  assert.deepEqual(index, { ...json("index.json"), url: URL_ });
  const model = await loadCapacityModel(index, "fastwan21", { fetcher });
  assert.deepEqual(model, json("models/fastwan21.json"));
  const hardware = await loadCapacityHardware(index, { fetcher });
  assert.deepEqual(hardware, { ...json("hardware.json"), url: "https://example.org/catalog/hardware.json" });
  assert.deepEqual(
    asked.map(({ url }) => url),
    [URL_, "https://example.org/catalog/models/fastwan21.json", "https://example.org/catalog/hardware.json"],
  );
});

test("paths are relative to where the index was found at last", async () => {
  const { fetcher, asked } = serve({}, { redirected: (url) => url.replace("/old/", "/new/") });
  const index = await loadCapacityIndex("https://example.org/old/index.json", { fetcher });
  assert.equal(index.url, "https://example.org/new/index.json");
  await loadCapacityModel(index, "fastwan21", { fetcher });
  assert.equal(asked[1].url, "https://example.org/new/models/fastwan21.json");
});

test("without an address of its own a response counts as from where it was asked for", async () => {
  const { fetcher } = serve({}, { redirected: () => "" });
  assert.equal((await loadCapacityIndex(URL_, { fetcher })).url, URL_);
});

test("outside a browser a relative address is refused, in one it is relative to the page", async () => {
  await assert.rejects(loadCapacityIndex("catalog/index.json", serve()), { name: "TypeError", message: /"catalog\/index.json": outside a browser it has to be absolute/ });
  globalThis.location = { href: "https://example.org/page.html" };
  try {
    assert.equal((await loadCapacityIndex("catalog/index.json", serve())).url, URL_);
  } finally {
    delete globalThis.location;
  }
});

test("nothing is kept between calls: neither options nor answers, and nothing is tried again", async () => {
  const first = serve();
  const index = await loadCapacityIndex(URL_, first);
  const second = serve();
  await loadCapacityModel(index, "fastwan21", second);
  await loadCapacityModel(index, "fastwan21", second);
  assert.deepEqual([first.asked.length, second.asked.length], [1, 2]);
  const broken = serve({ "models/fastwan21.json": new Response("", { status: 500, statusText: "Broken" }) });
  await assert.rejects(loadCapacityModel(index, "fastwan21", broken), /fastwan21.json: HTTP 500 Broken/);
  assert.equal(broken.asked.length, 1);
  assert.ok(!("signal" in second.asked[0].init));
});

test("an error of the fetcher is passed on as it is", async () => {
  const error = new TypeError("fetch failed");
  await assert.rejects(loadCapacityIndex(URL_, { fetcher: () => Promise.reject(error) }), error);
});

test("cancelling rejects with the signal's reason: before, during and with a fetcher that does not know signals", async () => {
  const reason = new Error("enough");
  const { fetcher, asked } = serve();
  await assert.rejects(loadCapacityIndex(URL_, { fetcher, signal: AbortSignal.abort(reason) }), reason);
  assert.equal(asked.length, 0);
  const controller = new AbortController();
  const deaf = async (url) => {
    controller.abort(reason);
    return fetcher(url);
  };
  await assert.rejects(loadCapacityIndex(URL_, { fetcher: deaf, signal: controller.signal }), reason);
  const slow = (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const late = new AbortController();
  const waiting = loadCapacityIndex(URL_, { fetcher: slow, signal: late.signal });
  late.abort(reason);
  await assert.rejects(waiting, reason);
});

test("what cannot be read as JSON is refused with its address", async () => {
  await assert.rejects(index({ "index.json": "<html>" }), { name: "SyntaxError", message: /catalog\/index.json is not JSON: / });
  await assert.rejects(index({ "index.json": "" }), SyntaxError);
});

const SHAPES = {
  "a list": [],
  "no version": { ...json("index.json"), version: undefined },
  "a later version": { ...json("index.json"), version: 2 },
  "no models": { ...json("index.json"), models: undefined },
  "a model without path": { ...json("index.json"), models: [{ id: "a", name: "A", model_id: "a/a" }] },
  "a model twice": { ...json("index.json"), models: [json("index.json").models[0], json("index.json").models[0]] },
  "no hardware": { ...json("index.json"), hardware_url: "" },
};
for (const [name, body] of Object.entries(SHAPES)) {
  test(`an index with ${name} is refused`, async () => {
    await assert.rejects(index({ "index.json": JSON.stringify(body) }), { name: "TypeError", message: /index.json is not / });
  });
}

test("an id that the index does not have is refused with those that it has", async () => {
  const { fetcher, asked } = serve();
  const loaded = await loadCapacityIndex(URL_, { fetcher });
  await assert.rejects(loadCapacityModel(loaded, "fastwan", { fetcher }), { name: "RangeError", message: /no model "fastwan", only .*fastwan21/ });
  assert.equal(asked.length, 1);
});

const MODELS = {
  "another model": json("models/mochi-1.json"),
  "a later version": { ...json("models/fastwan21.json"), version: 2 },
  "no components": { ...json("models/fastwan21.json"), components: [] },
  "no examples": { ...json("models/fastwan21.json"), examples: undefined },
  "an example without env": { ...json("models/fastwan21.json"), examples: [{ id: "a", runtime: "fastvideo", base_config: {} }] },
  "no runs": { ...json("models/fastwan21.json"), reference_runs: undefined },
};
for (const [name, body] of Object.entries(MODELS)) {
  test(`a model with ${name} is refused`, async () => {
    const { fetcher } = serve({ "models/fastwan21.json": JSON.stringify(body) });
    const loaded = await loadCapacityIndex(URL_, { fetcher });
    await assert.rejects(loadCapacityModel(loaded, "fastwan21", { fetcher }), { name: "TypeError", message: /fastwan21.json is not / });
  });
}

const DEVICES = {
  "no devices": { version: 1 },
  "a device without id": { version: 1, devices: [{ name: "A" }] },
  "a device twice": { version: 1, devices: [json("hardware.json").devices[0], json("hardware.json").devices[0]] },
  "a later version": { ...json("hardware.json"), version: 2 },
};
for (const [name, body] of Object.entries(DEVICES)) {
  test(`hardware with ${name} is refused`, async () => {
    const { fetcher } = serve({ "hardware.json": JSON.stringify(body) });
    const loaded = await loadCapacityIndex(URL_, { fetcher });
    await assert.rejects(loadCapacityHardware(loaded, { fetcher }), { name: "TypeError", message: /hardware.json is not / });
  });
}
