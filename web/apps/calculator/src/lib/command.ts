// The same question for a terminal.

import type { Choice, Json } from "./link.ts";

/** Quoted for a POSIX shell where that is needed. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

function settingText(value: Json): string {
  // Text that would be read as other JSON keeps its quotes.
  if (typeof value !== "string") return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value);
  } catch {
    return value;
  }
}

function request({ request }: Choice): string[] {
  const flags: [string, number | undefined][] = [
    ["--width", request.width],
    ["--height", request.height],
    ["--frames", request.num_frames],
    ["--batch", request.batch],
    ["--guidance", request.guidance_scale],
    ["--steps", request.num_inference_steps],
    ["--text-tokens", request.text_tokens],
    ["--reference", request.references],
  ];
  return flags.flatMap(([flag, value]) => (value === undefined ? [] : [flag, String(value)]));
}

/** Arguments of `fv-catalog estimate` and its like. */
export function estimateArguments(choice: Choice): string[] {
  const out = [choice.model];
  if (choice.deployment !== undefined) out.push("--deployment", choice.deployment);
  const device = choice.device;
  if (device?.kind === "catalog") {
    out.push("--hardware", device.id);
    if (device.partition !== undefined) out.push("--partition", device.partition);
  } else if (device) {
    out.push("--vram-gib", String(device.vramGiB));
    if (device.backend !== "cuda") out.push("--backend", device.backend);
    out.push("--dtypes", device.dtypes.join(","));
  }
  if (choice.allocationGb !== undefined) out.push("--allocation-gb", String(choice.allocationGb));
  if (choice.budgetGiB !== undefined) out.push("--memory-budget-gib", String(choice.budgetGiB));
  if (choice.hostGb !== undefined) out.push("--host-gb", String(choice.hostGb));
  out.push(...request(choice));
  for (const key of Object.keys(choice.settings).sort()) out.push("--set", `${key}=${settingText(choice.settings[key] ?? null)}`);
  for (const key of Object.keys(choice.environment).sort()) out.push("--env", `${key}=${choice.environment[key]}`);
  return out;
}

/** A device that no flags describe goes through a file. */
export function needsFile(choice: Choice): boolean {
  return choice.device?.kind === "custom" && choice.device.memory === "unified";
}

export function estimateCommand(choice: Choice): string {
  if (needsFile(choice) && choice.device?.kind === "custom") {
    const { device, ...rest } = choice;
    const file = JSON.stringify(customDevice(device));
    const flags = estimateArguments(rest).map(quote).join(" ");
    return `printf %s ${quote(file)} > device.json && fv-catalog estimate ${flags} --device-file device.json`;
  }
  return `fv-catalog estimate ${estimateArguments(choice).map(quote).join(" ")}`;
}

/** What the estimator takes for a device that the catalog does not hold. */
export function customDevice(device: Extract<Choice["device"], { kind: "custom" }>) {
  return {
    id: "custom",
    name: `custom device, ${device.vramGiB} GiB`,
    custom: true as const,
    memory: { type: device.memory, nominal: { value: device.vramGiB, unit: "GiB" as const } },
    backend: device.backend,
    supported_dtypes: device.dtypes,
  };
}

/** Arguments of `fv-run plan`: what is free of device and host. */
export function planCommand(choice: Choice, model: { memory_rules: string }): string {
  const out = ["--model", choice.model];
  if (model.memory_rules !== "minimax_h3") out.push("--policy", "optimal");
  if (choice.device?.kind === "catalog") out.push("--hardware", choice.device.id);
  const vram = choice.budgetGiB ?? (choice.device?.kind === "custom" ? choice.device.vramGiB : undefined);
  if (vram !== undefined) out.push("--vram-gib", String(vram));
  if (choice.hostGb !== undefined) out.push("--ram-gib", String(Number(((choice.hostGb * 1e9) / 2 ** 30).toFixed(3))));
  if (choice.precision !== undefined) out.push("--precision", choice.precision);
  const { width, height, num_frames, num_inference_steps } = choice.request;
  const flags: [string, number | undefined][] = [
    ["--width", width],
    ["--height", height],
    ["--frames", num_frames],
    ["--steps", num_inference_steps],
  ];
  for (const [flag, value] of flags) if (value !== undefined) out.push(flag, String(value));
  return `fv-run plan ${out.map(quote).join(" ")}`;
}
