// Where each piece of the timeline lies, apart from drawing it.

import { words } from "./format.ts";
import { range } from "./sentence.ts";
import type { Buffer, BufferKind, Estimate, Interval, Stage, StageName } from "./types.ts";

/** `held` is what the allocator keeps beyond the tensors, `rest` are buffers too small to be seen alone. */
export type PieceKind = BufferKind | "held" | "rest";

export interface Piece {
  kind: PieceKind;
  name: string;
  bytes: number;
  /** From the bottom, in bytes. */
  from: number;
  to: number;
  /** One buffer, or all that are in the rest. */
  buffers: Buffer[];
}

export interface Column {
  stage: Stage;
  name: StageName;
  pieces: Piece[];
  device: Interval | undefined;
  host: { pinned: number; pageable: number; total: number };
}

export interface Layout {
  columns: Column[];
  budget: number | undefined;
  /** The top of the device's axis and its grid lines, in bytes. */
  top: number;
  ticks: number[];
  hostTop: number;
  hostTicks: number[];
  hostCapacity: number | undefined;
}

/** Smaller than this part of the axis is put together with others. */
const SMALLEST = 0.012;

export const STAGES: Record<StageName, string> = { load: "Load", encoding: "Encode", denoising: "Denoise", decoding: "Decode" };

export function layout(estimate: Estimate): Layout {
  const budget = estimate.memory.budgetBytes;
  const peaks = estimate.stages.map((stage) => stage.peakBytes?.device.high ?? sum(stage.buffers));
  const { top, ticks } = axis(Math.max(...peaks, budget ?? 0, 1));
  const columns = estimate.stages.map((stage) => column(stage, top));
  const hostCapacity = estimate.host.capacityBytes;
  const host = axis(Math.max(...columns.map((c) => c.host.total), Math.min(hostCapacity ?? 0, 4 * (estimate.host.requiredBytes ?? 0)), 2 ** 30));
  return { columns, budget, top, ticks, hostTop: host.top, hostTicks: host.ticks, hostCapacity };
}

function sum(buffers: Buffer[]): number {
  return buffers.reduce((total, buffer) => (buffer.tier === "device" ? total + buffer.bytes : total), 0);
}

function column(stage: Stage, top: number): Column {
  const peak = stage.peakBytes;
  const pieces: Piece[] = [];
  let from = 0;
  const add = (kind: PieceKind, name: string, bytes: number, buffers: Buffer[]) => {
    if (bytes <= 0) return;
    pieces.push({ kind, name, bytes, from, to: from + bytes, buffers });
    from += bytes;
  };
  const onDevice = stage.buffers.filter((buffer) => buffer.tier === "device" && buffer.bytes > 0);
  const large = onDevice.filter((buffer) => buffer.bytes >= SMALLEST * top);
  const small = onDevice.filter((buffer) => buffer.bytes < SMALLEST * top);
  for (const buffer of large) add(buffer.kind, words(buffer.name), buffer.bytes, [buffer]);
  add("rest", small.length === 1 ? words(small[0]?.name ?? "") : `${small.length} smaller buffers`, sum(small), small);
  if (peak) {
    // Buffers are those at the peak of what is allocated; what the allocator holds and what the process takes come on top.
    add("held", "held by the allocator", peak.reserved.value - Math.max(from, 0), []);
    add("context", "context and libraries", peak.device.value - Math.max(peak.reserved.value, from), []);
  }
  const { pinnedBytes: pinned, pageableBytes: pageable } = stage.host;
  return { stage, name: stage.name as StageName, pieces, device: peak && range(peak), host: { pinned, pageable, total: pinned + pageable } };
}

/** A round axis in GiB with four to six lines. */
function axis(most: number): { top: number; ticks: number[] } {
  const gib = most / 2 ** 30;
  const steps = [0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 4, 5, 8, 10, 16, 20, 25, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1024, 2048, 4096, 8192];
  const step = steps.find((candidate) => gib / candidate <= 5) ?? 2 ** Math.ceil(Math.log2(gib / 5));
  const lines = Math.max(1, Math.ceil((gib * 1.02) / step));
  return { top: lines * step * 2 ** 30, ticks: Array.from({ length: lines + 1 }, (_, n) => n * step * 2 ** 30) };
}
