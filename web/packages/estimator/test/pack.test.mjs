// The package as npm packs it, in projects that know nothing of this repository.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, mkdirSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("../", import.meta.url));
const DATA = fileURLToPath(new URL("../../../../crates/fv-data/data/", import.meta.url));
const WEB = fileURLToPath(new URL("../../../", import.meta.url));
const npm = (args, cwd) => execFileSync("npm", [...args, "--no-audit", "--no-fund", "--loglevel=error"], { cwd, encoding: "utf8" });
let folder;
let packed;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "fv-estimator-"));
  const [{ filename, files }] = JSON.parse(npm(["pack", "--json", "--pack-destination", folder], PACKAGE));
  packed = { archive: join(folder, filename), files: files.map(({ path }) => path) };
});
after(() => rmSync(folder, { recursive: true, force: true }));

/** A new project with the package installed. */
function project(name) {
  const root = join(folder, name);
  mkdirSync(root);
  writeFileSync(join(root, "package.json"), JSON.stringify({ name, private: true, type: "module" }));
  npm(["install", "--offline", packed.archive], root);
  return root;
}

const ASK = `
const index = await loadCapacityIndex(base + "index.json", options);
const model = await loadCapacityModel(index, "fastwan21", options);
const { devices } = await loadCapacityHardware(index, options);
const hardware = devices.find(({ aliases }) => aliases.includes("rtx-4090"));
await init();
const { status, stages } = estimateMemory({ config: model.examples[0], workload: {}, model, hardware, hostMemoryGb: 64 });
`;

test("the archive holds what is used and nothing else", () => {
  for (const file of ["package.json", "README.md", "dist/index.js", "dist/node.js", "dist/index.d.ts", "dist/first/fv_wasm_bg.wasm", "dist/whole/fv_wasm_bg.wasm"]) {
    assert.ok(packed.files.includes(file), `${file} of ${packed.files}`);
  }
  assert.deepEqual(packed.files.filter((file) => !/^(dist\/|package\.json$|README\.md$|LICENSE$)/.test(file)), []);
});

test("a bare project asks in Node without flags, and is not warned", () => {
  const root = project("bare");
  writeFileSync(
    join(root, "ask.js"),
    `import { readFile } from "node:fs/promises";
import { init, estimateMemory, loadCapacityIndex, loadCapacityModel, loadCapacityHardware } from "fv-estimator";
const base = "file://${DATA}";
const options = { fetcher: async (url) => new Response(await readFile(url)) };
${ASK}
console.log(JSON.stringify({ status, stages: stages.length }));`,
  );
  const found = execFileSync(process.execPath, ["--throw-deprecation", "--trace-warnings", "ask.js"], { cwd: root, encoding: "utf8", stdio: "pipe" });
  assert.deepEqual(JSON.parse(found), { status: JSON.parse(found).status, stages: 4 });
});

test("its types are found and hold", (context) => {
  const root = project("typed");
  writeFileSync(
    join(root, "ask.ts"),
    `import { estimateMemory, type CapacityModel, type Estimate, type Device } from "fv-estimator";
export function ask(model: CapacityModel, hardware: Device): Estimate["status"] {
  // @ts-expect-error: no such field
  estimateMemory({ model, hardware, memoryBudgetGib: 4 });
  return estimateMemory({ config: model.examples[0], workload: { height: 480 }, model, hardware, memoryBudgetGiB: 4 }).status;
}`,
  );
  const tsc = join(WEB, "node_modules/typescript/bin/tsc");
  if (!existsSync(tsc)) return context.skip("no TypeScript here");
  for (const resolution of [["--module", "nodenext"], ["--module", "esnext", "--moduleResolution", "bundler"]]) {
    const options = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", ...resolution];
    try {
      execFileSync(process.execPath, [tsc, ...options, "ask.ts"], { cwd: root, encoding: "utf8", stdio: "pipe" });
    } catch (error) {
      assert.fail(error.stdout);
    }
  }
});

test("Vite bundles it, and its files are there", (context) => {
  const vite = join(WEB, "node_modules/vite");
  if (!existsSync(vite)) return context.skip("no Vite here: npm ci in web/");
  const root = project("bundled");
  symlinkSync(vite, join(root, "node_modules/vite"));
  cpSync(DATA, join(root, "public"), { recursive: true });
  writeFileSync(join(root, "index.html"), '<!doctype html><title>ask</title><script type="module" src="/ask.js"></script>');
  writeFileSync(
    join(root, "ask.js"),
    `import { init, estimateMemory, loadCapacityIndex, loadCapacityModel, loadCapacityHardware } from "fv-estimator";
const base = "./"; const options = {};
${ASK}
document.title = status + " " + stages.length;`,
  );
  execFileSync(process.execPath, [join(vite, "bin/vite.js"), "build", "--logLevel", "error"], { cwd: root, stdio: "pipe" });
  const built = readdirSync(join(root, "dist/assets"));
  // In debug builds both parts are the same file, and bundled once.
  const parts = new Set(["first", "whole"].map((part) => readFileSync(join(PACKAGE, "dist", part, "fv_wasm_bg.wasm"), "base64")));
  assert.equal(built.filter((file) => file.endsWith(".wasm")).length, parts.size, `${built}`);
  // Node's entry is not for browsers.
  for (const file of built.filter((file) => file.endsWith(".js"))) {
    assert.ok(!readFileSync(join(root, "dist/assets", file), "utf8").includes("node:fs"), file);
  }
});
