//! `rules/*.yaml`: fitted coefficients.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_estimate::{
    calibrate::FROM_RUN,
    coefficients::{self, Group, SPREAD_ENDS},
    device::MAX_CAPACITY,
};
use fv_spec::{
    authored::Coefficient,
    compiled::{RulesFile, VERSION},
};

use super::{At, EntryFile, SHAPES, rules_key};
use crate::{
    codes::Code,
    finding::{self, Finding, SourceFile},
    sources::Sources,
    yaml::short,
};

/// The figures of a fixed cost that come together, lowest first.
const ENDS: [&str; 3] = ["low", "value", "high"];

pub(crate) fn read(texts: &BTreeMap<String, Arc<SourceFile>>, findings: &mut Vec<Finding>) -> RulesFile {
    let mut coefficients = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let groups = coefficients::groups();
    let files: Vec<EntryFile<Coefficient>> =
        texts.iter().filter(|(path, _)| rules_key(path)).map(|(_, file)| EntryFile::read(Some(file), &SHAPES.rules, findings)).collect();
    for entries in &files {
        let mut costs: BTreeMap<String, Vec<Cost<'_>>> = BTreeMap::new();
        for (at, entry, coefficient) in entries.placed() {
            read_as(&at, &entry.id, coefficient, &groups, findings);
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
    // One whose shape is wrong is there all the same.
    if files.iter().all(|file| file.read) {
        for group in &groups {
            complete(group, &files, findings);
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

/// Whether the estimator reads a coefficient of this id, and as what the entry says it is.
fn read_as(at: &At<'_>, id: &str, coefficient: &Coefficient, groups: &[Group], findings: &mut Vec<Finding>) {
    let Some(reading) = coefficients::reading(groups, id) else {
        let known: Vec<String> =
            groups.iter().flat_map(|group| group.names.iter().map(move |(name, _)| format!("{}{name}", group.prefix))).collect();
        let message = format!("no rule reads a coefficient `{}`", short(id));
        let help = finding::suggest(id, known.iter().map(String::as_str), "ids");
        findings.push(at.finding(Code::UnknownReference, at.key.clone(), "read by nothing", message).help(help));
        return;
    };
    let runtime = reading.runtime.map(fv_spec::authored::Runtime::word);
    for (field, found, read) in [
        ("unit", coefficient.unit.as_str(), Some(reading.unit)),
        ("rule", coefficient.rule.as_str(), Some(reading.rule.as_str())),
        ("runtime", coefficient.runtime.word(), runtime),
    ] {
        if let Some(read) = read.filter(|read| *read != found) {
            let message = format!("{field} of `{}`: found `{}`, allowed: `{read}`, which is what it is read as", short(id), short(found));
            findings.push(at.finding(Code::NotAllowed, at.value(&[field.into()]), format!("read as {read}"), message));
        }
    }
}

/// Coefficients that are read together are all there. A spread that came from runs has the ends of what they measured; one that
/// was fitted to measured rows has every end, and the one for a VAE counts only beside the other.
fn complete(group: &Group, files: &[EntryFile<Coefficient>], findings: &mut Vec<Finding>) {
    let entries = || files.iter().flat_map(EntryFile::placed);
    let id = |name: &str| format!("{}{name}", group.prefix);
    let there = |id: &str| files.iter().any(|file| file.get(id).is_some());
    let Some((at, _, first)) = entries().find(|(_, entry, _)| group.names.iter().any(|(name, _)| entry.id == id(name))) else { return };
    let needed: Vec<String> = if !group.spread {
        group.names.iter().map(|(name, _)| id(name)).collect()
    } else if first.source_rows.iter().all(|row| row.starts_with(FROM_RUN)) {
        let ends = SPREAD_ENDS.into_iter().filter(|end| end.starts_with("reserved"));
        if SPREAD_ENDS.iter().any(|end| end.starts_with("reserved") && there(&id(end))) { ends.map(id).collect() } else { Vec::new() }
    } else {
        let plain = group.prefix.strip_suffix("vae-");
        SPREAD_ENDS.into_iter().flat_map(|end| std::iter::once(id(end)).chain(plain.map(|plain| format!("{plain}{end}")))).collect()
    };
    let missing: Vec<String> = needed.into_iter().filter(|id| !there(id)).map(|id| format!("`{id}`")).collect();
    if !missing.is_empty() {
        let message = format!("{} missing, and read together with this", missing.join(", "));
        findings.push(at.finding(Code::MissingField, at.key.clone(), "not all of them are there", message));
    }
}

/// What is wrong with a coefficient that says how far measured peaks lie from derived ones: a ratio to one, below it at the low
/// end and above it at the high one.
fn spread_wrong(id: &str, value: f64) -> Option<String> {
    id.strip_prefix("spread-")?;
    let allowed = match SPREAD_ENDS.into_iter().find(|end| id.ends_with(&format!("-{end}")))? {
        "reserved-low" => (!(0.0..=1.0).contains(&value)).then_some("a ratio from 0 to 1"),
        _ => (!(1.0..=100.0).contains(&value)).then_some("a ratio from 1 to 100"),
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

/// What differs between the coefficients of a catalog's files and those that `fitted` gives, at its place. `whose` says which of
/// the catalog's are meant to be fitted; of these none may be left that is not in `fitted`. `remedy` is the command that fits.
pub fn not_current(
    sources: &Sources,
    fitted: &BTreeMap<String, Coefficient>,
    whose: impl Fn(&str, &Coefficient) -> bool,
    remedy: &str,
) -> Vec<Finding> {
    let texts = super::texts(sources, &mut Vec::new());
    let files: Vec<EntryFile<Coefficient>> = texts
        .iter()
        .filter(|(path, _)| rules_key(path))
        .map(|(_, file)| EntryFile::read(Some(file), &SHAPES.rules, &mut Vec::new()))
        .collect();
    let mut findings = Vec::new();
    let mut there = BTreeSet::new();
    for (at, entry, coefficient) in files.iter().flat_map(EntryFile::placed) {
        let (id, help) = (entry.id.as_str(), format!("run {remedy}"));
        there.insert(id);
        let mut found = |field: Option<&str>, message: String| {
            let span = field.map_or_else(|| at.key.clone(), |field| at.value(&[field.into()]));
            findings.push(at.finding(Code::NotFitted, span, "not what its rows give", message).help(help.clone()));
        };
        let Some(now) = fitted.get(id) else {
            if whose(id, coefficient) {
                found(None, format!("`{}`: its rows ({}) give no such coefficient", short(id), short(&coefficient.source_rows.join(", "))));
            }
            continue;
        };
        if now.value.to_bits() != coefficient.value.to_bits() {
            found(Some("value"), format!("`{}`: found {}, its rows give {}", short(id), coefficient.value, now.value));
        }
        for (field, differs) in [
            ("metric", now.metric != coefficient.metric),
            ("range", now.range != coefficient.range),
            ("source_rows", now.source_rows != coefficient.source_rows),
            ("leave_one_out_error", now.leave_one_out_error != coefficient.leave_one_out_error),
        ] {
            if differs {
                found(Some(field), format!("{field} of `{}` is not that of the fit to its rows", short(id)));
            }
        }
    }
    if let Some(id) = fitted.keys().find(|id| !there.contains(id.as_str())) {
        let missing = fitted.keys().filter(|id| !there.contains(id.as_str())).count();
        // It belongs beside those that begin alike.
        let near = files.iter().flat_map(EntryFile::placed).max_by_key(|(_, entry, _)| common(&entry.id, id));
        if let Some((at, ..)) = near {
            let more = if missing > 1 { format!(" and {} more", missing - 1) } else { String::new() };
            let message = format!("`{}`{more}: measured rows give it, and no file holds it", short(id));
            findings.push(at.finding(Code::NotFitted, at.key.clone(), "belongs beside this", message).help(format!("run {remedy}")));
        }
    }
    finding::sort(&mut findings);
    findings
}

/// How many bytes two texts begin with alike.
fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}
