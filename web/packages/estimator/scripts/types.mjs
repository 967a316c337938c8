// Writes src/types.gen.ts from the JSON Schemas; `--check` compares instead.
import { readFileSync, writeFileSync } from "node:fs";
import { compile } from "json-schema-to-typescript";

const SCHEMAS = new URL("../../../../schemas/", import.meta.url);
const OUT = new URL("../src/types.gen.ts", import.meta.url);
/** What crosses, the compiled catalog and answers: file and type. */
const FILES = {
  estimate: "Estimate",
  match: "EvidenceMatch",
  assess: "Assessment",
  recommend: "Recommendations",
  largest: "LargestAnswer",
  minimum: "Minimum",
  compare: "Comparison",
  plan: "Plan",
  "plan-refusal": "Refusal",
  "plan-unknown": "Unplanned",
  "compiled-index": "CompiledIndex",
  "compiled-hardware": "CompiledHardware",
  "compiled-model": "CompiledModel",
  "compiled-rules": "CompiledRules",
};

/** One schema with every definition once. Definitions of one name are the same in all files, or get the name of their file before theirs. */
function together() {
  const definitions = {};
  const roots = {};
  for (const [file, type] of Object.entries(FILES)) {
    const schema = JSON.parse(readFileSync(new URL(`${file}.schema.json`, SCHEMAS), "utf8"));
    const { $defs: own = {}, $schema, $id, title, ...root } = schema;
    const renamed = new Map();
    for (const [name, definition] of Object.entries(own)) {
      const other = definitions[name];
      if (other !== undefined && JSON.stringify(other) !== JSON.stringify(definition)) renamed.set(name, type + name);
    }
    const moved = (value) => JSON.parse(JSON.stringify(value), (key, part) => {
      const name = key === "$ref" && typeof part === "string" ? part.replace("#/$defs/", "") : undefined;
      return name !== undefined && renamed.has(name) ? `#/$defs/${renamed.get(name)}` : part;
    });
    for (const [name, definition] of Object.entries(own)) definitions[renamed.get(name) ?? name] = moved(definition);
    roots[type] = moved(root);
  }
  const fields = (schema) => Object.keys(schema.properties).join();
  for (const [name, root] of Object.entries(roots)) {
    // A file's own type may be a part of another's, such as the estimate of an assessment.
    const other = definitions[name];
    if (other !== undefined && fields(other) !== fields(root)) throw new Error(`two different types are called ${name}`);
    definitions[name] = root; // with the file's own words
  }
  const properties = Object.fromEntries(Object.keys(roots).map((name) => [name, { $ref: `#/$defs/${name}` }]));
  return { title: "Schemas", type: "object", additionalProperties: false, required: Object.keys(roots), properties, $defs: definitions };
}

/** Lists whose bounds would make tuples of them stay lists, and a type stays one type where its use is described. */
function plain(schema) {
  return JSON.parse(JSON.stringify(schema), (key, value) => {
    if (["minItems", "maxItems"].includes(key) && typeof value === "number") return undefined;
    if (typeof value?.$ref !== "string" || Object.keys(value).length === 1) return value;
    const { $ref, ...rest } = value;
    return { ...rest, allOf: [{ $ref }] };
  });
}

const text = await compile(plain(together()), "Schemas", {
  additionalProperties: false,
  bannerComment: "// From schemas/ by scripts/types.mjs.",
  format: true,
  style: { printWidth: 140 },
  unreachableDefinitions: false,
});

if (process.argv.includes("--check")) {
  if (readFileSync(OUT, "utf8") !== text) {
    console.error("src/types.gen.ts is not current: npm run types writes it");
    process.exit(1);
  }
} else {
  writeFileSync(OUT, text);
}
