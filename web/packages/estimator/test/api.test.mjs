import assert from "node:assert/strict";
import { test } from "node:test";
import * as estimator from "fv-estimator";
import { device, hardware, json, model } from "./catalog.mjs";

const { EstimatorError, VERDICTS } = estimator;
const wan = model("wan21-t2v-14b");
const plain = { model: wan, config: wan.examples[0], workload: { height: 480, width: 832, num_frames: 81 }, hardware: device("rtx-4090-24gb") };

/** What a question is refused with. */
function refused(ask) {
  try {
    ask();
  } catch (error) {
    assert.ok(error instanceof EstimatorError, `${error}`);
    assert.equal(error.message, error.errors.map((problem) => problem.message).join("\n"));
    assert.deepEqual([error.code, error.field], [error.errors[0].code, error.errors[0].field]);
    return error.errors;
  }
  return assert.fail("it was answered");
}

test("before init() a question says what is missing", () => {
  assert.deepEqual(refused(() => estimator.estimateMemory(plain)), [{ code: "not-ready", message: "the estimator is not ready: `await init()` first" }]);
});

test("init() says what is wrong with what it is given", async () => {
  await assert.rejects(estimator.init({ part: "half" }), { name: "EstimatorError", code: "invalid-value", field: "part" });
  await assert.rejects(estimator.init({ wasm: new Uint8Array([1, 2, 3]) }), { name: "EstimatorError", code: "not-loaded" });
  await assert.rejects(estimator.init({ rules: "{" }), { name: "EstimatorError", code: "invalid-json" });
  await assert.rejects(estimator.init({ rules: { version: 2, coefficients: {} } }), { name: "EstimatorError", code: "unknown-version" });
  await assert.rejects(estimator.init({ rules: {} }), { name: "EstimatorError", code: "invalid-shape" });
});

test("the first part answers for Wan, and says what it lacks", async () => {
  await estimator.init({ part: "first" });
  const { whole } = estimator.version();
  const first = [estimator.estimateMemory(plain), estimator.estimateSummary(plain), estimator.legal(plain)];
  if (!whole) {
    assert.equal(refused(() => estimator.estimateMemory({ model: model("mochi-1") }))[0].code, "not-in-this-part");
    for (const ask of [estimator.assessCapacity, estimator.matchEvidence, estimator.minimum, estimator.planExecution]) {
      assert.equal(refused(() => ask(plain))[0].code, "not-in-this-part");
    }
  }
  await estimator.init();
  assert.deepEqual([estimator.estimateMemory(plain), estimator.estimateSummary(plain), estimator.legal(plain)], first);
});

test("the example of the specification is answered", async () => {
  await estimator.init();
  const custom = {
    id: "custom",
    name: "Custom accelerator",
    custom: true,
    memory: { type: "dedicated", nominal: { value: 48, unit: "GB" } },
    backend: "cuda",
    supported_dtypes: ["fp32", "fp16", "bf16", "fp8"],
  };
  const config = wan.examples[0];
  const result = estimator.estimateMemory({ config, workload: {}, model: wan, hardware: custom, memoryBudgetGiB: 40, hostMemoryGb: 64 });
  assert.equal(result.hardware, "custom");
  assert.deepEqual([result.memory.budgetGiB, result.memory.budgetSource, result.host.capacityBytes], [40, "explicit", 64e9]);
  assert.ok(["fits", "uncertain", "does_not_fit", "unknown"].includes(result.status));
});

test("without a device the verdict is unknown, and the stages are there", () => {
  const { hardware: _, ...nowhere } = plain;
  const result = estimator.estimateMemory(nowhere);
  assert.equal(result.status, "unknown");
  assert.equal(result.stages.length, 4);
  assert.equal(result.forecast, undefined);
});

