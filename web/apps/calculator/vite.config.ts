import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { resolve } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { assessCapacity, init, legal, version } from "fv-estimator";
import { type Plugin, defineConfig } from "vite";
import { deployment, question } from "./src/lib/ask.ts";
import { FILE, FIRST, type Prepared } from "./src/lib/first.ts";
import { write } from "./src/lib/link.ts";
import type { Device, Model } from "./src/lib/types.ts";

const data = resolve(import.meta.dirname, "../../../crates/fv-data/data");

/** The compiled catalog beside the page, with a list of devices that leaves out what the first view does not show. */
function catalogFiles(): Map<string, string> {
  const files = new Map<string, string>();
  const minified = (path: string) => JSON.stringify(JSON.parse(readFileSync(resolve(data, path), "utf8")));
  for (const path of ["index.json", "hardware.json", "rules.json", ...readdirSync(resolve(data, "models")).map((name) => `models/${name}`)]) {
    files.set(`catalog/${path}`, minified(path));
  }
  const hardware = JSON.parse(readFileSync(resolve(data, "hardware.json"), "utf8")) as { version: number; devices: Record<string, unknown>[] };
  const devices = hardware.devices.map(({ notes: _notes, ...device }) => ({ ...device, sources: [] }));
  files.set("catalog/hardware.slim.json", JSON.stringify({ ...hardware, devices }));
  return files;
}

/** The answer to the first question, by the estimator itself. */
async function prepared(): Promise<string> {
  const read = (path: string) => JSON.parse(readFileSync(resolve(data, path), "utf8")) as unknown;
  const model = read(`models/${FIRST.model}.json`) as Model;
  const { devices } = read("hardware.json") as { devices: Device[] };
  const example = deployment(model, FIRST.deployment);
  const device = devices.find(({ id }) => FIRST.device?.kind === "catalog" && FIRST.device.id === id);
  if (!example || !device) throw new Error("the first question asks for what is not in the catalog");
  await init();
  const first: Prepared = {
    link: write(FIRST),
    assessment: assessCapacity(question(FIRST, model, example, device)),
    legal: legal({ model, config: example.id }),
    version: version().version,
  };
  return JSON.stringify(first);
}

function catalog(): Plugin {
  return {
    name: "catalog",
    async configureServer(server) {
      const files = catalogFiles().set(FILE, await prepared());
      server.middlewares.use((request, response, next) => {
        const text = files.get((request.url ?? "").replace(/^\//, "").replace(/\?.*$/, ""));
        if (text === undefined) return next();
        response.setHeader("content-type", "application/json");
        response.end(text);
      });
    },
    async generateBundle() {
      for (const [fileName, source] of catalogFiles().set(FILE, await prepared())) this.emitFile({ type: "asset", fileName, source });
    },
  };
}

/** The package has a smaller module for one family as well, which this page never asks for. */
function oneModule(): Plugin {
  return {
    name: "one-module",
    enforce: "pre",
    resolveId(source, importer) {
      return source === "./first/fv_wasm.js" ? this.resolve("./whole/fv_wasm.js", importer, { skipSelf: true }) : undefined;
    },
  };
}

/** The service worker, with the names of all files and a version that changes with any of them. */
function offline(): Plugin {
  return {
    name: "offline",
    apply: "build",
    generateBundle: {
      order: "post",
      handler(_, bundle) {
        const names = Object.keys(bundle).filter((name) => !name.endsWith(".map"));
        const hash = createHash("sha256");
        for (const name of [...names].sort()) {
          const part = bundle[name];
          hash.update(name).update(part?.type === "chunk" ? part.code : (part?.source ?? ""));
        }
        const files = ["./", "icon.svg", "site.webmanifest", ...names.filter((name) => name !== "index.html")];
        const source = readFileSync(resolve(import.meta.dirname, "src/sw.js"), "utf8")
          .replace('"VERSION"', JSON.stringify(hash.digest("hex").slice(0, 16)))
          .replace('["FILES"]', JSON.stringify(files));
        this.emitFile({ type: "asset", fileName: "sw.js", source });
      },
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [oneModule(), svelte(), catalog(), offline()],
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  worker: { format: "es", plugins: () => [oneModule()] },
});
