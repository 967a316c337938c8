import { defineConfig } from "@playwright/test";

// Debian's Chromium: tests/run.sh installs it, since Playwright's own download is not reachable everywhere.
export default defineConfig({
  testDir: "tests/browser",
  workers: 1,
  // A loaded machine is slow, not wrong.
  timeout: 180_000,
  reporter: [["list"]],
  expect: { timeout: 15_000, toHaveScreenshot: { maxDiffPixelRatio: 0.03, animations: "disabled", scale: "css" } },
  snapshotPathTemplate: "{testDir}/shots/{arg}{ext}",
  use: {
    baseURL: "http://127.0.0.1:4173/page/",
    serviceWorkers: "block",
    permissions: ["clipboard-read", "clipboard-write"],
    locale: "en-GB",
    launchOptions: {
      executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium",
      args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--font-render-hinting=none"],
    },
  },
  // In a folder of its own, as on a static host: nothing may be asked of the host's root.
  webServer: { command: "node tests/browser/host.mjs 4173", url: "http://127.0.0.1:4173/page/", reuseExistingServer: false },
});
