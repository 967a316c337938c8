import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { productWords } from "../../src/lib/gpu.ts";
import { deviceEntry, find, prepare, tokens } from "../../src/lib/search.ts";

const data = new URL("../../../../../crates/fv-data/data/", import.meta.url);
const hardware = JSON.parse(readFileSync(new URL("hardware.json", data), "utf8")) as { devices: Parameters<typeof deviceEntry>[0][] };
const index = prepare(hardware.devices.map(deviceEntry));
const first = (text: string) => find(index, text)[0]?.id;

describe("devices are found by what people type", () => {
  test.each([
    ["4090", "rtx-4090-24gb"],
    ["RTX 4090", "rtx-4090-24gb"],
    ["rtx4090", "rtx-4090-24gb"],
    ["my 4090", "rtx-4090-24gb"],
    ["geforce rtx 3060 12gb", "rtx-3060-12gb"],
    ["3060 12 GB", "rtx-3060-12gb"],
    ["h100", "h100-sxm-80gb"],
    ["h100-sxm-80gb", "h100-sxm-80gb"],
    ["m3 max 36", "m3-max-36gb"],
    ["macbook m3 max 36gb", "m3-max-36gb"],
  ])("%s", (text, id) => expect(first(text)).toBe(id));

  test("my MacBook 36 GB", () => {
    const found = find(index, "my MacBook 36 GB");
    expect(found.length).toBeGreaterThan(0);
    for (const device of found) expect([device.memoryGb, device.terms[0]]).toEqual([36, "apple"]);
  });

  test("every device by its id, its name and each alias", () => {
    for (const device of hardware.devices) {
      for (const name of [device.id, device.name, ...(device.aliases ?? [])]) expect(first(name)).toBe(device.id);
    }
  });

  test("nothing matches nonsense, and everything matches nothing", () => {
    expect(find(index, "zeppelin 9000")).toEqual([]);
    expect(find(index, "", 1_000).length).toBe(hardware.devices.length);
    expect(tokens("  --  ")).toEqual([]);
  });
});

describe("what a browser says of its GPU", () => {
  test.each([
    ["ANGLE (NVIDIA, NVIDIA GeForce RTX 3060 (0x00002504) Direct3D11 vs_5_0 ps_5_0, D3D11)", "GeForce RTX 3060", "rtx-3060"],
    ["ANGLE (NVIDIA Corporation, NVIDIA GeForce RTX 4090/PCIe/SSE2, OpenGL 4.5.0)", "GeForce RTX 4090", "rtx-4090"],
    ["ANGLE (Apple, ANGLE Metal Renderer: Apple M3 Max, Unspecified Version)", "Apple M3 Max", "m3-max"],
    ["Apple M2", "Apple M2", "m2"],
    ["ANGLE (AMD, AMD Radeon RX 7900 XTX (0x0000744C) Direct3D11 vs_5_0 ps_5_0, D3D11)", "Radeon RX 7900 XTX", "rx-7900-xtx"],
    ["NVIDIA GeForce GTX 980, or similar", "GeForce GTX 980", undefined],
  ])("%s", (renderer, product, id) => {
    expect(productWords(renderer)).toBe(product);
    if (id) expect(first(product)).toContain(id);
  });

  test.each(["Google SwiftShader", "ANGLE (Google, Vulkan 1.3.0 (SwiftShader Device (Subzero) (0x0000C0DE)), SwiftShader driver)", "llvmpipe (LLVM 15.0.7, 256 bits)", ""])(
    "%s is no GPU",
    (renderer) => expect(productWords(renderer)).toBeUndefined(),
  );
});