test("a config may be a deployment of the model, an edited copy, an id, or left out", () => {
  const of = (config) => estimator.estimateMemory({ ...plain, config });
  assert.deepEqual(of(wan.examples[0]), of(undefined));
  assert.deepEqual(of(wan.examples[0].id), of(undefined));
  assert.deepEqual(of(structuredClone(wan.examples[0])), of(undefined));
  const edited = structuredClone(wan.examples[0]);
  edited.env.FASTVIDEO_ATTENTION_BACKEND = "TORCH_SDPA";
  assert.notDeepEqual(of(edited).settings, of(undefined).settings);
  const [{ code, message }] = refused(() => of("fastvideoo"));
  assert.equal(code, "unknown-deployment");
  assert.match(message, /did you mean fastvideo\?/);
});

test("what the user sets is marked as the user's", () => {
  const example = wan.examples.find(({ runtime }) => runtime === "diffusers");
  const { settings } = estimator.estimateMemory({ ...plain, config: example, settings: { model_cpu_offload: true } });
  assert.deepEqual(settings.find(({ key }) => key === "model_cpu_offload"), { key: "model_cpu_offload", value: true, provenance: "user" });
});

test("every function answers on every model, or says why not", () => {
  for (const { id } of json("index.json").models) {
    const one = model(id);
    for (const config of one.examples) {
      const question = { model: one, config, hardware: device("rtx-4090-24gb"), hostMemoryGb: 64 };
      const estimate = estimator.estimateMemory(question);
      const summary = estimator.estimateSummary(question);
      assert.equal(summary.status, estimate.status, `${id} ${config.id}`);
      const assessed = estimator.assessCapacity(question);
      assert.deepEqual(assessed.evidence, estimator.matchEvidence(question));
      const { frames, multiples } = estimator.legal(question);
      assert.ok(frames.first >= 1 && frames.step >= 1 && frames.last >= frames.first && multiples.height >= 1);
    }
  }
});

test("a grid holds what single summaries say", () => {
  const sizes = [{ height: 480, width: 832 }, { height: 720, width: 1280 }];
  const frames = [5, 81, 82];
  const grid = estimator.estimateGrid({ ...plain, axes: { sizes, frames } });
  assert.deepEqual([grid.rows, grid.columns, grid.verdict.length], [2, 3, 6]);
  sizes.forEach((size, row) =>
    frames.forEach((num_frames, column) => {
      const at = row * 3 + column;
      if (num_frames === 82) {
        assert.equal(VERDICTS[grid.verdict[at]], "not_legal");
        assert.ok(Number.isNaN(grid.peakBytes[at]) && Number.isNaN(grid.marginBytes[at]));
        return;
      }
      const summary = estimator.estimateSummary({ ...plain, workload: { ...size, num_frames } });
      assert.equal(VERDICTS[grid.verdict[at]], summary.status);
      assert.equal(grid.marginBytes[at], summary.marginBytes);
      assert.equal(grid.peakBytes[at], Math.max(...summary.stages.map(({ peakBytes }) => peakBytes.device.value)));
    }),
  );
  const memory = estimator.estimateGrid({ ...plain, axes: { vramGiB: [8, 24, 80], ramGiB: [8, 512] } });
  assert.equal(memory.verdict.length, 6);
  assert.equal(VERDICTS[memory.verdict[5]], "fits");
});

test("recommendations, the largest clip, the smallest budget and comparisons", () => {
  const { hardware: on, ...anywhere } = plain;
  const found = estimator.recommendCapacity({ ...anywhere, devices: hardware });
  assert.ok(found.analytical.length > 10);
  const longest = estimator.largest(plain);
  assert.equal(longest.answers.length + longest.unknown.length, 1);
  const least = estimator.minimum({ ...plain, devices: hardware, limit: 3 });
  assert.ok(least.fitsBytes > 2 ** 30 && least.devices.length === 3);
  const rows = estimator.compare({ model: [wan, model("mochi-1")], devices: [on, device("h100-sxm-80gb")] }).rows;
  assert.equal(rows.length, 2 * (wan.examples.length + model("mochi-1").examples.length));
});

