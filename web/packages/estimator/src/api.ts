import type { CapacityHardware, CapacityModel } from "./catalog.js";
import { answer, complete, finite, ready, shown, type Engine } from "./engine.js";
import { wrong } from "./errors.js";
import type {
  Assessment,
  Comparison,
  Device,
  Estimate,
  EvidenceMatch,
  LargestAnswer,
  Legal,
  Minimum,
  PartialRequest,
  Plan,
  Recommendations,
  Refusal,
  Summary,
  Unplanned,
  Version,
} from "./types.js";

/** A deployment of a model: one of its `examples`, an edited copy of one, or the id of one. */
export type Config = string | CapacityModel["examples"][number];

/** A device that the catalog does not hold. What is left out is unknown. */
export interface CustomDevice {
  id?: string;
  name?: string;
  custom: true;
  memory: {
    type: "dedicated" | "unified";
    nominal: { value: number; unit: "GB" | "GiB" };
    reported?: { value: number; unit: "MiB" };
    usable?: { value: number; unit: "GB" | "GiB" };
    policy?: string;
  };
  backend: string;
  supported_dtypes?: string[];
  host_memory?: { value: number; unit: "GB" | "GiB" };
  compute_capability?: string;
  [more: string]: unknown;
}

/** So much memory of its own, whatever the card: what is not said is assumed, and the answer says so. */
export interface SoMuchMemory {
  vramGiB: number;
  /** Host memory. */
  ramGiB?: number;
  /** Without it, cuda. */
  backend?: string;
  /** Formats that it handles, separated by commas. */
  dtypes?: string;
}

export type Hardware = Device | CustomDevice | SoMuchMemory;

/** How a model is run, and what is asked of it. */
export interface Subject {
  /** Without it, the model's first deployment. */
  config?: Config;
  /** What is left out comes from the deployment, then from the model's family. */
  workload?: PartialRequest;
  /** Settings over those of the deployment, by the runtime's own names. */
  settings?: Record<string, unknown>;
  /** Environment variables over those of the deployment. */
  env?: Record<string, string>;
}

/** What of a device may be used. */
export interface Limits {
  /** The most that may be used of the device, in GiB (2^30 bytes). */
  memoryBudgetGiB?: number;
  /** A partition of the device. */
  partitionId?: string;
  /** What is provisioned of the device, in GB (10^9 bytes). */
  allocationMemoryGb?: number;
  /** Host memory, in GB (10^9 bytes). */
  hostMemoryGb?: number;
  /** Device memory to leave to others, in GiB (2^30 bytes). */
  reserveGiB?: number;
}

/** Revisions that would run; without the runtime's no recorded run is more than unverified. */
export interface WantedRevisions {
  runtimeRevision?: string;
  modelRevision?: string;
}

/** A request on a device. */
export interface Question extends Subject, Limits {
  model: CapacityModel;
  /** Without it the answer is `unknown`, and shows what the request needs. */
  hardware?: Hardware;
}

export interface EvidenceQuestion extends Question, WantedRevisions {}

/** Devices to choose from. */
export type Devices = CapacityHardware | readonly Hardware[];

export interface RecommendQuestion extends Subject, Pick<Limits, "memoryBudgetGiB" | "hostMemoryGb" | "reserveGiB">, WantedRevisions {
  model: CapacityModel;
  /** Without a config all deployments are looked at. */
  config?: Config;
  devices: Devices;
  /** Partitions, too, each on its own. */
  partitions?: boolean;
  /** What would make the request fit on each device where nothing does; that takes a second for a dozen of them. */
  changes?: boolean;
}

export interface LargestQuestion extends Subject, Limits {
  /** One model, or several: then of all deployments, and without what would make the request fit. */
  model: CapacityModel | readonly CapacityModel[];
  hardware: Hardware;
  /** Let what may fit count as fitting. */
  admitUncertain?: boolean;
}

export interface MinimumQuestion extends Question {
  /** Devices to choose from; without any, none are listed. */
  devices?: Devices;
  /** How many are listed; without it 5. */
  limit?: number;
}

export interface CompareQuestion extends Subject, Limits {
  model: CapacityModel | readonly CapacityModel[];
  devices: Devices;
}

export interface PlanQuestion extends Question {
  /** Whose rules decide; without it those of our own runtime for models that it runs, and FreeVideo's otherwise. */
  policy?: "optimal" | "freevideo";
  /** The format of the transformer's weights. */
  precision?: "bf16" | "fp8" | "int8";
  /** Such as "8.9", where the device does not say it. */
  computeCapability?: string;
  /** Host memory to keep back, in place of the policy's own reserve. */
  ramReserveGiB?: number;
  /** One pass at full size, where two are usual. */
  onePass?: boolean;
}

/** Axes of a grid: sizes (rows) by frames (columns), or device memory (rows) by host memory (columns). */
export type Axes =
  | { sizes: readonly { height: number; width: number }[]; frames: readonly number[] }
  | { vramGiB: readonly number[]; ramGiB: readonly number[] };

export interface GridQuestion extends Question {
  axes: Axes;
}

/** What the numbers in `Grid.verdict` mean. */
export const VERDICTS = ["fits", "uncertain", "does_not_fit", "unknown", "not_legal"] as const;

/** A grid, row after row. */
export interface Grid {
  rows: number;
  columns: number;
  /** Places in `VERDICTS`. */
  verdict: Uint8Array;
  /** The device peak over all stages; NaN where it is not known. */
  peakBytes: Float64Array;
  /** The budget less the largest device peak; NaN where it is not known. */
  marginBytes: Float64Array;
}

