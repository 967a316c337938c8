//! How long a plan takes. Times are integer nanoseconds.

use serde::{Deserialize, Serialize};

use crate::estimate::StageName;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// A time with the range it is known in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Not below this.
    pub low_ns: u64,
    /// The forecast.
    pub value_ns: u64,
    /// Not above this.
    pub high_ns: u64,
}

/// The time of one pass over the steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PassTime {
    /// The pass's name in the plan.
    pub name: String,
    /// Its steps.
    pub steps: u32,
    /// One of them, with everything warm.
    pub step: Interval,
}

/// The time of one stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StageTime {
    /// The stage.
    pub name: StageName,
    /// All of it.
    pub time: Interval,
}

words! {
    /// How far the figures are from what was measured.
    Coverage {
        /// Within the range of what was measured.
        Measured "measured",
        /// Outside it.
        Extrapolated "extrapolated",
        /// From the device's facts alone.
        Derived "derived",
    }
}

/// How long a plan takes. What there is no figure for is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    /// What the figures rest on, in words.
    pub basis: String,
    /// How far it reaches.
    pub coverage: Coverage,
    /// Passes, in order.
    pub passes: Vec<PassTime>,
    /// Stages that there is a figure for, in order.
    pub stages: Vec<StageTime>,
    /// The request from start to end, where every stage has a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Interval>,
    /// Assumptions and remarks.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
}
