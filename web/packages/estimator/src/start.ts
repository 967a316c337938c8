import { use, type Glue } from "./engine.js";
import { wrong } from "./errors.js";

/** Where a module may come from. */
export type Source = URL | string | Response | ArrayBuffer | ArrayBufferView | WebAssembly.Module;

export interface InitOptions {
  /**
   * `whole`, which is usual: every family of models and every question. `first`: estimates, summaries and grids for Wan's family, in a
   * third of the bytes; `init()` later takes its place.
   */
  part?: "whole" | "first";
  /** The WebAssembly module, where it is not to be found beside this file. */
  wasm?: Source | Promise<Source>;
  /** `rules.json` of a compiled catalog, as text or parsed, in place of the coefficients that this package was built with. */
  rules?: string | object;
}

/** Finds the bytes of a part. */
export type Find = (part: "whole" | "first") => Source | undefined | Promise<Source | undefined>;

/** Loads a part and makes it the one that answers. */
export async function start(options: InitOptions, find: Find): Promise<void> {
  const part = options.part ?? "whole";
  if (part !== "whole" && part !== "first") throw wrong("invalid-value", `part: found ${JSON.stringify(part)}, allowed: whole, first`, "part");
  if (typeof WebAssembly !== "object") {
    throw wrong("no-webassembly", "WebAssembly is blocked or missing here, and the estimator needs it: allow it for this page, or use another browser");
  }
  const [glue, facts, found] = await Promise.all([
    (part === "whole" ? import("./whole/fv_wasm.js") : import("./first/fv_wasm.js")) as Promise<Glue>,
    import("./facts.js"),
    options.wasm ?? find(part),
  ]);
  try {
    await glue.default(found === undefined ? undefined : { module_or_path: found });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw Object.assign(wrong("not-loaded", `the estimator could not be loaded: ${why}`, "wasm"), { cause: error });
  }
  const { rules } = options;
  use(glue, rules === undefined ? facts.rules : typeof rules === "string" ? rules : JSON.stringify(rules), facts.reference);
}
