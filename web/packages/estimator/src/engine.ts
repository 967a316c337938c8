// The module that answers, and what it has read. Nothing here is part of the package's types, which know no WebAssembly.

import { EstimatorError, wrong, type Problem } from "./errors.js";
import type { Version } from "./types.js";

/** The functions of a module, as wasm-bindgen writes them. */
export type Glue = typeof import("./whole/fv_wasm.js");

/** What handles are of. */
type Kind = "model" | "device";

/** A module with what it has read. Objects are known by identity: a changed one has to be a new one. */
export class Engine {
  readonly #glue: Glue;
  readonly #known = { model: new WeakMap<object, number>(), device: new WeakMap<object, number>() };
  readonly #gone: FinalizationRegistry<[Kind, number]>;

  constructor(glue: Glue) {
    this.#glue = glue;
    this.#gone = new FinalizationRegistry(([kind, handle]) => (kind === "model" ? glue.forgetModel(handle) : glue.forgetDevice(handle)));
  }

  get glue(): Glue {
    return this.#glue;
  }

  #handle(kind: Kind, thing: unknown, field: string): number {
    if (typeof thing !== "object" || thing === null || Array.isArray(thing)) {
      throw wrong("invalid-type", `${field}: found ${shown(thing)}, allowed: an object of the compiled catalog`, field);
    }
    const known = this.#known[kind].get(thing);
    if (known !== undefined) return known;
    const text = JSON.stringify(thing, finite(field));
    const handle = answer<number>(kind === "model" ? this.#glue.readModel(text) : this.#glue.readDevice(text));
    this.#known[kind].set(thing, handle);
    this.#gone.register(thing, [kind, handle]);
    return handle;
  }

  model(model: unknown): number {
    return this.#handle("model", model, "model");
  }

  models(models: unknown): Uint32Array {
    return Uint32Array.from(Array.isArray(models) ? models : [models], (model) => this.model(model));
  }

  device(hardware: unknown): number {
    return hardware === undefined || hardware === null ? 0 : this.#handle("device", hardware, "hardware");
  }

  devices(devices: unknown): Uint32Array {
    const list = Array.isArray(devices) ? devices : (devices as { devices?: unknown } | undefined)?.devices;
    if (!Array.isArray(list)) throw wrong("invalid-type", `devices: found ${shown(devices)}, allowed: a list of devices`, "devices");
    return Uint32Array.from(list, (device) => this.#handle("device", device, "devices"));
  }
}

let engine: Engine | undefined;

/** Makes a module the one that answers. */
export function use(glue: Glue, rules: string, reference: string): void {
  answer(glue.readRules(rules));
  answer(glue.readReference(reference));
  engine = new Engine(glue);
}

export function ready(): Engine {
  if (!engine) throw wrong("not-ready", "the estimator is not ready: `await init()` first");
  return engine;
}

export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.slice(0, 60));
  return Array.isArray(value) ? "a list" : value !== null && typeof value === "object" ? "an object" : String(value);
}

/** JSON has no word for what is no number: it would become null, and with it the reason get lost. */
export function finite(field: string): (key: string, value: unknown) => unknown {
  return (key, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      const name = key && field !== "" ? `${field}.${key}` : key || field;
      throw wrong("invalid-type", `${name}: found ${value}, allowed: a number`, name);
    }
    if (typeof value === "bigint") throw wrong("invalid-type", `${key || field}: found a bigint, allowed: a number`, key || field);
    return value;
  };
}

/** An answer, or what is wrong with the question. */
export function answer<T>(text: string): T {
  const value = JSON.parse(text) as T & { error?: { errors?: Problem[] } };
  const errors = value?.error?.errors;
  if (errors) throw new EstimatorError(errors);
  return value;
}

/** The estimator, if every question is there. */
export function complete(): Engine {
  const current = ready();
  if (!(answer<Version>(current.glue.version()).whole)) {
    throw wrong("not-in-this-part", "this question needs the whole estimator: `await init()` without `part`");
  }
  return current;
}
