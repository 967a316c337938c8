//! Reading a plan. What is not of this version, not of the right shape or contradicts itself is refused, each with the field, what was
//! found and what would be consistent. No input makes the reader panic.

mod computation;
mod memory;

use std::collections::BTreeSet;
use std::fmt::Display;

use fv_spec::plan::{Decision, Pass, Plan, PolicyName, VERSION};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::field::field;
use crate::error::{InputError, quoted};

/// The longest text that is read.
const LONGEST: usize = 16 << 20;

/// What every version has.
#[derive(Deserialize)]
struct Head {
    version: Option<Value>,
    /// What a refusal has.
    shortfalls: Option<IgnoredAny>,
    /// What an unknown answer has.
    reasons: Option<IgnoredAny>,
}

/// Reads a plan.
///
/// # Errors
/// What is wrong: `invalid-json` and `invalid-plan` for the shape, `no-plan` for another answer, `unsupported-version`, and one
/// `inconsistent-plan` for everything that contradicts something else.
pub fn read(text: &str) -> Result<Plan, Vec<InputError>> {
    let one = |code, message: String| vec![InputError::new(code, message)];
    if text.len() > LONGEST {
        return Err(one("invalid-plan", format!("the plan has {} bytes, allowed: at most {LONGEST}", text.len())));
    }
    // The reader of a structure would take a list of its fields as well.
    if !text.trim_start().starts_with('{') {
        return Err(one("invalid-json", "this is no plan: a JSON object is needed".to_owned()));
    }
    let head: Head = serde_json::from_str(text).map_err(|error| one("invalid-json", format!("this is no plan: {error}")))?;
    match head.version {
        None => return Err(one("unsupported-version", format!("`version` is missing; this build reads version {VERSION}"))),
        Some(version) if version == VERSION => {}
        Some(version) => {
            let advice = if version.as_u64().is_some_and(|version| version > VERSION.into()) {
                "; use the release that wrote it, or plan again"
            } else {
                "; plan again"
            };
            let found = match &version {
                Value::Number(number) => number.to_string(),
                Value::String(text) => quoted(text),
                _ => "neither a number nor text".to_owned(),
            };
            return Err(one("unsupported-version", format!("this plan is version {found}; this build reads version {VERSION}{advice}")));
        }
    }
    for (there, what) in [(head.shortfalls.is_some(), "a refusal"), (head.reasons.is_some(), "an unknown answer")] {
        if there {
            return Err(one("no-plan", format!("this is {what}, and no plan: plan again with what would do")));
        }
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let plan: Plan = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        one("invalid-plan", format!("{place}{}", error.into_inner()))
    })?;
    reader.end().map_err(|error| one("invalid-json", error.to_string()))?;
    let problems = check(&plan);
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

/// Collects what does not agree.
struct Problems(Vec<InputError>);

impl Problems {
    /// `path` holds `found`, where `consistent` would agree with the rest.
    fn wrong(&mut self, path: impl Display, found: impl Display, consistent: impl Display) {
        self.0.push(InputError::new("inconsistent-plan", format!("{path}: found {found}, consistent would be {consistent}")));
    }

    /// [`wrong`](Self::wrong) unless `holds`.
    fn expect(&mut self, holds: bool, path: impl Display, found: impl Display, consistent: impl Display) {
        if !holds {
            self.wrong(path, found, consistent);
        }
    }

    /// A value that occurs twice where each may occur once.
    fn unique<T: Ord>(&mut self, values: impl IntoIterator<Item = T>, path: &str, what: &str) {
        let mut seen = BTreeSet::new();
        if values.into_iter().any(|value| !seen.insert(value)) {
            self.wrong(path, format_args!("two entries of the same {what}"), "one");
        }
    }
}

/// Everything about a plan that does not agree with the rest of it. Empty for every plan that a planner made.
pub fn check(plan: &Plan) -> Vec<InputError> {
    let mut problems = Problems(Vec::new());
    memory::check(plan, &mut problems);
    computation::check(plan, &mut problems);
    decisions(plan, &mut problems);
    let id = super::id(plan);
    if plan.id != id {
        let message = format!(
            "id: found {}, consistent would be {id}, the digest of the content: the plan was changed since it was made",
            quoted(&plan.id)
        );
        problems.0.push(InputError::new("inconsistent-plan", message));
    }
    problems.0
}

/// Decisions say what the fields say.
fn decisions(plan: &Plan, problems: &mut Problems) {
    let own = plan.decisions.iter().map(|decision| (None, decision));
    let of_passes = plan.passes.iter().flat_map(|pass| pass.decisions.iter().map(move |decision| (Some(pass), decision)));
    for (pass, decision) in own.chain(of_passes) {
        one(plan, pass, decision, problems);
    }
    problems.unique(plan.decisions.iter().map(|decision| &decision.key), "decisions", "key");
    for pass in &plan.passes {
        problems.unique(pass.decisions.iter().map(|decision| &decision.key), &format!("passes.{}.decisions", pass.name), "key");
    }
}

fn one(plan: &Plan, pass: Option<&Pass>, decision: &Decision, problems: &mut Problems) {
    let path = || {
        let place = pass.map_or_else(String::new, |pass| format!("passes.{}.", pass.name));
        format!("{place}decisions.{}", quoted(&decision.key))
    };
    match field(plan, pass, &decision.key) {
        None => problems.wrong(path(), "a key that names no field", "a key of this plan"),
        Some(value) if value != decision.value => problems.wrong(path(), shown(&decision.value), shown(&value)),
        Some(_) => {}
    }
}

/// A value as it may stand in a message.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(_) | Value::Object(_) => "a structure".to_owned(),
        plain => plain.to_string(),
    }
}

/// Whether the rules of the published policy made the plan.
fn published(plan: &Plan) -> bool {
    plan.policy == PolicyName::Freevideo
}
