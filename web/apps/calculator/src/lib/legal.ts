// Sizes and frame counts that a deployment takes, for steppers and suggestions. The estimator decides; this only helps to ask.

import type { Legal } from "./types.ts";

export type { Legal };

export interface Size {
  width: number;
  height: number;
}

/** The legal frame counts next to `frames`: itself where it is legal. */
export function framesAround({ frames: { first, last, step } }: Legal, frames: number): [number, number] {
  const most = first + Math.floor((last - first) / step) * step;
  const below = Math.min(most, Math.max(first, first + Math.floor((frames - first) / step) * step));
  return [below, frames <= below ? below : Math.min(most, below + step)];
}

export function nearestFrames(legal: Legal, frames: number): number {
  const [below, above] = framesAround(legal, frames);
  return frames - below < above - frames ? below : above;
}

/** The next legal count in a direction. */
export function stepFrames(legal: Legal, frames: number, direction: 1 | -1): number {
  const [below, above] = framesAround(legal, frames);
  if (direction < 0) return below < frames ? below : framesAround(legal, frames - legal.frames.step)[0];
  return above > frames ? above : framesAround(legal, frames + legal.frames.step)[1];
}

/** The multiple nearest to a side, at least one. */
export function nearestSide(multiple: number, side: number, largest = 16_384): number {
  const most = Math.floor(largest / multiple) * multiple;
  return Math.min(most, Math.max(multiple, Math.round(side / multiple) * multiple));
}

export function nearestSize(legal: Legal, { width, height }: Size): Size {
  return legal.only ?? { width: nearestSide(legal.multiples.width, width, legal.maxSide), height: nearestSide(legal.multiples.height, height, legal.maxSide) };
}

const USUAL: { label: string; width: number; height: number }[] = [
  { label: "480p", width: 832, height: 480 },
  { label: "480p upright", width: 480, height: 832 },
  { label: "square", width: 640, height: 640 },
  { label: "720p", width: 1280, height: 720 },
  { label: "720p upright", width: 720, height: 1280 },
  { label: "1080p", width: 1920, height: 1088 },
];

/** Usual sizes, as nearly as the model takes them, with the deployment's own first. */
export function usualSizes(legal: Legal, own: Size | undefined): { label: string; size: Size }[] {
  if (legal.only) return [{ label: "the only size", size: legal.only }];
  const seen = new Set<string>();
  const sizes = own ? [{ label: "usual for this model", ...own }, ...USUAL] : USUAL;
  return sizes.flatMap(({ label, width, height }) => {
    const size = nearestSize(legal, { width, height });
    const key = `${size.width}x${size.height}`;
    if (seen.has(key)) return [];
    seen.add(key);
    return [{ label, size }];
  });
}

/** Frame counts for a heat map: about `most` of them around what is asked, up to twice its duration. */
export function frameAxis(legal: Legal, asked: number, most: number): number[] {
  const { first, last, step } = legal.frames;
  const places = Math.floor((last - first) / step);
  const end = Math.min(places, Math.max(Math.ceil(((asked - first) / step) * 2), most - 1));
  const axis = new Set<number>([nearestFrames(legal, asked)]);
  for (let n = 0; n < most; n += 1) axis.add(first + Math.round((end * n) / Math.max(1, most - 1)) * step);
  const sorted = [...axis].sort((a, b) => a - b);
  // The asked one came on top: the neighbour that is nearest to it makes room.
  while (sorted.length > most) {
    const place = sorted.findIndex((frames) => frames === nearestFrames(legal, asked));
    sorted.splice(place > 1 ? place - 1 : place + 1, 1);
  }
  return sorted;
}

/** Sizes for a heat map, in the ratio that is asked for, by the shorter side. */
export function sizeAxis(legal: Legal, asked: Size, most: number): Size[] {
  if (legal.only) return [legal.only];
  const ratio = asked.width / asked.height;
  const short = Math.min(asked.width, asked.height);
  const axis = new Map<string, Size>();
  const add = (size: Size) => axis.set(`${size.width}x${size.height}`, size);
  for (const side of [240, 288, 320, 368, 416, 480, 544, 608, 640, 720, 768, 832, 900, 1024, 1088, 1280, 1440]) {
    const size = ratio >= 1 ? { height: side, width: side * ratio } : { width: side, height: side / ratio };
    add(nearestSize(legal, size));
  }
  add(nearestSize(legal, asked));
  const area = ({ width, height }: Size) => width * height;
  const sorted = [...axis.values()].sort((a, b) => area(a) - area(b));
  const at = sorted.findIndex((size) => Math.min(size.width, size.height) === nearestSide(1, short) || area(size) >= area(asked));
  const start = Math.max(0, Math.min(sorted.length - most, at - Math.floor(most / 2)));
  return sorted.slice(start, start + most);
}
