//! Why there is no plan, and what there could be one for.

use fv_spec::estimate::Reason;
use fv_spec::plan::budget::{Budget, Resource};
use fv_spec::plan::refusal::{Both, Direction, Least, Nearest, PlanChange, Refusal, Shortfall, Smallest};
use fv_spec::plan::{Fit, PlanRequest, SystemFacts};

use super::needs::{first_reason, label, list, reasons};
use super::plan::{budgets, system};
use super::text::{Line, Text, Tone};
use super::words::{duration, effect, memory, plural, pool, request};
use super::{Names, bounded, gib, number};

/// Ends of the columns of shortfalls.
const COLUMNS: [usize; 5] = [21, 31, 41, 51, 62];

/// A refusal for people: what is short and by how much, and what would do.
pub fn refusal(refusal: &Refusal, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
    let words = format!(": {}{on} {}", names.model, what_would_do(refusal));
    text.line(Line::new().add(Tone::Bad, "does not fit").plain(&words));
    text.blank();
    text.wrapped(label("request"), Line::new().plain(&request(&refusal.request)).quiet("; it was not changed"), width);
    system(&mut text, &refusal.system, width);
    let policy = format!("{} for the engine {}", refusal.policy.word(), refusal.runtime.word());
    text.wrapped(label("policy"), Line::new().plain(&policy), width);
    budgets(&mut text, &refusal.budgets, refusal.system.devices, width);
    shortfalls(&mut text, refusal, width);
    smallest(&mut text, refusal.smallest.as_ref(), width);
    nearest(&mut text, refusal, width);
    changes(&mut text, &refusal.changes, width);
    list(&mut text, "remarks", &refusal.notes, width);
    text
}

/// The least that would do, in words that follow what is refused. What the policy asks for is another figure: with more memory it may
/// keep more back.
fn what_would_do(refusal: &Refusal) -> String {
    let Some(smallest) = &refusal.smallest else {
        let short = |short: &Shortfall| format!("{} more {}", gib(short.shortfall_bytes), memory(short.resource));
        let short = refusal.shortfalls.iter().map(short).collect::<Vec<_>>().join(" and ");
        return format!("needs {short} than may be used");
    };
    let there = |resource| {
        let is = |budget: &&Budget| budget.resource == resource && budget.rank.is_none_or(|rank| rank == 0);
        refusal.budgets.iter().find(is).map_or(0, |budget| budget.capacity_bytes)
    };
    let beside = |bytes: u64, resource| match bytes.checked_sub(there(resource)) {
        Some(more) => format!("{} more", at_least(more)),
        None => format!("{} less", gib(there(resource) - bytes)),
    };
    if let Some(bytes) = smallest.unified_bytes {
        let more = beside(bytes, Resource::Unified);
        return format!(
            "needs at least {} of shared memory, {more} than there is; whether that is enough is not published",
            at_least(bytes)
        );
    }
    let alone = |(least, resource): (Option<Least>, Resource)| {
        let Least { bytes, fit, fits_bytes } = least?;
        let (needs, more) = (at_least(bytes), beside(bytes, resource));
        let words = format!("{} {needs} of {}, {more} than there is", outcome(fit), memory(resource));
        Some(match fits_bytes {
            Some(bytes) => format!("{words}, and {} {}", outcome(Fit::Fits), at_least(bytes)),
            None => words,
        })
    };
    let both = smallest.both.iter().chain(&smallest.both_fits).map(|both| format!("{} {}", outcome(both.fit), together(both)));
    let ways = [(smallest.vram, Resource::Vram), (smallest.host, Resource::Host)].into_iter().filter_map(alone).chain(both);
    let ways = ways.collect::<Vec<_>>().join("; or ");
    if ways.is_empty() { "needs more than any memory that was tried".to_owned() } else { format!("would {ways}") }
}

fn outcome(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "fit with",
        Fit::Uncertain => "be admitted, though uncertain, with",
    }
}

/// A request that the policy has no rule for.
pub fn unplanned(asked: &PlanRequest, machine: &SystemFacts, pools: &[Budget], why: &[Reason], names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
    text.line(Line::new().add(Tone::Strong, "unknown").plain(&format!(": {}{on}: {}", names.model, first_reason(why))));
    text.blank();
    text.wrapped(label("request"), Line::new().plain(&request(asked)), width);
    system(&mut text, machine, width);
    budgets(&mut text, pools, machine.devices, width);
    reasons(&mut text, "why", why, width);
    text
}

