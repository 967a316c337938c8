//! What the questions beside a single estimate answer: the largest clip, the smallest budget, what would have to change, and
//! how devices and deployments compare. JSON in camelCase, as in [`estimate`](crate::estimate).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::estimate::{Buffer, HostReport, Interval, MemoryReport, Reason, Recommendation, StageName, Verdict};
use crate::forecast::{TimeInterval, TimeSummary};
use crate::request::Request;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// A clip and what a plain estimate says of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Clip {
    /// Pixel rows.
    pub height: u32,
    /// Pixel columns.
    pub width: u32,
    /// Frames.
    pub num_frames: u32,
    /// Its duration, where the model has a frame rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The verdict.
    pub status: Verdict,
    /// The device peak over all stages: the largest of each figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_peak: Option<Interval>,
    /// Budget less the most that any stage can take; negative when that is more than there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_bytes: Option<i64>,
}

/// What sort of limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// The next larger one needs more memory than there is, or may.
    Memory,
    /// The next larger one is not known to fit.
    Unknown,
    /// There is no larger one: the model and the runtime allow none.
    Family,
}

/// Why nothing larger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// What sort.
    pub kind: LimitKind,
    /// A sentence.
    pub message: String,
    /// `device` or `host`, where memory is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The stage that is short of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Bytes that are missing: at least where it does not fit, at most where it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The largest buffers of that stage.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub buffers: Vec<Buffer>,
}

/// How far a clip can grow in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Extent {
    /// The largest that fits; absent where not even the smallest does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<Clip>,
    /// The next larger legal one; absent at the end of what is legal. Where nothing fits, the smallest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Clip>,
    /// The largest that may fit, where that is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_fit: Option<Clip>,
    /// Why nothing larger.
    pub limit: Limit,
}

/// The largest clips of one deployment on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Largest {
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// Its engine.
    pub runtime: String,
    /// What was asked for, with every field resolved.
    pub request: Request,
    /// Whether exactly that fits.
    pub status: Verdict,
    /// The device.
    pub memory: MemoryReport,
    /// The most frames at the size asked for: the longest duration, too.
    pub frames: Extent,
    /// The largest size at the frames asked for, with the sides in the same ratio as nearly as legal sizes allow.
    pub size: Extent,
    /// From small and long to large and short: at each of some sizes the most frames, as far as no other of them is larger
    /// and no shorter.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub pareto: Vec<Clip>,
    /// What would make the request fit, cheapest first, where it does not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<Change>,
    /// Where no change was found that makes it fit: what was tried.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tried: Vec<String>,
    /// Where nothing fits as it is: what does with the cheapest change of settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapted: Option<Adapted>,
    /// Remarks on the request as asked for.
    pub reasons: Vec<Reason>,
    /// Assumptions and remarks.
    pub notes: Vec<String>,
}

/// The largest clips after a change of settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Adapted {
    /// The change.
    pub change: Change,
    /// The most frames then.
    pub frames: Extent,
    /// The largest size then.
    pub size: Extent,
}

/// A deployment of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Unanswered {
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// The largest clips on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LargestAnswer {
    /// Format version.
    pub version: u32,
    /// The device's id, or `custom`.
    pub hardware: String,
    /// Whether what may fit counts as fitting.
    pub admit_uncertain: bool,
    /// By model and deployment.
    pub answers: Vec<Largest>,
    /// What is not known, by name.
    pub unknown: Vec<Unanswered>,
}

/// What a change does to the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputEffect {
    /// The same to the bit.
    None,
    /// The same sums in another order.
    Reordered,
    /// Fewer bits of the same.
    Quantised,
    /// Another output.
    Different,
}

/// One setting or variable of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SetTo {
    /// The runtime's own name, or the variable's.
    pub key: String,
    /// What it is set to.
    pub value: Value,
}

/// What to change, and what a plain estimate then says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// In words, one for each change.
    pub changes: Vec<String>,
    /// The arguments that ask for it.
    pub arguments: String,
    /// The deployment that it is a change of, or changes to.
    pub deployment: String,
    /// Settings.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub settings: Vec<SetTo>,
    /// Environment variables.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub environment: Vec<SetTo>,
    /// The request that fits, where another is meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// What it does to the output, at worst.
    pub output_effect: OutputEffect,
    /// How long the request then takes, without loading and encoding; absent where there is no forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeInterval>,
    /// Bytes of weights that go to the device in one request then; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_bytes: Option<u64>,
    /// The verdict with it.
    pub status: Verdict,
    /// The device peak with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_peak: Option<Interval>,
    /// What is then left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_bytes: Option<i64>,
}

/// What would make a request fit on a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PlaceChanges {
    /// The device.
    pub hardware: String,
    /// The deployment that is changed.
    pub deployment: String,
    /// The verdict as it is.
    pub status: Verdict,
    /// Cheapest first.
    pub changes: Vec<Change>,
    /// Where there are none: what was tried.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tried: Vec<String>,
    /// Why that deployment, where nobody named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
}

