//! What a request needs: the verdict, a bar for each stage, buffers, and what was assumed.

use fv_spec::authored::MemoryType;
use fv_spec::estimate::{Buffer, BufferKind, Estimate, Explanation, Heuristic, Interval, Provenance, Reason, Stage, Tier, Verdict};
use serde_json::Value;

use super::text::{Line, Text, Tone, cut};
use super::times;
use super::{Names, alive, bounded, device, gib, highest, host, least, margin, number, request, saturated, tone, while_doing, word};
use crate::heuristics::{FEATURE_CACHE, OUTPUT_BUFFERS};

/// Buffers that a short answer names.
const TOP: usize = 8;
/// Where what belongs to a label begins.
const LABEL: usize = 11;

/// An estimate in short: verdict, request, budget, a bar for each stage, the largest buffers, reasons and assumptions.
pub fn estimate(estimate: &Estimate, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    verdict(&mut text, estimate, names);
    body(&mut text, estimate, width);
    text
}

/// Everything after the verdict.
pub(super) fn body(text: &mut Text, estimate: &Estimate, width: usize) {
    facts(text, estimate, width);
    stages(text, estimate, width);
    largest(text, estimate, width);
    if let Some(found) = &estimate.forecast {
        times::forecast(text, found, width);
    }
    remarks(text, estimate, width);
}

/// Everything about an estimate, and the rules of thumb beside it.
pub fn explanation(explanation: &Explanation, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let estimate = &explanation.estimate;
    let mut text = Text::default();
    verdict(&mut text, estimate, names);
    facts(&mut text, estimate, width);
    stages(&mut text, estimate, width);
    for stage in &estimate.stages {
        whole_stage(&mut text, stage, width);
    }
    if let Some(found) = &estimate.forecast {
        times::forecast(&mut text, found, width);
    }
    settings(&mut text, estimate, width);
    remarks(&mut text, estimate, width);
    heuristics(&mut text, explanation, width);
    text
}

fn verdict(text: &mut Text, estimate: &Estimate, names: &Names<'_>) {
    let line = Line::new().add(tone(estimate.status), word(estimate.status)).plain(": ").add(Tone::Plain, &sentence(estimate, names));
    // One line, however long: it is what scripts and people look for.
    text.line(line);
}

/// The verdict in one sentence, after its word.
pub(super) fn sentence(estimate: &Estimate, names: &Names<'_>) -> String {
    let what = format!("{} ({})", names.model, estimate.deployment);
    let on = names.device.map_or(String::new(), |name| match &estimate.memory.partition {
        Some(partition) => format!(" on {name}, partition {partition}"),
        None => format!(" on {name}"),
    });
    let why = || first_reason(&estimate.reasons);
    let reason = |code: &str| estimate.reasons.iter().find(|reason| reason.code == code);
    let has = |code: &str| reason(code).is_some();
    let message = |code: &str| reason(code).map_or_else(why, |reason| reason.message.clone());
    let needs = highest(estimate).and_then(device).zip(estimate.memory.budget_bytes);
    let left = margin(estimate);
    match (estimate.status, needs) {
        (Verdict::Unknown, _) | (_, None) => format!("{what}{on}: {}", why()),
        (Verdict::Fits, Some((need, budget))) => {
            let spare = left.filter(|left| *left >= 0).map(|left| format!(", at least {} to spare", gib(saturated(left))));
            format!("{what} needs {} of {}{on}{}", gib(need.value), gib(budget), spare.unwrap_or_default())
        }
        (Verdict::Uncertain, Some((need, budget))) if has("unknown-spread") => {
            format!("{what} needs {} of {}{on} by what is derived alone: {}", gib(need.value), gib(budget), message("unknown-spread"))
        }
        (Verdict::Uncertain, Some(_)) if has("allocator-cap") => format!("{what}{on}: {}", message("allocator-cap")),
        (Verdict::Uncertain, Some((_, budget))) => {
            // Device and host together, where what they share is what may be short.
            let shared = if has("between-allocated-and-reserved") { None } else { estimate.host.capacity_bytes };
            let more = |stage: &Stage| if shared.is_some() { host(stage) } else { 0 };
            // The stage that needs most at its worst need not be the one that needs most at least.
            let most = |of: fn(&Stage) -> Option<u64>| {
                estimate.stages.iter().filter_map(|stage| Some(of(stage)?.saturating_add(more(stage)))).max().unwrap_or(0)
            };
            let (lowest, highest, there) = (most(least), most(|stage| Some(device(stage)?.high)), shared.unwrap_or(budget));
            let pool = if shared.is_some() { " that device and host share" } else { "" };
            let short = highest.checked_sub(there).map_or(String::new(), |short| format!(", up to {} short", gib(short)));
            format!("{what} needs between {} and {} of {}{pool}{on}{short}", gib(lowest), gib(highest), gib(there))
        }
        (Verdict::DoesNotFit, Some((_, budget))) => match &estimate.shortfall {
            Some(short) if short.tier == "host" && estimate.memory.kind == Some(MemoryType::Unified) => format!(
                "{what} needs more than the {} that device and host share{on}, at least {} short while {}",
                gib(estimate.host.capacity_bytes.unwrap_or(budget)),
                gib(short.bytes),
                while_doing(&short.stage)
            ),
            Some(short) if short.tier == "host" => format!(
                "{what} needs {} of host memory{on}, at least {} more than there is, while {}",
                gib(estimate.host.capacity_bytes.unwrap_or(0).saturating_add(short.bytes)),
                gib(short.bytes),
                while_doing(&short.stage)
            ),
            // A cap that the process sets on its own allocator is short of something else than the budget.
            Some(_) if has("allocator-cap") && !has("exceeds-budget") => format!("{what}{on}: {}", message("allocator-cap")),
            Some(short) => format!(
                "{what} needs at least {} of {}{on}, {} short while {}",
                gib(budget.saturating_add(short.bytes)),
                gib(budget),
                gib(short.bytes),
                while_doing(&short.stage)
            ),
            None => format!("{what}{on}: {}", why()),
        },
    }
}

