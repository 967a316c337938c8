import { mount, unmount } from "svelte";
import "./app.css";
import Root from "./App.svelte";
import { App } from "./lib/app.svelte.ts";
import { PATIENCE_MS, loadCatalog } from "./lib/catalog.ts";
import { loadEngine } from "./lib/engine.ts";
import { loadPrepared } from "./lib/first.ts";

const place = document.getElementById("app") as HTMLElement;

/** A message in place of the page: what happened, what to do, and that nothing is lost. */
function say(title: string, lines: string[], again?: () => void): void {
  place.replaceChildren();
  const box = document.createElement("div");
  box.className = "without";
  const heading = document.createElement("h1");
  heading.textContent = title;
  box.append(heading);
  box.setAttribute("role", "alert");
  for (const line of lines) {
    const paragraph = document.createElement("p");
    paragraph.textContent = line;
    box.append(paragraph);
  }
  if (again) {
    const button = document.createElement("button");
    button.className = "button first";
    button.textContent = "Try again";
    button.addEventListener("click", again);
    box.append(button);
  }
  place.append(box);
}

function theme(): void {
  try {
    const chosen = localStorage.getItem("calculator.theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset["theme"] = chosen;
  } catch {
    // Storage is off: the system's colours.
  }
}

const KEPT = "What the address holds after # is kept, so nothing that you chose is lost.";

async function start(): Promise<void> {
  place.setAttribute("aria-busy", "true");
  const box = document.createElement("div");
  box.className = "without";
  box.innerHTML = "<p role='status'>Loading the calculator …</p>";
  place.replaceChildren(box);
  const controller = new AbortController();
  const slow = setTimeout(() => {
    const stop = document.createElement("button");
    stop.className = "button";
    stop.textContent = "Stop";
    stop.addEventListener("click", () => controller.abort());
    const line = document.createElement("p");
    line.textContent = "This is taking long. It goes on as soon as the connection does.";
    box.append(line, stop);
  }, PATIENCE_MS);
  try {
    allowed();
    const [catalog, prepared] = await Promise.all([loadCatalog(controller.signal), loadPrepared(controller.signal)]);
    const app = new App(() => loadEngine().catch(blocked), prepared, catalog);
    await app.open(location.hash);
    // The first question is answered already; any other has to be worked out.
    if (app.waiting) await app.need();
    place.replaceChildren();
    place.removeAttribute("aria-busy");
    const page = mount(Root, { target: place, props: { app } });
    follow(app, (error) => {
      void unmount(page);
      failed(error, false);
    });
  } catch (error) {
    place.removeAttribute("aria-busy");
    failed(error, controller.signal.aborted);
  } finally {
    clearTimeout(slow);
  }
}

class Blocked extends Error {}

/** The smallest module there is, to find out before anybody counts on it. */
function allowed(): void {
  try {
    new WebAssembly.Module(Uint8Array.of(0, 0x61, 0x73, 0x6d, 1, 0, 0, 0));
  } catch (error) {
    throw new Blocked(String(error));
  }
}

/** A policy that forbids WebAssembly shows as a CompileError; a file that is missing does not. */
function blocked(error: unknown): never {
  const all = [error, (error as { cause?: unknown }).cause];
  if (all.some((one) => one instanceof WebAssembly.CompileError || (one instanceof Error && /unsafe-eval|Content.Security.Policy/i.test(one.message)))) {
    throw new Blocked(String(error));
  }
  throw error;
}

function failed(error: unknown, stopped: boolean): void {
  const message = error instanceof Error ? error.message : String(error);
  const again = () => void start();
  if (error instanceof Blocked) {
    say("WebAssembly is blocked here", [
      "The calculator is a WebAssembly module, and this browser or a policy of this site does not let it start.",
      "Allow WebAssembly for this page and reload (on a server of your own: script-src 'self' 'wasm-unsafe-eval'), open the page in another browser, or use the command line: fv-catalog estimate MODEL --hardware ID.",
      KEPT,
    ], again);
  } else if (stopped) {
    say("You stopped loading", ["Nothing was loaded.", KEPT], again);
  } else if (/version 1|is not /.test(message)) {
    say("The catalog beside this page does not match it", [
      message,
      "The page reads catalogs of version 1. Copy page and catalog from the same release, or reload if the site was just updated.",
      KEPT,
    ], again);
  } else {
    say("The calculator could not be loaded", [
      message,
      navigator.onLine ? "A file is missing or the server did not answer. Try again; if it stays so, the page was not copied whole." : "You are offline, and this page was not loaded whole before.",
      KEPT,
    ], again);
  }
}

/** The address follows what is chosen, a moment behind, since browsers limit how often it may change. */
function follow(app: App, fail: (error: unknown) => void): void {
  let own = location.hash;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const write = () => {
    timer = undefined;
    own = app.link;
    history.replaceState(null, "", own);
  };
  // Whoever moves, types or scrolls is about to ask something.
  const need = () => void app.need().catch(fail);
  for (const sign of ["pointermove", "pointerdown", "keydown", "focusin", "wheel", "touchstart"]) addEventListener(sign, need, { once: true, passive: true });
  $effect.root(() => {
    $effect(() => {
      if (app.waiting) need();
    });
    $effect(() => {
      if (app.link === own || !app.model) return;
      clearTimeout(timer);
      timer = setTimeout(write, 250);
    });
  });
  addEventListener("hashchange", () => {
    if (location.hash !== own) void app.open(location.hash);
  });
  addEventListener("pagehide", () => timer !== undefined && write());
}

theme();
void start();
if (import.meta.env.PROD && "serviceWorker" in navigator) {
  addEventListener("load", () => void navigator.serviceWorker.register("./sw.js", { scope: "./" }).catch(() => {}));
}
