import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { estimateArguments } from "../../src/lib/command.ts";
import { type Choice, read } from "../../src/lib/link.ts";
import { expect, test } from "./page.ts";

// The command line, built with the page in it: tests/run.sh names it.
const CLI = process.env["FV_CATALOG_BIN"];
if (!CLI) throw new Error("FV_CATALOG_BIN names no fv-catalog: run tests/run.sh, or set it to a build with --features page");

const LINKS = [
  "#v=1&model=fastwan21&device=rtx-4090-24gb",
  "#v=1&model=wan21-t2v-14b&deployment=diffusers&device=rtx-3060-12gb&host=64&w=1280&h=720&frames=81&set.vae_tiling=true",
  "#v=1&model=wan21-t2v-14b&device=h100-sxm-80gb&partition=3g.40gb&host=128&frames=49&steps=30&guidance=1&batch=2",
  "#v=1&model=wan22-ti2v-5b&device=custom&vram=16&host=32",
  "#v=1&model=hunyuanvideo&device=rtx-4090-24gb&budget=20&env.PYTORCH_CUDA_ALLOC_CONF=expandable_segments%3ATrue",
  "#v=1&model=mochi-1&device=m3-max-36gb",
  "#v=1&model=minimax-h3&deployment=diffusers&device=h100-sxm-80gb",
];

test("the page's numbers are the command line's, to the last digit", async ({ calculator, page }) => {
  for (const link of LINKS) {
    const asked = read(link);
    if (asked.kind !== "read") throw new Error(link);
    const choice: Choice = { model: "", view: "memory", ...asked.choice };
    const told = JSON.parse(execFileSync(CLI, ["assess", ...estimateArguments(choice), "--format", "json"], { encoding: "utf8", cwd: "/", maxBuffer: 1 << 26 }));
    await calculator.open(link);
    await page.getByRole("button", { name: "Copy JSON" }).click();
    await expect(page.getByText("JSON copied.")).toBeVisible();
    const shown = JSON.parse(await page.evaluate(() => navigator.clipboard.readText()));
    // Flags and descriptions of one's own device are remarked on in different words.
    if (choice.device?.kind === "custom") delete shown.estimate.notes, delete told.estimate.notes;
    expect(shown, link).toEqual(told);
    // What is read is what is in the JSON.
    const most = Math.max(...told.estimate.stages.flatMap((stage: { peakBytes?: { device: { high: number } } }) => stage.peakBytes?.device.high ?? []));
    if (Number.isFinite(most)) await expect(page.locator(".answer dd").first()).toContainText(`${(most / 2 ** 30).toFixed(2)} GiB`);
  }
});

test("the program serves the page, and stops when it is told to", async ({ browser }) => {
  const server = spawn(CLI, ["serve", "--port", "0"], { cwd: "/", stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [line] = (await once(server.stdout.setEncoding("utf8"), "data")) as [string];
    const url = /http:\/\/127\.0\.0\.1:\d+\//.exec(line)?.[0];
    expect(url).toBeDefined();
    const context = await browser.newContext({ serviceWorkers: "allow" });
    const page = await context.newPage();
    const wrong: string[] = [];
    page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
    page.on("pageerror", (error) => wrong.push(String(error)));
    await page.goto(`${url}#v=1&model=wan21-t2v-1.3b&device=rtx-4090-24gb`);
    await expect(page.locator("#answer")).toContainText("Wan2.1 T2V 1.3B fits");
    await page.getByRole("tab", { name: "What fits" }).click();
    await expect(page.getByText(/^Longest at/)).toBeVisible({ timeout: 60_000 });
    expect(wrong).toEqual([]);
    for (const path of ["%2e%2e/etc/passwd", "assets/", "index.html/"]) expect((await context.request.get(`${url}${path}`)).status()).toBe(404);
    expect((await context.request.post(url ?? "")).status()).toBe(405);
    expect((await context.request.get(url ?? "", { headers: { host: "evil.example" } })).status()).toBe(421);
    await context.close();
  } finally {
    server.kill("SIGTERM");
  }
  const [code] = (await once(server, "exit")) as [number | null];
  expect(code).toBe(0);
});
