import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { text } from "./catalog.mjs";
import { conformance } from "./conformance.mjs";

const DIST = new URL("../dist/", import.meta.url);
const KEPT = new URL("../../../../tests/conformance/", import.meta.url);

test("every call is answered byte for byte as natively", async () => {
  const glue = await import(new URL("whole/fv_wasm.js", DIST));
  await glue.default({ module_or_path: readFileSync(new URL("whole/fv_wasm_bg.wasm", DIST)) });
  const kept = (file) => readFileSync(new URL(file, KEPT), "utf8");
  const files = {
    rules: text("rules.json"),
    hardware: text("hardware.json"),
    calls: kept("calls.jsonl"),
    estimates: kept("estimates.jsonl"),
    model: (id) => text(`models/${id}.json`),
  };
  const sha256 = (text) => createHash("sha256").update(text).digest("hex");
  const { calls, exact, differences } = await conformance(glue, files, sha256);
  assert.deepEqual(differences, []);
  assert.ok(calls >= 200 && exact >= 120, `${calls} calls, ${exact} of them compared with whole texts`);
});