/// What a stage needs; of a runtime that plans, what it takes in the plan for the smallest budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StageMinimum {
    /// The stage.
    pub name: StageName,
    /// Device memory with which it fits.
    pub fits_bytes: u64,
    /// Device memory with which it may fit.
    pub uncertain_bytes: u64,
    /// Host memory: page-locked and ordinary.
    pub host_bytes: u64,
}

/// A budget tried, and what a plain estimate says with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Tried {
    /// Device memory.
    pub budget_bytes: u64,
    /// Host memory, where it was limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// The verdict.
    pub status: Verdict,
}

/// The smallest budget for a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Minimum {
    /// Format version.
    pub version: u32,
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// The device whose fixed cost counts, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// What was asked for, with every field resolved.
    pub request: Request,
    /// The verdict on that device as it is. Without one: `fits` where [`fits_bytes`](Self::fits_bytes) is known, `uncertain`
    /// where only [`uncertain_bytes`](Self::uncertain_bytes) is, otherwise `unknown`.
    pub status: Verdict,
    /// The smallest budget of device memory that the request fits in. On unified memory, of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits_bytes: Option<u64>,
    /// The same in GiB, as `--memory-budget-gib` takes it.
    #[serde(rename = "fitsGiB", skip_serializing_if = "Option::is_none")]
    pub fits_gib: Option<f64>,
    /// The smallest that it may fit in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncertain_bytes: Option<u64>,
    /// Host memory beside it; on unified memory it is part of the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// By stage; the largest of each decides.
    pub stages: Vec<StageMinimum>,
    /// Plain estimates at these budgets and one byte below.
    pub checks: Vec<Tried>,
    /// The class of device whose fixed cost counts, such as `sm89`.
    pub fixed_cost: String,
    /// The smallest devices of the catalog that it fits on, smallest first.
    pub devices: Vec<Recommendation>,
    /// What would make it fit on the device that was named, cheapest first, where it does not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<Change>,
    /// Where there are none: what was tried.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub tried: Vec<String>,
    /// Why something is unknown.
    pub reasons: Vec<Reason>,
    /// Assumptions and remarks.
    pub notes: Vec<String>,
}

/// One place in a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// Its engine.
    pub runtime: String,
    /// The device.
    pub hardware: String,
    /// What was asked for, with every field resolved.
    pub request: Request,
    /// The verdict.
    pub status: Verdict,
    /// The device peak of each stage, in order.
    pub stages: Vec<StageDevice>,
    /// The budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Budget less the most that any stage can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_bytes: Option<i64>,
    /// The host.
    pub host: HostReport,
    /// Why.
    pub reasons: Vec<Reason>,
    /// How long it takes, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time: Option<TimeSummary>,
}

/// A stage's device peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct StageDevice {
    /// The stage.
    pub name: StageName,
    /// Its peak.
    pub device: Interval,
}

/// Devices, deployments and runtimes side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Comparison {
    /// Format version.
    pub version: u32,
    /// In the order asked for: models, then deployments, then devices.
    pub rows: Vec<Compared>,
}

/// One point of a sweep: a line of its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SweepRow {
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// The device.
    pub hardware: String,
    /// Pixel columns.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Frames.
    pub num_frames: u32,
    /// Videos generated together.
    pub batch: u32,
    /// The settings that vary, such as `vae_tiling=true`, separated by spaces.
    pub settings: String,
    /// The verdict.
    pub status: Verdict,
    /// The device peak while loading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_bytes: Option<u64>,
    /// While encoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding_bytes: Option<u64>,
    /// While denoising.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denoising_bytes: Option<u64>,
    /// While decoding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoding_bytes: Option<u64>,
    /// Host memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// The budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Budget less the most that any stage can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_bytes: Option<i64>,
    /// The code of the first reason, where the verdict is `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a deployment does not take of the axes of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LeftOutKind {
    /// Sizes that the model does not take.
    Size,
    /// Frame counts that the model does not take.
    Frames,
    /// Settings that the runtime does not have.
    Setting,
    /// Requests or values of settings that the model or its runtime refuses.
    Request,
}

/// Values of an axis that make no points with a deployment, though they do with another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// Of which axis.
    pub kind: LeftOutKind,
    /// How many values.
    pub count: u64,
    /// Which: the first of them, as asked for. `all` where it is the deployment as a whole.
    pub values: Vec<String>,
    /// Why, and what would be taken.
    pub reason: String,
}

/// How many rows of a sweep are unknown for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The code of the reason.
    pub code: String,
    /// Rows.
    pub rows: u64,
}

/// What a sweep came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SweepReport {
    /// Format version.
    pub version: u32,
    /// Rows in all.
    pub rows: u64,
    /// Of them, those that fit.
    pub fits: u64,
    /// Those that may fit.
    pub uncertain: u64,
    /// Those that do not fit.
    pub does_not_fit: u64,
    /// Those of which nothing can be said.
    pub unknown: u64,
    /// Why, by code.
    pub unknown_reasons: Vec<ReasonCount>,
    /// What of the axes makes no points with some deployment.
    pub left_out: Vec<LeftOut>,
}
