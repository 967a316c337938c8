// What a link holds, and how it is read back. Links are versioned: what version 1 says stays readable, and a version that this
// page does not know is refused in words instead of being half understood.

export const VERSION = 1;
export const VIEWS = ["memory", "fit", "compare", "maps", "plan", "settings"] as const;
export type View = (typeof VIEWS)[number];
export const MOST_COMPARED = 4;

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** A device of the catalog by id, or one that the person describes. */
export type DeviceChoice =
  | { kind: "catalog"; id: string; partition?: string }
  | { kind: "custom"; memory: "dedicated" | "unified"; vramGiB: number; backend: string; dtypes: string[] };

export interface RequestChoice {
  width?: number;
  height?: number;
  num_frames?: number;
  batch?: number;
  guidance_scale?: number;
  num_inference_steps?: number;
  text_tokens?: number;
  references?: number;
}

/** Everything that a person chose; what is absent follows from the deployment, the runtime and the family. */
export interface Choice {
  model: string;
  deployment?: string;
  device?: DeviceChoice;
  /** The most to use of the device, GiB. */
  budgetGiB?: number;
  /** What is provisioned of the device, decimal GB. */
  allocationGb?: number;
  /** Host memory, decimal GB. */
  hostGb?: number;
  request: RequestChoice;
  settings: Record<string, Json>;
  environment: Record<string, string>;
  /** Further devices in the comparison. */
  compare: string[];
  /** The stored format of the transformer in a plan. */
  precision?: "bf16" | "fp8" | "int8";
  view: View;
}

export type Read =
  | { kind: "empty" }
  | { kind: "refused"; message: string }
  | { kind: "read"; choice: Partial<Choice> & Pick<Choice, "request" | "settings" | "environment" | "compare">; problems: string[] };

const BACKENDS = ["cuda", "rocm", "xpu", "mps", "musa", "npu"];
export const DTYPES = ["fp32", "fp16", "bf16", "fp8", "int8", "nvfp4"];
const NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,79}$/;
const KEY = /^[A-Za-z_][A-Za-z0-9_.]{0,99}$/;
const LONGEST = 8_000;

interface Whole {
  name: keyof RequestChoice;
  least: number;
  most: number;
}
const WHOLE: Record<string, Whole> = {
  w: { name: "width", least: 1, most: 16_384 },
  h: { name: "height", least: 1, most: 16_384 },
  frames: { name: "num_frames", least: 1, most: 16_384 },
  batch: { name: "batch", least: 1, most: 1_024 },
  steps: { name: "num_inference_steps", least: 1, most: 10_000 },
  text: { name: "text_tokens", least: 1, most: 100_000 },
  refs: { name: "references", least: 0, most: 1_000 },
};
const SIZES = { budget: "budgetGiB", alloc: "allocationGb", host: "hostGb" } as const;

/** The link's part after `#`. */
export function write(choice: Choice): string {
  const out = new URLSearchParams();
  out.set("v", String(VERSION));
  out.set("model", choice.model);
  if (choice.deployment !== undefined) out.set("deployment", choice.deployment);
  const device = choice.device;
  if (device?.kind === "catalog") {
    out.set("device", device.id);
    if (device.partition !== undefined) out.set("partition", device.partition);
  } else if (device) {
    out.set("device", "custom");
    out.set("vram", String(device.vramGiB));
    if (device.memory !== "dedicated") out.set("memory", device.memory);
    if (device.backend !== "cuda") out.set("backend", device.backend);
    if (device.dtypes.join() !== CUSTOM_DTYPES.join()) out.set("dtypes", device.dtypes.join(","));
  }
  for (const [key, name] of Object.entries(SIZES)) {
    const size = choice[name];
    if (size !== undefined) out.set(key, String(size));
  }
  for (const [key, { name }] of Object.entries(WHOLE)) {
    const number = choice.request[name];
    if (number !== undefined) out.set(key, String(number));
  }
  if (choice.request.guidance_scale !== undefined) out.set("guidance", String(choice.request.guidance_scale));
  for (const key of Object.keys(choice.settings).sort()) out.set(`set.${key}`, JSON.stringify(choice.settings[key]));
  for (const key of Object.keys(choice.environment).sort()) out.set(`env.${key}`, choice.environment[key] ?? "");
  if (choice.compare.length > 0) out.set("compare", choice.compare.join(","));
  if (choice.precision !== undefined) out.set("precision", choice.precision);
  if (choice.view !== "memory") out.set("view", choice.view);
  return out.toString();
}

/** Formats that a custom device is assumed to have when nobody says, as on the command line. */
export const CUSTOM_DTYPES = ["fp32", "fp16", "bf16"];

function shown(text: string): string {
  return `“${text.length > 40 ? `${text.slice(0, 40)}…` : text}”`;
}

