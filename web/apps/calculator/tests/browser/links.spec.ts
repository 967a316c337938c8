import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "./page.ts";

const fixtures = JSON.parse(readFileSync(new URL("../fixtures/links-v1.json", import.meta.url), "utf8")) as { link: string }[];

test("links of version 1 restore everything, and are written again as they were", async ({ calculator, page }) => {
  const canonical = (hash: string) => [...new URLSearchParams(hash.replace(/^#/, ""))].sort();
  for (const { link } of fixtures) {
    await calculator.open(link);
    const again = new URL(await calculator.link()).hash;
    expect(canonical(again)).toEqual(canonical(link));
    await expect(page.getByRole("alert")).toHaveCount(0);
    const said = await calculator.answer.textContent();
    await calculator.open(again);
    await expect(calculator.answer).toHaveText(said ?? "");
    await calculator.sane();
  }
});

test("the address follows what is chosen, and going back to it restores it", async ({ calculator, page }) => {
  await calculator.open();
  await calculator.pick("Device", "h100");
  await page.getByRole("button", { name: "Length: next larger" }).click();
  await expect(page).toHaveURL(/device=h100-sxm-80gb&frames=85/);
  const said = await calculator.answer.textContent();
  await page.reload();
  await expect(calculator.answer).toHaveText(said ?? "");
  // Another link in the same tab.
  await page.evaluate(() => (location.hash = "#v=1&model=wan21-t2v-14b&device=rtx-4090-24gb"));
  await expect(calculator.answer).toContainText("Wan2.1 T2V 14B");
});

test("a link of a later version is refused in words and kept", async ({ calculator, page }) => {
  await calculator.open("#v=2&model=wan21-t2v-14b&mood=blue");
  const notice = page.getByRole("alert");
  await expect(notice).toContainText("This link is of version 2, and this page reads version 1.");
  await notice.getByText("The link as it was").click();
  await expect(notice).toContainText("#v=2&model=wan21-t2v-14b&mood=blue");
  await notice.getByRole("button", { name: "Understood" }).click();
  await expect(notice).toHaveCount(0);
});

test("what a link asks for and is not there is named, with what is near it", async ({ calculator, page }) => {
  await calculator.open("#v=1&model=wan21-t2v-14&deployment=diffuser&device=rtx-4090-48gb&partition=x&compare=rtx-1&frames=eighty&colour=red");
  const notice = page.getByRole("alert");
  await expect(notice).toContainText("No model is called “wan21-t2v-14”: near it are");
  await expect(notice).toContainText("No device is called “rtx-4090-48gb”: near it are rtx-4090-24gb");
  await expect(notice).toContainText("No device to compare with is called “rtx-1”");
  await expect(notice).toContainText("frames: found “eighty”");
  await expect(notice).toContainText("“colour” means nothing");
  await calculator.open("#v=1&model=wan21-t2v-14b&deployment=diffuser&device=4090&partition=x");
  await expect(notice).toContainText("has no deployment “diffuser”, only fastvideo, diffusers");
  await expect(notice).toContainText("RTX 4090 24 GB has no partition “x”");
  await expect(calculator.answer).toContainText("RTX 4090 24 GB");
  await calculator.open("#v=1&model=fastwan21");
  await expect(calculator.verdict).toHaveText(/Not known/);
  await expect(page.getByText("Choose a device, or describe your own.")).toBeVisible();
});

test("no random link breaks the page", async ({ calculator, page }) => {
  await calculator.open();
  const number = fc.oneof(fc.integer({ min: -5, max: 20_000 }), fc.double(), fc.constantFrom("", "1e9", "0x10", "٣", "NaN")).map(String);
  const models = ["fastwan21", "wan21-t2v-14b", "minimax-h3", "mochi-1", "nothing"];
  const part = fc.oneof(
    fc.constantFrom(...models).map((id) => `model=${id}`),
    fc.constantFrom("rtx-4090-24gb", "h100-sxm-80gb", "m3-max-36gb", "custom", "none-such").map((id) => `device=${id}`),
    fc.constantFrom("diffusers", "fastvideo", "freevideo").map((id) => `deployment=${id}`),
    fc.tuple(fc.constantFrom("vram", "budget", "alloc", "host", "w", "h", "frames", "batch", "steps", "text", "refs", "guidance"), number).map(([k, v]) => `${k}=${encodeURIComponent(v)}`),
    fc.tuple(fc.constantFrom("vae_tiling", "torch_dtype", "group_offload", "x.y"), fc.jsonValue({ maxDepth: 1 })).map(([k, v]) => `set.${k}=${encodeURIComponent(JSON.stringify(v))}`),
    fc.constantFrom("memory", "compare", "settings", "moon").map((view) => `view=${view}`),
    fc.string({ maxLength: 12 }).map(encodeURIComponent),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(part, { maxLength: 8 }), async (parts) => {
      const hash = `#v=1&${parts.join("&")}`;
      await page.evaluate((next) => (location.hash = next), hash);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 30))));
      await expect(calculator.answer).not.toHaveText(/Loading|^$/);
      await calculator.sane();
    }),
    { numRuns: 60, endOnFailure: true },
  );
});
