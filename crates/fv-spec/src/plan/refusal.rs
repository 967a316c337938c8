//! Why there is no plan, and what there could be one for.

use serde::{Deserialize, Serialize};

use super::{
    Fit, PlanRequest, PolicyName, Runtime, SystemFacts,
    budget::{Budget, Resource},
    reason::ReasonCode,
};
use crate::estimate::Reason;
use crate::questions::OutputEffect;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// A request that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Format version, that of plans.
    pub version: u32,
    /// Whose rules refuse.
    pub policy: PolicyName,
    /// The model's id in the catalog.
    pub model: String,
    /// The engine.
    pub runtime: Runtime,
    /// The machine.
    pub system: SystemFacts,
    /// What was asked for; it is never changed silently.
    pub request: PlanRequest,
    /// What memory may be used.
    pub budgets: Vec<Budget>,
    /// What is short.
    pub shortfalls: Vec<Shortfall>,
    /// The least memory that would do, where it was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Smallest>,
    /// Requests near this one that are planned.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nearest: Vec<Nearest>,
    /// What else would make it fit.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub changes: Vec<PlanChange>,
    /// Remarks.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}

/// A request that the policy has no rule for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unplanned {
    /// Format version, that of plans.
    pub version: u32,
    /// Whose rules have a gap.
    pub policy: PolicyName,
    /// The model's id in the catalog.
    pub model: String,
    /// The engine.
    pub runtime: Runtime,
    /// The machine.
    pub system: SystemFacts,
    /// What was asked for.
    pub request: PlanRequest,
    /// What memory may be used, as far as that is known.
    pub budgets: Vec<Budget>,
    /// What is missing.
    pub reasons: Vec<Reason>,
}

/// One pool of memory that is too small.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Shortfall {
    /// The pool.
    pub resource: Resource,
    /// The rank whose device it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// What there is.
    pub available_bytes: u64,
    /// What is kept back.
    pub reserve_bytes: u64,
    /// What is left.
    pub usable_bytes: u64,
    /// What the policy asks for.
    pub minimum_bytes: u64,
    /// What is missing.
    pub shortfall_bytes: u64,
    /// Which threshold.
    pub reason: ReasonCode,
}

/// The least free memory with which the same request is planned. The policy is not monotone: more may again be too little.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Smallest {
    /// Of device memory, with the host memory that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vram: Option<Least>,
    /// Of host memory, with the device memory that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Least>,
    /// Of both, where changing one of them is not enough: the least device memory, and the least host memory with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both: Option<Both>,
    /// Of both with a plan that fits, where no other entry has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both_fits: Option<Both>,
    /// Of memory that device and host share: from here on the policy no longer refuses. It has no rule for more, so that the answer is
    /// unknown there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unified_bytes: Option<u64>,
}

/// The least memory of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Least {
    /// Free memory with which the request is planned.
    pub bytes: u64,
    /// What that plan says of itself; `uncertain`: it is admitted, but a predicted peak is above its limit or not known.
    pub fit: Fit,
    /// The least with a plan that fits, where the one above does not and there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits_bytes: Option<u64>,
}

/// Device and host memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Both {
    /// Free device memory.
    pub vram_bytes: u64,
    /// Free host memory.
    pub host_bytes: u64,
    /// What the plan says of itself.
    pub fit: Fit,
}

words! {
    /// In what way a nearby request is smaller.
    Direction {
        /// The most frames at the same size.
        FewerFrames "fewer_frames",
        /// A smaller size at the same frames. The shorter side is the largest multiple that is planned, the longer one the multiple
        /// nearest to the ratio that was asked for.
        SmallerSize "smaller_size",
    }
}

/// A request that is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Nearest {
    /// How it differs.
    pub direction: Direction,
    /// Pixel columns.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Frames.
    pub frames: u32,
    /// What its plan says of itself. Where it is uncertain and a smaller request fits, that comes next.
    pub fit: Fit,
}

/// Something else that makes the same request fit, tried by a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanChange {
    /// What sort.
    pub reason: ReasonCode,
    /// In words.
    pub message: String,
    /// The arguments that ask for it, where there are such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Bytes that have to be freed, where that is the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// What the plan that tried it says of itself.
    pub fit: Fit,
    /// What it does to the output.
    pub output_effect: OutputEffect,
}