test("plans: ours for Wan, FreeVideo's for MiniMax H3, refusals with what would do", () => {
  const ours = estimator.planExecution({ ...plain, hostMemoryGb: 64, precision: "fp8" });
  assert.equal(ours.policy, "optimal");
  assert.match(ours.id, /^plan-[0-9a-f]{32}$/);
  const h3 = { model: model("minimax-h3"), hardware: device("rtx-4090-24gb"), hostMemoryGb: 64 };
  assert.equal(estimator.planExecution(h3).policy, "freevideo");
  const refusal = estimator.planExecution({ ...h3, memoryBudgetGiB: 2, hostMemoryGb: 8 });
  assert.equal(refusal.id, undefined);
  assert.ok(refusal.shortfalls ?? refusal.shortfall ?? refusal.reasons, JSON.stringify(Object.keys(refusal)));
  const [missing] = refused(() => estimator.planExecution({ model: wan, hardware: plain.hardware }));
  assert.deepEqual([missing.code, missing.field], ["missing-capacity", "hostMemoryGb"]);
});

test("objects are known by identity, and forgotten ones make room", () => {
  const answers = new Set();
  for (let at = 0; at < 300; at += 1) {
    answers.add(JSON.stringify(estimator.estimateSummary({ ...plain, model: structuredClone(wan), config: undefined, hardware: { ...plain.hardware } })));
  }
  assert.equal(answers.size, 1);
});

/** Wrong questions, with the first code, the field, and what the message has to contain. */
const WRONG = {
  "an unknown field": [{ ...plain, memoryBudgetGib: 4 }, "unknown-field", "memoryBudgetGib", "did you mean `memoryBudgetGiB`?"],
  "an unknown field of the workload": [{ ...plain, workload: { hieght: 480 } }, "unknown-field", "workload.hieght", "did you mean `height`?"],
  "text for a number": [{ ...plain, workload: { height: "480" } }, "invalid-type", "workload.height", "found the text `480`, allowed: a whole number"],
  "part of a frame": [{ ...plain, workload: { num_frames: 80.5 } }, "invalid-type", "workload.num_frames", "found 80.5, allowed: a whole number"],
  "a negative size": [{ ...plain, workload: { width: -832 } }, "invalid-type", "workload.width", "found -832"],
  "a huge size": [{ ...plain, workload: { width: 1e300 } }, "invalid-type", "workload.width", "found 1e300"],
  "NaN in the workload": [{ ...plain, workload: { width: NaN } }, "invalid-type", "width", "found NaN, allowed: a number"],
  "NaN for the budget": [{ ...plain, memoryBudgetGiB: NaN }, "invalid-type", "memoryBudgetGiB", "found NaN, allowed: a number"],
  "an endless budget": [{ ...plain, memoryBudgetGiB: Infinity }, "invalid-type", "memoryBudgetGiB", "found Infinity"],
  "a negative budget": [{ ...plain, memoryBudgetGiB: -1 }, "invalid-capacity", "memoryBudgetGiB", "it must lie between 0.001 and 1000000"],
  "a huge budget": [{ ...plain, memoryBudgetGiB: 1e99 }, "invalid-capacity", "memoryBudgetGiB", "1e99"],
  "a partition that is none": [{ ...plain, partitionId: "1g.10g" }, "unknown-partition", "partitionId", "1g.10g"],
  "a size that is not legal": [{ ...plain, workload: { height: 481, width: 832 } }, "invalid-size", undefined, "481"],
  "a frame count that is not legal": [{ ...plain, workload: { num_frames: 80 } }, "invalid-frames", "workload.num_frames", "81"],
  "a setting that is none": [{ ...plain, settings: { dit_cpu_ofload: true } }, "unknown-key", "settings", "dit_cpu_offload"],
  "a variable that is no text": [{ ...plain, env: { A: 1 } }, "invalid-type", "env.A", "found 1, allowed: text"],
  "no model": [{ ...plain, model: undefined }, "invalid-type", "model", "found undefined"],
  "a model that is text": [{ ...plain, model: "wan" }, "invalid-type", "model", 'found "wan"'],
  "a model that is none": [{ ...plain, model: {} }, "invalid-shape", "model", "missing field"],
  "a later model": [{ ...plain, model: { ...wan, version: 2 } }, "unknown-version", "model", "found version 2, allowed: 1"],
  "a device that is text": [{ ...plain, hardware: "rtx-4090" }, "invalid-type", "hardware", 'found "rtx-4090"'],
  "a device that is none": [{ ...plain, hardware: { memory_gb: 24 } }, "invalid-shape", "hardware", "missing field"],
  "a custom device with a slip": [{ ...plain, hardware: { custom: true, memroy: {}, backend: "cuda" } }, "unknown-field", undefined, "memroy"],
  "a config that is a number": [{ ...plain, config: 1 }, "invalid-type", "config", "found 1"],
  "a config that is none": [{ ...plain, config: {} }, "invalid-shape", "config", "missing field"],
};
for (const [name, [question, code, field, words]] of Object.entries(WRONG)) {
  test(`refused: ${name}`, () => {
    for (const ask of [estimator.estimateMemory, estimator.estimateSummary, estimator.assessCapacity, estimator.matchEvidence]) {
      const errors = refused(() => ask(question));
      const found = errors.find((problem) => problem.code === code);
      assert.ok(found, JSON.stringify(errors));
      if (field !== undefined) assert.equal(found.field, field);
      assert.ok(found.message.includes(words), found.message);
    }
  });
}

