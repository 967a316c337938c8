// From schemas/ by scripts/types.mjs.

/**
 * Whether something fits.
 */
export type Verdict = "fits" | "uncertain" | "does_not_fit" | "unknown";
/**
 * Whether memory belongs to the device alone.
 */
export type MemoryType = "dedicated" | "unified";
/**
 * What a buffer is for.
 */
export type BufferKind = "weights" | "activation" | "cache" | "workspace" | "output" | "staging" | "context";
/**
 * Where a buffer lives.
 */
export type Tier = "device" | "pinned" | "pageable" | "disk";
/**
 * Where a setting's value came from.
 */
export type Provenance = "authored" | "environment" | "runtime_default" | "forced" | "planner" | "user";
/**
 * The stages of a request, in order.
 */
export type StageName = "load" | "encoding" | "denoising" | "decoding";
/**
 * What a time rests on, the firmest first.
 */
export type TimeBasis = "measured" | "extrapolated" | "scaled";
/**
 * What a verdict rests on.
 */
export type Basis = "measured" | "analytical";
/**
 * What a change does to the output.
 */
export type OutputEffect = "none" | "reordered" | "quantised" | "different";
/**
 * What sort of limit.
 */
export type LimitKind = "memory" | "unknown" | "family";
/**
 * Whose rules decide.
 */
export type PolicyName = "freevideo" | "optimal";
/**
 * The engine whose behaviour is estimated.
 */
export type Runtime = "fastvideo" | "diffusers" | "freevideo" | "fv-run";
/**
 * An operating system, as far as rules about memory differ.
 */
export type OperatingSystem = "linux" | "windows" | "macos";
/**
 * Where a fact came from.
 */
export type Source = "given" | "probed" | "assumed" | "catalog";
/**
 * A generation of GPUs, as far as rules differ.
 */
export type Architecture =
  "ampere" | "ada" | "hopper" | "blackwell-datacenter" | "blackwell-tegra" | "blackwell-unified" | "blackwell-rtx" | "apple" | "other";
/**
 * The format of the transformer's stored weights.
 */
export type Precision = "int8" | "fp8" | "fp16" | "bf16" | "fp32";
/**
 * An attention implementation; the first five in the published order of preference.
 */
export type AttentionBackend = "sage2" | "torch-flash" | "cudnn" | "fa2" | "fa4" | "mps" | "fv-run";
/**
 * How a step is taken.
 */
export type Sampler = "unipc" | "euler" | "dmd";
/**
 * A pool of memory.
 */
export type Resource = "vram" | "host" | "unified";
/**
 * The figure that limits a capacity: a field beside it.
 */
export type PlanLimit = "free" | "total" | "cap" | "cgroup_limit";
/**
 * Why something was decided.
 */
export type ReasonCode =
  | "reserve-given"
  | "reserve-share"
  | "reserve-floor"
  | "reserve-ceiling"
  | "reserve-fixed"
  | "reserve-relaxed"
  | "placement-workspace"
  | "retention-demonstrated"
  | "widest-head-group"
  | "narrowest-head-group"
  | "head-group-of-path"
  | "head-group-not-tried"
  | "head-group-conditions"
  | "working-set-too-large"
  | "workspace-too-large"
  | "vram-limit"
  | "resident-ceiling"
  | "resident-target"
  | "host-cannot-keep-more"
  | "small-band-keeps"
  | "weights-exceed-host"
  | "weights-fit-host"
  | "system-streams"
  | "pin-ceiling"
  | "pin-headroom"
  | "pin-every-block"
  | "pin-beyond-fitting"
  | "pin-all-or-nothing"
  | "pin-nothing-left"
  | "slots-by-lower-threshold"
  | "slots-by-budget"
  | "slots-below-budget"
  | "slot-workspace"
  | "slot-keeps-weights-off-disk"
  | "slot-narrow-path"
  | "outputs-fit"
  | "outputs-exceed-allowance"
  | "residual-fits"
  | "residual-with-outputs"
  | "recompute-not-needed"
  | "recompute-in-trial"
  | "capacity-trial"
  | "path-table"
  | "path-no-weights"
  | "path-host-outputs"
  | "path-residual"
  | "path-workspace"
  | "table-exceeds-budget"
  | "no-weights-exceeds-free"
  | "host-outputs-out-of-range"
  | "gemm-by-precision"
  | "attention-first-available"
  | "attention-asked"
  | "attention-unavailable"
  | "attention-later"
  | "published-constant"
  | "card-constant"
  | "only-after-search"
  | "encoder-separate"
  | "conditioning-at-hand"
  | "decoder-whole"
  | "decoder-offload"
  | "decoder-every-block"
  | "decoder-small-band"
  | "decoder-not-offloaded"
  | "host-above"
  | "host-below"
  | "host-holds-video"
  | "host-cannot-hold-video"
  | "card-has-half-cache"
  | "card-has-no-half-cache"
  | "upscaler-estimate"
  | "two-pass-asked"
  | "single-pass-asked"
  | "half-canvas"
  | "small-canvas"
  | "same-canvas"
  | "cache-by-first-pass"
  | "cache-by-free-memory"
  | "measured-table"
  | "windows-workspace"
  | "fixed-reserve"
  | "decoder-workspace"
  | "host-account"
  | "over-own-figure"
  | "fastest-within-budgets"
  | "slower-forecast"
  | "moves-more"
  | "more-pieces"
  | "exceeds-budgets"
  | "every-block-fits"
  | "nothing-read"
  | "own-kernels"
  | "precision-asked"
  | "precision-unchanged"
  | "untiled-fits"
  | "nothing-untiled-fits"
  | "packed-layout"
  | "packed-host"
  | "no-layout-fits"
  | "eight-bit-weights"
  | "below-minimum"
  | "below-working-set"
  | "below-unified"
  | "free-vram"
  | "free-host"
  | "lower-reserve"
  | "try-below-minimum"
  | "without-adapter"
  | "fewer-steps"
  | "fewer-references"
  | "out-of-memory"
  | "host-pressure";
/**
 * Whether the predicted peaks are within what they are held against. What does not fit is refused, and gets no plan.
 */
export type Fit = "fits" | "uncertain";
/**
 * A role that a component plays in a model.
 */
export type Role = "transformer" | "transformer_2" | "text_encoder" | "text_encoder_2" | "image_encoder" | "vae" | "audio_vae";
/**
 * Where an encoder runs.
 */
export type EncoderProcess = "separate" | "same" | "skipped";
/**
 * How matrix products are computed.
 */
export type GemmPath = "int8_per_row" | "fp8_per_tensor" | "fp8_per_channel" | "bf16_weight_only" | "bf16";
/**
 * Keys and values of the text, which are the same in every step.
 */
export type TextKeys = "kept" | "recomputed";
/**
 * What a peak counts. Metrics are never compared with each other.
 */
export type PeakMetric = "allocated" | "reserved" | "device" | "held";
/**
 * How far the figures are from what was measured.
 */
export type PlanCoverage = "measured" | "extrapolated" | "derived";
/**
 * The figure that limits a capacity: a field beside it.
 */
export type RefusalLimit = "free" | "total" | "cap" | "cgroup_limit";
/**
 * In what way a nearby request is smaller.
 */
export type Direction = "fewer_frames" | "smaller_size";
/**
 * The figure that limits a capacity: a field beside it.
 */
export type UnplannedLimit = "free" | "total" | "cap" | "cgroup_limit";
/**
 * What sort of device a record describes.
 */
export type DeviceKind = "gpu" | "apu" | "soc" | "superchip" | "accelerator";
/**
 * The unit of an authored capacity.
 */
export type CapacityUnit = "GB" | "GiB";
/**
 * The unit of a reported total.
 */
export type ReportedUnit = "MiB";
/**
 * The software stack that drives a device.
 */
export type Backend = "cuda" | "rocm" | "xpu" | "mps" | "musa" | "npu";
/**
 * Formats a weight or activation may be stored in.
 */
export type Dtype = "fp32" | "fp16" | "bf16" | "fp8" | "int8" | "nvfp4";
/**
 * What kind of text a source is.
 */
export type SourceKind = "vendor" | "checkpoint" | "implementation" | "secondary" | "class_default";
/**
 * A positive count: an integer, or digits grouped by thousands with _
 */
export type Count = number | string;
/**
 * How a run ended.
 */
export type Outcome = "completed";
/**
 * Whether the request was the first of its process.
 */
export type Execution = "first_request" | "warm_request";
/**
 * A metric of memory; different metrics are never compared.
 */
export type Metric = "torch_peak_allocated" | "torch_peak_reserved" | "device_used";
/**
 * What a metric covers.
 */
export type Scope = "allocator" | "device";
/**
 * The unit of measured memory.
 */
export type GibUnit = "GiB";

