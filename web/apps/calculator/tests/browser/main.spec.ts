import { gzipSync } from "node:zlib";
import { expect, test } from "./page.ts";

test("the first view answers, with the chart, and weighs at most 200 KB", async ({ calculator, page }) => {
  const sizes = new Map<string, Promise<number>>();
  page.on("response", (response) => {
    if (response.ok()) sizes.set(response.url(), response.body().then((body) => gzipSync(body, { level: 9 }).length));
  });
  await calculator.open();
  await expect(calculator.answer).toHaveText(/^FastWan2\.1 T2V 1\.3B fits on NVIDIA GeForce RTX 4090 24 GB: while \w+ it needs at most [\d.]+ GiB of 23\.99 GiB/);
  await expect(page.getByRole("button", { name: /^Denoise: / }).first()).toBeVisible();
  await page.waitForLoadState("networkidle");
  let total = 0;
  for (const [url, size] of sizes) {
    total += await size;
    console.log(`${String(await size).padStart(7)} B  ${new URL(url).pathname}`);
  }
  console.log(`${String(total).padStart(7)} B  in all, gzip -9`);
  expect(total).toBeLessThanOrEqual(200_000);
  await calculator.sane();
  // The estimator comes once somebody is about to ask, and says the same.
  const modules = () => [...sizes.keys()].filter((url) => url.endsWith(".wasm")).length;
  expect(modules()).toBe(0);
  const said = await page.locator(".answer").innerText();
  await page.mouse.move(200, 200);
  await expect.poll(modules).toBe(1);
  await page.waitForLoadState("networkidle");
  expect(await page.locator(".answer").innerText()).toBe(said);
});

test("can my 12 GB card make a 5-second 720p clip with Wan 14B, and how", async ({ calculator, page }) => {
  await calculator.open();
  await calculator.pick("Model", "wan 14b", "Wan2.1 T2V 14B");
  await calculator.pick("Device", "3060 12 GB");
  await calculator.field("Host RAM").fill("64");
  await expect(calculator.answer).toHaveText(/Wan2\.1 T2V 14B does not fit on NVIDIA GeForce RTX 3060 12 GB/);
  await expect(page.getByText("1280 × 720 pixels, 81 frames (5.1 s)")).toBeVisible();
  await calculator.view("What fits");
  const first = page.getByRole("button", { name: "Do this" }).first();
  await expect(first).toBeVisible({ timeout: 60_000 });
  await first.click();
  await expect(calculator.verdict).toHaveText(/Fits/);
  await expect(calculator.answer).toHaveText(/fits on NVIDIA GeForce RTX 3060 12 GB/);
  await calculator.sane();
});

test("a buffer explains itself", async ({ calculator, page }) => {
  await calculator.open();
  await page.getByRole("button", { name: /^Decode: feature cache/ }).first().click();
  const detail = page.locator(".detail");
  await expect(detail).toContainText("Formula");
  await expect(detail).toContainText(/batch 1 × channels \d+/);
  await expect(detail).toContainText(/[\d\u202f]+ B/);
  await expect(detail).toContainText("wan.vae.");
});

test("facts have their sources", async ({ calculator, page }) => {
  await calculator.open();
  await page.getByText("Sources of the model's facts").click();
  await expect(page.getByRole("link", { name: /wanvideo\.py/ }).first()).toHaveAttribute("href", /^https:\/\/github\.com\//);
  await page.getByText("Sources of the device's facts").click();
  await expect(page.getByRole("link", { name: /^developer\.nvidia\.com/ })).toBeVisible();
});

test("largest, changes and smallest card are answered", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=wan21-t2v-1.3b&deployment=diffusers&device=rtx-3060-12gb&host=64&view=fit");
  await expect(page.getByText(/^Longest at/)).toBeVisible({ timeout: 60_000 });
  await expect(page.getByText(/^Fits in/)).toBeVisible({ timeout: 60_000 });
  await page.getByRole("button", { name: "Use it" }).first().click();
  await expect(calculator.verdict).toHaveText(/Fits/);
  await calculator.sane();
});

test("four devices side by side", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=wan21-t2v-14b&device=rtx-4090-24gb&view=compare");
  for (const [text, name] of [["h100", "H100 SXM 80 GB"], ["3060 12 GB", "RTX 3060 12 GB"], ["M3 Max 36 GB", "Apple M3 Max 36 GB"]] as const) {
    await calculator.pick("Add a device, up to 4 in all", text);
    await expect(page.getByRole("columnheader", { name })).toBeVisible();
  }
  await expect(page.getByText("Four devices are compared.")).toBeVisible();
  await page.getByRole("button", { name: "Remove NVIDIA H100 SXM 80 GB" }).click();
  await expect(page.getByRole("columnheader")).toHaveCount(3);
  await page.getByRole("button", { name: "Choose NVIDIA GeForce RTX 3060 12 GB" }).click();
  await expect(calculator.answer).toContainText("RTX 3060 12 GB");
  await expect(page.getByRole("columnheader", { name: "RTX 4090 24 GB" })).toBeVisible();
  await calculator.sane();
});

