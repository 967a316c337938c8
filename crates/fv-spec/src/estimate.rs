//! What the estimator answers: JSON in camelCase, since it crosses to JavaScript. Fields called `...GiB` are numbers of
//! 2^30 bytes, fields called `...Bytes` are integers below 2^53.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::authored::MemoryType;
use crate::forecast::{TimeForecast, TimeSummary};
use crate::questions::PlaceChanges;
use crate::request::Request;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The version of the estimate format.
pub const VERSION: u32 = 1;

/// Whether something fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// What the allocator would hold, and everything beside it, is within the budget.
    Fits,
    /// Between the two: whether the allocator gets by is decided by fragmentation, or by facts known only as a range.
    Uncertain,
    /// What must be alive at once, and everything beside it, exceeds the budget.
    DoesNotFit,
    /// A fact or a rule is missing.
    Unknown,
}

/// Why, in a word for programs and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Reason {
    /// Lower case with hyphens, such as `unknown-setting`.
    pub code: String,
    /// A sentence.
    pub message: String,
}

impl Reason {
    /// A reason.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// A figure with the range it is known in, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Interval {
    /// Not below this.
    pub low: u64,
    /// The derived value.
    pub value: u64,
    /// Not above this.
    pub high: u64,
}

impl Interval {
    /// A figure known to the byte.
    pub fn exact(value: u64) -> Self {
        Self { low: value, value, high: value }
    }

    /// The largest of each figure: of stages, which do not run together, the one with the highest value need not be the one
    /// with the highest end.
    pub fn highest(intervals: impl IntoIterator<Item = Self>) -> Option<Self> {
        let larger = |a: Self, b: Self| Self { low: a.low.max(b.low), value: a.value.max(b.value), high: a.high.max(b.high) };
        intervals.into_iter().reduce(larger)
    }
}

/// Peaks in the three metrics, which are never compared with each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PeakBytes {
    /// Tensors alive.
    pub allocated: Interval,
    /// Held by the allocator.
    pub reserved: Interval,
    /// Shown by the whole device: context, modules and libraries included.
    pub device: Interval,
}

/// What a buffer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum BufferKind {
    Weights,
    Activation,
    Cache,
    Workspace,
    Output,
    Staging,
    Context,
}

/// Where a buffer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum Tier {
    Device,
    Pinned,
    Pageable,
    Disk,
}

impl Tier {
    /// All tiers, from the fastest.
    pub const ALL: [Self; 4] = [Self::Device, Self::Pinned, Self::Pageable, Self::Disk];

    /// The name used in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
            Self::Disk => "disk",
        }
    }
}

/// One buffer, or several alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Buffer {
    /// What it holds, such as `query`.
    pub name: String,
    /// What it is for.
    pub kind: BufferKind,
    /// Where it lives.
    pub tier: Tier,
    /// Bytes of all `count` together.
    pub bytes: u64,
    /// How many alike are alive.
    pub count: u32,
    /// How the bytes of one came about, with its numbers.
    pub formula: String,
    /// The rule that says so, such as `wan.dit.self_attention`.
    pub rule: String,
}

/// A part of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Such as `self_attention`.
    pub name: String,
    /// How often it runs in the stage.
    pub repeat: u64,
    /// Tensors alive at its peak, everything resident included.
    pub allocated_bytes: u64,
}

/// Host memory and disk that a stage needs, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostBytes {
    /// Page-locked, the allocator's rounding included.
    pub pinned_bytes: u64,
    /// Ordinary host memory.
    pub pageable_bytes: u64,
    /// On disk.
    pub disk_bytes: u64,
}

/// A single allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LargestAllocation {
    /// The buffer's name.
    pub name: String,
    /// The phase that asks for it.
    pub phase: String,
    /// Its size.
    pub bytes: u64,
}

/// One stage of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// `load`, `encoding`, `denoising` or `decoding`.
    pub name: String,
    /// Its parts in order.
    pub phases: Vec<Phase>,
    /// What is alive at the stage's peak of allocated bytes, largest first.
    pub buffers: Vec<Buffer>,
    /// The largest single allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_allocation: Option<LargestAllocation>,
    /// Peaks on the rank that needs most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<PeakBytes>,
    /// Peaks of each rank, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ranks: Vec<RankPeak>,
    /// Host memory and disk in use.
    pub host: HostBytes,
}

/// One rank's peaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RankPeak {
    /// The rank, from 0.
    pub rank: u32,
    /// Its peaks.
    pub peak_bytes: PeakBytes,
}

/// Where a setting's value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// The deployment's configuration.
    Authored,
    /// The deployment's or the user's launch environment.
    Environment,
    /// What the runtime does when nobody says.
    RuntimeDefault,
    /// Another setting forces it.
    Forced,
    /// A planner chose it.
    Planner,
    /// Given with the request.
    User,
}

/// One effective setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Setting {
    /// The runtime's own name, dotted.
    pub key: String,
    /// Its effective value.
    pub value: Value,
    /// Where the value came from.
    pub provenance: Provenance,
}

/// Device memory and what of it may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// `dedicated`, `unified`, or nothing where that is not known.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<MemoryType>,
    /// Nominal capacity.
    #[serde(rename = "nominalGiB", skip_serializing_if = "Option::is_none")]
    pub nominal_gib: Option<f64>,
    /// What the estimate may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// The same in GiB.
    #[serde(rename = "budgetGiB", skip_serializing_if = "Option::is_none")]
    pub budget_gib: Option<f64>,
    /// The partition in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// What decided the budget: `measured`, `reported`, `nominal`, `usable`, `unified_default`, `partition`,
    /// `allocation` or `explicit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_source: Option<String>,
    /// Kept free for others.
    #[serde(default)]
    pub reserve_bytes: u64,
}

