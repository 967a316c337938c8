//! The memory layout of a runtime that places every buffer itself. Filled in by policies for such runtimes.

use serde::{Deserialize, Serialize};

use crate::estimate::{StageName, Tier};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// Where every buffer lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Arena {
    /// One for each rank, stage and tier that holds buffers.
    pub regions: Vec<Region>,
}

/// Memory that is reserved at once and kept for a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// The rank.
    pub rank: u32,
    /// What it is for, such as `transformer_2`, where a stage has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part: Option<String>,
    /// The stage in which it is first used.
    pub stage: StageName,
    /// The memory.
    pub tier: Tier,
    /// Its size.
    pub bytes: u64,
    /// What lies in it, by offset.
    pub buffers: Vec<Placed>,
}

/// A buffer's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Placed {
    /// What it holds, such as `query`.
    pub name: String,
    /// Bytes from the start of the region.
    pub offset_bytes: u64,
    /// Its size.
    pub bytes: u64,
    /// The operation of the stage's program that writes it first.
    pub first_operation: u64,
    /// The last one that uses it.
    pub last_operation: u64,
}
