//! What memory may be used, and where each number came from.

use serde::{Deserialize, Serialize};

use super::{Source, reason::ReasonCode};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

words! {
    /// A pool of memory.
    Resource {
        /// A device's own memory.
        Vram "vram",
        /// The host's memory.
        Host "host",
        /// Memory that host and device share.
        Unified "unified",
    }
}

/// Bytes with their source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Amount {
    /// How much.
    pub bytes: u64,
    /// Where the figure came from.
    pub source: Source,
    /// What measured it, such as `NVML` or a device's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was measured, as whoever measured wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl Amount {
    /// Bytes that whoever asked stated.
    pub fn given(bytes: u64) -> Self {
        Self { bytes, source: Source::Given, by: None, at: None }
    }
}

/// One pool: what there is, what is kept back, and what is left.
///
/// `capacity_bytes` = the least of total, free, cap and limit, as far as they are known; `budget_bytes` = `capacity_bytes` less
/// `reserve_bytes`, or zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The pool.
    pub resource: Resource,
    /// The rank whose device it is; absent for the host's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// All of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Amount>,
    /// What others do not use.
    pub free: Amount,
    /// The most that may be used of it, by whoever asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<Amount>,
    /// A control group's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_limit: Option<Amount>,
    /// The least of these.
    pub capacity_bytes: u64,
    /// Which of them that is.
    pub limited_by: Limit,
    /// What is kept back.
    pub reserve_bytes: u64,
    /// Why so much.
    pub reserve_reason: ReasonCode,
    /// What is left.
    pub budget_bytes: u64,
    /// What adapters and tables take of the budget before weights are placed; decoders do not have it.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub workspace_bytes: u64,
    /// What the process lets its own allocator take at most, where it sets such a cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator_limit_bytes: Option<u64>,
    /// What weights may stay in, where that is another figure than the budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

words! {
    /// The figure that limits a capacity: a field beside it.
    Limit {
        /// What others do not use.
        Free "free",
        /// All of it.
        Total "total",
        /// What whoever asked allows.
        Cap "cap",
        /// A control group's limit.
        CgroupLimit "cgroup_limit",
    }
}
