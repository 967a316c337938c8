export * from "./api.js";
export * from "./catalog.js";
export * from "./errors.js";
export type * from "./types.js";
export type { InitOptions, Source } from "./start.js";

import { readFile } from "node:fs/promises";
import { start, type InitOptions } from "./start.js";

/** Loads the estimator from this package's files. Everything else is synchronous once this has ended. */
export async function init(options: InitOptions = {}): Promise<void> {
  await start(options, (part) => readFile(new URL(`./${part}/fv_wasm_bg.wasm`, import.meta.url)));
}