export interface Schemas {
  Estimate: Estimate;
  EvidenceMatch: EvidenceMatch;
  Assessment: Assessment;
  Recommendations: Recommendations;
  LargestAnswer: LargestAnswer;
  Minimum: Minimum;
  Comparison: Comparison;
  Plan: Plan;
  Refusal: Refusal;
  Unplanned: Unplanned;
  CompiledIndex: CompiledIndex;
  CompiledHardware: CompiledHardware;
  CompiledModel: CompiledModel;
  CompiledRules: CompiledRules;
}
/**
 * The whole answer.
 */
export interface Estimate {
  /**
   * Format version.
   */
  version: number;
  /**
   * The model's id.
   */
  model: string;
  /**
   * The deployment's id.
   */
  deployment: string;
  /**
   * The device's id, or `custom`.
   */
  hardware?: string;
  /**
   * The request with every field resolved.
   */
  request: Request;
  /**
   * The verdict over device and host.
   */
  status: Verdict;
  /**
   * Why.
   */
  reasons: Reason[];
  /**
   * The device peak of the largest stage as derived, in GiB; a budget must reach its upper end to be sure. Absent when unknown.
   */
  capacityGiB?: number;
  /**
   * The device.
   */
  memory: MemoryReport;
  /**
   * The host.
   */
  host: HostReport;
  /**
   * What is missing.
   */
  shortfall?: Shortfall;
  /**
   * Stages in order.
   */
  stages: Stage[];
  /**
   * Effective settings in the order they were resolved.
   */
  settings: Setting[];
  /**
   * What is covered.
   */
  coverage: Coverage;
  /**
   * Assumptions and remarks.
   */
  notes: string[];
  /**
   * How long it takes, where a device was chosen.
   */
  forecast?: TimeForecast;
}
/**
 * One generation request, with every field resolved. Sizes are pixels and counts.
 */
export interface Request {
  /**
   * Pixel rows of the video.
   */
  height: number;
  /**
   * Pixel columns of the video.
   */
  width: number;
  /**
   * Frames of the decoded video.
   */
  num_frames: number;
  /**
   * Videos generated together.
   */
  batch: number;
  /**
   * Classifier-free guidance; above 1 a second, unconditional prediction is made at each step.
   */
  guidance_scale: number;
  /**
   * Denoising steps.
   */
  num_inference_steps: number;
  /**
   * Tokens that the text encoder is given, padding included.
   */
  text_tokens: number;
  /**
   * Conditioning images, clips or audio tracks.
   */
  references: number;
}
/**
 * Why, in a word for programs and a sentence for people.
 */
export interface Reason {
  /**
   * Lower case with hyphens, such as `unknown-setting`.
   */
  code: string;
  /**
   * A sentence.
   */
  message: string;
}
/**
 * Device memory and what of it may be used.
 */
export interface MemoryReport {
  /**
   * `dedicated`, `unified`, or nothing where that is not known.
   */
  type?: MemoryType;
  /**
   * Nominal capacity.
   */
  nominalGiB?: number;
  /**
   * What the estimate may use.
   */
  budgetBytes?: number;
  /**
   * The same in GiB.
   */
  budgetGiB?: number;
  /**
   * The partition in use.
   */
  partition?: string;
  /**
   * What decided the budget: `measured`, `reported`, `nominal`, `usable`, `unified_default`, `partition`,
   * `allocation` or `explicit`.
   */
  budgetSource?: string;
  /**
   * Kept free for others.
   */
  reserveBytes?: number;
}
/**
 * Host memory: what is needed, what there is, and whether it suffices.
 */
export interface HostReport {
  /**
   * Needed at the worst moment: pinned and pageable together.
   */
  requiredBytes?: number;
  /**
   * There is, when known.
   */
  capacityBytes?: number;
  /**
   * Whether it suffices; `unknown` without a capacity unless nothing is needed.
   */
  status: Verdict;
}
/**
 * What is missing when something does not fit.
 */
export interface Shortfall {
  /**
   * `device` or `host`.
   */
  tier: string;
  /**
   * The stage with the largest need.
   */
  stage: string;
  /**
   * Bytes beyond the budget, at least.
   */
  bytes: number;
  /**
   * The buffers that make it, largest first.
   */
  buffers: Buffer[];
}
/**
 * One buffer, or several alike.
 */
export interface Buffer {
  /**
   * What it holds, such as `query`.
   */
  name: string;
  /**
   * What it is for.
   */
  kind: BufferKind;
  /**
   * Where it lives.
   */
  tier: Tier;
  /**
   * Bytes of all `count` together.
   */
  bytes: number;
  /**
   * How many alike are alive.
   */
  count: number;
  /**
   * How the bytes of one came about, with its numbers.
   */
  formula: string;
  /**
   * The rule that says so, such as `wan.dit.self_attention`.
   */
  rule: string;
}
/**
 * One stage of a request.
 */
export interface Stage {
  /**
   * `load`, `encoding`, `denoising` or `decoding`.
   */
  name: string;
  /**
   * Its parts in order.
   */
  phases: Phase[];
  /**
   * What is alive at the stage's peak of allocated bytes, largest first.
   */
  buffers: Buffer[];
  /**
   * The largest single allocation.
   */
  largestAllocation?: LargestAllocation;
  /**
   * Peaks on the rank that needs most.
   */
  peakBytes?: PeakBytes;
  /**
   * Peaks of each rank, where there are several.
   */
  ranks?: RankPeak[];
  /**
   * Host memory and disk in use.
   */
  host: HostBytes;
}
/**
 * A part of a stage.
 */
export interface Phase {
  /**
   * Such as `self_attention`.
   */
  name: string;
  /**
   * How often it runs in the stage.
   */
  repeat: number;
  /**
   * Tensors alive at its peak, everything resident included.
   */
  allocatedBytes: number;
}
/**
 * A single allocation.
 */
export interface LargestAllocation {
  /**
   * The buffer's name.
   */
  name: string;
  /**
   * The phase that asks for it.
   */
  phase: string;
  /**
   * Its size.
   */
  bytes: number;
}
/**
 * Peaks in the three metrics, which are never compared with each other.
 */
export interface PeakBytes {
  /**
   * Tensors alive.
   */
  allocated: Interval;
  /**
   * Held by the allocator.
   */
  reserved: Interval;
  /**
   * Shown by the whole device: context, modules and libraries included.
   */
  device: Interval;
}
/**
 * A figure with the range it is known in, in bytes.
 */
export interface Interval {
  /**
   * Not below this.
   */
  low: number;
  /**
   * The derived value.
   */
  value: number;
  /**
   * Not above this.
   */
  high: number;
}
/**
 * One rank's peaks.
 */
export interface RankPeak {
  /**
   * The rank, from 0.
   */
  rank: number;
  /**
   * Its peaks.
   */
  peakBytes: PeakBytes;
}
/**
 * Host memory and disk that a stage needs, in bytes.
 */
export interface HostBytes {
  /**
   * Page-locked, the allocator's rounding included.
   */
  pinnedBytes: number;
  /**
   * Ordinary host memory.
   */
  pageableBytes: number;
  /**
   * On disk.
   */
  diskBytes: number;
}
/**
 * One effective setting.
 */
export interface Setting {
  /**
   * The runtime's own name, dotted.
   */
  key: string;
  /**
   * Its effective value.
   */
  value: {
    [k: string]: unknown;
  };
  /**
   * Where the value came from.
   */
  provenance: Provenance;
}
/**
 * What the rules cover and what they do not.
 */
export interface Coverage {
  /**
   * Rules in use, such as `wan x diffusers`.
   */
  rules: string[];
  /**
   * What is not covered, and so is `unknown`.
   */
  uncovered: string[];
  /**
   * Inputs outside the measured range, by name.
   */
  extrapolated: string[];
}
/**
 * How long a request takes. What there is no figure for is absent, and named in `leavesOut` or `unknown`.
 */
export interface TimeForecast {
  /**
   * Passes over the steps, in order.
   */
  passes: PassTime[];
  /**
   * Stages that there is a figure for, in order.
   */
  stages: StageTime[];
  /**
   * Those stages together.
   */
  request?: TimeInterval;
  /**
   * What the sum does not hold.
   */
  leavesOut: string[];
  /**
   * Matrix products of one step, attention included, in TFLOP with four significant digits.
   */
  stepTflop?: number;
  /**
   * Rates that were used.
   */
  rates: UsedRate[];
  /**
   * Why there is no figure, where there is none.
   */
  unknown: Reason[];
  /**
   * Assumptions and remarks.
   */
  notes: string[];
  /**
   * What it costs, where a price was given.
   */
  cost?: Cost;
}
/**
 * One pass over the steps.
 */
export interface PassTime {
  /**
   * `only`, `first` or `second`.
   */
  name: string;
  /**
   * Its steps.
   */
  steps: number;
  /**
   * One of them, guidance included, with everything warm.
   */
  step: TimeInterval;
}
/**
 * A time with the range it is known in.
 */
