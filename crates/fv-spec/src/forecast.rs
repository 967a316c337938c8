//! How long a request takes, as the estimator answers: JSON in camelCase. Times are integer nanoseconds below 2^53.

use serde::{Deserialize, Serialize};

use crate::estimate::{Reason, StageName};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// A time with the range it is known in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeInterval {
    /// Not below this.
    pub low_ns: u64,
    /// The forecast.
    pub value_ns: u64,
    /// Not above this.
    pub high_ns: u64,
}

/// What a time rests on, the firmest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TimeBasis {
    /// Runs on this kind of device, within the range of what was measured.
    Measured,
    /// This kind of device, outside that range.
    Extrapolated,
    /// The facts of this device, with efficiencies of another one.
    Scaled,
}

impl TimeBasis {
    /// The word used in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Extrapolated => "extrapolated",
            Self::Scaled => "scaled",
        }
    }
}

/// One stage's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StageTime {
    /// The stage.
    pub name: StageName,
    /// All of it.
    pub time: TimeInterval,
    /// What it rests on.
    pub basis: TimeBasis,
}

/// One pass over the steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PassTime {
    /// `only`, `first` or `second`.
    pub name: String,
    /// Its steps.
    pub steps: u32,
    /// One of them, guidance included, with everything warm.
    pub step: TimeInterval,
}

/// A rate of the device that the forecast used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct UsedRate {
    /// Such as `dense fp8 / fp32` or `memory bandwidth`.
    pub name: String,
    /// How much.
    pub value: f64,
    /// `TFLOP/s` or `GB/s`.
    pub unit: String,
    /// Where it came from: `catalog`, `given`, `probed` or `assumed`.
    pub source: String,
}

/// How long a request takes. What there is no figure for is absent, and named in `leavesOut` or `unknown`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeForecast {
    /// Passes over the steps, in order.
    pub passes: Vec<PassTime>,
    /// Stages that there is a figure for, in order.
    pub stages: Vec<StageTime>,
    /// Those stages together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<TimeInterval>,
    /// What the sum does not hold.
    pub leaves_out: Vec<String>,
    /// Matrix products of one step, attention included, in TFLOP with four significant digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_tflop: Option<f64>,
    /// Rates that were used.
    pub rates: Vec<UsedRate>,
    /// Why there is no figure, where there is none.
    pub unknown: Vec<Reason>,
    /// Assumptions and remarks.
    pub notes: Vec<String>,
    /// What it costs, where a price was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The same in short, for lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeSummary {
    /// One step, of the last pass.
    pub step: TimeInterval,
    /// The stages that there is a figure for, together.
    pub request: TimeInterval,
    /// What the steps' time rests on.
    pub basis: TimeBasis,
    /// What the sum does not hold.
    pub leaves_out: Vec<String>,
    /// What it costs, where a price was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl TimeForecast {
    /// The forecast in short; nothing where there is no figure for the steps.
    pub fn summary(&self) -> Option<TimeSummary> {
        let basis = self.stages.iter().find(|stage| stage.name == StageName::Denoising)?.basis;
        Some(TimeSummary {
            step: self.passes.last()?.step,
            request: self.request?,
            basis,
            leaves_out: self.leaves_out.clone(),
            cost: self.cost.clone(),
        })
    }
}

/// What one video costs on a rented device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// ISO 4217 code, such as `USD`.
    pub currency: String,
    /// Millionths of the currency for one video of the request: not below this.
    pub low_micro: u64,
    /// The forecast.
    pub value_micro: u64,
    /// Not above this.
    pub high_micro: u64,
    /// The price of an hour of one device.
    pub price_per_hour: f64,
    /// Where the price was read.
    pub source: String,
    /// When, `YYYY-MM-DD`.
    pub date: String,
}