/** What a question says of how a model is run, as JSON. */
function subject({ config, workload, settings, env }: Subject, model: unknown): string {
  const examples = (model as Partial<CapacityModel>)?.examples;
  // A deployment that is the model's own need not be read again.
  const own = typeof config === "object" && examples?.includes(config);
  const deployment = typeof config === "string" ? config : own ? config.id : undefined;
  if (config !== undefined && typeof config !== "string" && (typeof config !== "object" || config === null)) {
    throw wrong("invalid-type", `config: found ${shown(config)}, allowed: a deployment of the model, or the id of one`, "config");
  }
  const example = deployment === undefined ? config : undefined;
  return JSON.stringify({ deployment, example, workload, settings, env }, finite(""));
}

/** The rest of a question, as JSON; names that no question has are found out inside. */
function options(question: object, but: readonly string[] = []): string {
  const rest: Record<string, unknown> = { ...question };
  for (const name of ["config", "workload", "settings", "env", "model", "hardware", ...but]) delete rest[name];
  return JSON.stringify(rest, finite(""));
}

/** The whole estimate: verdict, stages with every buffer, settings, coverage, notes and, on a device, how long it takes. */
export function estimateMemory(question: Question): Estimate {
  const { glue, ...on } = placed(question);
  return answer(glue.estimate(on.model, on.device, subject(question, question.model), options(question)));
}

/** Verdict, stage peaks and margin. */
export function estimateSummary(question: Question): Summary {
  const { glue, ...on } = placed(question);
  return answer(glue.estimateSummary(on.model, on.device, subject(question, question.model), options(question)));
}

/** Verdicts, peaks and margins over two axes, at once. */
export function estimateGrid(question: GridQuestion): Grid {
  const { glue, ...on } = placed(question);
  const { axes, ...rest } = question;
  const text = options({ ...rest, ...axes });
  const grid = answer<{ rows: number; columns: number; verdict: number[]; peakBytes: (number | null)[]; marginBytes: (number | null)[] }>(
    glue.estimateGrid(on.model, on.device, subject(question, question.model), text),
  );
  const numbers = (values: (number | null)[]) => Float64Array.from(values, (value) => value ?? NaN);
  return {
    rows: grid.rows,
    columns: grid.columns,
    verdict: Uint8Array.from(grid.verdict),
    peakBytes: numbers(grid.peakBytes),
    marginBytes: numbers(grid.marginBytes),
  };
}

/** The estimate with the recorded runs that apply to it, which decide where there are any. */
export function assessCapacity(question: EvidenceQuestion): Assessment {
  const { glue, ...on } = placed(question, complete());
  return answer(glue.assess(on.model, on.device, subject(question, question.model), options(question)));
}

/** Which recorded runs apply to a request, which may, and which do not, with every reason. */
export function matchEvidence(question: EvidenceQuestion): EvidenceMatch {
  const { glue, ...on } = placed(question, complete());
  return answer(glue.match(on.model, on.device, subject(question, question.model), options(question)));
}

/** Devices and deployments for a request: what was measured to fit, what fits by the rules, what may, and what is not known. */
export function recommendCapacity(question: RecommendQuestion): Recommendations {
  const { glue, model, current } = whole(question);
  const devices = current.devices(question.devices);
  return answer(glue.recommend(model, devices, subject(question, question.model), options(question, ["devices"])));
}

/** The longest and the largest clip that fits, why nothing larger does, and what would make the request fit. */
export function largest(question: LargestQuestion): LargestAnswer {
  const current = complete();
  const models = current.models(question.model);
  const text = subject(question, Array.isArray(question.model) ? question.model[0] : question.model);
  return answer(current.glue.largest(models, current.device(question.hardware), text, options(question)));
}

/** The smallest budget for a request, by stage, and the smallest devices that have it. */
export function minimum(question: MinimumQuestion): Minimum {
  const { glue, model, current } = whole(question);
  const devices = question.devices === undefined ? new Uint32Array() : current.devices(question.devices);
  const device = current.device(question.hardware);
  return answer(glue.minimum(model, device, devices, subject(question, question.model), options(question, ["devices"])));
}

/** Deployments and devices side by side. */
export function compare(question: CompareQuestion): Comparison {
  const current = complete();
  const models = current.models(question.model);
  const text = subject(question, Array.isArray(question.model) ? question.model[0] : question.model);
  return answer(current.glue.compare(models, current.devices(question.devices), text, options(question, ["devices"])));
}

/** How a request is executed in the memory that there is: a plan, a refusal with what would do instead, or why there is no rule. */
export function planExecution(question: PlanQuestion): Plan | Refusal | Unplanned {
  const { glue, model, current } = whole(question);
  return answer(glue.plan(model, current.device(question.hardware), subject(question, question.model), options(question)));
}

/** Which sizes and frame counts a deployment takes. */
export function legal(question: Pick<Subject, "config"> & { model: CapacityModel }): Legal {
  const current = ready();
  return answer(current.glue.legal(current.model(question.model), subject({ config: question.config }, question.model)));
}

/** Which estimator this is. */
export function version(): Version {
  return answer(ready().glue.version());
}

function placed(question: Question, current = ready()): { glue: Engine["glue"]; model: number; device: number } {
  return { glue: current.glue, model: current.model(question?.model), device: current.device(question.hardware) };
}

function whole(question: { model: CapacityModel }): { glue: Engine["glue"]; model: number; current: Engine } {
  const current = complete();
  return { glue: current.glue, model: current.model(question?.model), current };
}
