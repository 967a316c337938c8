// The catalog's files, all beside the page.

import { loadCapacityHardware, loadCapacityIndex, loadCapacityModel } from "fv-estimator";
import type { Catalog } from "./app.svelte.ts";

/** How long a file may take before the page says that it is slow; it goes on waiting. */
export const PATIENCE_MS = 8_000;

export async function loadCatalog(signal: AbortSignal): Promise<Catalog> {
  const index = await loadCapacityIndex(new URL("catalog/index.json", document.baseURI).href, { signal });
  const slim = { ...index, hardware_url: "hardware.slim.json" };
  const { devices } = await loadCapacityHardware(slim, { signal });
  return {
    models: index.models,
    devices: devices,
    load: async (id, signal) => (await loadCapacityModel(index, id, { signal })),
    sources: async () => (await loadCapacityHardware(index)).devices,
  };
}
