import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { count, formula, gib, gibRange, plain, time, timeRange, value } from "../../src/lib/format.ts";

describe("figures", () => {
  test("of memory", () => {
    expect([0, 512, 2 ** 20, 0.5 * 2 ** 30, 12 * 2 ** 30, -3 * 2 ** 30].map(gib)).toEqual([
      "0.00 GiB",
      "512 B",
      "1.0 MiB",
      "0.50 GiB",
      "12.00 GiB",
      "-3.00 GiB",
    ]);
    expect(gibRange(2 ** 30, 2 ** 30 + 1)).toBe("1.00 GiB");
    expect(gibRange(2 ** 30, 2 ** 31)).toBe("1.00 GiB to 2.00 GiB");
  });

  test("of time", () => {
    expect([5e6, 3.29e9, 45e9, 215e9, 3 * 3600e9].map(time)).toEqual(["5.0 ms", "3.29 s", "45 s", "3.6 min", "3.0 h"]);
    expect(timeRange(1e9, 2e9)).toBe("1.00 s to 2.00 s");
  });

  test("always have a unit and are never NaN", () => {
    const any = fc.oneof(fc.double(), fc.constant(undefined), fc.constant(null), fc.maxSafeInteger());
    fc.assert(
      fc.property(any, (number) => {
        for (const text of [gib(number), time(number)]) expect(text).toMatch(/^(not known|-?[\d.e+]+ (B|KiB|MiB|GiB|ms|s|min|h))$/);
        expect(plain(number)).toMatch(/^(not known|-?[\d.e+-]+)$/);
      }),
    );
  });

  test("in formulas and settings can be read", () => {
    expect(formula("tokens 75600 x hidden 5120 x 2 B")).toBe("tokens 75\u202f600 × hidden 5120 × 2 B");
    expect(count(232719424)).toBe("232\u202f719\u202f424");
    expect(value({ streamed: { resident: 0, pinned: true, group: null } })).toBe("streamed resident 0, pinned on");
    expect([value(null), value([]), value(["fp32"]), value(true), value("")]).toEqual(["none", "none", "fp32", "on", "empty"]);
  });
});
