//! Two plans compared.
//!
//! Fields are compared by name: placements by component and rank, passes by name, peaks by stage, pass and tier, so that one more entry
//! in a list does not make everything after it differ. Ids, decisions, notes, forecasts' texts and times of measurements are left out:
//! the first two are compared on their own, the others decide nothing.

use std::collections::BTreeMap;

use fv_spec::plan::answer::{DecisionDiff, FieldDiff, PlanDiff, Side};
use fv_spec::plan::{Decision, Plan, VERSION};
use serde_json::{Map, Value};

/// Fields of the format that are no part of the comparison.
const LEFT_OUT: [&str; 5] = ["id", "decisions", "notes", "plan_revisions", "version"];
/// Fields that name an entry of a list, in this order.
const NAMES: [&str; 8] = ["resource", "component", "stage", "pass", "name", "tier", "metric", "rank"];

/// What `b` does differently from `a`.
pub fn diff(a: &Plan, b: &Plan) -> PlanDiff {
    let mut fields = Vec::new();
    let [left, right] = [a, b].map(|plan| serde_json::to_value(plan).unwrap_or_default());
    if let (Value::Object(mut left), Value::Object(mut right)) = (left, right) {
        for name in LEFT_OUT {
            left.remove(name);
            right.remove(name);
        }
        objects("", &left, &right, &mut fields);
    }
    PlanDiff { version: VERSION, a: a.id.clone(), b: b.id.clone(), same: super::id(a) == super::id(b), fields, decisions: decisions(a, b) }
}

/// Compares two values at `path`.
fn values(path: &str, a: Option<&Value>, b: Option<&Value>, found: &mut Vec<FieldDiff>) {
    match (a, b) {
        (Some(a), Some(b)) if a == b => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => objects(path, a, b, found),
        (Some(Value::Array(a)), Some(Value::Array(b))) if named(a) && named(b) => objects(path, &by_name(a), &by_name(b), found),
        _ => found.push(FieldDiff { path: path.to_owned(), a: a.cloned(), b: b.cloned(), change: change(a, b) }),
    }
}

fn change(a: Option<&Value>, b: Option<&Value>) -> Option<i64> {
    b?.as_i64()?.checked_sub(a?.as_i64()?)
}

/// Compares two objects, in the order of the first and then of what only the second has.
fn objects(path: &str, a: &Map<String, Value>, b: &Map<String, Value>, found: &mut Vec<FieldDiff>) {
    let only = b.keys().filter(|name| !a.contains_key(*name));
    for name in a.keys().chain(only).filter(|name| !(*name == "at" || *name == "decisions")) {
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        values(&below, a.get(name), b.get(name), found);
    }
}

/// Whether every entry of a list has a name.
fn named(list: &[Value]) -> bool {
    list.iter().all(|entry| name(entry).is_some())
}

fn name(entry: &Value) -> Option<String> {
    let parts: Vec<String> = NAMES
        .iter()
        .filter_map(|field| entry.get(field))
        .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned))
        .collect();
    (!parts.is_empty()).then(|| parts.join("."))
}

/// A list as an object by its entries' names. Of several with the same name the later ones are numbered.
fn by_name(list: &[Value]) -> Map<String, Value> {
    let mut found = Map::new();
    for entry in list {
        let base = name(entry).unwrap_or_default();
        let mut key = base.clone();
        for number in 2.. {
            if !found.contains_key(&key) {
                break;
            }
            key = format!("{base}#{number}");
        }
        found.insert(key, entry.clone());
    }
    found
}

/// Decisions that differ: those of the plan, then those of passes, by key.
fn decisions(a: &Plan, b: &Plan) -> Vec<DecisionDiff> {
    type Keyed<'a> = Vec<((Option<&'a str>, &'a str), &'a Decision)>;
    fn keyed(plan: &Plan) -> Keyed<'_> {
        let own = plan.decisions.iter().map(|decision| ((None, decision.key.as_str()), decision));
        let of_passes = plan
            .passes
            .iter()
            .flat_map(|pass| pass.decisions.iter().map(|decision| ((Some(pass.name.as_str()), decision.key.as_str()), decision)));
        own.chain(of_passes).collect()
    }
    let (left, right) = (keyed(a), keyed(b));
    let [left_by, right_by]: [BTreeMap<_, _>; 2] = [left.iter().copied().collect(), right.iter().copied().collect()];
    let keys = left.iter().map(|(key, _)| *key).chain(right.iter().map(|(key, _)| *key).filter(|key| !left_by.contains_key(key)));
    let side = |decision: Option<&&Decision>| decision.map(|decision| Side { value: decision.value.clone(), reason: decision.reason });
    keys.map(|key| (key, side(left_by.get(&key)), side(right_by.get(&key))))
        .filter(|(_, a, b)| a != b)
        .map(|((pass, key), a, b)| DecisionDiff { pass: pass.map(str::to_owned), key: key.to_owned(), a, b })
        .collect()
}
