// A peer of the checker: `node ajv.cjs positions|plain SCHEMA FOLDER` checks every manifest in FOLDER with ajv, strict.
//
// `positions` reads YAML with the `yaml` package and keeps its document and line counter, so that every error has a
// line and a column; `plain` reads it with `js-yaml`, which is faster and keeps nothing. Neither checks references.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const Ajv = require("ajv/dist/2020").default;
const addFormats = require("ajv-formats").default;
const { LineCounter, parseDocument } = require("yaml");
const jsYaml = require("js-yaml");

const [mode, schemaPath, folder] = process.argv.slice(2);
const ajv = new Ajv({ strict: true, strictTypes: false, allErrors: true });
addFormats(ajv);
const validate = ajv.compile(JSON.parse(fs.readFileSync(schemaPath, "utf8")));

const steps = (pointer) => pointer.split("/").slice(1).map((s) => s.replace(/~1/g, "/").replace(/~0/g, "~"));
let files = 0;
let wrong = 0;
const report = (file, place, message) => {
  wrong += 1;
  console.log(`${file}:${place}: ${message}`);
};
for (const name of fs.readdirSync(folder).sort()) {
  const file = path.join(folder, name);
  const text = fs.readFileSync(file, "utf8");
  files += 1;
  if (mode === "positions") {
    const lines = new LineCounter();
    const document = parseDocument(text, { lineCounter: lines });
    const place = (offset) => {
      const { line, col } = lines.linePos(offset);
      return `${line}:${col}`;
    };
    for (const error of document.errors) report(file, place(error.pos[0]), error.message);
    if (document.errors.length === 0 && !validate(document.toJS())) {
      for (const error of validate.errors) {
        const node = document.getIn(steps(error.instancePath), true);
        report(file, place(node?.range?.[0] ?? 0), error.message);
      }
    }
  } else {
    const value = jsYaml.load(text, { schema: jsYaml.CORE_SCHEMA });
    if (!validate(value)) for (const error of validate.errors) report(file, error.instancePath, error.message);
  }
}
console.log(`${files} files, ${wrong} errors`);
process.exitCode = wrong === 0 ? 0 : 1;
