// Makes dist/: both WebAssembly parts, the coefficients, and the compiled TypeScript. web/build.sh made the parts.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const here = new URL("../", import.meta.url);
const root = new URL("../../", here);
const parts = process.env.FV_WASM_PARTS ? new URL(`file://${process.env.FV_WASM_PARTS}/`) : new URL("target/parts/", root);
const dist = new URL("dist/", here);

rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
for (const part of ["first", "whole"]) {
  const from = new URL(`${part}/`, parts);
  if (!existsSync(new URL("fv_wasm_bg.wasm", from))) throw new Error(`${fileURLToPath(from)} holds no module: run web/build.sh`);
  mkdirSync(new URL(`${part}/`, dist));
  for (const file of ["fv_wasm.js", "fv_wasm_bg.wasm"]) cpSync(new URL(file, from), new URL(`${part}/${file}`, dist));
}

const data = new URL("../crates/fv-data/data/", root);
const json = (file) => JSON.parse(readFileSync(new URL(file, data), "utf8"));
const reference = json("hardware.json").devices.find((device) => device.id === "h200-sxm-141gb");
const constant = (name, value) => `export const ${name} = ${JSON.stringify(JSON.stringify(value))};\n`;
writeFileSync(new URL("facts.js", dist), constant("rules", json("rules.json")) + constant("reference", reference));

const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "-p", fileURLToPath(new URL("tsconfig.json", here))], { stdio: "inherit" });
