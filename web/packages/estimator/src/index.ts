export * from "./api.js";
export * from "./catalog.js";
export * from "./errors.js";
export type * from "./types.js";
export type { InitOptions, Source } from "./start.js";

import { start, type InitOptions } from "./start.js";

/** Loads the estimator. Everything else is synchronous once this has ended. */
export async function init(options: InitOptions = {}): Promise<void> {
  // Each module lies beside its own script.
  await start(options, () => undefined);
}