export interface TimeInterval {
  /**
   * Not below this.
   */
  lowNs: number;
  /**
   * The forecast.
   */
  valueNs: number;
  /**
   * Not above this.
   */
  highNs: number;
}
/**
 * One stage's time.
 */
export interface StageTime {
  /**
   * The stage.
   */
  name: StageName;
  /**
   * All of it.
   */
  time: TimeInterval;
  /**
   * What it rests on.
   */
  basis: TimeBasis;
}
/**
 * A rate of the device that the forecast used.
 */
export interface UsedRate {
  /**
   * Such as `dense fp8 / fp32` or `memory bandwidth`.
   */
  name: string;
  /**
   * How much.
   */
  value: number;
  /**
   * `TFLOP/s` or `GB/s`.
   */
  unit: string;
  /**
   * Where it came from: `catalog`, `given`, `probed` or `assumed`.
   */
  source: string;
}
/**
 * What one video costs on a rented device.
 */
export interface Cost {
  /**
   * ISO 4217 code, such as `USD`.
   */
  currency: string;
  /**
   * Millionths of the currency for one video of the request: not below this.
   */
  lowMicro: number;
  /**
   * The forecast.
   */
  valueMicro: number;
  /**
   * Not above this.
   */
  highMicro: number;
  /**
   * The price of an hour of one device.
   */
  pricePerHour: number;
  /**
   * Where the price was read.
   */
  source: string;
  /**
   * When, `YYYY-MM-DD`.
   */
  date: string;
}
/**
 * The reference runs of a model, judged against one configuration.
 */
export interface EvidenceMatch {
  /**
   * Everything that matters is the same.
   */
  applicable: MatchedRun[];
  /**
   * Nothing contradicts, but something that matters is not known to be the same.
   */
  unverified: MatchedRun[];
  /**
   * Something that matters differs.
   */
  rejected: MatchedRun[];
}
/**
 * A run of the catalog and why it does or does not apply.
 */
export interface MatchedRun {
  /**
   * The run's id.
   */
  id: string;
  /**
   * Every reason.
   */
  reasons: Reason[];
}
/**
 * The analytical estimate together with what was measured.
 */
export interface Assessment {
  /**
   * The verdict after the evidence.
   */
  status: Verdict;
  /**
   * Why, the evidence included.
   */
  reasons: Reason[];
  /**
   * `measured` when an applicable run decided it, else `analytical`.
   */
  basis: Basis;
  /**
   * The estimate, unchanged by evidence.
   */
  estimate: Estimate;
  /**
   * The runs.
   */
  evidence: EvidenceMatch;
}
/**
 * Devices and deployments for a request; what does not fit is left out.
 */
export interface Recommendations {
  /**
   * Established by a completed run.
   */
  measured: Recommendation[];
  /**
   * Fits by the rules.
   */
  analytical: Recommendation[];
  /**
   * May fit.
   */
  uncertain: Recommendation[];
  /**
   * Not known, with the reason.
   */
  unknown: Recommendation[];
  /**
   * For devices that were named and on which nothing fits: what would make it fit.
   */
  changes?: PlaceChanges[];
}
/**
 * One device and deployment in a recommendation.
 */
export interface Recommendation {
  /**
   * The model, where several were looked at.
   */
  model?: string;
  /**
   * The device.
   */
  hardware: string;
  /**
   * The partition, when one is recommended.
   */
  partition?: string;
  /**
   * The deployment.
   */
  deployment: string;
  /**
   * Devices used, each with its own memory.
   */
  gpuCount: number;
  /**
   * The device peak of the rank that needs most.
   */
  devicePeak?: Interval;
  /**
   * Its budget.
   */
  budgetBytes?: number;
  /**
   * Runs that establish it.
   */
  runs?: string[];
  /**
   * Why.
   */
  reasons: Reason[];
  /**
   * How long it takes, where that is known.
   */
  time?: TimeSummary;
}
/**
 * The same in short, for lists.
 */
export interface TimeSummary {
  /**
   * One step, of the last pass.
   */
  step: TimeInterval;
  /**
   * The stages that there is a figure for, together.
   */
  request: TimeInterval;
  /**
   * What the steps' time rests on.
   */
  basis: TimeBasis;
  /**
   * What the sum does not hold.
   */
  leavesOut: string[];
  /**
   * What it costs, where a price was given.
   */
  cost?: Cost;
}
/**
 * What would make a request fit on a device.
 */
export interface PlaceChanges {
  /**
   * The device.
   */
  hardware: string;
  /**
   * The deployment that is changed.
   */
  deployment: string;
  /**
   * The verdict as it is.
   */
  status: Verdict;
  /**
   * Cheapest first.
   */
  changes: Change[];
  /**
   * Where there are none: what was tried.
   */
  tried?: string[];
  /**
   * Why that deployment, where nobody named it.
   */
  chosen?: string;
}
/**
 * What to change, and what a plain estimate then says.
 */
export interface Change {
  /**
   * In words, one for each change.
   */
  changes: string[];
  /**
   * The arguments that ask for it.
   */
  arguments: string;
  /**
   * The deployment that it is a change of, or changes to.
   */
  deployment: string;
  /**
   * Settings.
   */
  settings?: SetTo[];
  /**
   * Environment variables.
   */
  environment?: SetTo[];
  /**
   * The request that fits, where another is meant.
   */
  request?: Request;
  /**
   * What it does to the output, at worst.
   */
  outputEffect: OutputEffect;
  /**
   * How long the request then takes, without loading and encoding; absent where there is no forecast.
   */
  time?: TimeInterval;
  /**
   * Bytes of weights that go to the device in one request then; absent where that is not known.
   */
  movedBytes?: number;
  /**
   * The verdict with it.
   */
  status: Verdict;
  /**
   * The device peak with it.
   */
  devicePeak?: Interval;
  /**
   * What is then left.
   */
  marginBytes?: number;
}
/**
 * One setting or variable of a change.
 */
export interface SetTo {
  /**
   * The runtime's own name, or the variable's.
   */
  key: string;
  /**
   * What it is set to.
   */
  value: {
    [k: string]: unknown;
  };
}
/**
 * The largest clips on a device.
 */
export interface LargestAnswer {
  /**
   * Format version.
   */
  version: number;
  /**
   * The device's id, or `custom`.
   */
  hardware: string;
  /**
   * Whether what may fit counts as fitting.
   */
  admitUncertain: boolean;
  /**
   * By model and deployment.
   */
  answers: Largest[];
  /**
   * What is not known, by name.
   */
  unknown: Unanswered[];
}
/**
 * The largest clips of one deployment on a device.
 */
export interface Largest {
  /**
   * The model's id.
   */
  model: string;
  /**
   * The deployment's id.
   */
  deployment: string;
  /**
   * Its engine.
   */
  runtime: string;
  /**
   * What was asked for, with every field resolved.
   */
  request: Request;
  /**
   * Whether exactly that fits.
   */
  status: Verdict;
  /**
   * The device.
   */
  memory: MemoryReport;
  /**
   * The most frames at the size asked for: the longest duration, too.
   */
  frames: Extent;
  /**
   * The largest size at the frames asked for, with the sides in the same ratio as nearly as legal sizes allow.
   */
  size: Extent;
  /**
   * From small and long to large and short: at each of some sizes the most frames, as far as no other of them is larger
   * and no shorter.
   */
  pareto?: Clip[];
  /**
   * What would make the request fit, cheapest first, where it does not.
   */
  changes?: Change[];
  /**
   * Where no change was found that makes it fit: what was tried.
   */
  tried?: string[];
  /**
   * Where nothing fits as it is: what does with the cheapest change of settings.
   */
  adapted?: Adapted;
  /**
   * Remarks on the request as asked for.
   */
  reasons: Reason[];
  /**
   * Assumptions and remarks.
   */
  notes: string[];
}
/**
 * How far a clip can grow in one direction.
 */
export interface Extent {
  /**
   * The largest that fits; absent where not even the smallest does.
   */
  largest?: Clip;
  /**
   * The next larger legal one; absent at the end of what is legal. Where nothing fits, the smallest.
   */
  next?: Clip;
  /**
   * The largest that may fit, where that is more.
   */
  mayFit?: Clip;
  /**
   * Why nothing larger.
   */
  limit: Limit;
}
/**
 * A clip and what a plain estimate says of it.
 */
export interface Clip {
  /**
   * Pixel rows.
   */
  height: number;
  /**
   * Pixel columns.
   */
  width: number;
  /**
   * Frames.
   */
  numFrames: number;
  /**
   * Its duration, where the model has a frame rate.
   */
  seconds?: number;
  /**
   * The verdict.
   */
  status: Verdict;
  /**
   * The device peak over all stages: the largest of each figure.
   */
  devicePeak?: Interval;
  /**
   * Budget less the most that any stage can take; negative when that is more than there is.
   */
  marginBytes?: number;
}
/**
 * Why nothing larger.
 */