pub(super) fn first_reason(reasons: &[Reason]) -> String {
    match reasons {
        [] => "no reason is given".to_owned(),
        [only] => only.message.clone(),
        [first, rest @ ..] => format!("{} (and {} more)", first.message, rest.len()),
    }
}

pub(super) fn label(name: &str) -> Line {
    Line::new().quiet(name).pad(LABEL)
}

/// Request, budget and host.
fn facts(text: &mut Text, estimate: &Estimate, width: usize) {
    text.blank();
    text.wrapped(label("request"), Line::new().plain(&request(&estimate.request)), width);
    let memory = &estimate.memory;
    if let Some(budget) = memory.budget_bytes {
        let mut words = format!("{} of device memory", gib(budget));
        if let Some(source) = &memory.budget_source {
            words = format!("{words}, {}", source_words(source, memory.partition.as_deref()));
        }
        if memory.reserve_bytes > 0 {
            words = format!("{words}; {} left to others", gib(memory.reserve_bytes));
        }
        text.wrapped(label("budget"), Line::new().plain(&words), width);
    } else if estimate.hardware.is_some() {
        text.wrapped(label("budget"), Line::new().plain("unknown"), width);
    }
    let unified = memory.kind == Some(MemoryType::Unified);
    let host = match (estimate.host.required_bytes, estimate.host.capacity_bytes) {
        (None | Some(0), _) => return,
        (Some(need), Some(pool)) if unified => format!("{} more, out of the {} that device and host share", gib(need), gib(pool)),
        (Some(need), Some(there)) => format!("{} of {}", gib(need), gib(there)),
        (Some(need), None) => format!("{}; how much there is was not stated", gib(need)),
    };
    text.wrapped(label("host"), Line::new().plain(&host), width);
}

fn source_words(source: &str, partition: Option<&str>) -> String {
    match (source, partition) {
        ("measured", _) => "measured as free".to_owned(),
        ("reported", _) => "as its driver reports".to_owned(),
        ("nominal", _) => "its nominal size".to_owned(),
        ("usable", _) => "usable by a documented policy".to_owned(),
        ("unified_default", _) => "three quarters of unified memory, assumed".to_owned(),
        ("partition", Some(id)) => format!("the size of partition {id}"),
        ("allocation", _) => "as provisioned".to_owned(),
        ("explicit", _) => "as asked for".to_owned(),
        (other, _) => other.to_owned(),
    }
}

