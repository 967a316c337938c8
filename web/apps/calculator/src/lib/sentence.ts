// The answer in one sentence, made from the estimate's own fields.

import { gib, plural } from "./format.ts";
import type { Assessment, Estimate, Interval, PeakBytes, Reason, StageName, Verdict } from "./types.ts";

export const VERDICTS: Record<Verdict, { mark: string; word: string; short: string }> = {
  fits: { mark: "✓", word: "Fits", short: "fits" },
  uncertain: { mark: "~", word: "May fit", short: "may fit" },
  does_not_fit: { mark: "✗", word: "Does not fit", short: "does not fit" },
  unknown: { mark: "?", word: "Not known", short: "not known" },
};

const WHILE: Record<StageName, string> = {
  load: "while loading",
  encoding: "while encoding the prompt",
  denoising: "while denoising",
  decoding: "while decoding",
};

/**
 * What a stage needs of the device: at least what has to be alive, with the process's own cost at its lower end, and at most what the
 * allocator and the process may hold. The verdict compares these two with the budget.
 */
export function range({ allocated, reserved, device }: PeakBytes): Interval {
  return { low: Math.min(device.low, allocated.low + device.low - reserved.low), value: device.value, high: device.high };
}

/** The stage that decides, by the most that it may take. */
export function tightest(estimate: Estimate): { name: StageName; peak: Interval } | undefined {
  let worst: { name: StageName; peak: Interval } | undefined;
  for (const { name, peakBytes } of estimate.stages) {
    if (peakBytes && (!worst || peakBytes.device.high > worst.peak.high)) worst = { name: name as StageName, peak: range(peakBytes) };
  }
  return worst;
}

/** What the device has to have over all stages: the largest of each figure, since stages do not run together. */
export function need(estimate: Estimate): Interval | undefined {
  const peaks = estimate.stages.flatMap(({ peakBytes }) => (peakBytes ? [range(peakBytes)] : []));
  if (peaks.length === 0) return undefined;
  const most = (key: keyof Interval) => Math.max(...peaks.map((peak) => peak[key]));
  return { low: most("low"), value: most("value"), high: most("high") };
}

/** Budget less the most that any stage can take. */
export function margin(estimate: Estimate): number | undefined {
  const [worst, budget] = [tightest(estimate), estimate.memory.budgetBytes];
  return worst && budget !== undefined ? budget - worst.peak.high : undefined;
}

/** Reasons that a person can remove, with how; the rest of the message is the estimator's. */
const REMEDIES: Record<string, string> = {
  "no-hardware": "Choose a device, or describe your own.",
  "unknown-capacity": "Say how much memory the device has: describe it as a custom device, or give a budget.",
  "unknown-memory-type": "Say whether the memory is the device's own: describe it as a custom device.",
  "unknown-backend": "Choose the backend: describe it as a custom device.",
  "uncovered-backend": "The rules are those of CUDA. The stages below show what the tensors take; whether they fit is not known on this backend.",
  "format-not-listed": "Choose a format that the device handles, in the settings.",
  "format-unknown": "Say which formats the device handles: describe it as a custom device.",
  "unknown-setting": "Take the setting back, or report what it does so that a rule can be written.",
  "uncovered-runtime": "Choose another deployment: no rule covers this runtime.",
  "host-memory-unknown": "Enter how much host RAM there is.",
  "host-unknown": "Enter how much host RAM there is.",
};

export function remedy(reason: Reason): string | undefined {
  return REMEDIES[reason.code];
}

/** What the verdict rests on. */
export type Badge = "measured" | "estimated" | "extrapolated" | "unknown";

export function badge({ basis, estimate, status }: Assessment): Badge {
  if (status === "unknown") return "unknown";
  if (basis === "measured") return "measured";
  return estimate.coverage.extrapolated.length > 0 ? "extrapolated" : "estimated";
}

export interface Names {
  model: string;
  device: string | undefined;
}

/** The whole answer in one sentence. */
export function sentence({ status, basis, reasons, estimate }: Assessment, { model, device }: Names): string {
  const budget = estimate.memory.budgetBytes;
  const worst = tightest(estimate);
  const where = device ?? "no device";
  if (status === "unknown") {
    const reason = reasons[0] ?? estimate.reasons[0];
    const why = reason ? reason.message.replace(/\.$/, "") : "a fact or a rule is missing";
    return `Whether ${model} fits${device === undefined ? "" : ` on ${device}`} is not known: ${why}.`;
  }
  if (basis === "measured") return `${model} fits on ${where}: a recorded run with exactly this request and these settings completed.`;
  const short = estimate.shortfall;
  if (status === "does_not_fit" && short?.tier === "host") {
    return `${model} does not fit on ${where}: it needs ${gib(estimate.host.requiredBytes)} of host memory ${WHILE[short.stage as StageName]}, and there are ${gib(estimate.host.capacityBytes)}, ${gib(short.bytes)} too little.`;
  }
  if (!worst || budget === undefined) return `${model} on ${where}: ${VERDICTS[status].short}.`;
  if (status === "does_not_fit") {
    const stage = (short?.stage as StageName | undefined) ?? worst.name;
    const missing = short?.bytes ?? worst.peak.low - budget;
    return `${model} does not fit on ${where}: ${WHILE[stage]} it needs at least ${gib(budget + missing)}, and there are ${gib(budget)}, ${gib(missing)} too little.`;
  }
  if (status === "uncertain") {
    return `${model} may fit on ${where}: ${WHILE[worst.name]} it needs between ${gib(need(estimate)?.low)} and ${gib(worst.peak.high)}, and there are ${gib(budget)}.`;
  }
  return `${model} fits on ${where}: ${WHILE[worst.name]} it needs at most ${gib(worst.peak.high)} of ${gib(budget)}, which leaves at least ${gib(budget - worst.peak.high)}.`;
}

/** Where a budget came from, for people. */
export function budgetSource(source: string | undefined): string {
  const names: Record<string, string> = {
    allocation: "as provisioned",
    partition: "the partition's own",
    measured: "measured as free",
    reported: "as its driver reports",
    nominal: "the maker's figure",
    usable: "a documented limit",
    unified_default: "assumed: 75 % of unified memory",
    explicit: "the limit you gave",
  };
  return source ? (names[source] ?? source) : "not known";
}

/** What was asked, in a line. */
export function requestLine(estimate: Estimate, fps: number | undefined): string {
  const { width, height, num_frames, batch, num_inference_steps, guidance_scale } = estimate.request;
  const seconds = fps ? ` (${(num_frames / fps).toFixed(1)} s)` : "";
  const parts = [`${width} × ${height} pixels`, `${plural(num_frames, "frame")}${seconds}`, plural(num_inference_steps, "step")];
  if (guidance_scale > 1) parts.push(`guidance ${guidance_scale}`);
  if (batch > 1) parts.push(`${batch} videos at once`);
  return parts.join(", ");
}