/** Reads the part after `#`. What cannot be used is left out and named; nothing throws. */
export function read(hash: string): Read {
  const text = hash.replace(/^#/, "");
  if (text === "") return { kind: "empty" };
  if (text.length > LONGEST) return { kind: "refused", message: "This link is longer than any that this page writes, so it was not read." };
  const given = new URLSearchParams(text);
  const version = given.get("v");
  if (version === null) {
    return { kind: "refused", message: "This address has something after # that is no link of this page: links begin with v=1." };
  }
  if (version !== String(VERSION)) {
    return {
      kind: "refused",
      message: /^\d{1,6}$/.test(version)
        ? `This link is of version ${version}, and this page reads version ${VERSION}. Reload to get the newest page, or ask for the link again.`
        : `The version of this link, ${shown(version)}, is no number, so the link was not read.`,
    };
  }
  const problems: string[] = [];
  const request: RequestChoice = {};
  const settings: Record<string, Json> = {};
  const environment: Record<string, string> = {};
  const choice: Partial<Choice> & Pick<Choice, "request" | "settings" | "environment" | "compare"> = {
    request,
    settings,
    environment,
    compare: [],
  };
  const ignore = (key: string, found: string, allowed: string) => problems.push(`${key}: found ${shown(found)}, allowed: ${allowed}`);
  const name = (key: string): string | undefined => {
    const found = given.get(key);
    if (found === null) return undefined;
    if (NAME.test(found)) return found;
    ignore(key, found, "an id of letters, digits, dots and hyphens");
    return undefined;
  };
  const number = (key: string, least: number, most: number): number | undefined => {
    const found = given.get(key);
    if (found === null) return undefined;
    const value = Number(found);
    if (found.trim() !== "" && Number.isFinite(value) && value >= least && value <= most) return value;
    ignore(key, found, `a number from ${least} to ${most}`);
    return undefined;
  };

  const model = name("model");
  if (model !== undefined) choice.model = model;
  const deployment = name("deployment");
  if (deployment !== undefined) choice.deployment = deployment;

  const device = name("device");
  if (device === "custom") {
    const vramGiB = number("vram", 0.01, 100_000);
    if (vramGiB === undefined) {
      if (!given.has("vram")) problems.push("vram: a custom device needs its memory in GiB, such as vram=24");
    } else {
      const backend = given.get("backend") ?? "cuda";
      if (!BACKENDS.includes(backend)) ignore("backend", backend, BACKENDS.join(", "));
      const memory = given.get("memory") ?? "dedicated";
      if (memory !== "dedicated" && memory !== "unified") ignore("memory", memory, "dedicated or unified");
      const dtypes = given.has("dtypes") ? (given.get("dtypes") ?? "").split(",").filter((dtype) => dtype !== "") : CUSTOM_DTYPES;
      const strange = dtypes.filter((dtype) => !DTYPES.includes(dtype));
      if (strange.length > 0) ignore("dtypes", strange.join(","), DTYPES.join(", "));
      choice.device = {
        kind: "custom",
        vramGiB,
        memory: memory === "unified" ? "unified" : "dedicated",
        backend: BACKENDS.includes(backend) ? backend : "cuda",
        dtypes: DTYPES.filter((dtype) => dtypes.includes(dtype)),
      };
    }
  } else if (device !== undefined) {
    const partition = name("partition");
    choice.device = { kind: "catalog", id: device, ...(partition !== undefined && { partition }) };
  }

  for (const [key, field] of Object.entries(SIZES)) {
    const size = number(key, key === "host" ? 0 : 0.001, 1_000_000);
    if (size !== undefined) choice[field] = size;
  }
  for (const [key, { name: field, least, most }] of Object.entries(WHOLE)) {
    const found = given.get(key);
    if (found === null) continue;
    const value = Number(found);
    if (/^\d{1,6}$/.test(found) && value >= least && value <= most) request[field] = value;
    else ignore(key, found, `a whole number from ${least} to ${most}`);
  }
  const guidance = number("guidance", 0, 1_000);
  if (guidance !== undefined) request.guidance_scale = guidance;

  for (const [key, found] of given) {
    const [kind, rest] = [key.slice(0, 4), key.slice(4)];
    if (kind === "set." && KEY.test(rest)) {
      try {
        settings[rest] = JSON.parse(found) as Json;
      } catch {
        // As on the command line: what is no JSON is text.
        settings[rest] = found;
      }
    } else if (kind === "env." && KEY.test(rest)) {
      environment[rest] = found;
    } else if (!KNOWN.has(key)) {
      problems.push(`${shown(key)} means nothing in a link of version 1`);
    }
  }

  const compare = (given.get("compare") ?? "").split(",").filter((id) => id !== "");
  choice.compare = [...new Set(compare.filter((id) => NAME.test(id)))].slice(0, MOST_COMPARED - 1);
  if (choice.compare.length < compare.length) {
    problems.push(`compare: up to ${MOST_COMPARED - 1} further devices, each an id and each once; the rest was left out`);
  }
  const precision = given.get("precision");
  if (precision === "bf16" || precision === "fp8" || precision === "int8") choice.precision = precision;
  else if (precision !== null) ignore("precision", precision, "bf16, fp8 or int8");
  const view = given.get("view");
  const known = VIEWS.find((candidate) => candidate === view);
  if (known) choice.view = known;
  else if (view !== null) ignore("view", view, VIEWS.join(", "));
  return { kind: "read", choice, problems };
}

const KNOWN = new Set([
  "v",
  "model",
  "deployment",
  "device",
  "partition",
  "vram",
  "memory",
  "backend",
  "dtypes",
  "guidance",
  "compare",
  "precision",
  "view",
  ...Object.keys(SIZES),
  ...Object.keys(WHOLE),
]);