export interface Limit {
  /**
   * What sort.
   */
  kind: LimitKind;
  /**
   * A sentence.
   */
  message: string;
  /**
   * `device` or `host`, where memory is short.
   */
  tier?: string;
  /**
   * The stage that is short of it.
   */
  stage?: StageName;
  /**
   * Bytes that are missing: at least where it does not fit, at most where it may.
   */
  bytes?: number;
  /**
   * The largest buffers of that stage.
   */
  buffers?: Buffer[];
}
/**
 * The largest clips after a change of settings.
 */
export interface Adapted {
  /**
   * The change.
   */
  change: Change;
  /**
   * The most frames then.
   */
  frames: Extent;
  /**
   * The largest size then.
   */
  size: Extent;
}
/**
 * A deployment of which nothing is known.
 */
export interface Unanswered {
  /**
   * The model's id.
   */
  model: string;
  /**
   * The deployment's id.
   */
  deployment: string;
  /**
   * Why.
   */
  reasons: Reason[];
}
/**
 * The smallest budget for a request.
 */
export interface Minimum {
  /**
   * Format version.
   */
  version: number;
  /**
   * The model's id.
   */
  model: string;
  /**
   * The deployment's id.
   */
  deployment: string;
  /**
   * The device whose fixed cost counts, where one was named.
   */
  hardware?: string;
  /**
   * What was asked for, with every field resolved.
   */
  request: Request;
  /**
   * The verdict on that device as it is. Without one: `fits` where [`fits_bytes`](Self::fits_bytes) is known, `uncertain`
   * where only [`uncertain_bytes`](Self::uncertain_bytes) is, otherwise `unknown`.
   */
  status: Verdict;
  /**
   * The smallest budget of device memory that the request fits in. On unified memory, of the pool.
   */
  fitsBytes?: number;
  /**
   * The same in GiB, as `--memory-budget-gib` takes it.
   */
  fitsGiB?: number;
  /**
   * The smallest that it may fit in.
   */
  uncertainBytes?: number;
  /**
   * Host memory beside it; on unified memory it is part of the pool.
   */
  hostBytes?: number;
  /**
   * By stage; the largest of each decides.
   */
  stages: StageMinimum[];
  /**
   * Plain estimates at these budgets and one byte below.
   */
  checks: Tried[];
  /**
   * The class of device whose fixed cost counts, such as `sm89`.
   */
  fixedCost: string;
  /**
   * The smallest devices of the catalog that it fits on, smallest first.
   */
  devices: Recommendation[];
  /**
   * What would make it fit on the device that was named, cheapest first, where it does not.
   */
  changes?: Change[];
  /**
   * Where there are none: what was tried.
   */
  tried?: string[];
  /**
   * Why something is unknown.
   */
  reasons: Reason[];
  /**
   * Assumptions and remarks.
   */
  notes: string[];
}
/**
 * What a stage needs; of a runtime that plans, what it takes in the plan for the smallest budgets.
 */
export interface StageMinimum {
  /**
   * The stage.
   */
  name: StageName;
  /**
   * Device memory with which it fits.
   */
  fitsBytes: number;
  /**
   * Device memory with which it may fit.
   */
  uncertainBytes: number;
  /**
   * Host memory: page-locked and ordinary.
   */
  hostBytes: number;
}
/**
 * A budget tried, and what a plain estimate says with it.
 */
export interface Tried {
  /**
   * Device memory.
   */
  budgetBytes: number;
  /**
   * Host memory, where it was limited.
   */
  hostBytes?: number;
  /**
   * The verdict.
   */
  status: Verdict;
}
/**
 * Devices, deployments and runtimes side by side.
 */
export interface Comparison {
  /**
   * Format version.
   */
  version: number;
  /**
   * In the order asked for: models, then deployments, then devices.
   */
  rows: Compared[];
}
/**
 * One place in a comparison.
 */
export interface Compared {
  /**
   * The model's id.
   */
  model: string;
  /**
   * The deployment's id.
   */
  deployment: string;
  /**
   * Its engine.
   */
  runtime: string;
  /**
   * The device.
   */
  hardware: string;
  /**
   * What was asked for, with every field resolved.
   */
  request: Request;
  /**
   * The verdict.
   */
  status: Verdict;
  /**
   * The device peak of each stage, in order.
   */
  stages: StageDevice[];
  /**
   * The budget.
   */
  budgetBytes?: number;
  /**
   * Budget less the most that any stage can take.
   */
  marginBytes?: number;
  /**
   * The host.
   */
  host: HostReport;
  /**
   * Why.
   */
  reasons: Reason[];
  /**
   * How long it takes, where that is known.
   */
  time?: TimeSummary;
}
/**
 * A stage's device peak.
 */
export interface StageDevice {
  /**
   * The stage.
   */
  name: StageName;
  /**
   * Its peak.
   */
  device: Interval;
}
/**
 * A plan.
 */
export interface Plan {
  /**
   * Format version: 1.
   */
  version: number;
  /**
   * A digest of everything that decides the run. The forecast, the times of measurements and the revisions are no part of it.
   */
  id: string;
  /**
   * Whose rules decided.
   */
  policy: PolicyName;
  /**
   * The model's id in the catalog.
   */
  model: string;
  /**
   * The engine that the plan is for.
   */
  runtime: Runtime;
  /**
   * The machine, as far as it decides.
   */
  system: SystemFacts;
  /**
   * What is to be generated.
   */
  request: PlanRequest;
  /**
   * What memory may be used, one entry for each pool.
   */
  budgets: Budget[];
  /**
   * Whether the predicted peaks are within what they are held against.
   */
  fit: Fit;
  /**
   * Where weights live and how they move, by component and rank.
   */
  placements: Placement[];
  /**
   * Encoders, in the order in which they run.
   */
  encoders?: Encoder[];
  /**
   * Passes over the steps, in order: one, or two where a low-resolution pass comes first.
   */
  passes: Pass[];
  /**
   * What comes between two passes.
   */
  two_pass?: TwoPass;
  /**
   * Decoders, in the order in which they run.
   */
  decoders?: Decoder[];
  /**
   * Predicted peaks. What is not known is absent.
   */
  peaks: Peak[];
  /**
   * Where each buffer lies, for runtimes that place buffers themselves.
   */
  arena?: Arena;
  /**
   * How long it takes.
   */
  forecast?: Forecast;
  /**
   * Why there is no figure for what the forecast lacks, or no forecast at all.
   */
  unforecast?: Reason[];
  /**
   * Why each of the above, what the passes decide for themselves apart.
   */
  decisions: Decision[];
  /**
   * Remarks that decide nothing.
   */
  notes?: string[];
  /**
   * Plans that took this one's place while it ran.
   */
  plan_revisions?: Revision[];
}
/**
 * The machine, as far as it decides.
 */
export interface SystemFacts {
  /**
   * Its operating system.
   */
  os: Sourced;
  /**
   * The device's id in the catalog, or the name that its driver reports.
   */
  device?: string;
  /**
   * Devices that work on the request together.
   */
  devices: number;
  /**
   * The GPU's generation.
   */
  architecture: Sourced2;
  /**
   * CUDA compute capability, such as `9.0`.
   */
  compute_capability?: Sourced3;
  /**
   * Whether it is a `GeForce` card.
   */
  geforce?: Sourced4;
  /**
   * The format of the transformer's weights.
   */
  precision: Sourced5;
  /**
   * Attention implementations that work, in the order of preference.
   */
  attention_backends: Sourced6;
}
/**
 * A fact with its source.
 */
