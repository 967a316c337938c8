// Numbers as people read them. Every figure leaves here with its unit; what is not a finite number is said in words, so that
// no page can show NaN.

export const GIB = 2 ** 30;
export const GB = 1e9;

const NOT_KNOWN = "not known";

function fixed(value: number, digits: number): string {
  // -0.00 reads like a mistake.
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text;
}

function finite(value: number | null | undefined): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** Bytes in GiB (2^30) with two decimals, smaller figures in MiB or KiB. */
export function gib(bytes: number | null | undefined): string {
  if (!finite(bytes)) return NOT_KNOWN;
  const size = Math.abs(bytes);
  if (size >= 0.0995 * GIB || size === 0) return `${fixed(bytes / GIB, 2)} GiB`;
  if (size >= 2 ** 20) return `${fixed(bytes / 2 ** 20, 1)} MiB`;
  if (size >= 1024) return `${fixed(bytes / 1024, 1)} KiB`;
  return `${Math.round(bytes)} B`;
}

/** GiB without the unit, for tables whose header has it. */
export function gibNumber(bytes: number | null | undefined): string {
  return finite(bytes) ? fixed(bytes / GIB, 2) : NOT_KNOWN;
}

/** Decimal gigabytes (10^9), as devices are sold. */
export function gb(value: number | null | undefined): string {
  return finite(value) ? `${Number(value.toFixed(3))} GB` : NOT_KNOWN;
}

/** The same range once, where both ends read alike. */
export function gibRange(low: number, high: number): string {
  const [from, to] = [gib(low), gib(high)];
  return from === to ? from : `${from} to ${to}`;
}

/** Nanoseconds as milliseconds, seconds, minutes or hours. */
export function time(ns: number | null | undefined): string {
  if (!finite(ns)) return NOT_KNOWN;
  const seconds = ns / 1e9;
  if (seconds < 0.0995) return `${fixed(seconds * 1e3, 1)} ms`;
  if (seconds < 9.95) return `${fixed(seconds, 2)} s`;
  if (seconds < 119.5) return `${fixed(seconds, 0)} s`;
  if (seconds < 119.5 * 60) return `${fixed(seconds / 60, 1)} min`;
  return `${fixed(seconds / 3600, 1)} h`;
}

export function timeRange(low: number, high: number): string {
  const [from, to] = [time(low), time(high)];
  return from === to ? from : `${from} to ${to}`;
}

/** A whole number with thin spaces between thousands. */
export function count(value: number): string {
  return Number.isFinite(value) ? Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f") : NOT_KNOWN;
}

/** One frame, two frames. */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A number without superfluous zeros. */
export function plain(value: number | null | undefined, digits = 2): string {
  return finite(value) ? String(Number(value.toFixed(digits))) : NOT_KNOWN;
}

/** A formula as the estimator writes it, with its large numbers grouped so that they can be read. */
export function formula(text: string): string {
  return text.replace(/\d{5,}/g, (digits) => count(Number(digits))).replace(/ x /g, " × ");
}

/** A setting's value on one line. */
export function value(json: unknown): string {
  if (json === null || json === undefined) return "none";
  if (typeof json === "string") return json === "" ? "empty" : json;
  if (typeof json === "boolean") return json ? "on" : "off";
  if (typeof json === "number") return plain(json, 6);
  if (Array.isArray(json)) return json.length === 0 ? "none" : json.map(value).join(", ");
  const entries = Object.entries(json as Record<string, unknown>).filter(([, inner]) => inner !== null);
  return entries.length === 0 ? "none" : entries.map(([key, inner]) => `${words(key)} ${value(inner)}`).join(", ");
}

/** `text_encoder` as it is said. */
export function words(name: string): string {
  return name.replace(/_/g, " ").replace(/\bvae\b/g, "VAE").replace(/\bdit\b/g, "DiT");
}

/** A sentence's first letter; a name such as `pin_cpu_memory` stays as it is written. */
export function capital(text: string): string {
  return /^[a-z]+(?=[\s,:;.]|$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}
