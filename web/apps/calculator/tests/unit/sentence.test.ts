import { describe, expect, test } from "vitest";
import { layout } from "../../src/lib/chart.ts";
import { badge, margin, need, range, sentence } from "../../src/lib/sentence.ts";
import type { Assessment, Estimate, Interval, PeakBytes, StageName, Verdict } from "../../src/lib/types.ts";

const GIB = 2 ** 30;
const interval = (low: number, value: number, high: number): Interval => ({ low: low * GIB, value: value * GIB, high: high * GIB });

function stage(name: StageName, peakBytes: PeakBytes): Estimate["stages"][number] {
  const buffers = [
    { name: "weights", kind: "weights" as const, tier: "device" as const, bytes: peakBytes.allocated.value - 2 ** 20, count: 1, formula: "", rule: "" },
    { name: "small", kind: "activation" as const, tier: "device" as const, bytes: 2 ** 20, count: 1, formula: "", rule: "" },
    { name: "copy", kind: "weights" as const, tier: "pinned" as const, bytes: GIB, count: 1, formula: "", rule: "" },
  ];
  return { name, phases: [], buffers, peakBytes, host: { pinnedBytes: GIB, pageableBytes: GIB, diskBytes: 0 } };
}
const denoising = stage("denoising", { allocated: interval(10, 11, 11), reserved: interval(12, 13, 14), device: interval(12.5, 14, 15.5) });
const decoding = stage("decoding", { allocated: interval(8, 8, 8), reserved: interval(9, 9, 15), device: interval(9.5, 10, 16) });

function assessment(status: Verdict, budget: number | undefined, more: Partial<Estimate> = {}): Assessment {
  const estimate: Estimate = {
    version: 1,
    model: "m",
    deployment: "d",
    request: { height: 1, width: 1, num_frames: 1, batch: 1, guidance_scale: 1, num_inference_steps: 1, text_tokens: 1, references: 0 },
    status,
    reasons: [],
    memory: { reserveBytes: 0, ...(budget !== undefined && { budgetBytes: budget * GIB }) },
    host: { status: "unknown" },
    stages: [denoising, decoding],
    settings: [],
    coverage: { rules: [], uncovered: [], extrapolated: [] },
    notes: [],
    ...more,
  };
  return { status, reasons: estimate.reasons, basis: "analytical", estimate, evidence: { applicable: [], unverified: [], rejected: [] } };
}
const names = { model: "Wan", device: "a card" };

describe("the answer", () => {
  test("takes the largest of each figure over the stages", () => {
    expect(range(denoising.peakBytes as PeakBytes)).toEqual(interval(10.5, 14, 15.5));
    expect(need(assessment("fits", 24).estimate)).toEqual(interval(10.5, 14, 16));
    expect(margin(assessment("fits", 24).estimate)).toBe(8 * GIB);
  });

  test("is one sentence for each verdict, and its numbers add up", () => {
    expect(sentence(assessment("fits", 24), names)).toBe("Wan fits on a card: while decoding it needs at most 16.00 GiB of 24.00 GiB, which leaves at least 8.00 GiB.");
    expect(sentence(assessment("uncertain", 12), names)).toBe("Wan may fit on a card: while decoding it needs between 10.50 GiB and 16.00 GiB, and there are 12.00 GiB.");
    const short = { tier: "device", stage: "denoising" as const, bytes: 2.5 * GIB, buffers: [] };
    expect(sentence(assessment("does_not_fit", 8, { shortfall: short }), names)).toBe(
      "Wan does not fit on a card: while denoising it needs at least 10.50 GiB, and there are 8.00 GiB, 2.50 GiB too little.",
    );
    const host = { requiredBytes: 70 * GIB, capacityBytes: 60 * GIB, status: "does_not_fit" as const };
    expect(sentence(assessment("does_not_fit", 24, { host, shortfall: { ...short, tier: "host", bytes: 10 * GIB } }), names)).toBe(
      "Wan does not fit on a card: it needs 70.00 GiB of host memory while denoising, and there are 60.00 GiB, 10.00 GiB too little.",
    );
    const reasons = [{ code: "no-hardware", message: "no device was chosen" }];
    expect(sentence(assessment("unknown", undefined, { reasons }), { ...names, device: undefined })).toBe("Whether Wan fits is not known: no device was chosen.");
    expect(sentence({ ...assessment("fits", 24), basis: "measured" }, names)).toMatch(/recorded run/);
  });

  test("has a badge for what it rests on", () => {
    expect(badge(assessment("fits", 24))).toBe("estimated");
    expect(badge(assessment("fits", 24, { coverage: { rules: [], uncovered: [], extrapolated: ["frames"] } }))).toBe("extrapolated");
    expect(badge(assessment("unknown", 24))).toBe("unknown");
    expect(badge({ ...assessment("fits", 24), basis: "measured" })).toBe("measured");
  });
});

describe("the timeline", () => {
  test("stacks the buffers on the device, then what the allocator and the process hold, up to the derived peak", () => {
    const { columns, budget, top } = layout(assessment("fits", 24).estimate);
    expect(budget).toBe(24 * GIB);
    expect(top).toBeGreaterThanOrEqual(24 * GIB);
    const first = columns[0];
    expect(first?.pieces.map(({ kind }) => kind)).toEqual(["weights", "rest", "held", "context"]);
    expect(first?.pieces.at(-1)?.to).toBe(14 * GIB);
    expect(first?.host).toEqual({ pinned: GIB, pageable: GIB, total: 2 * GIB });
    for (const { pieces } of columns) pieces.forEach((piece, n) => expect(piece.from).toBe(n === 0 ? 0 : pieces[n - 1]?.to));
  });
});