/// Where the figures of a table of stages end, at least.
const VALUE: usize = 18;
/// Characters for host memory at the end of a line.
const HOST: usize = 10;

/// A bar for each stage.
fn stages(text: &mut Text, estimate: &Estimate, width: usize) {
    if estimate.stages.is_empty() {
        return;
    }
    text.blank();
    if estimate.stages.iter().all(|stage| stage.peak_bytes.is_none()) {
        return tensors(text, estimate, width);
    }
    let budget = estimate.memory.budget_bytes;
    let peaks = || estimate.stages.iter().filter_map(device);
    let most = peaks().map(|peak| peak.high).max().unwrap_or(0);
    let digits = number(most).len().max(6);
    let value = VALUE.max(12 + digits);
    let range = value + 2;
    let start = range + 2 * digits + 6;
    // Figures of any length leave room for a bar.
    let width = width.max(start + 10 + HOST + 1);
    let scale = Scale::new(most, budget, width - start - HOST - 1, estimate.status != Verdict::Unknown);
    let header = Line::new().quiet("stage").right(Tone::Quiet, "GiB", value).right(Tone::Quiet, "low .. high", start - 2);
    text.line(header.pad(start).quiet("device memory").right(Tone::Quiet, "host GiB", width));
    for stage in &estimate.stages {
        let line = Line::new().plain(&stage.name);
        let line = match device(stage) {
            None => line.right(Tone::Plain, "unknown", value).pad(start),
            Some(peak) => {
                let ends = format!("{:>digits$} .. {:>digits$}", number(peak.low), number(peak.high));
                let least = least(stage).unwrap_or(peak.low);
                let line = line.right(Tone::Strong, &number(peak.value), value).pad(range).quiet(&ends).pad(start);
                scale.bar(line, scale.tone(least, peak.high), least, peak)
            }
        };
        text.line(line.right(Tone::Plain, &host_figure(stage), width));
    }
    if let (Some(mark), Some(budget)) = (scale.mark, budget) {
        let words = format!("{} budget", gib(budget));
        let line = Line::new().pad(start);
        text.line(if words.len() < mark {
            line.right(Tone::Quiet, &format!("{words} ┘"), start + mark + 1)
        } else {
            line.pad(start + mark).quiet(&format!("└ {words}"))
        });
    }
    text.line(Line::new().quiet("█ tensors and fixed cost, at least   ▓ as the allocator holds them   ░ at most"));
    if estimate.status == Verdict::Unknown {
        text.line(Line::new().quiet("This is what the rules give; why the answer is unknown all the same is said below."));
    }
}

fn host_figure(stage: &Stage) -> String {
    match host(stage) {
        0 => "-".to_owned(),
        bytes => number(bytes),
    }
}

/// Where there is no device: what is alive at once.
fn tensors(text: &mut Text, estimate: &Estimate, width: usize) {
    let most = estimate.stages.iter().map(alive).max().unwrap_or(0);
    let value = VALUE.max(12 + number(most).len());
    let start = value + 2;
    let scale = Scale::new(most, None, width - start - HOST - 1, false);
    let header = Line::new().quiet("stage").right(Tone::Quiet, "GiB", value).pad(start).quiet("tensors alive at once, without fixed cost");
    text.line(header.right(Tone::Quiet, "host GiB", width));
    for stage in &estimate.stages {
        let bytes = alive(stage);
        let line = Line::new().plain(&stage.name).right(Tone::Strong, &number(bytes), value).pad(start);
        let line = scale.bar(line, Tone::Plain, bytes, Interval::exact(bytes));
        text.line(line.right(Tone::Plain, &host_figure(stage), width));
    }
}

/// How bytes become cells.
pub(super) struct Scale {
    cells: usize,
    full: u128,
    budget: Option<u64>,
    /// The cell before which the budget is marked; it takes a column of its own.
    mark: Option<usize>,
    /// Whether the comparison is the answer.
    decides: bool,
}

