// What the page knows and what it shows follows from two things: what the person chose, and what was loaded.

import { deployment, question } from "./ask.ts";
import { type Engine, problemsOf } from "./engine.ts";
import { FIRST, type Prepared } from "./first.ts";
import { type Choice, type Json, type View, read, write } from "./link.ts";
import type { Legal } from "./legal.ts";
import { prepare, deviceEntry, find } from "./search.ts";
import type { Assessment, Device, Model, Reason } from "./types.ts";

export interface Summary {
  id: string;
  name: string;
  model_id: string;
}

/** Loads one model; rejects in words. */
export type LoadModel = (id: string, signal: AbortSignal) => Promise<Model>;

/** The catalog, as far as it is loaded, and how the rest is. */
export interface Catalog {
  models: Summary[];
  devices: Device[];
  load: LoadModel;
  /** Devices with their sources, which the first view does without. */
  sources: () => Promise<Device[]>;
}

export interface Notice {
  title: string;
  lines: string[];
  /** The address as it was, where a link could not be used whole: nothing is lost. */
  link?: string;
}

export type Answer = { kind: "answer"; assessment: Assessment } | { kind: "wrong"; problems: Reason[] };

const OWN = "calculator.device.v1";

export class App {
  readonly models: Summary[];
  readonly devices: Device[];
  readonly #load: LoadModel;
  /** Every device with its sources, which are loaded when somebody wants to see them. */
  readonly whole: () => Promise<Device[]>;
  readonly #start: () => Promise<Engine>;
  #starting: Promise<void> | undefined;
  #byId: Map<string, Device>;
  #cache = new Map<string, Model>();
  #loading: AbortController | undefined;

  /** The estimator, once something has to be worked out. */
  engine: Engine | undefined = $state.raw();
  readonly prepared: Prepared | undefined;
  choice: Choice = $state(structuredClone(FIRST));
  model: Model | undefined = $state.raw();
  /** The model that is being fetched, or that could not be. */
  pending: { id: string; problem?: string } | undefined = $state();
  notices: Notice[] = $state([]);

  constructor(start: () => Promise<Engine>, prepared: Prepared | undefined, { models, devices, load, sources }: Catalog) {
    this.#start = start;
    this.prepared = prepared;
    this.whole = sources;
    this.models = models;
    this.devices = devices;
    this.#load = load;
    this.#byId = new Map(devices.map((device) => [device.id, device]));
  }

