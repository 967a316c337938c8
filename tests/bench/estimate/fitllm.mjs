// A peer of the estimator: `node fitllm.mjs FOLDER` times `simulate` of fitllm-engine, installed in FOLDER, for every local
// model of its catalog on an RTX 4090. Prints how many models there are and nanoseconds a call: of the first pass, of the
// fastest, of the one in the middle.
import path from "node:path";
import { pathToFileURL } from "node:url";

const at = path.resolve(process.argv[2], "node_modules/fitllm-engine/engine.js");
const { LOCAL_MODELS, GPUS, gpuDevice, simulate } = await import(pathToFileURL(at));
const device = gpuDevice(GPUS.find((gpu) => gpu.name === "RTX 4090"));
const quantisation = { weightBpw: 4.5, kvBits: 16 };

let used = 0; // so that no call can be left out
const pass = (times) => {
  const start = process.hrtime.bigint();
  for (let i = 0; i < times; i++) for (const model of LOCAL_MODELS) used += simulate(model, device, 8192, quantisation).used;
  return Number(process.hrtime.bigint() - start) / times / LOCAL_MODELS.length;
};
const first = pass(1);
for (let i = 0; i < 20; i++) pass(100); // until it is compiled
const times = Array.from({ length: 200 }, () => pass(50)).sort((a, b) => a - b);
if (!Number.isFinite(used)) throw new Error("no estimate");
console.log([LOCAL_MODELS.length, first.toFixed(1), times[0].toFixed(1), times[times.length >> 1].toFixed(1)].join("\t"));
