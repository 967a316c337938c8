/** What `wasm-bindgen --target web` writes beside each module; both parts are made by `scripts/build.mjs`. */
declare module "*/fv_wasm.js" {
  export default function start(input?: { module_or_path: unknown }): Promise<unknown>;
  export function version(): string;
  export function readRules(text: string): string;
  export function readReference(text: string): string;
  export function readModel(text: string): string;
  export function readDevice(text: string): string;
  export function forgetModel(handle: number): void;
  export function forgetDevice(handle: number): void;
  export function estimate(model: number, device: number, subject: string, options: string): string;
  export function estimateSummary(model: number, device: number, subject: string, options: string): string;
  export function estimateGrid(model: number, device: number, subject: string, options: string): string;
  export function assess(model: number, device: number, subject: string, options: string): string;
  // Named `match` in the module.
  function matchEvidence(model: number, device: number, subject: string, options: string): string;
  export { matchEvidence as match };
  export function legal(model: number, subject: string): string;
  export function recommend(model: number, devices: Uint32Array, subject: string, options: string): string;
  export function largest(models: Uint32Array, device: number, subject: string, options: string): string;
  export function minimum(model: number, device: number, devices: Uint32Array, subject: string, options: string): string;
  export function compare(models: Uint32Array, devices: Uint32Array, subject: string, options: string): string;
  export function plan(model: number, device: number, subject: string, options: string): string;
}
declare module "*/facts.js" {
  /** `rules.json` of the compiled catalog. */
  export const rules: string;
  /** The device whose rates plans are compared by. */
  export const reference: string;
}
