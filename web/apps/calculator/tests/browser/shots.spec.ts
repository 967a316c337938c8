import { expect, test } from "./page.ts";

const LINK = "#v=1&model=wan21-t2v-14b&deployment=diffusers&device=rtx-4090-24gb&host=64&set.vae_tiling=true";

for (const [name, width, height] of [["phone", 390, 844], ["tablet", 820, 1180], ["wide", 1440, 1000]] as const) {
  for (const colorScheme of ["light", "dark"] as const) {
    test.describe(`${name}, ${colorScheme}`, () => {
      test.use({ viewport: { width, height }, colorScheme });
      test("looks as it did, and nothing is wider than the screen", async ({ calculator, page }) => {
        await calculator.open(LINK);
        const beyond = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        expect(beyond).toBeLessThanOrEqual(0);
        await expect(page).toHaveScreenshot(`${name}-${colorScheme}.png`);
        // Not over the card.
        await page.addStyleTag({ content: "header { position: static !important }" });
        await expect(page.locator("#view > .card").first()).toHaveScreenshot(`${name}-${colorScheme}-memory.png`);
      });
    });
  }
}
