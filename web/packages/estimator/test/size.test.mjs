import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const DIST = new URL("../dist/", import.meta.url);
const zipped = (...files) => files.map((file) => gzipSync(readFileSync(new URL(file, DIST)), { level: 9 }).length).reduce((sum, bytes) => sum + bytes);

/** Bytes after gzip -9 of each part with its glue. docs/benchmarks.md says how far they are from what was aimed at. */
const MOST = { first: 340_000, whole: 860_000 };

for (const [part, most] of Object.entries(MOST)) {
  test(`the part ${part} stays small`, (context) => {
    const raw = readFileSync(new URL(`${part}/fv_wasm_bg.wasm`, DIST)).length;
    if (raw > 4e6) return context.skip("a debug build");
    const bytes = zipped(`${part}/fv_wasm_bg.wasm`, `${part}/fv_wasm.js`);
    context.diagnostic(`${part}: ${bytes} bytes after gzip, ${raw} before`);
    assert.ok(bytes <= most, `${bytes} bytes, at most ${most}`);
  });
}

test("what every start loads beside a part stays small", (context) => {
  const bytes = zipped("index.js", "api.js", "start.js", "errors.js", "catalog.js", "facts.js");
  context.diagnostic(`${bytes} bytes`);
  assert.ok(bytes <= 14_000, `${bytes} bytes`);
});
