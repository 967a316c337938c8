//! Why there is no plan, and what there could be one for.

use serde::{Deserialize, Serialize};

use super::{
    PlanRequest, PolicyName, Runtime, SystemFacts,
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
    /// Requests near this one that fit.
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
    pub vram_bytes: Option<u64>,
    /// Of host memory, with the device memory that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_bytes: Option<u64>,
    /// Of both, where changing one of them is not enough: the least device memory, and the least host memory with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both: Option<Both>,
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
}

words! {
    /// In what way a nearby request is smaller.
    Direction {
        /// The most frames at the same size.
        FewerFrames "fewer_frames",
        /// The largest size at the same frames, with sides in nearly the same ratio.
        SmallerSize "smaller_size",
    }
}

/// A request that fits.
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
    /// What it does to the output.
    pub output_effect: OutputEffect,
}
