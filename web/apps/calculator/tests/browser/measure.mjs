// How fast the page is, in the browser, for docs/benchmarks.md: `node tests/browser/measure.mjs` beside a built dist/. No test, since
// time is the machine's; medians and 95th percentiles of what is printed are.
import { spawn } from "node:child_process";
import { chromium } from "@playwright/test";

const host = spawn(process.execPath, [new URL("host.mjs", import.meta.url).pathname, "4174"], { stdio: "inherit" });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"] });
try {
  await new Promise((resolve) => setTimeout(resolve, 500));
  const page = await browser.newPage({ serviceWorkers: "block", viewport: { width: 1440, height: 1000 } });
  for (const link of ["#v=1&model=fastwan21&device=rtx-4090-24gb&host=64", "#v=1&model=wan21-t2v-14b&deployment=diffusers&device=rtx-4090-24gb&host=64"]) {
    await page.goto("about:blank");
    await page.goto(`http://127.0.0.1:4174/page/${link}`);
    await page.waitForSelector("#timeline");
    // From the input event until verdict and timeline are computed, in the document and laid out.
    const repaint = await page.evaluate(async () => {
      const slider = document.querySelector("input[type=range]");
      const times = [];
      for (let n = 0; n < 120; n += 1) {
        await new Promise((resolve) => requestAnimationFrame(resolve));
        const before = document.querySelector("#answer").textContent + document.querySelector("#timeline").innerHTML.length;
        slider.value = String(5 + (n % 40));
        const start = performance.now();
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await Promise.resolve();
        document.querySelector("#timeline").getBoundingClientRect();
        const end = performance.now();
        if (n >= 20) times.push({ ms: end - start, changed: before !== document.querySelector("#answer").textContent + document.querySelector("#timeline").innerHTML.length });
      }
      return times;
    });
    say(`repaint ${link}`, repaint.map(({ ms }) => ms), `${repaint.filter(({ changed }) => changed).length} of ${repaint.length} changed what is shown`);
    // Heat maps as the worker took them, and how long the page was held up meanwhile.
    await page.getByRole("tab", { name: "Maps" }).click();
    await page.waitForSelector("[data-map=lengths] td");
    await page.waitForSelector("[data-map=memories] td");
    const maps = await page.evaluate(async () => {
      const slider = document.querySelector("input[type=range]");
      const ms = (id) => Number(document.querySelector(`[data-map=${id}]`).dataset.ms);
      const times = { lengths: [], memories: [], held: [] };
      for (let n = 0; n < 20; n += 1) {
        const before = { lengths: ms("lengths"), memories: ms("memories") };
        slider.value = String(5 + n * 2);
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        const start = performance.now();
        let [last, worst] = [start, 0];
        while ((ms("lengths") === before.lengths || ms("memories") === before.memories) && last - start < 5000) {
          await new Promise((resolve) => setTimeout(resolve, 0));
          const now = performance.now();
          worst = Math.max(worst, now - last);
          last = now;
        }
        times.lengths.push(ms("lengths"));
        times.memories.push(ms("memories"));
        times.held.push(worst);
      }
      return times;
    });
    say(`map of sizes and lengths, 16 x 16 cells, ${link}`, maps.lengths);
    say(`map of device and host memory, 16 x 12 cells, ${link}`, maps.memories);
    say(`longest time without taking input meanwhile, ${link}`, maps.held);
  }
} finally {
  await browser.close();
  host.kill();
}

function say(what, times, more = "") {
  const sorted = [...times].sort((a, b) => a - b);
  const at = (part) => (sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))] ?? NaN).toFixed(1);
  console.log(`${what}: fastest ${at(0)} ms, median ${at(0.5)} ms, 95 % ${at(0.95)} ms, ${sorted.length} times${more ? `; ${more}` : ""}`);
}
