import { expect, test } from "./page.ts";

test("models and deployments", async ({ calculator, page }) => {
  await calculator.open();
  await calculator.pick("Model", "hunyuan 1.5");
  await expect(calculator.answer).toContainText("HunyuanVideo");
  await calculator.pick("Model", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers");
  await expect(calculator.answer).toContainText("Wan2.1 T2V 1.3B");
  await page.getByLabel("Deployment and runtime").selectOption({ label: "Diffusers" });
  await expect(page.getByText(/Wan2\.1 T2V 1\.3B in diffusers/)).toBeVisible();
  expect(await calculator.link()).toContain("deployment=diffusers");
});

test("devices by alias, by what people say, with partitions, and described", async ({ calculator, page }) => {
  await calculator.open();
  await calculator.pick("Device", "4090");
  await expect(calculator.answer).toContainText("RTX 4090 24 GB");
  await calculator.pick("Device", "my MacBook 36 GB");
  await expect(calculator.answer).toContainText(/Apple .* 36 GB is not known/);
  await expect(page.getByText("The rules are those of CUDA.")).toBeVisible();
  await calculator.pick("Device", "h100-sxm-80gb");
  await page.getByLabel("Partition").selectOption({ label: "MIG 1g.10gb (10 GB)" });
  await expect(calculator.answer).toContainText("MIG 1g.10gb of NVIDIA H100 SXM 80 GB");
  await expect(page.locator(".answer dl").getByText("the partition's own")).toBeVisible();

  await calculator.pick("Device", "zeppelin", /Describe a device/);
  await expect(page.getByText("not checked against the catalog")).toBeVisible();
  await calculator.field("Memory").fill("6");
  await expect(calculator.answer).toContainText("a 6 GiB device of your own");
  await page.getByLabel("Backend").selectOption("rocm");
  await expect(calculator.verdict).toHaveText(/Not known/);
  await page.getByLabel("Backend").selectOption("cuda");
  await page.getByLabel("Kind of memory").selectOption("unified");
  await expect(page.locator(".answer dl").getByText("assumed: 75 % of unified memory")).toBeVisible();
  await page.getByRole("checkbox", { name: "bf16" }).uncheck();
  await expect(calculator.verdict).toHaveText(/Not known/);
  await calculator.sane();
});

test("the GPU that the browser names is a suggestion and no more", async ({ calculator, page }) => {
  await page.addInitScript(() => {
    const get = WebGLRenderingContext.prototype.getParameter;
    const named = function (this: WebGLRenderingContext, name: number) {
      return name === 0x9246 || name === 0x1f01 ? "ANGLE (NVIDIA, NVIDIA GeForce RTX 3060 (0x00002504) Direct3D11 vs_5_0 ps_5_0, D3D11)" : get.call(this, name);
    };
    for (const kind of [WebGLRenderingContext, WebGL2RenderingContext]) {
      kind.prototype.getParameter = named;
    }
    const context = HTMLCanvasElement.prototype.getContext;
    // Without a GPU there may be no WebGL at all: a stand-in then.
    HTMLCanvasElement.prototype.getContext = function (this: HTMLCanvasElement, kind: string, ...rest: unknown[]) {
      const found = (context as (...given: unknown[]) => unknown).call(this, kind, ...rest);
      return found ?? (kind.startsWith("webgl") ? { getExtension: () => null, getParameter: named, RENDERER: 0x1f01 } : null);
    } as typeof context;
  });
  await calculator.open();
  const before = await calculator.answer.textContent();
  await page.getByRole("button", { name: "Use my GPU" }).click();
  await expect(page.getByText(/Your browser says “.*RTX 3060/)).toBeVisible();
  expect(await calculator.answer.textContent()).toBe(before);
  await page.getByRole("button", { name: "NVIDIA GeForce RTX 3060 12 GB", exact: true }).click();
  await expect(calculator.answer).toContainText("RTX 3060 12 GB");
});

test("host RAM and limits", async ({ calculator, page }) => {
  await calculator.open();
  await calculator.field("Host RAM").fill("2");
  await expect(calculator.answer).toContainText(/needs [\d.]+ GiB of host memory/);
  await page.getByRole("button", { name: "Host RAM: next larger" }).click();
  await expect(calculator.field("Host RAM")).toHaveValue("8");
  await calculator.field("Host RAM").fill("-1");
  await expect(page.getByText("From 0 to 1000000 GB")).toBeVisible();
  await calculator.field("Host RAM").fill("64");
  await page.getByText("Limits on device memory").click();
  await calculator.field("Use at most").fill("4");
  await expect(page.locator(".answer dl").getByText("the limit you gave")).toBeVisible();
  await expect(calculator.verdict).toHaveText(/Does not fit/);
  await calculator.field("Use at most").fill("");
  await calculator.field("Provisioned").fill("20");
  await expect(page.locator(".answer dl").getByText("as provisioned")).toBeVisible();
});

test("size and length in legal steps, and what is not legal in words", async ({ calculator, page }) => {
  await calculator.open();
  await page.locator("#size").selectOption("1280x720");
  await expect(page.getByText("1280 × 720 pixels,", { exact: false }).first()).toBeVisible();
  const length = calculator.field("Length");
  await page.getByRole("button", { name: "Length: next larger" }).click();
  await expect(length).toHaveValue("85");
  await length.press("ArrowDown");
  await length.press("ArrowDown");
  await expect(length).toHaveValue("77");
  await page.getByRole("slider", { name: "Length" }).press("ArrowRight");
  await expect(length).toHaveValue("81");
  await length.fill("80");
  await expect(page.getByText(/frames: found 80, allowed: 4k\+1; nearest: 77 or 81/)).toBeVisible();
  await page.getByRole("button", { name: "77 frames" }).click();
  await expect(calculator.answer).toContainText("FastWan2.1");
  await page.locator("#size").selectOption("free");
  await calculator.field("Width").fill("1000");
  await expect(page.getByText(/width: found 1000, allowed: multiples of 16 pixels; nearest: 992 or 1008/)).toBeVisible();
  await page.getByRole("button", { name: "Width: next larger" }).click();
  await expect(calculator.answer).toContainText("FastWan2.1");
  await page.getByText("Steps, guidance, batch, text, references").click();
  await calculator.field("Batch").fill("2");
  await expect(page.getByText("2 videos at once")).toBeVisible();
  await calculator.field("Steps").fill("7");
  await expect(page.getByText(/, 7 steps/)).toBeVisible();
  await calculator.sane();
});

test("precision, offload and every other setting, each with where it comes from", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=wan21-t2v-14b&deployment=diffusers&device=rtx-3060-12gb");
  const tiles = page.locator("label", { hasText: "Decode in tiles" });
  await expect(tiles.locator(".tag")).toHaveText("authored");
  await tiles.getByRole("checkbox").check();
  await expect(tiles.locator(".tag")).toHaveText("yours");
  await page.getByLabel("VAE", { exact: true }).selectOption({ label: "bf16" });
  await expect(page.getByRole("button", { name: "Take back your 2 changes" })).toBeVisible();
  await calculator.view("Settings");
  await page.getByLabel("Setting or variable").fill("PYTORCH_CUDA_ALLOC_CONF");
  await page.getByLabel("Value").fill("expandable_segments:True");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await expect(page.getByText("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")).toBeVisible();
  await page.getByLabel("Show only").fill("vae_dtype");
  const row = page.getByRole("row", { name: /^vae_dtype bf16/ });
  await expect(row.locator(".tag")).toHaveText("yours");
  const link = await calculator.link();
  expect(decodeURIComponent(link)).toContain('set.vae_dtype="bf16"&set.vae_tiling=true&env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True');
  await page.getByLabel("Setting or variable").fill("no_such_setting");
  await page.getByLabel("Value").fill("1");
  await page.getByRole("button", { name: "Set", exact: true }).click();
  await expect(calculator.answer.or(page.locator(".answer li")).filter({ hasText: "no_such_setting" }).first()).toBeVisible();
  await page.getByRole("button", { name: "Take back no_such_setting" }).click();
  await page.getByRole("button", { name: "Take back your 3 changes" }).click();
  await expect(tiles.locator(".tag")).toHaveText("authored");
});

test("one's own device is there on the next visit, and a link's is not kept", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=fastwan21&device=h100-sxm-80gb");
  await calculator.open();
  await expect(calculator.answer).toContainText("RTX 4090");
  await calculator.pick("Device", "3060 12 GB");
  await calculator.field("Host RAM").fill("32");
  await calculator.open();
  await expect(calculator.answer).toContainText("RTX 3060 12 GB");
  await expect(calculator.field("Host RAM")).toHaveValue("32");
});
