//! `rules/*.yaml`: fitted coefficients.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_estimate::device::MAX_CAPACITY;
use fv_spec::{
    authored::Coefficient,
    compiled::{RulesFile, VERSION},
};

use super::{At, EntryFile, SHAPES, rules_key};
use crate::{codes::Code, finding::Finding, finding::SourceFile, yaml::short};

/// The figures of a fixed cost that come together, lowest first.
const ENDS: [&str; 3] = ["low", "value", "high"];
/// The ends of a spread.
const SPREADS: [&str; 3] = ["allocated-high", "reserved-high", "reserved-low"];

pub(crate) fn read(texts: &BTreeMap<String, Arc<SourceFile>>, findings: &mut Vec<Finding>) -> RulesFile {
    let mut coefficients = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for (_, file) in texts.iter().filter(|(path, _)| rules_key(path)) {
        let entries = EntryFile::<Coefficient>::read(Some(file), &SHAPES.rules, findings);
        let mut costs: BTreeMap<String, Vec<Cost<'_>>> = BTreeMap::new();
        for (at, entry, coefficient) in entries.placed() {
            ranges(&at, coefficient, findings);
            let value = || at.value(&["value".into()]);
            if let Some(wrong) = spread_wrong(&entry.id, coefficient.value) {
                findings.push(at.finding(Code::OutOfRange, value(), "no spread", wrong));
            }
            if let Some(wrong) = cost_wrong(&entry.id, coefficient) {
                findings.push(at.finding(Code::OutOfRange, value(), "no number of bytes", wrong));
            }
            if !ids.insert(entry.id.clone()) {
                let message = format!("coefficient `{}` is defined in two files", short(&entry.id));
                findings.push(at.finding(Code::DuplicateId, entry.key.clone(), "defined elsewhere too", message));
            }
            coefficients.insert(entry.id.clone(), coefficient.clone());
            if let Some((prefix, end)) = ends(&entry.id) {
                costs.entry(prefix.to_owned()).or_default().push(Cost { at, end, value: coefficient.value });
            }
        }
        for (prefix, costs) in costs {
            ordered(&prefix, &costs, findings);
        }
    }
    RulesFile { version: VERSION, coefficients }
}

fn ranges(at: &At<'_>, coefficient: &Coefficient, findings: &mut Vec<Finding>) {
    for (input, _) in coefficient.range.iter().filter(|(_, [low, high])| low > high) {
        let span = at.value(&["range".into(), input.as_str().into()]);
        let message = format!("the range of `{}` ends below its start", short(input));
        findings.push(at.finding(Code::RangeOrder, span, "ends below its start", message));
    }
}

/// What is wrong with a coefficient that says how far measured peaks lie from derived ones: a ratio to one, below it at the low
/// end and above it at the high one.
fn spread_wrong(id: &str, value: f64) -> Option<String> {
    id.strip_prefix("spread-")?;
    let allowed = match SPREADS.into_iter().find(|end| id.ends_with(&format!("-{end}"))) {
        Some("reserved-low") => (!(0.0..=1.0).contains(&value)).then_some("a ratio from 0 to 1"),
        Some(_) => (!(1.0..=100.0).contains(&value)).then_some("a ratio from 1 to 100"),
        None => Some("ids that end in allocated-high, reserved-high or reserved-low"),
    };
    allowed.map(|allowed| format!("`{}`: found {value}, allowed: {allowed}", short(id)))
}

/// What is wrong with a fixed cost, which the estimator would leave out without a word.
#[expect(clippy::cast_precision_loss, reason = "10^6 GiB is exact")]
fn cost_wrong(id: &str, coefficient: &Coefficient) -> Option<String> {
    id.strip_prefix("fixed-cost-")?;
    let Coefficient { value, unit, .. } = coefficient;
    let plausible = unit == "bytes" && value.fract() == 0.0 && (0.0..=MAX_CAPACITY as f64).contains(value);
    (!plausible).then(|| format!("`{}`: found {value} {}, allowed: whole bytes from 0 to {MAX_CAPACITY}", short(id), short(unit)))
}

/// One figure of a fixed cost.
struct Cost<'a> {
    at: At<'a>,
    end: &'static str,
    value: f64,
}

/// The class and the end of a fixed cost's figure.
fn ends(id: &str) -> Option<(&str, &'static str)> {
    let prefix = id.strip_prefix("fixed-cost-").map(|_| id)?;
    ENDS.into_iter().find_map(|end| Some((prefix.strip_suffix(end)?.strip_suffix('-')?, end)))
}

/// Low, value and high of a fixed cost come together and ascend; otherwise the estimator would use none of them.
fn ordered(prefix: &str, costs: &[Cost<'_>], findings: &mut Vec<Finding>) {
    let figures: Vec<Option<&Cost<'_>>> = ENDS.iter().map(|end| costs.iter().find(|cost| cost.end == *end)).collect();
    let missing: Vec<&str> = ENDS.into_iter().zip(&figures).filter(|(_, figure)| figure.is_none()).map(|(end, _)| end).collect();
    if let (Some(first), false) = (costs.first(), missing.is_empty()) {
        let message =
            format!("`{}` has no {} in this file: low, value and high count together alone", short(prefix), missing.join(" and no "));
        findings.push(first.at.finding(Code::MissingField, first.at.key.clone(), "one of three figures", message));
    }
    let known: Vec<&Cost<'_>> = figures.into_iter().flatten().collect();
    for [lower, upper] in known.windows(2).filter_map(|pair| <[&Cost<'_>; 2]>::try_from(pair).ok()) {
        if upper.value < lower.value {
            let (low, high, prefix) = (lower.end, upper.end, short(prefix));
            let message = format!("`{prefix}-{high}` is {}, below the {} of `{prefix}-{low}`", upper.value, lower.value);
            findings.push(upper.at.finding(Code::RangeOrder, upper.at.value(&["value".into()]), "below the figure under it", message));
        }
    }
}
