import { expect, test } from "./page.ts";

test.describe("what goes wrong is said, with what to do", () => {
  test.use({ tolerated: [/Failed to load resource|Content Security Policy|CompileError|WebAssembly/i] });
  const message = (page: import("@playwright/test").Page) => page.locator(".without");

  test("JavaScript is off", async ({ browser, baseURL }) => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(baseURL ?? "");
    await expect(page.getByRole("heading")).toHaveText(/JavaScript is turned off/);
    await expect(page.locator("code")).toContainText("fv-catalog estimate");
    await context.close();
  });

  test("WebAssembly is blocked by a policy", async ({ page, calculator }) => {
    void calculator;
    await page.route("**/page/", async (route) => {
      const response = await route.fetch();
      const headers = { ...response.headers(), "content-security-policy": "script-src 'self'" };
      await route.fulfill({ response, headers });
    });
    await page.goto("./#v=1&model=fastwan21&frames=61");
    await expect(message(page)).toContainText("WebAssembly is blocked here");
    await expect(message(page)).toContainText("nothing that you chose is lost");
    expect(new URL(page.url()).hash).toBe("#v=1&model=fastwan21&frames=61");
  });

  test("WebAssembly is not there", async ({ page, calculator }) => {
    void calculator;
    await page.addInitScript(() => {
      delete (globalThis as { WebAssembly?: unknown }).WebAssembly;
    });
    await page.goto("./");
    await expect(message(page)).toContainText("WebAssembly is blocked here");
  });

  for (const file of ["catalog/index.json", "catalog/hardware.slim.json", "catalog/models/fastwan21.json", "assets/*.wasm"]) {
    test(`${file} is missing, and then is there`, async ({ page, calculator }) => {
      void calculator;
      let missing = true;
      await page.route(`**/page/${file}`, (route) => (missing ? route.fulfill({ status: 404, body: "gone" }) : route.continue()));
      await page.goto("./#v=1&model=fastwan21&device=rtx-4090-24gb&frames=61");
      await expect(page.getByText(/404|could not be loaded/i).first()).toBeVisible();
      missing = false;
      await page.getByRole("button", { name: "Try again" }).first().click();
      await expect(page.getByText(/832 × 480 pixels, 61 frames/)).toBeVisible();
    });
  }

  test("another model cannot be loaded: the one before stays", async ({ page, calculator }) => {
    await calculator.open();
    const before = await calculator.answer.textContent();
    await page.route("**/models/mochi-1.json", (route) => route.fulfill({ status: 500, body: "" }));
    await calculator.pick("Model", "mochi");
    await expect(page.getByText(/mochi-1 could not be loaded: .*HTTP 500/)).toBeVisible();
    await expect(calculator.answer).toHaveText(before ?? "");
    await page.unroute("**/models/mochi-1.json");
    await page.getByRole("button", { name: "Try again" }).click();
    await expect(calculator.answer).toContainText("Mochi");
  });

  test("a model takes long, and waiting is stopped", async ({ page, calculator }) => {
    await calculator.open();
    const before = await calculator.answer.textContent();
    await page.route("**/models/mochi-1.json", () => {});
    await calculator.pick("Model", "mochi");
    await expect(page.getByText("Loading mochi-1 …")).toBeVisible();
    await page.getByRole("button", { name: "Stop" }).click();
    await expect(page.getByText(/You stopped loading it/)).toBeVisible();
    await expect(calculator.answer).toHaveText(before ?? "");
    await page.getByRole("button", { name: "Leave it" }).click();
    await expect(page.getByText(/You stopped loading it/)).toHaveCount(0);
  });

  test("the whole page takes long, and waiting is stopped", async ({ page, calculator }) => {
    void calculator;
    await page.clock.install();
    await page.route("**/catalog/index.json", () => {});
    await page.goto("./");
    await page.clock.runFor(9_000);
    await page.getByRole("button", { name: "Stop" }).click();
    await expect(message(page)).toContainText("You stopped loading");
  });

  test("the catalog is of another version, or is cut short", async ({ page, calculator }) => {
    void calculator;
    await page.route("**/catalog/index.json", (route) => route.fulfill({ json: { version: 2, models: [] } }));
    await page.goto("./");
    await expect(message(page)).toContainText("The catalog beside this page does not match it");
    await expect(message(page)).toContainText("version 1");
    await page.unroute("**/catalog/index.json");
    await page.route("**/catalog/hardware.slim.json", (route) => route.fulfill({ contentType: "application/json", body: '{"version":1,"devices":[{"id":' }));
    await page.reload();
    await expect(message(page)).toContainText("is not JSON");
  });

  test("a part of the page is not there when it is asked for", async ({ page, calculator }) => {
    await calculator.open();
    await page.route("**/assets/Compare-*.js", (route) => route.abort());
    await page.getByRole("tab", { name: "Compare" }).click();
    await expect(page.getByText("This part could not be loaded.")).toBeVisible();
  });
});
