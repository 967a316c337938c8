import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Choice, type Json, DTYPES, VIEWS, read, write } from "../../src/lib/link.ts";

const id = fc.stringMatching(/^[a-z0-9][a-z0-9.-]{0,30}$/).filter((text) => text !== "custom");
const whole = (min: number, max: number) => fc.integer({ min, max });
const size = fc.double({ min: 0.01, max: 100_000, noNaN: true });
const json = fc.jsonValue({ maxDepth: 2 }).map((value) => JSON.parse(JSON.stringify(value)) as Json);
const key = fc.stringMatching(/^[A-Za-z_][A-Za-z0-9_.]{0,30}$/).filter((name) => name !== "__proto__");

const choices: fc.Arbitrary<Choice> = fc.record(
  {
    model: id,
    deployment: id,
    device: fc.oneof(
      fc.record({ kind: fc.constant("catalog" as const), id, partition: id }, { requiredKeys: ["kind", "id"] }),
      fc.record({
        kind: fc.constant("custom" as const),
        memory: fc.constantFrom("dedicated" as const, "unified" as const),
        vramGiB: size,
        backend: fc.constantFrom("cuda", "rocm", "mps"),
        dtypes: fc.subarray(DTYPES, { minLength: 1 }),
      }),
    ),
    budgetGiB: size,
    allocationGb: size,
    hostGb: size,
    request: fc.record(
      {
        width: whole(1, 16384),
        height: whole(1, 16384),
        num_frames: whole(1, 16384),
        batch: whole(1, 1024),
        guidance_scale: fc.double({ min: 0, max: 100, noNaN: true }).map((x) => x + 0),
        num_inference_steps: whole(1, 1000),
        text_tokens: whole(1, 4096),
        references: whole(0, 10),
      },
      { requiredKeys: [] },
    ),
    settings: fc.dictionary(key, json),
    environment: fc.dictionary(key, fc.string({ maxLength: 20 })),
    compare: fc.uniqueArray(id, { maxLength: 3 }),
    precision: fc.constantFrom("fp8" as const, "int8" as const),
    view: fc.constantFrom(...VIEWS),
  },
  { requiredKeys: ["model", "request", "settings", "environment", "compare", "view"] },
);

describe("links", () => {
  test("restore everything", () => {
    fc.assert(
      fc.property(choices, (choice) => {
        const link = write(choice);
        fc.pre(link.length < 8_000);
        const back = read(`#${link}`);
        expect(back.kind).toBe("read");
        if (back.kind !== "read") return;
        expect(back.problems).toEqual([]);
        // JSON, since a link has no minus zero and dictionaries of the generator have no prototype.
        expect(JSON.parse(JSON.stringify({ view: "memory", ...back.choice }))).toEqual(JSON.parse(JSON.stringify(choice)));
      }),
      { numRuns: 300 },
    );
  });

  test("of any text never throw, and what they hold is usable", () => {
    const part = fc.oneof(
      fc.string({ maxLength: 40 }),
      fc.tuple(fc.constantFrom("v", "model", "device", "vram", "w", "frames", "set.x", "compare", "view", "dtypes"), fc.string()).map(([k, v]) => `${k}=${encodeURIComponent(v)}`),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), fc.boolean(), (parts, versioned) => {
        const back = read(`#${versioned ? "v=1&" : ""}${parts.join("&")}`);
        if (back.kind === "refused") expect(back.message).toMatch(/[.!]$/);
        if (back.kind === "read") write({ model: "wan21-t2v-14b", view: "memory", ...back.choice });
      }),
      { numRuns: 1000 },
    );
  });

  test("of version 1 mean what they meant", () => {
    const fixtures = JSON.parse(readFileSync(new URL("../fixtures/links-v1.json", import.meta.url), "utf8")) as { link: string; choice: unknown }[];
    expect(fixtures.length).toBeGreaterThan(4);
    for (const { link, choice } of fixtures) {
      const back = read(link);
      expect(back).toEqual({ kind: "read", choice, problems: [] });
    }
  });

  test("of another version are refused in words", () => {
    expect(read("#v=2&model=wan21-t2v-14b")).toEqual({
      kind: "refused",
      message: "This link is of version 2, and this page reads version 1. Reload to get the newest page, or ask for the link again.",
    });
    expect(read("#v=soon").kind).toBe("refused");
    expect(read("#section-3").kind).toBe("refused");
    expect(read("#").kind).toBe("empty");
  });

  test("that were edited by hand lose only what cannot be used, and say so", () => {
    const back = read("#v=1&model=wan21-t2v-14b&frames=eighty&w=1280&device=custom&vram=-3&colour=red&view=moon");
    if (back.kind !== "read") throw new Error("not read");
    expect(back.choice).toEqual({ model: "wan21-t2v-14b", request: { width: 1280 }, settings: {}, environment: {}, compare: [] });
    expect(back.problems).toEqual([
      "vram: found “-3”, allowed: a number from 0.01 to 100000",
      "frames: found “eighty”, allowed: a whole number from 1 to 16384",
      "“colour” means nothing in a link of version 1",
      "view: found “moon”, allowed: memory, fit, compare, maps, plan, settings",
    ]);
  });
});