  example = $derived.by(() => (this.model ? deployment(this.model, this.choice.deployment) : undefined));
  device = $derived.by(() => (this.choice.device?.kind === "catalog" ? this.#byId.get(this.choice.device.id) : undefined));
  deviceName = $derived.by(() => {
    const chosen = this.choice.device;
    if (chosen?.kind === "custom") return `a ${chosen.vramGiB} GiB device of your own`;
    const part = this.device?.partitions?.find(({ id }) => chosen?.kind === "catalog" && id === chosen.partition);
    return part ? `${part.label} of ${this.device?.name}` : this.device?.name;
  });
  question = $derived.by(() =>
    this.model && this.example ? question(this.chosen(), this.model, this.example, this.device) : undefined,
  );
  legal: Legal | undefined = $derived.by(() => {
    if (!this.engine) return this.prepared?.legal;
    try {
      return this.model && this.example ? this.engine.legal({ model: this.model, config: this.example.id }) : undefined;
    } catch {
      return undefined;
    }
  });
  answer: Answer | undefined = $derived.by(() => {
    if (!this.question) return undefined;
    // What is on the page stays until there is something newer, and `waiting` says that it is older than the question.
    if (!this.engine) return this.prepared && { kind: "answer", assessment: this.prepared.assessment };
    try {
      return { kind: "answer", assessment: this.engine.assess(this.question) };
    } catch (error) {
      return { kind: "wrong", problems: problemsOf(error) };
    }
  });
  assessment = $derived.by(() => (this.answer?.kind === "answer" ? this.answer.assessment : undefined));
  link = $derived.by(() => `#${write(this.choice)}`);
  /** Whether the answer is to be worked out, and the estimator is not there yet. */
  waiting = $derived.by(() => !this.engine && this.model !== undefined && this.link !== `#${this.prepared?.link}`);
  version = $derived.by(() => this.engine?.version() ?? this.prepared?.version ?? "");

  /** Loads the estimator, once. */
  async need(): Promise<void> {
    this.#starting ??= this.#start().then(
      (engine) => {
        this.engine = engine;
      },
      (error: unknown) => {
        this.#starting = undefined;
        throw error;
      },
    );
    await this.#starting;
  }

  /** A plain copy of what was chosen. */
  chosen(): Choice {
    // Through `object`: the type of a snapshot of any JSON has no end.
    return $state.snapshot(this.choice as object) as Choice;
  }

  deviceById(id: string): Device | undefined {
    return this.#byId.get(id);
  }

  /** What an address asks for; what cannot be had is said, and the rest is kept. */
  async open(hash: string): Promise<void> {
    const asked = read(hash);
    this.notices = [];
    if (asked.kind === "refused") {
      this.notices = [{ title: "The link was not used", lines: [asked.message, "Below is an example in its place."], link: hash }];
      await this.#adopt(structuredClone(FIRST));
      return;
    }
    if (asked.kind === "empty") {
      await this.#adopt({ ...structuredClone(FIRST), ...remembered(this.#byId) });
      return;
    }
    const lines = [...asked.problems];
    const choice: Choice = { ...structuredClone(FIRST), ...asked.choice };
    if (asked.choice.device === undefined) delete choice.device;
    if (!this.models.some(({ id }) => id === choice.model)) {
      lines.push(`No model is called “${choice.model}”: ${this.#near(choice.model, this.models)}`);
      choice.model = FIRST.model;
      delete choice.deployment;
    }
    if (choice.device?.kind === "catalog") {
      const { id, partition } = choice.device;
      // An alias stays valid in links.
      const device = this.#byId.get(id) ?? this.devices.find(({ aliases }) => aliases?.some((alias) => alias.toLowerCase() === id.toLowerCase()));
      if (!device) {
        lines.push(`No device is called “${id}”: ${this.#near(id, this.devices)}, or describe your own`);
        delete choice.device;
      } else {
        choice.device.id = device.id;
        if (partition !== undefined && !device.partitions?.some((part) => part.id === partition)) {
          const allowed = device.partitions?.map((part) => part.id).join(", ");
          lines.push(`${device.name} has no partition “${partition}”${allowed ? `, only ${allowed}` : ""}`);
          delete choice.device.partition;
        }
      }
    }
    const strange = choice.compare.filter((id) => !this.#byId.has(id));
    for (const id of strange) lines.push(`No device to compare with is called “${id}”`);
    choice.compare = choice.compare.filter((id) => this.#byId.has(id));
    await this.#adopt(choice, lines);
    if (lines.length > 0) this.notices = [{ title: "Parts of the link could not be used", lines, link: hash }];
  }

  #near(name: string, all: { id: string; name: string }[]): string {
    const index = prepare(all.map((entry) => ("vendor" in entry ? deviceEntry(entry as Device) : { ...entry, terms: [] })));
    // The words of the name, fewer and fewer of them, until something has them all.
    const words = name.split(/[^A-Za-z0-9.]+/);
    for (let most = words.length; most > 0; most -= 1) {
      const found = find(index, words.slice(0, most).join(" "), 3);
      if (found.length > 0) return `near it are ${found.map(({ id }) => id).join(", ")}`;
    }
    return `choose one of the ${all.length} in the list`;
  }

  async #adopt(choice: Choice, lines: string[] = []): Promise<void> {
    const { deployment: id } = choice;
    const model = await this.#fetch(choice.model);
    if (!model) {
      this.choice = { ...choice };
      return;
    }
    if (id !== undefined && !deployment(model, id)) {
      lines.push(`${model.name} has no deployment “${id}”, only ${model.examples.map((example) => example.id).join(", ")}`);
      delete choice.deployment;
    }
    this.model = model;
    this.choice = choice;
  }

  /** Another model. What was chosen of the request and settings stays where it still means something. */
  async chooseModel(id: string): Promise<void> {
    // Asked for by a link, and not there at first: everything else that the link says still holds.
    if (id === this.choice.model) return this.#adopt(this.chosen());
    const model = await this.#fetch(id);
    if (!model) return;
    const runtime = this.example?.runtime;
    const { deployment: _gone, precision: _planned, ...kept } = this.choice;
    const next = model.examples.find((example) => example.runtime === runtime);
    this.model = model;
    this.choice = {
      ...kept,
      model: id,
      ...(next && next !== model.examples[0] && { deployment: next.id }),
      // Sizes are a model's own; settings mean the same in the same runtime only.
      request: {},
      ...((!next || next.runtime !== runtime) && { settings: {}, environment: {} }),
    };
  }

  async #fetch(id: string): Promise<Model | undefined> {
    this.#loading?.abort();
    const cached = this.#cache.get(id);
    if (cached) {
      this.pending = undefined;
      return cached;
    }
    const controller = new AbortController();
    this.#loading = controller;
    this.pending = { id };
    try {
      const model = await this.#load(id, controller.signal);
      this.#cache.set(id, model);
      if (!controller.signal.aborted) this.pending = undefined;
      return controller.signal.aborted ? undefined : model;
    } catch (error) {
      if (!controller.signal.aborted) this.pending = { id, problem: error instanceof Error ? error.message : String(error) };
      return undefined;
    }
  }

