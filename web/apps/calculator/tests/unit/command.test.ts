import { describe, expect, test } from "vitest";
import { estimateCommand, planCommand, quote } from "../../src/lib/command.ts";
import type { Choice } from "../../src/lib/link.ts";

const choice: Choice = { model: "wan21-t2v-14b", request: {}, settings: {}, environment: {}, compare: [], view: "memory" };

describe("commands", () => {
  test("say what was chosen", () => {
    expect(
      estimateCommand({
        ...choice,
        deployment: "diffusers",
        device: { kind: "catalog", id: "h100-sxm-80gb", partition: "1g.10gb+me" },
        hostGb: 64,
        request: { width: 1280, height: 720, num_frames: 81 },
        settings: { vae_tiling: true, torch_dtype: "bf16", note: "it's", digits: "12" },
        environment: { A: "b c" },
      }),
    ).toBe(
      "fv-catalog estimate wan21-t2v-14b --deployment diffusers --hardware h100-sxm-80gb --partition 1g.10gb+me --host-gb 64 " +
        `--width 1280 --height 720 --frames 81 --set 'digits="12"' --set 'note=it'\\''s' --set torch_dtype=bf16 --set vae_tiling=true --env 'A=b c'`,
    );
  });

  test("describe a device of one's own", () => {
    const device = { kind: "custom", memory: "dedicated", vramGiB: 20, backend: "cuda", dtypes: ["fp16", "bf16"] } as const;
    expect(estimateCommand({ ...choice, device: { ...device, dtypes: [...device.dtypes] } })).toBe(
      "fv-catalog estimate wan21-t2v-14b --vram-gib 20 --dtypes fp16,bf16",
    );
    expect(estimateCommand({ ...choice, device: { ...device, memory: "unified", dtypes: ["fp16"] } })).toContain("--device-file device.json");
    expect(planCommand({ ...choice, device: { ...device, dtypes: [] }, hostGb: 34.359738368, precision: "fp8" }, { memory_rules: "wan" })).toBe(
      "fv-run plan --model wan21-t2v-14b --policy optimal --vram-gib 20 --ram-gib 32 --precision fp8",
    );
  });

  test("are quoted for a shell", () => {
    expect([quote("a-b=c"), quote("a b"), quote("$(rm)"), quote("it's"), quote("")]).toEqual(["a-b=c", "'a b'", "'$(rm)'", `'it'\\''s'`, "''"]);
  });
});
