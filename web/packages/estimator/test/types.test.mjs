import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("the types are those of the schemas", () => {
  execFileSync(process.execPath, [fileURLToPath(new URL("../scripts/types.mjs", import.meta.url)), "--check"], { stdio: "pipe" });
});
