//! One plan explained, and two plans compared.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, ReasonCode, StageName, budget::Resource};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// A plan's decisions with their reasons in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanExplanation {
    /// Format version, that of plans.
    pub version: u32,
    /// The plan's id.
    pub id: String,
    /// For each budget the predicted peak that leaves least of what it is held against.
    pub margins: Vec<Margin>,
    /// Every decision, those of passes after those of the plan.
    pub decisions: Vec<Explained>,
}

/// What the tightest predicted peak in a pool leaves: the one with the least between it and what the policy holds it against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Margin {
    /// The pool.
    pub resource: Resource,
    /// The rank whose device it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The stage of the peak.
    pub stage: StageName,
    /// Its pass, where the stage has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The budget.
    pub budget_bytes: u64,
    /// What the policy holds the peak against: the budget, all that is free, or what weights may stay in.
    pub limit_bytes: u64,
    /// The peak. In host memory page-locked and other bytes count together.
    pub peak_bytes: u64,
    /// Limit less peak; negative where the policy admits more than its own figures.
    pub margin_bytes: i64,
}

/// One decision with its reason in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// The pass, where a pass decided for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The decision.
    pub decision: Decision,
    /// What its reason's code means.
    pub meaning: String,
    /// What the code of each alternative means, in the same order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub alternatives: Vec<String>,
}

/// What two plans do differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanDiff {
    /// Format version, that of plans.
    pub version: u32,
    /// The first plan's id.
    pub a: String,
    /// The second one's.
    pub b: String,
    /// Whether they are the same plan: nothing that decides a run differs.
    pub same: bool,
    /// Fields that differ, in the order of the format.
    pub fields: Vec<FieldDiff>,
    /// Decisions that differ in value or reason.
    pub decisions: Vec<DecisionDiff>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct FieldDiff {
    /// Where it stands, such as `placements.transformer.0.slots`.
    pub path: String,
    /// Its value in the first plan; absent where the field is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<Value>,
    /// In the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Value>,
    /// `b` less `a`, where both are numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<i64>,
}

/// A decision that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DecisionDiff {
    /// The pass, where a pass decided for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// What was decided.
    pub key: String,
    /// Value and reason in the first plan; absent where it does not decide this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a: Option<Side>,
    /// In the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b: Option<Side>,
}

/// One plan's side of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// The value.
    pub value: Value,
    /// Why.
    pub reason: ReasonCode,
}
