import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { VIEWS } from "../../src/lib/link.ts";
import { expect, test } from "./page.ts";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const STATES = {
  fits: "#v=1&model=fastwan21&device=rtx-4090-24gb&host=64",
  "does not fit": "#v=1&model=wan21-t2v-14b&deployment=diffusers&device=rtx-3060-12gb&host=64",
  unknown: "#v=1&model=fastwan21&device=m3-max-36gb",
  wrong: "#v=1&model=fastwan21&device=rtx-4090-24gb&frames=80&set.no_such=1",
  described: "#v=1&model=fastwan21&device=custom&vram=12&nonsense=1",
  bare: "#v=1&model=fastwan21",
};

/** What is there once a view has its answer. */
const THERE: Record<string, string> = {
  memory: "#timeline",
  fit: "#minimum-title ~ div table",
  compare: "#compare-title ~ div table",
  maps: "[data-map=memories] td",
  plan: "#plan-title",
  settings: "#settings-title",
};

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(colorScheme, () => {
    test.use({ colorScheme });

    const check = async (page: import("@playwright/test").Page, what: string) => {
      // Past the page's own policy, which rightly lets no foreign script in.
      const violations = await page.evaluate(`(() => { ${axe}; return axe.run(document, { resultTypes: ["violations"] }).then((result) => result.violations.map((v) => [v.id, ...v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + " " + n.failureSummary)].join("\\n"))); })()`);
      expect(violations, what).toEqual([]);
    };

    for (const [state, link] of Object.entries(STATES)) {
      test(`no violation: ${state}`, async ({ calculator, page }) => {
        await calculator.open(link);
        for (const summary of await page.locator("form summary").all()) await summary.click();
        await check(page, state);
      });
    }

    for (const view of VIEWS) {
      test(`no violation: view ${view}`, async ({ calculator, page }) => {
        await calculator.open(`${STATES["does not fit"]}&view=${view}&compare=rtx-4090-24gb${view === "plan" ? "&precision=fp8" : ""}`);
        await expect(page.locator(THERE[view] ?? "").first()).toBeVisible({ timeout: 60_000 });
        if (view === "plan") await expect(page.locator(".blocks, .does_not_fit.verdict:not(.small)").nth(1)).toBeVisible({ timeout: 60_000 });
        await expect(page.getByText("Working it out …")).toHaveCount(0, { timeout: 60_000 });
        for (const summary of await page.locator("#view summary").all()) await summary.click();
        await check(page, view);
      });
    }

    test("no violation: an open list", async ({ calculator, page }) => {
      await calculator.open();
      await page.getByRole("combobox", { name: "Device", exact: true }).click();
      await page.keyboard.press("ArrowDown");
      await check(page, "list");
    });
  });
}