/// Host memory: what is needed, what there is, and whether it suffices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostReport {
    /// Needed at the worst moment: pinned and pageable together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_bytes: Option<u64>,
    /// There is, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// Whether it suffices; `unknown` without a capacity unless nothing is needed.
    pub status: Verdict,
}

/// What is missing when something does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Shortfall {
    /// `device` or `host`.
    pub tier: String,
    /// The stage with the largest need.
    pub stage: String,
    /// Bytes beyond the budget, at least.
    pub bytes: u64,
    /// The buffers that make it, largest first.
    pub buffers: Vec<Buffer>,
}

/// What the rules cover and what they do not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Coverage {
    /// Rules in use, such as `wan x diffusers`.
    pub rules: Vec<String>,
    /// What is not covered, and so is `unknown`.
    pub uncovered: Vec<String>,
    /// Inputs outside the measured range, by name.
    pub extrapolated: Vec<String>,
}

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// Format version.
    pub version: u32,
    /// The model's id.
    pub model: String,
    /// The deployment's id.
    pub deployment: String,
    /// The device's id, or `custom`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// The request with every field resolved.
    pub request: Request,
    /// The verdict over device and host.
    pub status: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// The device peak of the largest stage as derived, in GiB; a budget must reach its upper end to be sure. Absent when unknown.
    #[serde(rename = "capacityGiB", skip_serializing_if = "Option::is_none")]
    pub capacity_gib: Option<f64>,
    /// The device.
    pub memory: MemoryReport,
    /// The host.
    pub host: HostReport,
    /// What is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortfall: Option<Shortfall>,
    /// Stages in order.
    pub stages: Vec<Stage>,
    /// Effective settings in the order they were resolved.
    pub settings: Vec<Setting>,
    /// What is covered.
    pub coverage: Coverage,
    /// Assumptions and remarks.
    pub notes: Vec<String>,
    /// How long it takes, where a device was chosen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub forecast: Option<TimeForecast>,
}

/// A verdict with the stage peaks, and nothing else: what heat maps and sweeps need.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The verdict over device and host.
    pub status: Verdict,
    /// Peaks by stage.
    pub stages: Vec<StagePeak>,
    /// Budget less the largest device peak; negative when it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub margin_bytes: Option<i64>,
}

/// A stage's peaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StagePeak {
    /// The stage.
    pub name: StageName,
    /// Its peaks.
    pub peak_bytes: PeakBytes,
}

/// The stages of a request, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum StageName {
    Load,
    Encoding,
    Denoising,
    Decoding,
}

impl StageName {
    /// All stages in order.
    pub const ALL: [Self; 4] = [Self::Load, Self::Encoding, Self::Denoising, Self::Decoding];

    /// The name used in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Encoding => "encoding",
            Self::Denoising => "denoising",
            Self::Decoding => "decoding",
        }
    }
}

/// A run of the catalog and why it does or does not apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct MatchedRun {
    /// The run's id.
    pub id: String,
    /// Every reason.
    pub reasons: Vec<Reason>,
}

/// The reference runs of a model, judged against one configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct EvidenceMatch {
    /// Everything that matters is the same.
    pub applicable: Vec<MatchedRun>,
    /// Nothing contradicts, but something that matters is not known to be the same.
    pub unverified: Vec<MatchedRun>,
    /// Something that matters differs.
    pub rejected: Vec<MatchedRun>,
}

/// The analytical estimate together with what was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Assessment {
    /// The verdict after the evidence.
    pub status: Verdict,
    /// Why, the evidence included.
    pub reasons: Vec<Reason>,
    /// `measured` when an applicable run decided it, else `analytical`.
    pub basis: Basis,
    /// The estimate, unchanged by evidence.
    pub estimate: Estimate,
    /// The runs.
    pub evidence: EvidenceMatch,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// An applicable completed run.
    Measured,
    /// The rules alone.
    Analytical,
}

/// One device and deployment in a recommendation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Recommendation {
    /// The model, where several were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The device.
    pub hardware: String,
    /// The partition, when one is recommended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The deployment.
    pub deployment: String,
    /// Devices used, each with its own memory.
    pub gpu_count: u32,
    /// The device peak of the rank that needs most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_peak: Option<Interval>,
    /// Its budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// Runs that establish it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub runs: Vec<String>,
    /// Why.
    pub reasons: Vec<Reason>,
    /// How long it takes, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time: Option<TimeSummary>,
}

/// Devices and deployments for a request; what does not fit is left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Recommendations {
    /// Established by a completed run.
    pub measured: Vec<Recommendation>,
    /// Fits by the rules.
    pub analytical: Vec<Recommendation>,
    /// May fit.
    pub uncertain: Vec<Recommendation>,
    /// Not known, with the reason.
    pub unknown: Vec<Recommendation>,
    /// For devices that were named and on which nothing fits: what would make it fit.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<PlaceChanges>,
}

/// A rule of thumb that the catalog's documentation describes. It is no part of the estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Heuristic {
    /// `feature_cache` or `output_buffers`.
    pub name: String,
    /// What it gives; absent where a fact is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The formula with its numbers, or which fact is missing.
    pub formula: String,
}

/// An estimate with the rules of thumb beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Explanation {
    /// Format version.
    pub version: u32,
    /// The estimate, on which the heuristics have no influence.
    pub estimate: Estimate,
    /// Rules of thumb for the decoder.
    pub heuristics: Vec<Heuristic>,
}
