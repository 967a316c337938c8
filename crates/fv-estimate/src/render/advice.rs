//! What was seen to run, and where a request fits.

use std::collections::BTreeSet;

use fv_spec::estimate::{Assessment, Basis, EvidenceMatch, MatchedRun, Reason, Recommendation, Recommendations, Verdict};
use fv_spec::questions::PlaceChanges;
use fv_spec::request::Request;

use super::needs::{body, reasons, sentence};
use super::questions::changes;
use super::text::{Line, Text, Tone};
use super::times;
use super::{Names, bounded, gib, request, tone, word};

/// The runs of a model: which apply to a deployment on a device, which may, and which do not, each with every reason.
pub fn evidence(matches: &EvidenceMatch, names: &Names<'_>, deployment: &str, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
    let all = matches.applicable.len() + matches.unverified.len() + matches.rejected.len();
    let applicable = matches.applicable.len();
    let line = Line::new();
    let line = match (all, applicable) {
        (0, _) => line.add(Tone::Strong, "no runs").plain(&format!(": none are recorded for {}", names.model)),
        (_, 0) => line.add(Tone::Strong, &format!("0 of {all} runs apply")).plain(&format!(" to {} ({deployment}){on}", names.model)),
        _ => line.add(Tone::Good, &format!("{applicable} of {all} runs apply")).plain(&format!(" to {} ({deployment}){on}", names.model)),
    };
    text.line(line);
    groups(&mut text, matches, width);
    text
}

fn groups(text: &mut Text, matches: &EvidenceMatch, width: usize) {
    let groups = [
        ("applicable", "everything that matters is the same", Tone::Good, &matches.applicable),
        ("unverified", "nothing is known to differ, and something is not known", Tone::Unsure, &matches.unverified),
        ("rejected", "something that matters differs", Tone::Bad, &matches.rejected),
    ];
    for (name, meaning, tone, runs) in groups {
        if runs.is_empty() {
            continue;
        }
        text.blank();
        text.line(Line::new().add(tone, name).quiet(&format!("  {meaning}")));
        for MatchedRun { id, reasons } in runs {
            text.line(Line::new().plain("  ").add(Tone::Strong, id));
            for reason in reasons {
                let words = Line::new().plain(&reason.message).quiet(&format!(" [{}]", reason.code));
                text.wrapped(Line::new().quiet("    - "), words, width);
            }
        }
    }
}

/// The verdict with what was measured, the runs, and the estimate.
pub fn assessment(assessment: &Assessment, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let estimate = &assessment.estimate;
    let mut text = Text::default();
    let verdict = |line: Line, words: &str| line.add(tone(assessment.status), words);
    let line = match assessment.basis {
        Basis::Measured => {
            let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
            let part = estimate.memory.partition.as_ref().map_or(String::new(), |partition| format!(", partition {partition}"));
            let explicit = estimate.memory.budget_bytes.filter(|_| estimate.memory.budget_source.as_deref() == Some("explicit"));
            let budget = explicit.map_or(String::new(), |bytes| format!(", within a budget of {}", gib(bytes)));
            let words = format!(": {} ({}) was seen to complete{on}{part}{budget}", names.model, estimate.deployment);
            verdict(Line::new(), &format!("{}, measured", word(assessment.status))).plain(&words)
        }
        Basis::Analytical => {
            let words = format!(": {}", sentence(estimate, names));
            verdict(Line::new(), &format!("{}, by the rules", word(assessment.status))).plain(&words)
        }
    };
    text.line(line);
    // Without a run that decides, the estimate says the same below.
    let own = |reason: &&Reason| assessment.basis == Basis::Measured || !estimate.reasons.contains(reason);
    let told: Vec<Reason> = assessment.reasons.iter().filter(own).cloned().collect();
    reasons(&mut text, "evidence", &told, width);
    let matches = &assessment.evidence;
    if matches == &EvidenceMatch::default() {
        text.blank();
        text.line(Line::new().quiet("no runs are recorded for this model"));
    }
    groups(&mut text, matches, width);
    text.blank();
    let rules = Line::new().add(Tone::Strong, "the rules alone").plain(": ").add(tone(estimate.status), word(estimate.status));
    text.line(rules);
    body(&mut text, estimate, width);
    text
}