impl Scale {
    pub(super) fn new(most: u64, budget: Option<u64>, cells: usize, decides: bool) -> Self {
        let mut scale = Self { cells, full: u128::from(most.max(budget.unwrap_or(0)).max(1)), budget, mark: None, decides };
        // What exceeds the budget is to be seen behind the mark.
        scale.mark = budget.map(|budget| scale.cell(budget).min(if most > budget { cells - 1 } else { cells }));
        scale
    }

    fn cell(&self, bytes: u64) -> usize {
        let cell = (u128::from(bytes) * self.cells as u128 + self.full / 2) / self.full;
        usize::try_from(cell).unwrap_or(self.cells).min(self.cells)
    }

    /// The cell that bytes reach, on the same side of the mark as they are of the budget.
    fn reach(&self, bytes: u64) -> usize {
        let cell = self.cell(bytes);
        match (self.mark, self.budget) {
            (Some(mark), Some(budget)) if bytes > budget => cell.max(mark + 1),
            (Some(mark), _) => cell.min(mark),
            _ => cell,
        }
    }

    fn tone(&self, least: u64, high: u64) -> Tone {
        match self.budget.filter(|_| self.decides) {
            None => Tone::Plain,
            Some(budget) if least > budget => Tone::Bad,
            Some(budget) if high > budget => Tone::Unsure,
            Some(_) => Tone::Good,
        }
    }

    pub(super) fn bar(&self, mut line: Line, tone: Tone, least: u64, peak: Interval) -> Line {
        let [least, value, high] = [least, peak.value, peak.high].map(|bytes| self.reach(bytes));
        let cell = |i: usize| match i {
            i if i < least => "█",
            i if i < value => "▓",
            i if i < high => "░",
            _ => " ",
        };
        for i in 0..self.cells {
            if self.mark == Some(i) {
                line = line.add(Tone::Strong, "│");
            }
            line = line.add(tone, cell(i));
        }
        if self.mark == Some(self.cells) { line.add(Tone::Strong, "│") } else { line }
    }
}

/// The largest buffers where it matters: at the stage that falls short, otherwise at the highest.
fn largest(text: &mut Text, estimate: &Estimate, width: usize) {
    let short = estimate.shortfall.as_ref();
    let stage = match short {
        Some(short) => estimate.stages.iter().find(|stage| stage.name == short.stage),
        None => highest(estimate),
    };
    let Some(stage) = stage else { return };
    let unified = estimate.memory.kind == Some(MemoryType::Unified);
    if let Some(short) = short.filter(|short| short.tier == "host") {
        let held = [("page-locked", stage.host.pinned_bytes), ("pageable", stage.host.pageable_bytes)];
        text.blank();
        text.heading(&format!("host memory while {}, {} short", while_doing(&stage.name), gib(short.bytes)));
        for (kind, bytes) in held.into_iter().filter(|(_, bytes)| *bytes > 0) {
            text.line(Line::new().right(Tone::Plain, &gib(bytes), 13).plain("  ").plain(kind));
        }
        if !unified {
            return;
        }
    }
    if stage.buffers.is_empty() || alive(stage) == 0 {
        return;
    }
    text.blank();
    text.heading(&match short {
        Some(short) if short.tier == "host" => format!("what shares it, {} alive while {}", gib(alive(stage)), while_doing(&stage.name)),
        Some(_) => format!("what makes it, {} alive while {}", gib(alive(stage)), while_doing(&stage.name)),
        None => format!("largest while {}, {} alive", while_doing(&stage.name), gib(alive(stage))),
    });
    let buffers: Vec<&Buffer> = stage.buffers.iter().filter(|buffer| buffer.tier == Tier::Device).collect();
    let shown = buffers.iter().take(TOP);
    let longest = shown.clone().map(|buffer| buffer.name.chars().count()).max().unwrap_or(0).min(30);
    for buffer in shown {
        let line = Line::new().right(Tone::Plain, &gib(buffer.bytes), 13).plain("  ").quiet(kind(buffer.kind)).pad(27);
        let line = line.plain(&cut(&buffer.name, longest)).pad(29 + longest);
        let room = width.saturating_sub(line.width());
        let (full, short) = (formula(buffer), without_names(&formula(buffer)));
        text.line(line.quiet(&if full.chars().count() <= room { full } else { cut(&short, room) }));
    }
    let rest = &buffers[TOP.min(buffers.len())..];
    if !rest.is_empty() {
        let bytes = rest.iter().map(|buffer| buffer.bytes).fold(0, u64::saturating_add);
        text.line(Line::new().right(Tone::Quiet, &gib(bytes), 13).quiet(&format!("  in {} smaller", rest.len())));
    }
}

