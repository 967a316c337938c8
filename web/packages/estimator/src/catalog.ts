import type { CompiledModel, Device, ModelSummary } from "./types.gen.js";

/** Options of one call; nothing of them is kept. */
export interface LoadOptions {
  /** In place of the global `fetch`. */
  fetcher?: (url: URL, init?: RequestInit) => Promise<Response>;
  /** Cancels the call. */
  signal?: AbortSignal;
}

/** The index of a compiled catalog. */
export interface CapacityIndex {
  version: 1;
  models: ModelSummary[];
  /** Relative to the index. */
  hardware_url: string;
  /** Relative to the index. */
  rules_url: string;
  /** Where the index came from. */
  url: string;
}

export type CapacityModel = CompiledModel;

/** Every device, with where the list came from. */
export interface CapacityHardware {
  version: 1;
  devices: Device[];
  url: string;
}

/**
 * Loads the index of a compiled catalog.
 *
 * @param url Absolute, or in a browser relative to the page.
 * @throws TypeError for an address or a text that is none, Error for HTTP, and whatever the fetcher or the signal throws.
 */
export async function loadCapacityIndex(url: string | URL, options?: LoadOptions): Promise<CapacityIndex> {
  const { body, source } = await loadJson(absolute(url), options);
  expect(body.version === 1, source, "version 1 of an index", body.version);
  expect(Array.isArray(body.models) && body.models.every(isSummary), source, "an index: `models` have id, name, model_id and path");
  expect(isText(body.hardware_url) && isText(body.rules_url), source, "an index: `hardware_url` and `rules_url` are text");
  const ids = (body.models as ModelSummary[]).map((model) => model.id);
  expect(new Set(ids).size === ids.length, source, "an index: ids of models are unique");
  return { ...(body as unknown as CapacityIndex), url: source };
}

/**
 * Loads one model.
 *
 * @throws RangeError for an id that is not in the index; otherwise as `loadCapacityIndex`.
 */
export async function loadCapacityModel(index: CapacityIndex, id: string, options?: LoadOptions): Promise<CapacityModel> {
  const summary = index.models.find((model) => model.id === id);
  if (!summary) throw new RangeError(`${index.url} has no model ${JSON.stringify(id)}, only ${index.models.map((model) => model.id).join(", ")}`);
  const { body, source } = await loadJson(new URL(summary.path, index.url), options);
  expect(body.version === 1, source, "version 1 of a model", body.version);
  expect(body.id === id, source, `the model ${id}`, body.id);
  expect(isText(body.model_id) && isText(body.memory_rules) && isObject(body.components), source, "a model");
  expect(Array.isArray(body.examples) && body.examples.every(isExample), source, "a model: `examples` have id, runtime, base_config and env");
  expect(Array.isArray(body.reference_runs), source, "a model: `reference_runs` is a list");
  return body as unknown as CapacityModel;
}

/**
 * Loads every device, with stable ids and aliases.
 *
 * @throws As `loadCapacityIndex`.
 */
export async function loadCapacityHardware(index: CapacityIndex, options?: LoadOptions): Promise<CapacityHardware> {
  const { body, source } = await loadJson(new URL(index.hardware_url, index.url), options);
  expect(body.version === 1, source, "version 1 of a list of devices", body.version);
  expect(Array.isArray(body.devices) && body.devices.every(isDevice), source, "a list of devices: each has id, name, memory and memory_gb");
  const devices = body.devices as Device[];
  expect(new Set(devices.map((device) => device.id)).size === devices.length, source, "a list of devices: ids are unique");
  return { version: 1, devices, url: source };
}

function absolute(url: string | URL): URL {
  const page = (globalThis as { location?: { href?: string } }).location?.href;
  try {
    return new URL(url, page);
  } catch {
    const hint = page === undefined ? "outside a browser it has to be absolute" : "it is no address";
    throw new TypeError(`index URL ${JSON.stringify(String(url))}: ${hint}`);
  }
}

async function loadJson(url: URL, options?: LoadOptions): Promise<{ body: Record<string, unknown>; source: string }> {
  const { fetcher = fetch, signal } = options ?? {};
  signal?.throwIfAborted();
  const response = await fetcher(url, { headers: { accept: "application/json" }, ...(signal && { signal }) });
  const source = response.url || url.href;
  if (!response.ok) throw new Error(`${source}: HTTP ${response.status}${response.statusText && ` ${response.statusText}`}`);
  let body: unknown;
  try {
    body = JSON.parse(await response.text());
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof SyntaxError) throw new SyntaxError(`${source} is not JSON: ${error.message}`, { cause: error });
    throw error;
  }
  // A fetcher may not know the signal.
  signal?.throwIfAborted();
  expect(isObject(body), source, "a JSON object");
  return { body: body as Record<string, unknown>, source };
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const isSummary = (value: unknown): boolean =>
  isObject(value) && isText(value.id) && isText(value.name) && isText(value.model_id) && isText(value.path);
const isExample = (value: unknown): boolean => isObject(value) && isText(value.id) && isText(value.runtime) && isObject(value.base_config) && isObject(value.env);
const isDevice = (value: unknown): boolean =>
  isObject(value) && isText(value.id) && isText(value.name) && isObject(value.memory) && typeof value.memory_gb === "number" && Array.isArray(value.aliases);

function expect(ok: boolean, source: string, what: string, found?: unknown): void {
  if (ok) return;
  const seen = found === undefined ? "" : `: found ${JSON.stringify(found)}`;
  throw new TypeError(`${source} is not ${what}${seen}`);
}