/// What a recommendation was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What people call the model.
    pub model: &'a str,
    /// The request of each deployment that was looked at.
    pub requests: &'a [(String, Request)],
    /// Devices, partitions and deployments that were looked at.
    pub considered: usize,
    /// Lines of each list.
    pub limit: usize,
}

/// Where a request fits: measured before derived, then what may fit, then what is not known, by reason.
pub fn recommendations(found: &Recommendations, asked: &Asked<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let lists = [&found.measured, &found.analytical, &found.uncertain, &found.unknown].map(Vec::len);
    let [measured, analytical, uncertain, unknown] = lists;
    let fits = measured + analytical;
    let none = asked.considered.saturating_sub(lists.iter().sum());
    let best = found.measured.iter().chain(&found.analytical).next();
    let line = Line::new().add(if fits > 0 { Tone::Good } else { Tone::Strong }, &format!("{fits} of {} fit", asked.considered));
    let smallest = best.map_or(String::new(), |best| format!(", the smallest {}", place(best)));
    text.line(line.plain(&format!(" {}{smallest}; {uncertain} may, {none} do not, {unknown} unknown", asked.model)));
    if !asked.requests.is_empty() {
        text.blank();
    }
    let alike = asked.requests.windows(2).all(|pair| pair[0].1 == pair[1].1);
    for (deployment, resolved) in asked.requests.iter().take(if alike { 1 } else { usize::MAX }) {
        let name = if alike { "request".to_owned() } else { format!("request of {deployment}") };
        text.wrapped(Line::new().quiet(&name).plain("  "), Line::new().plain(&request(resolved)), width);
    }
    let lists = [
        ("measured to fit", Tone::Good, &found.measured),
        ("fits by the rules", Tone::Good, &found.analytical),
        ("may fit", Tone::Unsure, &found.uncertain),
    ];
    for (title, tone, list) in lists {
        table(&mut text, title, tone, list, asked.limit);
    }
    nothing_known(&mut text, &found.unknown, width);
    for PlaceChanges { hardware, deployment, status, changes: offered, tried, chosen } in &found.changes {
        changes(&mut text, &format!("what makes it fit on {hardware}, where it {} with {deployment}", so(*status)), offered, tried, width);
        if let Some(chosen) = chosen {
            text.wrapped(Line::new().plain("  "), Line::new().quiet(chosen), width);
        }
    }
    text
}

/// A verdict after "it".
fn so(status: Verdict) -> &'static str {
    match status {
        Verdict::Fits => "fits",
        Verdict::Uncertain => "may fit",
        Verdict::DoesNotFit => "does not fit",
        Verdict::Unknown => "is unknown",
    }
}

fn place(found: &Recommendation) -> String {
    let partition = found.partition.as_ref().map_or(String::new(), |partition| format!(", partition {partition},"));
    format!("{}{partition} with {}", found.hardware, with(found))
}

/// The deployment, after its model where there are several.
fn with(found: &Recommendation) -> String {
    found.model.as_ref().map_or_else(|| found.deployment.clone(), |model| format!("{model} {}", found.deployment))
}

