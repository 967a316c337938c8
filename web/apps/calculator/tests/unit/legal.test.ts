import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Legal, frameAxis, framesAround, nearestFrames, nearestSize, sizeAxis, stepFrames, usualSizes } from "../../src/lib/legal.ts";

const wan: Legal = { frames: { first: 1, last: 16_384, step: 4 }, multiples: { height: 16, width: 16 }, maxSide: 16_384, fps: 16 };
const legals: fc.Arbitrary<Legal> = fc.record({
  frames: fc
    .record({ first: fc.integer({ min: 1, max: 130 }), step: fc.integer({ min: 1, max: 17 }), more: fc.integer({ min: 0, max: 16_000 }) })
    .map(({ first, step, more }) => ({ first, step, last: first + more })),
  maxSide: fc.constant(16_384),
  multiples: fc.record({ height: fc.constantFrom(1, 8, 16, 32), width: fc.constantFrom(1, 8, 16, 32) }),
});
const takes = ({ frames: { first, last, step } }: Legal, n: number) => n >= first && n <= last && (n - first) % step === 0;

describe("legal steps", () => {
  test("of Wan", () => {
    expect(framesAround(wan, 80)).toEqual([77, 81]);
    expect([nearestFrames(wan, 80), nearestFrames(wan, 78), stepFrames(wan, 81, 1), stepFrames(wan, 81, -1), stepFrames(wan, 1, -1)]).toEqual([81, 77, 85, 77, 1]);
    expect(nearestSize(wan, { width: 1920, height: 1080 })).toEqual({ width: 1920, height: 1088 });
    expect(usualSizes(wan, { width: 832, height: 480 })[0]).toEqual({ label: "usual for this model", size: { width: 832, height: 480 } });
  });

  test("lead to legal counts and sizes from anywhere", () => {
    fc.assert(
      fc.property(legals, fc.integer({ min: 1, max: 16_384 }), fc.integer({ min: 1, max: 4_096 }), fc.integer({ min: 1, max: 4_096 }), (legal, frames, width, height) => {
        for (const found of [...framesAround(legal, frames), nearestFrames(legal, frames), stepFrames(legal, frames, 1), stepFrames(legal, frames, -1)]) {
          expect(takes(legal, found)).toBe(true);
        }
        const axis = frameAxis(legal, frames, 16);
        expect(axis.length).toBeLessThanOrEqual(16);
        expect(axis.every((n) => takes(legal, n))).toBe(true);
        expect(axis).toContain(nearestFrames(legal, frames));
        const sizes = sizeAxis(legal, { width, height }, 24);
        expect(sizes.length).toBeGreaterThan(0);
        expect(sizes.length).toBeLessThanOrEqual(24);
        for (const size of sizes) expect([size.width % legal.multiples.width, size.height % legal.multiples.height]).toEqual([0, 0]);
      }),
    );
  });
});
