// The page's side of the worker. Only the newest question of each kind counts: an older one that is still being worked on is
// stopped, by ending its worker, and nothing waits for it.

import type { Slow } from "./engine.ts";
import type { Reason } from "./types.ts";
import type { Told } from "./worker.ts";

export type State = { kind: "idle" | "working" | "done" } | { kind: "wrong"; problems: Reason[] };

export class Background<Name extends keyof Slow> {
  readonly #name: Name;
  #worker: Worker | undefined;
  #asked = 0;
  #busy = false;
  state: State = $state.raw({ kind: "idle" });
  /** The newest answer, with what it answers; it stays while the next one is worked on. */
  last: { answer: ReturnType<Slow[Name]>; given: Parameters<Slow[Name]>; ms: number } | undefined = $state.raw();
  #given: Parameters<Slow[Name]> | undefined;

  constructor(name: Name) {
    this.#name = name;
  }

  ask(...given: Parameters<Slow[Name]>): void {
    this.#asked += 1;
    if (this.#busy) this.stop();
    this.#given = given;
    this.state = { kind: "working" };
    this.#busy = true;
    this.#worker ??= this.#start();
    this.#worker.postMessage({ id: this.#asked, name: this.#name, arguments: given });
  }

  #start(): Worker {
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data }: MessageEvent<Told>) => {
      if (data.id !== this.#asked || worker !== this.#worker) return;
      this.#busy = false;
      if ("answer" in data && this.#given) {
        this.last = { answer: data.answer as ReturnType<Slow[Name]>, given: this.#given, ms: data.ns / 1e6 };
        this.state = { kind: "done" };
      } else if ("problems" in data) {
        this.last = undefined;
        this.state = { kind: "wrong", problems: data.problems };
      }
    });
    worker.addEventListener("error", (event) => {
      event.preventDefault();
      if (worker !== this.#worker) return;
      this.stop();
      this.state = { kind: "wrong", problems: [{ code: "worker", message: "the part that calculates could not be loaded; try again, with a connection" }] };
    });
    return worker;
  }

  stop(): void {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#busy = false;
  }
}
