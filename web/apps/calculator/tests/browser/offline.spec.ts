import { expect, test } from "./page.ts";

test.use({ serviceWorkers: "allow", tolerated: [/Failed to load resource|ERR_INTERNET_DISCONNECTED/] });

test("everything works without a network after the first load", async ({ calculator, page, context }) => {
  await calculator.open();
  // Everything is kept once the worker is active.
  await page.evaluate(async () => {
    await navigator.serviceWorker.ready;
    while (navigator.serviceWorker.controller === null) await new Promise((resolve) => setTimeout(resolve, 50));
  });
  await context.setOffline(true);
  await page.reload();
  await expect(calculator.answer).toContainText("FastWan2.1 T2V 1.3B fits");
  await calculator.pick("Model", "mochi");
  await expect(calculator.answer).toContainText("Mochi");
  await calculator.pick("Model", "Wan2.1 T2V 1.3B");
  await calculator.view("Maps");
  await expect(page.locator("[data-map=lengths] td").first()).toBeVisible({ timeout: 30_000 });
  await calculator.view("What fits");
  await expect(page.getByText(/^(Longest at|Fits in)/).first()).toBeVisible({ timeout: 60_000 });
  const kept = await page.evaluate(async () => {
    const names = await caches.keys();
    const requests = await Promise.all(names.map(async (name) => (await caches.open(name)).keys()));
    return { names, urls: requests.flat().map(({ url }) => url) };
  });
  expect(kept.names).toHaveLength(1);
  const folder = new URL("./", page.url()).href;
  expect(kept.urls.filter((url) => !url.startsWith(folder))).toEqual([]);
  await context.setOffline(false);
});
