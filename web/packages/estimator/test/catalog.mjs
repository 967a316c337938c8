// The compiled catalog as the tests read it.
import { readFileSync } from "node:fs";

const DATA = new URL("../../../../crates/fv-data/data/", import.meta.url);

export const text = (file) => readFileSync(new URL(file, DATA), "utf8");
export const json = (file) => JSON.parse(text(file));
export const hardware = json("hardware.json");
export const device = (id) => {
  const found = hardware.devices.find((device) => device.id === id);
  if (!found) throw new Error(`no device ${id}`);
  return found;
};

const models = new Map();
export function model(id) {
  if (!models.has(id)) models.set(id, json(`models/${id}.json`));
  return models.get(id);
}

/** Answers with the catalog's files below an address, and records what was asked for. */
export function serve(files = {}, { redirected } = {}) {
  const asked = [];
  const fetcher = async (url, init = {}) => {
    asked.push({ url: String(url), init });
    init.signal?.throwIfAborted();
    const path = new URL(url).pathname.replace(/^\/(old|new|catalog)\//, "");
    const body = files[path] ?? (path in files ? undefined : tryText(path));
    const response = body instanceof Response ? body : body === undefined ? new Response("", { status: 404, statusText: "Not Found" }) : new Response(body);
    Object.defineProperty(response, "url", { value: redirected ? redirected(String(url)) : String(url) });
    return response;
  };
  return { fetcher, asked };
}

function tryText(path) {
  try {
    return text(path);
  } catch {
    return undefined;
  }
}