fn table(text: &mut Text, title: &str, tone: Tone, list: &[Recommendation], limit: usize) {
    let lacking = tone == Tone::Unsure;
    if list.is_empty() {
        return;
    }
    let shown = &list[..limit.min(list.len())];
    // What is said of every line is said once; that fragmentation decides is what the list is about.
    let codes = |found: &Recommendation| -> BTreeSet<String> {
        found.reasons.iter().map(|reason| reason.code.clone()).filter(|code| code != "between-allocated-and-reserved").collect()
    };
    let common = shown.iter().map(&codes).reduce(|a, b| a.intersection(&b).cloned().collect()).unwrap_or_default();
    text.blank();
    let all = bracketed(&common);
    text.line(Line::new().add(tone, title).quiet(&format!("  {}, smallest first{all}", list.len())));
    if shown.is_empty() {
        return;
    }
    let widest = |title: &str, of: &dyn Fn(&Recommendation) -> usize| shown.iter().map(of).max().unwrap_or(0).max(title.len());
    let name = 2 + widest("device", &|found| found.hardware.chars().count()) + 2;
    let partitioned = shown.iter().any(|found| found.partition.is_some());
    let partition = |found: &Recommendation| found.partition.clone().unwrap_or_else(|| "-".to_owned());
    let part = name + if partitioned { widest("partition", &|found| partition(found).chars().count()) + 2 } else { 0 };
    let deployment = part + widest("deployment", &|found| with(found).chars().count());
    let (peak, budget, edge) = (deployment + 14, deployment + 26, deployment + 38);
    let short = |found: &Recommendation| found.device_peak.zip(found.budget_bytes).is_some_and(|(peak, budget)| peak.high > budget);
    let header = Line::new().plain("  ").quiet("device").pad(name).quiet(if partitioned { "partition" } else { "" });
    let header = header.pad(part).quiet("deployment").right(Tone::Quiet, "at most", peak).right(Tone::Quiet, "budget", budget);
    let timed = shown.iter().any(|found| found.time.is_some());
    let priced = shown.iter().filter_map(|found| found.time.as_ref()).any(|time| time.cost.is_some());
    let (time, cost) = (edge + 11, edge + 23);
    let header = header.right(Tone::Quiet, if lacking { "may lack" } else { "to spare" }, edge);
    let header = if timed { header.right(Tone::Quiet, "time", time) } else { header };
    text.line(if priced { header.right(Tone::Quiet, "cost", cost) } else { header });
    for found in shown {
        let line = Line::new().plain("  ").plain(&found.hardware).pad(name);
        let line = line.plain(&if partitioned { partition(found) } else { String::new() }).pad(part).plain(&with(found));
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), gib);
        let high = found.device_peak.map(|peak| peak.high);
        let difference = high.zip(found.budget_bytes).filter(|_| short(found) == lacking).map(|(high, budget)| high.abs_diff(budget));
        let line = line.right(Tone::Plain, &size(high), peak).right(Tone::Plain, &size(found.budget_bytes), budget);
        let own = bracketed(codes(found).difference(&common));
        let line = line.right(Tone::Plain, &size(difference), edge);
        let line = if timed { line.right(Tone::Plain, &times::cell(found.time.as_ref()), time) } else { line };
        let line = if priced { line.right(Tone::Plain, &times::cost_cell(found.time.as_ref()), cost) } else { line };
        text.line(line.quiet(&format!(" {own}")));
    }
    if list.len() > shown.len() {
        text.line(Line::new().quiet(&format!("  and {} more", list.len() - shown.len())));
    }
}

fn bracketed<'a>(codes: impl IntoIterator<Item = &'a String>) -> String {
    codes.into_iter().fold(String::new(), |text, code| text + " [" + code + "]")
}

/// Places of which nothing is known, by the first reason.
fn nothing_known(text: &mut Text, list: &[Recommendation], width: usize) {
    /// Names that stand for the others of a group.
    const NAMES: usize = 4;
    struct Group<'a> {
        reason: Option<&'a Reason>,
        alike: bool,
        count: usize,
        names: Vec<String>,
    }
    if list.is_empty() {
        return;
    }
    let mut groups: Vec<Group<'_>> = Vec::new();
    for found in list {
        let reason = found.reasons.first();
        let code = |reason: Option<&Reason>| reason.map(|reason| reason.code.clone());
        let at = groups.iter().position(|group| code(group.reason) == code(reason)).unwrap_or_else(|| {
            groups.push(Group { reason, alike: true, count: 0, names: Vec::new() });
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.count += 1;
        group.alike &= group.reason == reason;
        if group.names.len() < NAMES {
            group.names.push(place(found));
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    text.blank();
    text.line(Line::new().add(Tone::Strong, "unknown").quiet(&format!("  {}, by the first reason", list.len())));
    for Group { reason, alike, count, names } in groups {
        let before = Line::new().right(Tone::Plain, &count.to_string(), 6).plain("  ");
        let (message, code) = reason.map_or(("no reason is given", ""), |reason| (reason.message.as_str(), reason.code.as_str()));
        let line = Line::new().plain(message).plain(if alike { "" } else { ", and alike" });
        text.wrapped(before, line.quiet(&format!(" [{code}]")), width);
        let more = if count > names.len() { "; ..." } else { "" };
        text.wrapped(Line::new().pad(8), Line::new().quiet(&format!("{}{more}", names.join("; "))), width);
    }
}