export interface Sourced {
  /**
   * The fact.
   */
  value: OperatingSystem;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * A fact with its source.
 */
export interface Sourced2 {
  /**
   * The fact.
   */
  value: Architecture;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * A fact with its source.
 */
export interface Sourced3 {
  /**
   * The fact.
   */
  value: string;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * A fact with its source.
 */
export interface Sourced4 {
  /**
   * The fact.
   */
  value: boolean;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * A fact with its source.
 */
export interface Sourced5 {
  /**
   * The fact.
   */
  value: Precision;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * A fact with its source.
 */
export interface Sourced6 {
  /**
   * The fact.
   */
  value: AttentionBackend[];
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * What is to be generated. Sizes are pixels and counts.
 */
export interface PlanRequest {
  /**
   * Pixel columns.
   */
  width: number;
  /**
   * Pixel rows.
   */
  height: number;
  /**
   * Frames a second, where the model has a rate.
   */
  fps?: number;
  /**
   * Frames that were asked for.
   */
  requested_frames: number;
  /**
   * The duration that was asked for, where it was one.
   */
  requested_ns?: number;
  /**
   * Frames that are generated: the next legal number.
   */
  frames: number;
  /**
   * Their latent frames.
   */
  latent_frames: number;
  /**
   * Rows of the packed sequence that the video takes.
   */
  video_tokens: number;
  /**
   * Steps of all passes.
   */
  steps: number;
  /**
   * What is generated from what, in the runtime's own word, such as `t2va`.
   */
  task: string;
  /**
   * Rows of references' pictures and videos.
   */
  reference_video_tokens: number;
  /**
   * Rows of references' sound.
   */
  reference_audio_tokens: number;
  /**
   * Rows of text.
   */
  text_tokens: Sourced7;
  /**
   * Adapters, where there are any.
   */
  adapter?: Adapter;
  /**
   * How steps are taken, where the runtime is told.
   */
  sampling?: Sampling;
}
/**
 * A fact with its source.
 */
export interface Sourced7 {
  /**
   * The fact.
   */
  value: number;
  /**
   * Where it came from.
   */
  source: Source;
}
/**
 * Low-rank adapters that are applied while running.
 */
export interface Adapter {
  /**
   * The most that they add to one block.
   */
  max_block_bytes: number;
  /**
   * What they have outside blocks.
   */
  root_bytes: number;
}
/**
 * How steps are taken. Numbers that are no integers are in thousandths.
 */
export interface Sampling {
  /**
   * The sampler.
   */
  sampler: Sampler;
  /**
   * The flow's shift.
   */
  shift_thousandths: number;
  /**
   * Timesteps, where the sampler does not derive them from the number of steps.
   */
  timesteps?: number[];
  /**
   * The guidance scale of each transformer; 1,000 is none.
   */
  guidance_thousandths: number[];
  /**
   * Rows of the negative prompt, where there is guidance.
   */
  negative_tokens?: number;
}
/**
 * One pool: what there is, what is kept back, and what is left.
 *
 * `capacity_bytes` = the least of total, free, cap and limit, as far as they are known; `budget_bytes` = `capacity_bytes` less
 * `reserve_bytes`, or zero.
 */
export interface Budget {
  /**
   * The pool.
   */
  resource: Resource;
  /**
   * The rank whose device it is; absent for the host's memory.
   */
  rank?: number;
  /**
   * All of it.
   */
  total?: Amount;
  /**
   * What others do not use.
   */
  free: Amount;
  /**
   * The most that may be used of it, by whoever asked.
   */
  cap?: Amount;
  /**
   * A control group's limit.
   */
  cgroup_limit?: Amount;
  /**
   * The least of these.
   */
  capacity_bytes: number;
  /**
   * Which of them that is.
   */
  limited_by: PlanLimit;
  /**
   * What is kept back.
   */
  reserve_bytes: number;
  /**
   * Why so much.
   */
  reserve_reason: ReasonCode;
  /**
   * What is left.
   */
  budget_bytes: number;
  /**
   * What adapters and tables take of the budget before weights are placed; decoders do not have it.
   */
  workspace_bytes?: number;
  /**
   * What the process lets its own allocator take at most, where it sets such a cap.
   */
  allocator_limit_bytes?: number;
  /**
   * What weights may stay in, where that is another figure than the budget.
   */
  retention_bytes?: number;
}
/**
 * Bytes with their source.
 */
export interface Amount {
  /**
   * How much.
   */
  bytes: number;
  /**
   * Where the figure came from.
   */
  source: Source;
  /**
   * What measured it, such as `NVML` or a device's id.
   */
  by?: string;
  /**
   * When it was measured, as whoever measured wrote it.
   */
  at?: string;
}
/**
 * Where the weights of one component live, and how those that are not on the device get there.
 */
export interface Placement {
  /**
   * The component.
   */
  component: Role;
  /**
   * The rank that holds it.
   */
  rank: number;
  /**
   * Its blocks.
   */
  block_count: number;
  /**
   * Bytes of one, adapters included.
   */
  block_bytes: number;
  /**
   * Where they live, run by run in the order in which they are computed; the counts add up to `block_count`.
   */
  runs: BlockRun[];
  /**
   * Places on the device that blocks are copied into: one to copy and compute in turn, two to copy ahead, none where nothing
   * is copied.
   */
  slots: number;
  /**
   * Page-locked bytes for blocks; whole blocks of it are used.
   */
  pin_bytes: number;
  /**
   * Whether blocks that are neither on the device nor page-locked are read from disk each time.
   */
  disk_streaming: boolean;
  /**
   * Page-locked places, each for one block, through which blocks on disk pass, where the runtime has such.
   */
  ring?: number;
}
/**
 * Blocks next to each other that live in the same place.
 */
export interface BlockRun {
  /**
   * Where.
   */
  tier: Tier;
  /**
   * How many.
   */
  count: number;
}
/**
 * How an encoder runs.
 */
export interface Encoder {
  /**
   * The component.
   */
  component: Role;
  /**
   * What it does.
   */
  process: EncoderProcess;
  /**
   * Host memory without which it is not started.
   */
  host_minimum_bytes?: number;
}
/**
 * One pass over sampling steps.
 */
export interface Pass {
  /**
   * `only`, `first` or `second`.
   */
  name: string;
  /**
   * Pixel columns of its canvas.
   */
  width: number;
  /**
   * Pixel rows.
   */
  height: number;
  /**
   * Rows of the packed sequence that the video takes.
   */
  video_tokens: number;
  /**
   * Its steps.
   */
  steps: number;
  /**
   * How it computes, by component: one entry for each transformer that it runs.
   */
  compute: Compute[];
  /**
   * Blocks that stay on the device once copied, in memory that this pass leaves free.
   */
  block_cache?: BlockCache;
  /**
   * What the pass decides for itself.
   */
  decisions?: Decision[];
}
/**
 * How one transformer computes in a pass.
 */
export interface Compute {
  /**
   * The component.
   */
  component: Role;
  /**
   * How its matrix products are computed.
   */
  gemm: GemmPath;
  /**
   * Attention.
   */
  attention: Attention;
  /**
   * Attention heads that are computed together.
   */
  head_group: number;
  /**
   * Groups of heads in flight at once.
   */
  head_parallelism: number;
  /**
   * Whether attention outputs are collected in host memory.
   */
  outputs_on_host: boolean;
  /**
   * Whether the residual stream is kept in host memory between layers.
   */
  residual_on_host: boolean;
  /**
   * Whether the wide feed-forward activation is computed again in place of being kept.
   */
  feed_forward_recompute: boolean;
  /**
   * Rows of the feed-forward layer at a time.
   */
  feed_forward_chunk: number;
  /**
   * Rows of the attention projections at a time.
   */
  projection_chunk: number;
  /**
   * Attention windows of equal shape that are computed together, where the model has windows.
   */
  window_batch?: number;
  /**
   * Slots of the component's placement that the pass uses.
   */
  slots: number;
  /**
   * Keys and values of the text, where the model attends to it apart.
   */
  text_keys?: TextKeys;
  /**
   * Whether both predictions of guidance go through each block together, so that its weights are moved once.
   */
  paired_guidance?: boolean;
}
/**
 * The attention implementations of a transformer.
 */
export interface Attention {
  /**
   * For attention over everything.
   */
  global: AttentionBackend;
  /**
   * For attention within windows, where the model has them.
   */
  window?: AttentionBackend;
}
/**
 * Blocks that stay on the device during one pass, on top of those that always do.
 */
export interface BlockCache {
  /**
   * The component.
   */
  component: Role;
  /**
   * Blocks on the device at most, those that always are included; absent where only measured memory limits them.
   */
  most_blocks?: number;
  /**
   * Bytes for cached blocks that the plan's own figures leave after the pass's predicted peak and the margin. A run measures
   * again after its first step.
   */
  allowance_bytes: number;
  /**
   * Blocks on the device that this makes, those that always are included.
   */
  predicted_blocks: number;
  /**
   * The part of free memory that is never used for the cache.
   */
  margin_bytes: number;
}
/**
 * Why a setting has its value.
 */
export interface Decision {
  /**
   * What was decided, such as `transformer.resident_blocks`.
   */
  key: string;
  /**
   * Its value: a whole number, a word, or true or false.
   */
  value: {
    [k: string]: unknown;
  };
  /**
   * Why.
   */
  reason: ReasonCode;
  /**
   * The numbers that the reason compares.
   */
  numbers?: {
    [k: string]: number;
  };
  /**
   * What else was considered.
   */
  alternatives?: Alternative[];
  /**
   * What the choice does to the output, compared with the reference way to compute it.
   */
  output_effect: OutputEffect;
}
/**
 * A value that lost.
 */
export interface Alternative {
  /**
   * The value.
   */
  value: {
    [k: string]: unknown;
  };
  /**
   * Why it lost.
   */
  reason: ReasonCode;
  /**
   * The numbers that the reason compares.
   */
  numbers?: {
    [k: string]: number;
  };
}
/**
 * Two passes: a first one on a smaller canvas, whose result is scaled up and refined.
 */
export interface TwoPass {
  /**
   * Steps of the first pass.
   */
  base_steps: number;
  /**
   * Steps of the second.
   */
  refine_steps: number;
  /**
   * The noise of the second pass has the seed of the first and this.
   */
  restart_seed_offset: number;
  /**
   * How the first result gets its size; absent where both canvases are the same.
   */
  upscale?: Upscale;
}
/**
 * A latent scaled up and cropped. Sizes are pixels of the video.
 */
export interface Upscale {
  /**
   * Pixel columns after scaling.
   */
  width: number;
  /**
   * Pixel rows.
   */
  height: number;
  /**
   * Columns that are cut off on the left.
   */
  crop_left: number;
  /**
   * Rows that are cut off at the top.
   */
  crop_top: number;
  /**
   * Bytes of the checkpoint that scales.
   */
  checkpoint_bytes: number;
  /**
   * Device memory that it is estimated to take, weights included.
   */
  workspace_bytes: number;
}
/**
 * How a decoder runs.
 */
export interface Decoder {
  /**
   * The component.
   */
  component: Role;
  /**
   * Whether some blocks are copied to the device while it runs.
   */
  offload: boolean;
  /**
   * Whether each block is copied once for all tiles of a clip, tiles being the inner loop.
   */
  tile_group: boolean;
  /**
   * Whether weights are read before sampling ends.
   */
  preload: boolean;
  /**
   * Whether blocks in host memory are page-locked.
   */
  pin_weights: boolean;
  /**
   * Whether each decoded clip is written out at once, so that the whole video is never in memory.
   */
  stream_output: boolean;
  /**
   * Whether linear weights are kept in FP16 beside FP32.
   */
  half_precision_cache: boolean;
  /**
   * Clips along time that are decoded one after another.
   */
  clips: number;
  /**
   * Latent frames that each clip sees.
   */
  clip_latent_frames: number;
  /**
   * Tiles of one clip.
   */
  tiles?: Tiles;
  /**
   * Frames of a level that go on to the next one together, where the runtime has levels.
   */
  level_frames?: number;
}
/**
 * Tiles that cover a frame.
 */
export interface Tiles {
  /**
   * Tiles next to each other.
   */
  columns: number;
  /**
   * Tiles below each other.
   */
  rows: number;
  /**
   * Pixels of a tile's side.
   */
  tile_pixels: number;
  /**
   * Pixels that neighbours share at least.
   */
  overlap_pixels: number;
}
/**
 * A predicted peak.
 */
export interface Peak {
  /**
   * The stage.
   */
  stage: StageName;
  /**
   * The pass, where the stage has several.
   */
  pass?: string;
  /**
   * The memory.
   */
  tier: Tier;
  /**
   * The rank, where the memory is a device's.
   */
  rank?: number;
  /**
   * What is counted.
   */
  metric: PeakMetric;
  /**
   * How much.
   */
  bytes: number;
  /**
   * What the policy holds it against: the pool's budget, or its capacity.
   */
  limit_bytes: number;
  /**
   * What the figure rests on.
   */
  basis: ReasonCode;
}
/**
 * Where every buffer lies.
 */
export interface Arena {
  /**
   * One for each rank, stage and tier that holds buffers.
   */
  regions: Region[];
}
/**
 * Memory that is reserved at once and kept for a stage.
 */
export interface Region {
  /**
   * The rank.
   */
  rank: number;
  /**
   * What it is for, such as `transformer_2`, where a stage has several.
   */
  part?: string;
  /**
   * The stage in which it is first used.
   */
  stage: StageName;
  /**
   * The memory.
   */
  tier: Tier;
  /**
   * Its size.
   */
  bytes: number;
  /**
   * What lies in it, by offset.
   */
  buffers: Placed[];
}
/**
 * A buffer's place.
 */
export interface Placed {
  /**
   * What it holds, such as `query`.
   */
  name: string;
  /**
   * Bytes from the start of the region.
   */
  offset_bytes: number;
  /**
   * Its size.
   */
  bytes: number;
  /**
   * The operation of the stage's program that writes it first.
   */
  first_operation: number;
  /**
   * The last one that uses it.
   */
  last_operation: number;
}
/**
 * How long a plan takes. What there is no figure for is absent.
 */
export interface Forecast {
  /**
   * What the figures rest on, in words.
   */
  basis: string;
  /**
   * How far it reaches.
   */
  coverage: PlanCoverage;
  /**
   * Passes, in order.
   */
  passes: PlanPassTime[];
  /**
   * Stages that there is a figure for, in order.
   */
  stages: PlanStageTime[];
  /**
   * The request from start to end, where every stage has a figure.
   */
  request?: PlanInterval;
  /**
   * Assumptions and remarks.
   */
  notes?: string[];
}
/**
 * The time of one pass over the steps.
 */
export interface PlanPassTime {
  /**
   * The pass's name in the plan.
   */
  name: string;
  /**
   * Its steps.
   */
  steps: number;
  /**
   * One of them, with everything warm.
   */
  step: PlanInterval;
}
/**
 * A time with the range it is known in.
 */
export interface PlanInterval {
  /**
   * Not below this.
   */
  low_ns: number;
  /**
   * The forecast.
   */
  value_ns: number;
  /**
   * Not above this.
   */
  high_ns: number;
}
/**
 * The time of one stage.
 */
export interface PlanStageTime {
  /**
   * The stage.
   */
  name: StageName;
  /**
   * All of it.
   */
  time: PlanInterval;
}
/**
 * A plan that took the place of this one while it ran.
 */
export interface Revision {
  /**
   * The plan's id.
   */
  id: string;
  /**
   * The stage in which it took over.
   */
  stage: StageName;
  /**
   * Why.
   */
  reason: ReasonCode;
}
/**
 * A request that does not fit.
 */
export interface Refusal {
  /**
   * Format version, that of plans.
   */
  version: number;
  /**
   * Whose rules refuse.
   */
  policy: PolicyName;
  /**
   * The model's id in the catalog.
   */
  model: string;
  /**
   * The engine.
   */
  runtime: Runtime;
  /**
   * The machine.
   */
  system: SystemFacts;
  /**
   * What was asked for; it is never changed silently.
   */
  request: PlanRequest;
  /**
   * What memory may be used.
   */
  budgets: RefusalBudget[];
  /**
   * What is short.
   */
  shortfalls: RefusalShortfall[];
  /**
   * The least memory that would do, where it was searched for.
   */
  smallest?: Smallest;
  /**
   * Requests near this one that are planned.
   */
  nearest?: Nearest[];
  /**
   * What else would make it fit.
   */
  changes?: PlanChange[];
  /**
   * Remarks.
   */
  notes?: string[];
}
/**
 * One pool: what there is, what is kept back, and what is left.
 *
 * `capacity_bytes` = the least of total, free, cap and limit, as far as they are known; `budget_bytes` = `capacity_bytes` less
 * `reserve_bytes`, or zero.
 */
export interface RefusalBudget {
  /**
   * The pool.
   */
  resource: Resource;
  /**
   * The rank whose device it is; absent for the host's memory.
   */
  rank?: number;
  /**
   * All of it.
   */
  total?: Amount;
  /**
   * What others do not use.
   */
  free: Amount;
  /**
   * The most that may be used of it, by whoever asked.
   */
  cap?: Amount;
  /**
   * A control group's limit.
   */
  cgroup_limit?: Amount;
  /**
   * The least of these.
   */
  capacity_bytes: number;
  /**
   * Which of them that is.
   */
  limited_by: RefusalLimit;
  /**
   * What is kept back.
   */
  reserve_bytes: number;
  /**
   * Why so much.
   */
  reserve_reason: ReasonCode;
  /**
   * What is left.
   */
  budget_bytes: number;
  /**
   * What adapters and tables take of the budget before weights are placed; decoders do not have it.
   */
  workspace_bytes?: number;
  /**
   * What the process lets its own allocator take at most, where it sets such a cap.
   */
  allocator_limit_bytes?: number;
  /**
   * What weights may stay in, where that is another figure than the budget.
   */
  retention_bytes?: number;
}
/**
 * One pool of memory that is too small.
 */
export interface RefusalShortfall {
  /**
   * The pool.
   */
  resource: Resource;
  /**
   * The rank whose device it is.
   */
  rank?: number;
  /**
   * What there is.
   */
  available_bytes: number;
  /**
   * What is kept back.
   */
  reserve_bytes: number;
  /**
   * What is left.
   */
  usable_bytes: number;
  /**
   * What the policy asks for.
   */
  minimum_bytes: number;
  /**
   * What is missing.
   */
  shortfall_bytes: number;
  /**
   * Which threshold.
   */
  reason: ReasonCode;
}
/**
 * The least free memory with which the same request is planned. The policy is not monotone: more may again be too little.
 */
export interface Smallest {
  /**
   * Of device memory, with the host memory that there is.
   */
  vram?: Least;
  /**
   * Of host memory, with the device memory that there is.
   */
  host?: Least;
  /**
   * Of both, where changing one of them is not enough: the least device memory, and the least host memory with it.
   */
  both?: Both;
  /**
   * Of both with a plan that fits, where no other entry has one.
   */
  both_fits?: Both;
  /**
   * Of memory that device and host share: from here on the policy no longer refuses. It has no rule for more, so that the answer is
   * unknown there.
   */
  unified_bytes?: number;
}
/**
 * The least memory of one sort.
 */
export interface Least {
  /**
   * Free memory with which the request is planned.
   */
  bytes: number;
  /**
   * What that plan says of itself; `uncertain`: it is admitted, but a predicted peak is above its limit or not known.
   */
  fit: Fit;
  /**
   * The least with a plan that fits, where the one above does not and there is one.
   */
  fits_bytes?: number;
}
/**
 * Device and host memory together.
 */
export interface Both {
  /**
   * Free device memory.
   */
  vram_bytes: number;
  /**
   * Free host memory.
   */
  host_bytes: number;
  /**
   * What the plan says of itself.
   */
  fit: Fit;
}
/**
 * A request that is planned.
 */
export interface Nearest {
  /**
   * How it differs.
   */
  direction: Direction;
  /**
   * Pixel columns.
   */
  width: number;
  /**
   * Pixel rows.
   */
  height: number;
  /**
   * Frames.
   */
  frames: number;
  /**
   * What its plan says of itself. Where it is uncertain and a smaller request fits, that comes next.
   */
  fit: Fit;
}
/**
 * Something else that makes the same request fit, tried by a plan.
 */
export interface PlanChange {
  /**
   * What sort.
   */
  reason: ReasonCode;
  /**
   * In words.
   */
  message: string;
  /**
   * The arguments that ask for it, where there are such.
   */
  arguments?: string;
  /**
   * Bytes that have to be freed, where that is the change.
   */
  free_bytes?: number;
  /**
   * What the plan that tried it says of itself.
   */
  fit: Fit;
  /**
   * What it does to the output.
   */
  output_effect: OutputEffect;
}
/**
 * A request that the policy has no rule for.
 */
export interface Unplanned {
  /**
   * Format version, that of plans.
   */
  version: number;
  /**
   * Whose rules have a gap.
   */
  policy: PolicyName;
  /**
   * The model's id in the catalog.
   */
  model: string;
  /**
   * The engine.
   */
  runtime: Runtime;
  /**
   * The machine.
   */
  system: SystemFacts;
  /**
   * What was asked for.
   */
  request: PlanRequest;
  /**
   * What memory may be used, as far as that is known.
   */
  budgets: UnplannedBudget[];
  /**
   * What is missing.
   */
  reasons: Reason[];
}
/**
 * One pool: what there is, what is kept back, and what is left.
 *
 * `capacity_bytes` = the least of total, free, cap and limit, as far as they are known; `budget_bytes` = `capacity_bytes` less
 * `reserve_bytes`, or zero.
 */
export interface UnplannedBudget {
  /**
   * The pool.
   */
  resource: Resource;
  /**
   * The rank whose device it is; absent for the host's memory.
   */
  rank?: number;
  /**
   * All of it.
   */
  total?: Amount;
  /**
   * What others do not use.
   */
  free: Amount;
  /**
   * The most that may be used of it, by whoever asked.
   */
  cap?: Amount;
  /**
   * A control group's limit.
   */
  cgroup_limit?: Amount;
  /**
   * The least of these.
   */
  capacity_bytes: number;
  /**
   * Which of them that is.
   */
  limited_by: UnplannedLimit;
  /**
   * What is kept back.
   */
  reserve_bytes: number;
  /**
   * Why so much.
   */
  reserve_reason: ReasonCode;
  /**
   * What is left.
   */
  budget_bytes: number;
  /**
   * What adapters and tables take of the budget before weights are placed; decoders do not have it.
   */
  workspace_bytes?: number;
  /**
   * What the process lets its own allocator take at most, where it sets such a cap.
   */
  allocator_limit_bytes?: number;
  /**
   * What weights may stay in, where that is another figure than the budget.
   */
  retention_bytes?: number;
}
/**
 * `index.json`.
 */
export interface CompiledIndex {
  /**
   * Format version, 1.
   */
  version: number;
  /**
   * Models with capacity facts, by id.
   */
  models: ModelSummary[];
  /**
   * Where the hardware is, relative to this file.
   */
  hardware_url: string;
  /**
   * Where the fitted coefficients are, relative to this file.
   */
  rules_url: string;
}
/**
 * One model in the index.
 */
export interface ModelSummary {
  /**
   * The manifest's key.
   */
  id: string;
  /**
   * The manifest's title.
   */
  name: string;
  /**
   * The baseline's `generator.model_path`.
   */
  model_id: string;
  /**
   * The model's file, relative to the index.
   */
  path: string;
}
/**
 * `hardware.json`.
 */
export interface CompiledHardware {
  /**
   * Format version, 1.
   */
  version: number;
  /**
   * Devices by id.
   */
  devices: Device[];
}
/**
 * One device, with capacities normalised to decimal GB (10^9 bytes).
 */
export interface Device {
  /**
   * The canonical id.
   */
  id: string;
  /**
   * The name people know it by.
   */
  name: string;
  /**
   * Its maker.
   */
  vendor: string;
  /**
   * What sort of device it is.
   */
  kind: DeviceKind;
  /**
   * Groups exact variants.
   */
  family?: string;
  /**
   * The variant within its family.
   */
  variant?: string;
  /**
   * Board form.
   */
  form_factor?: string;
  /**
   * GPUs that the record describes; their memory is never added together.
   */
  gpu_count?: number;
  /**
   * `dedicated` or `unified`.
   */
  memory_type: MemoryType;
  /**
   * Nominal memory of one device in decimal GB.
   */
  memory_gb: number;
  /**
   * Documented usable memory in decimal GB.
   */
  usable_memory_gb?: number;
  /**
   * Host memory that is part of the product in decimal GB.
   */
  host_memory_gb?: number;
  /**
   * The memory section as authored, units included.
   */
  memory: Memory;
  /**
   * The software stack that drives it.
   */
  backend: Backend;
  /**
   * Whether it can be split into partitions.
   */
  partitionable?: boolean;
  /**
   * Partitions with their own capacity.
   */
  partitions?: DevicePartition[];
  /**
   * Storage formats; absent means unknown.
   */
  supported_dtypes?: Dtype[];
  /**
   * CUDA compute capability.
   */
  compute_capability?: string;
  /**
   * Memory bandwidth in decimal gigabytes a second.
   */
  memory_bandwidth_gbps?: number;
  /**
   * Dense matrix rates in TFLOP/s by operand and accumulator type.
   */
  dense_tflops?: DenseTflops;
  /**
   * The PCI Express link.
   */
  pcie?: Pcie;
  /**
   * Board power in watts.
   */
  tdp_watts?: number;
  /**
   * Earlier ids and search names.
   */
  aliases?: string[];
  /**
   * A sentence for the reader.
   */
  notes?: string;
  /**
   * Where the facts come from.
   */
  sources: CompiledHardwareSource[];
}
/**
 * A device's memory.
 */
export interface Memory {
  /**
   * `dedicated` for discrete memory, `unified` for memory shared with the processor.
   */
  type: MemoryType;
  /**
   * The vendor's figure in the vendor's unit.
   */
  nominal: Capacity;
  /**
   * The total that a driver was seen to report.
   */
  reported?: ReportedMemory;
  /**
   * What an application may use, where a documented policy derives it.
   */
  usable?: Capacity;
  /**
   * The policy behind `usable`.
   */
  policy?: string;
}
/**
 * A memory capacity in the unit that its source prints.
 */
export interface Capacity {
  /**
   * The number as printed by the source.
   */
  value: number;
  /**
   * `GB` is 10^9 bytes, `GiB` is 2^30 bytes.
   */
  unit: CapacityUnit;
}
/**
 * The total that a driver was seen to report.
 */
export interface ReportedMemory {
  /**
   * Whole binary mebibytes, as drivers print them.
   */
  value: number;
  /**
   * Always `MiB`, 2^20 bytes.
   */
  unit: ReportedUnit;
}
/**
 * A partition of a device.
 */
export interface DevicePartition {
  /**
   * Unique within the device.
   */
  id: string;
  /**
   * The name shown to people.
   */
  label: string;
  /**
   * The partition's capacity in decimal GB.
   */
  memory_gb: number;
  /**
   * The capacity as authored.
   */
  memory: Capacity;
}
export interface DenseTflops {
  fp32?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
  fp16?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
  bf16?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
  fp8?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
  int8?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
  nvfp4?: {
    fp32?: number;
    fp16?: number;
    int32?: number;
  };
}
/**
 * A PCI Express link.
 */
export interface Pcie {
  /**
   * PCI Express generation.
   */
  generation: number;
  /**
   * Lanes of the link.
   */
  lanes: 1 | 2 | 4 | 8 | 16 | 32;
}
/**
 * Where a fact comes from.
 */
export interface CompiledHardwareSource {
  /**
   * An HTTP(S) address that anybody can open.
   */
  url: string;
  /**
   * The day, `YYYY-MM-DD`, on which somebody compared the figures with this text.
   */
  checked?: string;
  /**
   * `true`, in place of `checked`, for an address whose text could not be read.
   */
  unread?: true;
  /**
   * What kind of text it is.
   */
  kind?: SourceKind;
  /**
   * What it establishes.
   */
  note?: string;
}
/**
 * `models/<id>.json`.
 */
export interface CompiledModel {
  /**
   * Format version, 1.
   */
  version: number;
  /**
   * The manifest's key.
   */
  id: string;
  /**
   * The manifest's title.
   */
  name: string;
  /**
   * The baseline's `generator.model_path`.
   */
  model_id: string;
  /**
   * The family of memory rules.
   */
  memory_rules: string;
  /**
   * Expanded components by role.
   */
  components: {
    [k: string]: ExpandedComponent;
  };
  /**
   * Deployments with their configuration.
   */
  examples: Example[];
  /**
   * Sources of facts that belong to this model alone.
   */
  sources?: CompiledModelSource[];
  /**
   * Completed generations.
   */
  reference_runs: ReferenceRun[];
}
/**
 * A component with its reference resolved.
 */
export interface ExpandedComponent {
  /**
   * The component's id.
   */
  ref: string;
  /**
   * The name shown to people.
   */
  name: string;
  /**
   * Parameters of the module as loaded.
   */
  parameter_count: Count;
  /**
   * Like blocks in the module.
   */
  block_count?: Count;
  /**
   * Parameters of one block.
   */
  block_parameter_count?: Count;
  /**
   * Blocks of unlike kinds.
   */
  block_groups?: BlockGroup[];
  /**
   * What part is loaded.
   */
  loaded_subset?: string;
  /**
   * Allowance for decoder feature and cache buffers; absent stays absent.
   */
  decode_feature_multiplier?: number;
  /**
   * Facts of the architecture.
   */
  geometry?: AnyGeometry;
  /**
   * Where the facts come from.
   */
  sources: CompiledModelSource[];
  /**
   * Documented compatible choices in authored order; never selected.
   */
  alternatives?: ExpandedComponent[];
}
/**
 * Blocks of one kind in a component.
 */
export interface BlockGroup {
  /**
   * Unique within the component.
   */
  name: string;
  /**
   * Blocks in the group.
   */
  count: Count;
  /**
   * Parameters of one block.
   */
  parameter_count: Count;
}
export interface AnyGeometry {
  [k: string]: number | boolean | unknown[];
}
/**
 * Where a fact comes from.
 */
export interface CompiledModelSource {
  /**
   * An HTTP(S) address that anybody can open.
   */
  url: string;
  /**
   * The day, `YYYY-MM-DD`, on which somebody compared the figures with this text.
   */
  checked?: string;
  /**
   * `true`, in place of `checked`, for an address whose text could not be read.
   */
  unread?: true;
  /**
   * What kind of text it is.
   */
  kind?: SourceKind;
  /**
   * What it establishes.
   */
  note?: string;
}
/**
 * One deployment of a model.
 */
export interface Example {
  /**
   * The deployment's id.
   */
  id: string;
  /**
   * The engine that serves it.
   */
  runtime: Runtime;
  /**
   * The baseline with the deployment's defaults merged over it; not resolved by the runtime.
   */
  base_config: {
    [k: string]: unknown;
  };
  /**
   * The launch environment.
   */
  env: Environment;
  /**
   * Roles that this deployment loads differently.
   */
  components?: {
    [k: string]: ExpandedComponent;
  };
}
export interface Environment {
  [k: string]: string;
}
/**
 * One completed generation with its full context.
 */
export interface ReferenceRun {
  /**
   * Unique within the model.
   */
  id: string;
  /**
   * The day of the run, `YYYY-MM-DD`.
   */
  date: string;
  /**
   * A hardware id of the catalog.
   */
  hardware: string;
  /**
   * Devices that took part.
   */
  gpu_count: number;
  /**
   * A partition of that hardware.
   */
  hardware_partition?: string;
  /**
   * The provisioned allocation in decimal GB.
   */
  hardware_allocation_gb?: number;
  /**
   * Only completed generations are evidence.
   */
  outcome: Outcome;
  /**
   * Whether anything had run before in the process.
   */
  execution: Execution;
  /**
   * Logs or a benchmark that anybody can open.
   */
  evidence_url?: string;
  /**
   * In place of `evidence_url`: a file of this repository.
   */
  evidence_path?: string;
  /**
   * The SHA-256 of `evidence_path`, in lower-case hexadecimal.
   */
  evidence_sha256?: string;
  /**
   * Everything that decided what ran.
   */
  context: RunContext;
  /**
   * Measured peaks.
   */
  memory?: RunMemory;
  /**
   * `fv-run` only: peaks of the planned arena, never compared with `memory`.
   */
  plan_peaks?: PlanPeaks;
}
/**
 * The context of a reference run.
 */
export interface RunContext {
  /**
   * The serving runtime.
   */
  runtime: Runtime;
  /**
   * The deployment of this model that was used.
   */
  deployment: string;
  /**
   * Immutable revisions of code and weights.
   */
  revisions: Revisions;
  /**
   * The complete effective serving configuration.
   */
  config: FreeForm;
  /**
   * The normalised request.
   */
  request: CompiledModelRequest;
  /**
   * The complete launch environment; `{}` when none was set.
   */
  env: Environment;
  /**
   * `checkpoint`, or `synthetic:SEED` for random weights. Required for `fv-run`.
   */
  weights?: string;
}
/**
 * Revisions of what ran.
 */
export interface Revisions {
  /**
   * The FastVideo revision, for that runtime.
   */
  fastvideo?: string;
  /**
   * The runtime's revision, for every other runtime.
   */
  runtime?: string;
  /**
   * The checkpoint's revision.
   */
  model: string;
  /**
   * Revisions of components that were replaced.
   */
  components?: RoleRevisions;
}
export interface RoleRevisions {
  transformer?: string;
  transformer_2?: string;
  text_encoder?: string;
  text_encoder_2?: string;
  image_encoder?: string;
  vae?: string;
  audio_vae?: string;
}
export interface FreeForm {}
export interface CompiledModelRequest {
  sampling: {
    height: number;
    width: number;
    num_frames: number;
  };
}
/**
 * Measured memory of a reference run, in one metric.
 */
export interface RunMemory {
  /**
   * What was measured.
   */
  metric: Metric;
  /**
   * What the metric covers; must match it.
   */
  scope: Scope;
  /**
   * Always `GiB`.
   */
  unit: GibUnit;
  /**
   * One entry for each rank from 0 to `gpu_count` - 1.
   */
  per_gpu: RankPeaks[];
}
/**
 * Peaks of one rank in GiB.
 */
export interface RankPeaks {
  /**
   * The rank, from 0.
   */
  rank: number;
  /**
   * The peak of the whole request.
   */
  request_peak: number;
  /**
   * The peak of start-up and loading, measured apart.
   */
  startup_peak?: number;
  /**
   * Peaks by stage; none exceeds `request_peak`.
   */
  stages?: StagePeaks;
}
export interface StagePeaks {
  [k: string]: number;
}
/**
 * Peaks of the planned arena of `fv-run`.
 */
export interface PlanPeaks {
  /**
   * Always `GiB`.
   */
  unit: GibUnit;
  /**
   * One entry for each rank.
   */
  per_gpu: RankPeaks[];
}
/**
 * `rules.json`.
 */
export interface CompiledRules {
  /**
   * Format version, 1.
   */
  version: number;
  /**
   * Fitted coefficients by id.
   */
  coefficients: {
    [k: string]: Coefficient;
  };
}
/**
 * One fitted coefficient of a memory or time rule.
 */
export interface Coefficient {
  /**
   * The fitted value.
   */
  value: number;
  /**
   * The unit of the value.
   */
  unit: string;
  /**
   * The rule that uses it.
   */
  rule: string;
  /**
   * The runtime it was fitted for.
   */
  runtime: Runtime;
  /**
   * The metric it was fitted to.
   */
  metric: string;
  /**
   * The range of each input that the data covers: lowest and highest value.
   */
  range: Ranges;
  /**
   * Identifiers of the measured rows it was fitted to.
   */
  source_rows: string[];
  /**
   * The day of the fit, `YYYY-MM-DD`.
   */
  date: string;
  /**
   * Largest relative error when each row in turn is left out; absent when it could not be computed.
   */
  leave_one_out_error?: number;
}
export interface Ranges {
  [k: string]: number[];
}