fn shortfalls(text: &mut Text, refusal: &Refusal, width: usize) {
    text.blank();
    let titles = ["available", "reserved", "usable", "minimum", "shortfall"];
    let header = Line::new().quiet("short, GiB");
    text.line(titles.iter().zip(COLUMNS).fold(header, |line, (title, end)| line.right(Tone::Quiet, title, end)));
    for Shortfall { resource, rank, available_bytes, reserve_bytes, usable_bytes, minimum_bytes, shortfall_bytes, reason } in
        &refusal.shortfalls
    {
        let line = Line::new().plain(&pool(*resource, *rank, refusal.system.devices));
        let figures = [available_bytes, reserve_bytes, usable_bytes, minimum_bytes].map(|bytes| number(*bytes));
        let line = figures.iter().zip(COLUMNS).fold(line, |line, (figure, end)| line.right(Tone::Plain, figure, end));
        text.line(line.right(Tone::Bad, &number(*shortfall_bytes), COLUMNS[4]));
        let why = Line::new().plain(reason.meaning()).quiet(&format!(" [{}]", reason.word()));
        text.wrapped(Line::new().plain("    "), why, width);
    }
}

fn smallest(text: &mut Text, smallest: Option<&Smallest>, width: usize) {
    let Some(Smallest { vram, host, both, both_fits, unified_bytes }) = smallest else { return };
    text.blank();
    text.heading("the least free memory that would do");
    let mut item = |words: &str, fit: Fit| text.item(Line::new().plain(words).add(Tone::Unsure, only_admitted(fit)), width);
    let alone = [(vram, "device memory, with the host memory that there is"), (host, "host memory, with the device memory that there is")];
    for (least, words) in alone.into_iter().filter_map(|(least, words)| least.as_ref().zip(Some(words))) {
        item(&format!("{} of {words}", at_least(least.bytes)), least.fit);
        if let Some(bytes) = least.fits_bytes {
            item(&format!("{} of {words}: it fits", at_least(bytes)), Fit::Fits);
        }
    }
    for both in both.iter().chain(both_fits) {
        item(&together(both), both.fit);
    }
    if let Some(bytes) = unified_bytes {
        item(&format!("{} of shared memory is not refused; whether it is enough is not published", at_least(*bytes)), Fit::Fits);
    }
    if vram.is_none() && host.is_none() && both.is_none() && unified_bytes.is_none() {
        item("no amount of memory that was tried", Fit::Fits);
    }
}

fn together(both: &Both) -> String {
    format!("{} of device memory together with {} of host memory", at_least(both.vram_bytes), at_least(both.host_bytes))
}

/// What is added where a plan is uncertain.
fn only_admitted(fit: Fit) -> &'static str {
    match fit {
        Fit::Fits => "",
        Fit::Uncertain => "; only admitted: its plan is uncertain",
    }
}

/// GiB with two decimals, rounded up: what is shown does.
fn at_least(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100).div_ceil(1 << 30);
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

fn nearest(text: &mut Text, refusal: &Refusal, width: usize) {
    if refusal.nearest.is_empty() {
        return;
    }
    text.blank();
    text.heading("requests near this one that would do");
    for Nearest { direction, width: columns, height, frames, fit } in &refusal.nearest {
        let fps = refusal.request.fps.filter(|fps| *fps > 0);
        let seconds = fps.map_or(String::new(), |fps| format!(" ({})", duration(u64::from(*frames) * 1_000_000_000 / u64::from(fps))));
        let (why, arguments) = match direction {
            Direction::FewerFrames => ("fewer frames", format!("--frames {frames}")),
            Direction::SmallerSize => ("a smaller size", format!("--width {columns} --height {height}")),
        };
        let words = format!("{why}: {columns} x {height}, {}{seconds}", plural((*frames).into(), "frame"));
        let line = Line::new().plain(&words).add(Tone::Unsure, only_admitted(*fit));
        text.item(line.quiet(&format!("  {arguments}")), width);
    }
}

fn changes(text: &mut Text, changes: &[PlanChange], width: usize) {
    if changes.is_empty() {
        return;
    }
    text.blank();
    text.heading("what to change");
    for PlanChange { reason, message, arguments, free_bytes, fit, output_effect } in changes {
        let free = free_bytes.map_or(String::new(), |bytes| format!(" ({})", at_least(bytes)));
        let line = Line::new().plain(message).plain(&free).add(Tone::Unsure, only_admitted(*fit));
        let line = line.quiet(&format!("  [{}, {}]", reason.word(), effect(*output_effect)));
        text.item(line, width);
        if let Some(arguments) = arguments {
            text.wrapped(Line::new().pad(6), Line::new().quiet(arguments), width);
        }
    }
}
