// The same calls in Chromium. It is found at /usr/bin/chromium or by the variable CHROMIUM; without it the test is skipped, unless
// REQUIRE_CHROMIUM says that it has to be there.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../../../", import.meta.url));
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm", ".json": "application/json" };
/** It runs as root in containers, and talks to nobody but this test. */
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

test("every call is answered byte for byte as natively in Chromium", { timeout: 300_000 }, async (context) => {
  if (!existsSync(CHROMIUM)) {
    assert.ok(!process.env.REQUIRE_CHROMIUM, `${CHROMIUM} is not there`);
    return context.skip(`${CHROMIUM} is not there`);
  }
  let told;
  const report = new Promise((resolve) => (told = resolve));
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    if (request.method === "POST") {
      let body = "";
      request.on("data", (part) => (body += part)).on("end", () => {
        response.end();
        told(JSON.parse(body));
      });
      return;
    }
    const file = join(ROOT, normalize(decodeURIComponent(pathname)));
    if (!existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "text/plain" }).end(readFileSync(file));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const profile = mkdtempSync(join(tmpdir(), "fv-chromium-"));
  const page = `http://127.0.0.1:${server.address().port}/web/packages/estimator/test/browser/index.html?report`;
  const browser = spawn(CHROMIUM, [...FLAGS, `--user-data-dir=${profile}`, "--remote-debugging-port=0", page], { stdio: "ignore" });
  try {
    const ended = new Promise((_, reject) => browser.on("exit", (code) => reject(new Error(`Chromium ended with ${code}`))));
    const { error, calls, exact, differences } = await Promise.race([report, ended]);
    assert.equal(error, undefined);
    assert.deepEqual(differences, []);
    assert.ok(calls >= 200 && exact >= 120, `${calls} calls, ${exact} of them compared with whole texts`);
  } finally {
    const gone = new Promise((resolve) => browser.on("exit", resolve));
    browser.kill();
    await gone;
    server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  }
});
