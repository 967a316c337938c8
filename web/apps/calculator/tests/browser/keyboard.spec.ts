import { expect, test } from "./page.ts";

test("from end to end with the keyboard alone", async ({ calculator, page }) => {
  await calculator.open();
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? (document.activeElement as HTMLElement | null)?.innerText ?? "");
  const until = async (what: () => Promise<boolean>) => {
    for (let n = 0; n < 80; n += 1) {
      await page.keyboard.press("Tab");
      if (await what()) return;
    }
    throw new Error("Tab never got there");
  };
  const at = (id: string) => () => page.evaluate((wanted) => document.activeElement?.id === wanted, id);
  const label = (name: RegExp) => async () => name.test(await page.evaluate(() => (document.activeElement as HTMLInputElement | null)?.labels?.[0]?.innerText ?? ""));

  await until(label(/^Model/));
  await page.keyboard.type("wan 14b");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(calculator.answer).toContainText("14B");
  await until(at("deployment"));
  await until(label(/^Device/));
  await page.keyboard.type("nothing like it");
  await page.keyboard.press("Escape");
  await page.keyboard.type("3060 12 GB");
  await page.keyboard.press("Enter");
  await expect(calculator.answer).toContainText("RTX 3060 12 GB");
  await until(label(/^Host RAM/));
  await page.keyboard.type("64");
  await expect(page.getByText("of 59.60 GiB")).toBeVisible();

  await until(at("tab-memory"));
  await page.keyboard.press("ArrowRight");
  await expect(page.getByRole("tab", { name: "What fits" })).toHaveAttribute("aria-selected", "true");
  await page.keyboard.press("Home");
  await until(async () => /^Load: /.test(await focused()));
  const first = await focused();
  await page.keyboard.press("ArrowRight");
  expect(await focused()).toMatch(/^Encode: /);
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowUp");
  expect(await focused()).toMatch(/^Denoise: /);
  expect(await focused()).not.toBe(first);
  await expect(page.locator(".detail h3")).toContainText("denoise");

  await page.getByRole("tab", { name: "Memory and time" }).focus();
  for (let n = 0; n < 3; n += 1) await page.keyboard.press("ArrowRight");
  await expect(page.locator("[data-map=lengths] td").first()).toBeVisible({ timeout: 30_000 });
  await until(() => page.evaluate(() => document.activeElement?.closest("[data-map=lengths]") !== null));
  await page.keyboard.press("Home");
  expect(await page.evaluate(() => (document.activeElement as HTMLElement).dataset["cell"])).toMatch(/-0$/);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await expect(calculator.field("Length")).toHaveValue("1");
});

test("nothing moves for people who asked for less motion", async ({ calculator, page }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  await calculator.open();
  const moving = await page.evaluate(() => [...document.querySelectorAll("*")].filter((element) => getComputedStyle(element).transitionDuration !== "0s" || getComputedStyle(element).animationName !== "none").length);
  expect(moving).toBe(0);
});