  /** Stops waiting for a model; what was shown stays. */
  cancel(): void {
    this.#loading?.abort();
    if (this.pending) this.pending = { id: this.pending.id, problem: "You stopped loading it." };
  }

  dismissPending(): void {
    this.pending = undefined;
  }

  chooseDeployment(id: string): void {
    const before = this.example?.runtime;
    this.choice.deployment = id;
    if (this.model && id === this.model.examples[0]?.id) delete this.choice.deployment;
    if (this.example?.runtime !== before) {
      this.choice.settings = {};
      this.choice.environment = {};
    }
  }

  chooseDevice(device: Choice["device"]): void {
    delete this.choice.allocationGb;
    delete this.choice.budgetGiB;
    if (device) this.choice.device = device;
    else delete this.choice.device;
    remember(this.choice);
  }

  setHost(gb: number | undefined): void {
    if (gb === undefined) delete this.choice.hostGb;
    else this.choice.hostGb = gb;
    remember(this.choice);
  }

  set(key: string, value: Json | undefined): void {
    if (value === undefined) delete this.choice.settings[key];
    else this.choice.settings[key] = value;
  }

  show(view: View): void {
    this.choice.view = view;
  }
}

/** The person's own device, for the next visit. Storage may be off, and then is done without. */
function remember({ device, hostGb }: Choice): void {
  try {
    localStorage.setItem(OWN, JSON.stringify({ device, hostGb }));
  } catch {
    // Private windows refuse.
  }
}

function remembered(known: Map<string, Device>): Partial<Choice> {
  try {
    const text = localStorage.getItem(OWN);
    if (!text) return {};
    const { device, hostGb } = JSON.parse(text) as Partial<Choice>;
    // Through a link, whose reader trusts nothing.
    const back = read(`#${write({ ...FIRST, ...(device && { device }), ...(hostGb !== undefined && { hostGb }) })}`);
    if (back.kind !== "read" || back.problems.length > 0) return {};
    const own = back.choice.device;
    if (own?.kind === "catalog" && !known.has(own.id)) return {};
    return { ...(own && { device: own }), ...(back.choice.hostGb !== undefined && { hostGb: back.choice.hostGb }) };
  } catch {
    return {};
  }
}