fn kind(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::Weights => "weights",
        BufferKind::Activation => "activation",
        BufferKind::Cache => "cache",
        BufferKind::Workspace => "workspace",
        BufferKind::Output => "output",
        BufferKind::Staging => "staging",
        BufferKind::Context => "context",
    }
}

/// The formula of all alike.
fn formula(buffer: &Buffer) -> String {
    // Weights of a component are summed up already.
    let summed = matches!(buffer.kind, BufferKind::Weights | BufferKind::Staging);
    if buffer.count > 1 && !summed { format!("{} x ({})", buffer.count, buffer.formula) } else { buffer.formula.clone() }
}

/// A formula without the names of its factors: `81 x 480 x 832 x 4 B` for `frames 81 x height 480 x width 832 x 4 B`.
fn without_names(formula: &str) -> String {
    let bare = |factor: &str| {
        let open = if factor.starts_with('(') { "(" } else { "" };
        match factor.rsplit_once(' ') {
            Some((_, number)) if number.starts_with(|c: char| c.is_ascii_digit()) => format!("{open}{number}"),
            _ => factor.to_owned(),
        }
    };
    formula.split(" x ").map(bare).collect::<Vec<_>>().join(" x ")
}

/// Reasons, assumptions and coverage.
fn remarks(text: &mut Text, estimate: &Estimate, width: usize) {
    let title = if estimate.status == Verdict::Fits { "to note" } else { "why" };
    reasons(text, title, &estimate.reasons, width);
    let coverage = &estimate.coverage;
    let notes: Vec<String> = estimate.notes.iter().filter(|note| !coverage.extrapolated.contains(note)).cloned().collect();
    list(text, "assumptions and remarks", &notes, width);
    text.blank();
    let rules = if coverage.rules.is_empty() { "none".to_owned() } else { coverage.rules.join(", ") };
    text.wrapped(label("rules"), Line::new().plain(&rules), width);
    for (name, items) in [("not covered", &coverage.uncovered), ("extrapolated", &coverage.extrapolated)] {
        if !items.is_empty() {
            text.line(Line::new().quiet(name));
            for item in items {
                text.item(Line::new().plain(item), width);
            }
        }
    }
}

/// Reasons with their codes.
pub(super) fn reasons(text: &mut Text, title: &str, reasons: &[Reason], width: usize) {
    if reasons.is_empty() {
        return;
    }
    text.blank();
    text.heading(title);
    for reason in reasons {
        text.item(Line::new().plain(&reason.message).quiet(&format!(" [{}]", reason.code)), width);
    }
}

pub(super) fn list(text: &mut Text, title: &str, items: &[String], width: usize) {
    if items.is_empty() {
        return;
    }
    text.blank();
    text.heading(title);
    for item in items {
        text.item(Line::new().plain(item), width);
    }
}

