// Speaks to the real yaml-language-server as an editor does: sound files show nothing, one wrong value shows one
// diagnostic on its line, and completion offers the fields of the schema that the file's first line names.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { pathToFileURL } from "node:url";

const server = spawn(process.execPath, [process.argv[2], "--stdio"], { stdio: ["pipe", "pipe", "inherit"] });
const patience = setTimeout(() => fail(new Error("the server does not answer")), 60_000);
const settings = { validate: true, completion: true, hover: true, format: { enable: false }, schemaStore: { enable: false } };
const answers = new Map(); // by request id
const diagnostics = new Map(); // by document: who waits for them
let sent = 0;

function fail(error) {
  server.kill();
  console.error(`editors: ${error.message}`);
  process.exit(1);
}

function send(message) {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  server.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

function request(method, params) {
  const id = ++sent;
  send({ id, method, params });
  return new Promise((resolve) => answers.set(id, resolve));
}

function receive({ id, method, params, result, error }) {
  if (method === "workspace/configuration") {
    send({ id, result: params.items.map(({ section }) => (section === "yaml" ? settings : {})) });
  } else if (method === "textDocument/publishDiagnostics") {
    diagnostics.get(params.uri)?.(params.diagnostics);
  } else if (method && id !== undefined) {
    send({ id, result: null });
  } else if (!method) {
    error ? fail(new Error(error.message)) : answers.get(id)?.(result);
  }
}

let buffer = Buffer.alloc(0);
server.stdout.on("data", (bytes) => {
  buffer = Buffer.concat([buffer, bytes]);
  for (;;) {
    const head = buffer.indexOf("\r\n\r\n");
    const length = Number(/Content-Length: (\d+)/.exec(buffer.subarray(0, Math.max(head, 0)))?.[1]);
    if (head < 0 || buffer.length < head + 4 + length) return;
    receive(JSON.parse(buffer.subarray(head + 4, head + 4 + length)));
    buffer = buffer.subarray(head + 4 + length);
  }
});

/** Opens `path` with `text` in place of what the file holds; resolves with its diagnostics. */
function open(path, text = readFileSync(path, "utf8")) {
  const uri = pathToFileURL(path).href;
  const version = ++sent;
  const isOpen = diagnostics.has(uri);
  return new Promise((resolve) => {
    diagnostics.set(uri, resolve);
    if (isOpen) send({ method: "textDocument/didChange", params: { textDocument: { uri, version }, contentChanges: [{ text }] } });
    else send({ method: "textDocument/didOpen", params: { textDocument: { uri, version, languageId: "yaml", text } } });
  });
}

/** The labels that completion offers at the end of `text`. */
async function offered(path, text) {
  await open(path, text);
  const lines = text.split("\n");
  const position = { line: lines.length - 1, character: lines.at(-1).length };
  const { items } = await request("textDocument/completion", { textDocument: { uri: pathToFileURL(path).href }, position });
  return items.map((item) => item.label);
}

async function check() {
  await request("initialize", { processId: process.pid, rootUri: pathToFileURL(".").href, capabilities: { workspace: { configuration: true } } });
  send({ method: "initialized", params: {} });
  send({ method: "workspace/didChangeConfiguration", params: { settings: { yaml: settings } } });

  const models = readdirSync("catalog/models").map((name) => `catalog/models/${name}`);
  const shared = ["hardware", "transformers", "encoders", "vaes", "coverage"].map((name) => `catalog/${name}.yaml`);
  for (const path of [...models, ...shared]) {
    assert.deepEqual(await open(path), [], `${path} shows diagnostics`);
  }

  for (const [path, right, wrong, field] of [
    ["catalog/models/fastwan21.yaml", /memory_rules: wan/, "memory_rules: wann", "wan"],
    ["catalog/models/fastwan21.yaml", /^capacity:\n/m, "capacity:\n  memroy: 1\n", "memroy"],
    ["catalog/hardware.yaml", /backend: cuda/, "backend: cdua", "cuda"],
    ["catalog/transformers.yaml", /parameter_count: \S+/, "parameter_count: 1_48_000", "pattern"],
    ["catalog/vaes.yaml", /checked: \S+/, "checked: 2026-13-40", "date"],
  ]) {
    const text = readFileSync(path, "utf8");
    assert.match(text, right, path);
    const line = text.slice(0, text.search(right)).split("\n").length - 1 + (wrong.split("\n").length > 1 ? 1 : 0);
    const shown = await open(path, text.replace(right, wrong));
    assert.deepEqual(shown.map(({ range }) => range.start.line), [line], `${wrong} in ${path}: ${JSON.stringify(shown)}`);
    assert.match(shown[0].message, new RegExp(field), path);
  }

  const component = readFileSync("catalog/transformers.yaml", "utf8").trimEnd() + "\nnew-dit:\n  name: New\n  ";
  assert.ok((await offered("catalog/transformers.yaml", component)).includes("parameter_count"), "no field of a component is offered");
  const rules = readFileSync("catalog/models/fastwan21.yaml", "utf8").replace(/memory_rules: wan[^]*/, "memory_rules: ");
  assert.ok((await offered("catalog/models/fastwan21.yaml", rules)).includes("wan"), "no family of memory rules is offered");
}

check().then(() => { clearTimeout(patience); server.kill(); }, fail);