test("both maps are tables whose cells explain themselves", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=wan21-t2v-1.3b&deployment=diffusers&device=rtx-3060-12gb&host=64&view=maps");
  const lengths = page.locator("[data-map=lengths]");
  await expect(lengths.locator("td")).toHaveCount(16 * 16, { timeout: 30_000 });
  await expect(page.locator("[data-map=memories] td")).toHaveCount(16 * 12);
  await expect(lengths.getByRole("rowheader", { name: "832 × 480" })).toBeVisible();
  // The outlined cell is the question, and says what the answer says.
  const here = await lengths.locator("td.here button").getAttribute("aria-label");
  const most = await page.locator(".answer dd").first().textContent();
  expect(most).toMatch(/^[\d.]+ GiB/);
  expect(here).toContain(`at most ${/^[\d.]+ GiB/.exec(most ?? "")?.[0]} of`);
  // Host RAM counts: 13.7 GiB of it are needed.
  const memories = page.locator("[data-map=memories]");
  await expect(memories.getByRole("button", { name: /24 GiB of device memory, 8 GiB of host RAM: does not fit/ })).toHaveCount(1);
  await expect(memories.getByRole("button", { name: /24 GiB of device memory, 16 GiB of host RAM: fits/ })).toHaveCount(1);
  await lengths.locator("td button").first().click();
  await page.getByRole("button", { name: "Use this size and length" }).click();
  await expect(calculator.field("Length")).toHaveValue("1");
  await calculator.sane();
});

test("a plan shows where every block lives, and the command for it", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=minimax-h3&device=rtx-4090-24gb&host=34.36&view=plan");
  await expect(page.getByRole("img", { name: /^Transformer, block by block: \d+ on the device/ })).toBeVisible({ timeout: 30_000 });
  await expect(page.locator("pre.command")).toContainText("fv-run plan --model minimax-h3 --hardware rtx-4090-24gb");
  await calculator.open("#v=1&model=wan21-t2v-14b&device=rtx-3060-12gb&host=34.36&precision=fp8&view=plan");
  await expect(page.getByRole("img", { name: /^Transformer, block by block:/ }).or(page.getByText("There is no plan in this memory."))).toBeVisible({ timeout: 60_000 });
  await calculator.open("#v=1&model=mochi-1&device=rtx-4090-24gb&view=plan");
  await expect(page.getByText(/^No planner covers Mochi/)).toBeVisible();
  await calculator.sane();
});

test("link, command, JSON and picture are copied", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=fastwan21&device=rtx-4090-24gb&frames=61");
  expect(await calculator.link()).toMatch(/\/page\/#v=1&model=fastwan21&device=rtx-4090-24gb&frames=61$/);
  await page.getByRole("button", { name: "Copy command" }).click();
  await expect(page.getByText("Command copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("fv-catalog estimate fastwan21 --hardware rtx-4090-24gb --frames 61");
  await page.getByRole("button", { name: "Copy JSON" }).click();
  await expect(page.getByText("JSON copied.")).toBeVisible();
  const json = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
  expect(json.estimate.request.num_frames).toBe(61);
  await page.getByRole("button", { name: "Copy image" }).click();
  await expect(page.getByText("Image copied.")).toBeVisible();
  const picture = await page.evaluate(async () => {
    const item = (await navigator.clipboard.read())[0];
    const bitmap = await createImageBitmap(await (item as ClipboardItem).getType("image/png"));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    const context = canvas.getContext("2d") as OffscreenCanvasRenderingContext2D;
    context.drawImage(bitmap, 0, 0);
    const data = context.getImageData(0, 0, bitmap.width, bitmap.height).data;
    const colours = new Set<number>();
    for (let n = 0; n < data.length; n += 4) colours.add(((data[n] ?? 0) << 16) | ((data[n + 1] ?? 0) << 8) | (data[n + 2] ?? 0));
    return { width: bitmap.width, height: bitmap.height, colours: colours.size };
  });
  expect(picture.width).toBeGreaterThan(800);
  expect(picture.height).toBeGreaterThan(500);
  // Ground, text, axes and at least three kinds of memory.
  expect(picture.colours).toBeGreaterThan(20);
});