/// A stage with all its phases and buffers.
fn whole_stage(text: &mut Text, stage: &Stage, width: usize) {
    text.blank();
    text.heading(&stage.name);
    if let Some(peaks) = stage.peak_bytes {
        for (name, peak) in [("allocated", peaks.allocated), ("reserved", peaks.reserved), ("device", peaks.device)] {
            let line = Line::new().plain("  ").quiet(name).right(Tone::Plain, &gib(peak.value), 24);
            text.line(line.quiet(&format!("  {} .. {}", number(peak.low), number(peak.high))));
        }
    }
    let held = [("page-locked", stage.host.pinned_bytes), ("pageable", stage.host.pageable_bytes), ("disk", stage.host.disk_bytes)];
    for (name, bytes) in held.into_iter().filter(|(_, bytes)| *bytes > 0) {
        text.line(Line::new().plain("  ").quiet(name).right(Tone::Plain, &gib(bytes), 24));
    }
    if let Some(largest) = &stage.largest_allocation {
        let words = format!("{}, {} in {}", gib(largest.bytes), largest.name, largest.phase);
        text.wrapped(Line::new().plain("  ").quiet("largest single allocation "), Line::new().plain(&words), width);
    }
    if !stage.phases.is_empty() {
        let longest = stage.phases.iter().map(|phase| phase.name.chars().count()).max().unwrap_or(0).max(16);
        let (times, bytes) = (longest + 14, longest + 30);
        let header = Line::new().plain("  ").quiet("phase").right(Tone::Quiet, "repeats", times);
        text.line(header.right(Tone::Quiet, "allocated", bytes));
        for phase in &stage.phases {
            let line = Line::new().plain("  ").plain(&phase.name).right(Tone::Plain, &phase.repeat.to_string(), times);
            text.line(line.right(Tone::Plain, &gib(phase.allocated_bytes), bytes));
        }
    }
    if !stage.buffers.is_empty() {
        text.line(Line::new().plain("  ").quiet("alive at the peak"));
    }
    for buffer in &stage.buffers {
        let line = Line::new().right(Tone::Plain, &gib(buffer.bytes), 15).plain("  ").quiet(kind(buffer.kind)).pad(29);
        let elsewhere = if buffer.tier == Tier::Device { String::new() } else { format!("{}, ", buffer.tier.word()) };
        text.line(line.plain(&buffer.name).plain("  ").quiet(&format!("[{elsewhere}{}]", buffer.rule)));
        text.wrapped(Line::new().pad(29), Line::new().quiet(&formula(buffer)), width);
    }
}

fn settings(text: &mut Text, estimate: &Estimate, width: usize) {
    if estimate.settings.is_empty() {
        return;
    }
    text.blank();
    text.heading("effective settings");
    let longest = estimate.settings.iter().map(|setting| setting.key.chars().count()).max().unwrap_or(0).min(34);
    for setting in &estimate.settings {
        let before = Line::new().plain("  ").plain(&setting.key).pad(longest + 3).plain(" ");
        let before = before.quiet(provenance(setting.provenance)).pad(longest + 25);
        text.wrapped(before, Line::new().plain(&shown(&setting.value)), width);
    }
}

/// A value in words that lines can break between.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| match value {
                Value::Object(_) => format!("{key} ({})", shown(value)),
                _ => format!("{key} {}", shown(value)),
            };
            map.iter().map(pair).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn provenance(provenance: Provenance) -> &'static str {
    match provenance {
        Provenance::Authored => "from the deployment",
        Provenance::Environment => "from the environment",
        Provenance::RuntimeDefault => "by default",
        Provenance::Forced => "follows from others",
        Provenance::Planner => "planned",
        Provenance::User => "as asked",
    }
}

/// Rules of thumb, with what was derived beside them.
fn heuristics(text: &mut Text, explanation: &Explanation, width: usize) {
    if explanation.heuristics.is_empty() {
        return;
    }
    text.blank();
    text.heading("rules of thumb, which are no part of the estimate");
    for Heuristic { name, bytes, formula } in &explanation.heuristics {
        let size = bytes.map_or_else(|| "-".to_owned(), gib);
        let name = match name.as_str() {
            FEATURE_CACHE => "feature and cache allowance",
            OUTPUT_BUFFERS => "output buffers",
            other => other,
        };
        text.wrapped(Line::new().right(Tone::Plain, &size, 13).plain("  ").plain(name).pad(44), Line::new().quiet(formula), width);
    }
    if let Some(stage) = explanation.estimate.stages.iter().find(|stage| stage.name == "decoding" && alive(stage) > 0) {
        let weights = stage
            .buffers
            .iter()
            .filter(|buffer| buffer.kind == BufferKind::Weights)
            .map(|buffer| buffer.bytes)
            .fold(0, u64::saturating_add);
        text.wrapped(
            Line::new().right(Tone::Strong, &gib(alive(stage)), 13).plain("  ").plain("derived here").pad(44),
            Line::new().quiet(&format!("everything alive at once while decoding, {} of it weights", gib(weights))),
            width,
        );
    }
    let words = "The rules of thumb neither know what is alive together nor how the decoder is run; they are shown for comparison only.";
    text.wrapped(Line::new().plain("  "), Line::new().quiet(words), width);
}
