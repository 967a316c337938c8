// Times of the WebAssembly build beside the native one in the same run, and sizes: `npm run bench`. Builds the native program with
// `cargo build --release`, whose opt-level is that of the module.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { device, model, text } from "../test/catalog.mjs";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const DIST = new URL("../dist/", import.meta.url);

/** Nanoseconds of one call: the median of 41 samples, as in the native program. */
function median(once) {
  const now = () => Number(process.hrtime.bigint());
  // The engine compiles what is hot anew.
  for (let start = now(), at = 0; now() - start < 1e9; at += 1) once(at);
  let calls = 0;
  for (const start = now(); now() - start < 20e6; calls += 1) once(calls);
  const batch = Math.max(1, Math.floor(calls / 4));
  const samples = Array.from({ length: 41 }, (_, sample) => {
    const start = now();
    for (let at = 0; at < batch; at += 1) once(sample * batch + at);
    return (now() - start) / batch;
  });
  return samples.sort((a, b) => a - b)[20];
}

function wasm(glue) {
  glue.readRules(text("rules.json"));
  const on = JSON.parse(glue.readDevice(JSON.stringify(device("rtx-4090-24gb"))));
  const times = {};
  for (const id of ["fastwan21", "wan21-t2v-14b"]) {
    const handle = JSON.parse(glue.readModel(JSON.stringify(model(id))));
    const kept = '{"workload":{"num_frames":81}}';
    const fresh = (at) => `{"workload":{"num_frames":${5 + (at % 40) * 4}}}`;
    const budget = (at) => `{"memoryBudgetGiB":${8 + (at % 64)}}`;
    const time = (name, once) => (times[`${id}/${name}`] = median(once));
    time("summary", (at) => glue.estimateSummary(handle, on, kept, budget(at)));
    time("estimate", (at) => glue.estimate(handle, on, kept, budget(at)));
    time("estimate, parsed", (at) => JSON.parse(glue.estimate(handle, on, kept, budget(at))));
    time("fresh summary", (at) => glue.estimateSummary(handle, on, fresh(at), "{}"));
    time("fresh estimate", (at) => glue.estimate(handle, on, fresh(at), "{}"));
    time("fresh estimate, parsed", (at) => JSON.parse(glue.estimate(handle, on, fresh(at), "{}")));
    const sizes = Array.from({ length: 24 }, (_, at) => ({ height: 256 + 16 * at, width: 448 + 32 * at }));
    const frames = Array.from({ length: 16 }, (_, at) => 5 + 8 * at);
    const axes = JSON.stringify({ sizes, frames });
    time("grid of 24 x 16", () => glue.estimateGrid(handle, on, kept, axes));
  }
  return times;
}

const target = process.env.CARGO_TARGET_DIR ?? join(ROOT, "target");
execFileSync("cargo", ["build", "--quiet", "--release", "-p", "fv-wasm", "--example", "times"], { cwd: ROOT, stdio: "inherit" });
const native = JSON.parse(execFileSync(join(target, "release/examples/times"), { encoding: "utf8" }));
console.log(`Node ${process.version}; medians in microseconds\n\n| figure | wasm | native | times |\n| --- | ---: | ---: | ---: |`);
for (const part of ["first", "whole"]) {
  const glue = await import(new URL(`${part}/fv_wasm.js`, DIST));
  await glue.default({ module_or_path: readFileSync(new URL(`${part}/fv_wasm_bg.wasm`, DIST)) });
  for (const [name, time] of Object.entries(wasm(glue))) {
    const beside = native[name];
    const shown = (ns) => (ns / 1000).toFixed(1);
    console.log(`| ${part}: ${name} | ${shown(time)} | ${beside ? shown(beside) : ""} | ${beside ? (time / beside).toFixed(2) : ""} |`);
  }
}
console.log("\n| part | bytes | gzip -9, with its glue |\n| --- | ---: | ---: |");
for (const part of ["first", "whole"]) {
  const files = [`${part}/fv_wasm_bg.wasm`, `${part}/fv_wasm.js`].map((file) => readFileSync(new URL(file, DIST)));
  console.log(`| ${part} | ${files[0].length} | ${files.map((file) => gzipSync(file, { level: 9 }).length).reduce((a, b) => a + b)} |`);
}