test("everything that is wrong with a workload is said at once", () => {
  const errors = refused(() => estimator.estimateMemory({ ...plain, workload: { height: 481, num_frames: 80, batch: 0 } }));
  assert.ok(errors.length >= 3, JSON.stringify(errors));
});

test("no question is a trap: thousands of random ones are answered or refused, and the estimator goes on", () => {
  let state = 7;
  const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state % below;
  };
  const VALUES = [undefined, null, true, "", "x", [], {}, -1, 0, 1, 1.5, 16, 81, 4096, 2 ** 31, 2 ** 32, 2 ** 53, 1e300, 5e-324, "\u0000", { a: { b: [] } }];
  const value = () => VALUES[random(VALUES.length)];
  const NAMES = ["memoryBudgetGiB", "hostMemoryGb", "allocationMemoryGb", "partitionId", "reserveGiB", "settings", "env", "workload", "config", "axes"];
  const WORK = ["height", "width", "num_frames", "seconds", "batch", "guidance_scale", "num_inference_steps", "text_tokens", "references"];
  const FUNCTIONS = [estimator.estimateMemory, estimator.estimateSummary, estimator.assessCapacity, estimator.matchEvidence, estimator.estimateGrid, estimator.planExecution, estimator.legal];
  let [answered, wrong] = [0, 0];
  for (let at = 0; at < 1200; at += 1) {
    const question = { ...plain, workload: { ...plain.workload } };
    for (let change = random(3); change >= 0; change -= 1) {
      if (random(2) === 0) question[NAMES[random(NAMES.length)]] = value();
      else if (question.workload && typeof question.workload === "object") question.workload[WORK[random(WORK.length)]] = value();
    }
    try {
      FUNCTIONS[random(FUNCTIONS.length)](question);
      answered += 1;
    } catch (error) {
      assert.ok(error instanceof EstimatorError, `${error.stack} ${JSON.stringify({ ...question, model: 0, hardware: 0, config: 0 })}`);
      assert.ok(error.errors.length > 0 && error.errors.every(({ code, message }) => code && message));
      wrong += 1;
    }
  }
  assert.ok(answered > 100 && wrong > 100, `${answered} answered, ${wrong} refused`);
  assert.equal(estimator.estimateSummary(plain).stages.length, 4);
});
