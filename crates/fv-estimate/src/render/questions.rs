//! The largest clip, the smallest budget, changes and comparisons.

use fv_spec::estimate::{Interval, Reason, Recommendation, StageName, Verdict};
use fv_spec::questions::{Adapted, Change, Clip, Compared, Comparison, Extent, Largest, LargestAnswer, Limit, LimitKind, Minimum, Tried};

use super::needs::{first_reason, label, list, reasons};
use super::text::{Line, Text, Tone, cut};
use super::times;
use super::words::{duration, effect};
use super::{Names, bounded, gib, number, request, tone, while_doing, word};

/// Changes that are listed.
const CHANGES: usize = 6;

/// The largest clips on a device: of one model at length, of several as a table; `explain` says more of each.
pub fn largest(answer: &LargestAnswer, names: &Names<'_>, explain: bool, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    match (&answer.answers[..], &answer.unknown[..]) {
        ([one], []) if !names.model.is_empty() => one_largest(&mut text, one, names, width),
        _ => all_largest(&mut text, answer, names, explain, width),
    }
    text
}

fn seconds(clip: &Clip) -> String {
    clip.seconds.map_or(String::new(), |seconds| format!(" ({seconds:.2} s)"))
}

fn size(clip: &Clip) -> String {
    format!("{} x {}", clip.width, clip.height)
}

fn count(frames: u32) -> String {
    format!("{frames} frame{}", if frames == 1 { "" } else { "s" })
}

fn frames(clip: &Clip) -> String {
    format!("{}{}", count(clip.num_frames), seconds(clip))
}

fn one_largest(text: &mut Text, answer: &Largest, names: &Names<'_>, width: usize) {
    let what = format!("{} ({})", names.model, answer.deployment);
    let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
    let asked = &answer.request;
    let line = match (&answer.frames.largest, &answer.size.largest) {
        (Some(clip), _) if clip.status == Verdict::Uncertain => Line::new().add(Tone::Unsure, "uncertain").plain(&format!(
            ": {} at {}, the longest of {what}{on} that may fit",
            frames(clip),
            size(clip)
        )),
        (None, Some(clip)) if clip.status == Verdict::Uncertain => Line::new().add(Tone::Unsure, "uncertain").plain(&format!(
            ": {} at {}, the largest of {what}{on} that may fit",
            size(clip),
            frames(clip)
        )),
        (Some(clip), _) => Line::new().add(Tone::Good, &frames(clip)).plain(&format!(" at {}: the longest of {what}{on}", size(clip))),
        (None, Some(clip)) => {
            let words = format!(": the largest of {what}{on} at {}; no length fits at {} x {}", frames(clip), asked.width, asked.height);
            Line::new().add(Tone::Unsure, &size(clip)).plain(&words)
        }
        (None, None) => Line::new().add(Tone::Bad, "nothing fits").plain(&format!(
            ": no length of {what} at {} x {}{on}, no size at {}",
            asked.width,
            asked.height,
            count(asked.num_frames)
        )),
    };
    text.line(line);
    text.blank();
    text.wrapped(label("request"), Line::new().plain(&format!("{}: {}", request(asked), word(answer.status))), width);
    if let Some(budget) = answer.memory.budget_bytes {
        text.wrapped(label("budget"), Line::new().plain(&format!("{} of device memory", gib(budget))), width);
    }
    extent(text, "frames", &format!("at {} x {}", asked.width, asked.height), &answer.frames, frames, width);
    extent(text, "size", &format!("at {}", count(asked.num_frames)), &answer.size, size, width);
    if !answer.pareto.is_empty() {
        text.blank();
        text.line(Line::new().add(Tone::Strong, "size against length").quiet("  the longest at each size"));
        for clip in &answer.pareto {
            let line = Line::new().right(Tone::Plain, &size(clip), 15).right(Tone::Plain, &frames(clip), 40);
            let left = clip
                .margin_bytes
                .and_then(|margin| u64::try_from(margin).ok())
                .map_or(String::new(), |left| format!("  {} to spare", gib(left)));
            text.line(line.quiet(&left));
        }
    }
    if let Some(Adapted { change, frames: longest, size: widest }) = &answer.adapted {
        text.blank();
        text.line(
            Line::new().add(Tone::Strong, "with the cheapest change of settings").quiet(&format!("  {}", effect(change.output_effect))),
        );
        text.wrapped(Line::new().plain("  "), Line::new().plain(&change.changes.join("; ")), width);
        text.wrapped(Line::new().plain("  "), Line::new().quiet(&change.arguments), width);
        text.wrapped(Line::new().plain("  "), Line::new().add(Tone::Good, &clips(longest, widest)), width);
    }
    changes(text, "what makes the request fit", &answer.changes, &answer.tried, width);
    reasons(text, "of the request itself", &answer.reasons, width);
    list(text, "assumptions and remarks", &answer.notes, width);
}

/// The largest in two directions.
fn clips(longest: &Extent, widest: &Extent) -> String {
    let longest = longest.largest.map(|clip| format!("{} at {}", frames(&clip), size(&clip)));
    let widest = widest.largest.map(|clip| format!("{} at {}", size(&clip), count(clip.num_frames)));
    longest.into_iter().chain(widest).collect::<Vec<_>>().join(", or ")
}

/// One direction: what is largest, what comes next and why not that.
fn extent(text: &mut Text, title: &str, at: &str, extent: &Extent, shown: impl Fn(&Clip) -> String, width: usize) {
    text.blank();
    text.line(Line::new().add(Tone::Strong, &format!("largest in {title}")).quiet(&format!("  {at}")));
    let clip = |line: Line, clip: &Clip| {
        let peak = clip.device_peak.map_or(String::new(), |peak| format!(", at most {}", gib(peak.high)));
        line.plain(&shown(clip)).plain("  ").add(tone(clip.status), word(clip.status)).quiet(&peak)
    };
    match &extent.largest {
        Some(largest) => text.line(clip(Line::new().plain("  "), largest)),
        None => text.line(Line::new().plain("  ").add(Tone::Bad, "none")),
    }
    if let Some(next) = &extent.next {
        let name = if extent.largest.is_some() { "  next " } else { "  the smallest, " };
        text.line(clip(Line::new().quiet(name), next));
    }
    if let Some(may) = extent.may_fit.filter(|may| extent.next.is_none_or(|next| shown(&next) != shown(may))) {
        text.line(clip(Line::new().quiet("  up to "), &may));
    }
    text.wrapped(Line::new().quiet("  why "), Line::new().plain(&extent.limit.message), width);
    for buffer in &extent.limit.buffers {
        let line = Line::new().right(Tone::Plain, &gib(buffer.bytes), 17).plain("  ").plain(&cut(&buffer.name, 34)).pad(53);
        text.line(line.quiet(&cut(&buffer.formula, width.saturating_sub(53))));
    }
}

/// Why not larger, in a few words.
fn short_limit(limit: &Limit) -> String {
    match (limit.kind, limit.stage, limit.bytes, &limit.tier) {
        (LimitKind::Memory, Some(stage), Some(bytes), Some(tier)) => {
            let buffer =
                limit.buffers.first().filter(|_| tier == "device").map_or(String::new(), |buffer| format!("; largest: {}", buffer.name));
            format!("{} lacks {} of {tier} memory{buffer}", while_doing(stage.word()), gib(bytes))
        }
        (LimitKind::Family, ..) => "the end of what is legal".to_owned(),
        _ => limit.message.clone(),
    }
}

fn all_largest(text: &mut Text, answer: &LargestAnswer, names: &Names<'_>, explain: bool, width: usize) {
    let on = names.device.unwrap_or("the device");
    let some = answer.answers.iter().filter(|answer| answer.frames.largest.is_some() || answer.size.largest.is_some()).count();
    let adapted = answer.answers.iter().filter(|answer| answer.adapted.is_some()).count();
    let line = Line::new().add(
        if some > 0 { Tone::Good } else { Tone::Strong },
        &format!("{some} of {} deployments", answer.answers.len() + answer.unknown.len()),
    );
    let none = answer.answers.len() - some - adapted;
    let fits = if answer.admit_uncertain { "fits or may" } else { "fits" };
    text.line(line.plain(&format!(
        " have a clip that {fits} on {on}, {adapted} more with other settings; {none} have none, {} are unknown",
        answer.unknown.len()
    )));
    if !answer.answers.is_empty() {
        text.blank();
        clips_table(text, &answer.answers, width);
    }
    if explain {
        explained(text, &answer.answers, width);
    }
    if !answer.unknown.is_empty() {
        unanswered(text, answer, width);
    }
}

/// A line for each deployment: its largest clip, and why nothing larger.
fn clips_table(text: &mut Text, answers: &[Largest], width: usize) {
    let widest = |title: &str, of: &dyn Fn(&Largest) -> usize| answers.iter().map(of).max().unwrap_or(0).max(title.len()) + 2;
    let deployment = widest("model", &|one| one.model.chars().count());
    let runtime = deployment + widest("deployment", &|one| one.deployment.chars().count());
    let clip = runtime + widest("runtime", &|one| one.runtime.chars().count()) + 13;
    let (seconds, verdict) = (clip + 9, clip + 11);
    let peak = verdict + 18;
    let header = Line::new().quiet("model").pad(deployment).quiet("deployment").pad(runtime).quiet("runtime");
    let header = header.right(Tone::Quiet, "largest clip", clip).right(Tone::Quiet, "seconds", seconds).pad(verdict).quiet("verdict");
    text.line(header.right(Tone::Quiet, "peak", peak).pad(peak + 2).quiet("why nothing larger"));
    for one in answers {
        let (longest, widest) = one.adapted.as_ref().map_or((&one.frames, &one.size), |adapted| (&adapted.frames, &adapted.size));
        let extent = if longest.largest.is_none() && widest.largest.is_some() { widest } else { longest };
        let line = Line::new().plain(&one.model).pad(deployment).plain(&one.deployment).pad(runtime).plain(&one.runtime);
        let line = if let Some(found) = extent.largest {
            let changed = if one.adapted.is_some() { " *" } else { "" };
            let length = found.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"));
            let line = line.right(Tone::Good, &format!("{}x{}x{}", found.width, found.height, found.num_frames), clip);
            let line = line.right(Tone::Plain, &length, seconds).pad(verdict).add(tone(found.status), word(found.status)).plain(changed);
            line.right(Tone::Plain, &found.device_peak.map_or_else(|| "-".to_owned(), |device| number(device.high)), peak)
        } else {
            let status = extent.next.map_or(one.status, |next| next.status);
            let line = line.right(Tone::Bad, "none", clip).right(Tone::Plain, "-", seconds).pad(verdict);
            line.add(tone(status), word(status)).right(Tone::Plain, "-", peak)
        };
        text.line(line.pad(peak + 2).quiet(&cut(&why(&extent.limit), 40)));
    }
    let note = "Width x height x frames: the longest clip at the usual size or, where no length fits, the largest at the usual length. \
                The peak is device memory in GiB, at most. Why: what the next larger legal clip lacks, at least where it does not fit, \
                at most where it may; where there is none, what the smallest lacks.";
    text.wrapped(Line::new(), Line::new().quiet(note), width);
    if answers.iter().any(|one| one.adapted.is_some()) {
        text.wrapped(Line::new(), Line::new().quiet("* with the cheapest change of settings with which anything fits"), width);
    }
    let more = "--explain adds settings, sizes and buffers; `largest MODEL` says all of one model.";
    text.wrapped(Line::new(), Line::new().quiet(more), width);
}

/// What is missing, in as few words as there are.
fn why(limit: &Limit) -> String {
    match (limit.kind, limit.stage, limit.bytes, limit.tier.as_deref()) {
        (LimitKind::Memory, Some(stage), Some(bytes), Some(tier)) => {
            format!("{} lacks {}{}", while_doing(stage.word()), gib(bytes), if tier == "host" { " of host memory" } else { "" })
        }
        (LimitKind::Family, ..) => "nothing larger is legal".to_owned(),
        _ => limit.message.clone(),
    }
}

/// What a table leaves out: sizes, settings, the next larger clips and the largest buffers.
fn explained(text: &mut Text, answers: &[Largest], width: usize) {
    let model = answers.iter().map(|answer| answer.model.chars().count()).max().unwrap_or(0).max(5) + 4;
    let deployment = model + answers.iter().map(|answer| answer.deployment.chars().count()).max().unwrap_or(0).max(10) + 2;
    if !answers.is_empty() {
        text.blank();
        let header = Line::new().plain("  ").quiet("model").pad(model).quiet("deployment").pad(deployment);
        text.line(header.quiet("longest at the usual size").pad(deployment + 36).quiet("largest at the usual length"));
    }
    for one in answers {
        let line = Line::new().plain("  ").plain(&one.model).pad(model).plain(&one.deployment).pad(deployment);
        let longest = one.frames.largest.map_or_else(
            || Line::new().add(Tone::Bad, "none").plain(&format!(" at {} x {}", one.request.width, one.request.height)),
            |clip| Line::new().add(Tone::Good, &frames(&clip)).plain(&format!(", {}", size(&clip))),
        );
        let line = line.join(longest).pad(deployment + 36);
        let line = line.join(one.size.largest.map_or_else(
            || Line::new().add(Tone::Bad, "none").plain(&format!(" at {}", count(one.request.num_frames))),
            |clip| Line::new().add(Tone::Good, &size(&clip)).plain(&format!(", {}", count(clip.num_frames))),
        ));
        text.line(line);
        if let Some(Adapted { change, frames: longest, size: widest }) = &one.adapted {
            let words = Line::new().add(Tone::Good, &clips(longest, widest)).plain(&format!(" with {}", change.changes.join("; ")));
            text.wrapped(Line::new().pad(4), words.quiet(&format!(" [{}] {}", effect(change.output_effect), change.arguments)), width);
        }
        let why = |extent: &Extent| {
            let next = extent.next.map_or(String::new(), |next| format!("{}, {}: ", size(&next), count(next.num_frames)));
            format!("{next}{}", short_limit(&extent.limit))
        };
        let mut quiet = |words: &str| text.wrapped(Line::new().pad(4), Line::new().quiet(words), width);
        let (longest, widest) = one.adapted.as_ref().map_or((&one.frames, &one.size), |adapted| (&adapted.frames, &adapted.size));
        if one.adapted.is_some() {
            quiet(&format!("as it is: {}", why(&one.frames)));
        }
        quiet(&format!("not longer: {}", why(longest)));
        quiet(&format!("not larger: {}", why(widest)));
    }
}

/// What is not known, by the first reason.
fn unanswered(text: &mut Text, answer: &LargestAnswer, width: usize) {
    text.blank();
    text.line(Line::new().add(Tone::Strong, "unknown").quiet(&format!("  {}, by the first reason", answer.unknown.len())));
    let mut groups: Vec<(Option<&Reason>, Vec<String>)> = Vec::new();
    for one in &answer.unknown {
        let (reason, name) = (one.reasons.first(), format!("{} ({})", one.model, one.deployment));
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => groups.push((reason, vec![name])),
        }
    }
    for (reason, names) in groups {
        let words = reason.map_or_else(|| "no reason is given".to_owned(), |reason| reason.message.clone());
        text.item(Line::new().plain(&names.join(", ")).quiet(&format!(": {words}")), width);
    }
}

/// What would make a request fit.
pub(super) fn changes(text: &mut Text, title: &str, changes: &[Change], tried: &[String], width: usize) {
    if changes.is_empty() && tried.is_empty() {
        return;
    }
    text.blank();
    if changes.is_empty() {
        text.line(Line::new().add(Tone::Strong, title).plain(": ").add(Tone::Bad, "nothing found").quiet("  tried were:"));
        for sentence in tried {
            text.item(Line::new().quiet(sentence), width);
        }
        return;
    }
    text.line(Line::new().add(Tone::Strong, title).quiet("  cheapest first"));
    for change in changes.iter().take(CHANGES) {
        let peak = change.device_peak.map_or(String::new(), |peak| format!(", at most {}", gib(peak.high)));
        let moved =
            change.moved_bytes.filter(|bytes| *bytes > 0).map_or(String::new(), |bytes| format!(", {} moved a request", gib(bytes)));
        let time = change.time.map_or(String::new(), |time| format!(", about {}", duration(time.value_ns)));
        let line = Line::new().plain(&change.changes.join("; ")).quiet(&format!("  [{}{peak}{time}{moved}]", effect(change.output_effect)));
        text.item(line, width);
        text.wrapped(Line::new().pad(6), Line::new().quiet(&change.arguments), width);
    }
    if changes.len() > CHANGES {
        text.line(Line::new().quiet(&format!("  and {} more", changes.len() - CHANGES)));
    }
}

/// The smallest budget.
pub fn minimum(answer: &Minimum, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let what = format!("{} ({})", names.model, answer.deployment);
    let line = match (answer.fits_bytes, answer.uncertain_bytes) {
        (Some(fits), may) => {
            let may = may.filter(|may| *may < fits).map_or(String::new(), |may| format!("; from {} it may", gib(may)));
            let host =
                answer.host_bytes.filter(|bytes| *bytes > 0).map_or(String::new(), |bytes| format!(" and {} of host memory", gib(bytes)));
            Line::new().add(Tone::Good, &gib(fits)).plain(&format!(" of device memory{host}: the least that {what} fits in{may}"))
        }
        (None, Some(may)) => Line::new().add(Tone::Unsure, "uncertain").plain(&format!(
            ": {what} may fit from {} of device memory: {}",
            gib(may),
            first_reason(&answer.reasons)
        )),
        (None, None) => Line::new().add(Tone::Strong, "unknown").plain(&format!(": {what}: {}", first_reason(&answer.reasons))),
    };
    text.line(line);
    text.blank();
    text.wrapped(label("request"), Line::new().plain(&request(&answer.request)), width);
    if let Some(device) = names.device {
        text.wrapped(label("device"), Line::new().plain(&format!("{device}: {}", word(answer.status))), width);
    }
    text.wrapped(label("fixed cost"), Line::new().plain(&answer.fixed_cost), width);
    if !answer.stages.is_empty() {
        text.blank();
        let header = Line::new().quiet("stage").right(Tone::Quiet, "fits from", 24).right(Tone::Quiet, "may from", 38);
        text.line(header.right(Tone::Quiet, "host", 52));
        for stage in &answer.stages {
            let line = Line::new().plain(stage.name.word()).right(Tone::Plain, &gib(stage.fits_bytes), 24);
            text.line(line.right(Tone::Plain, &gib(stage.uncertain_bytes), 38).right(Tone::Plain, &gib(stage.host_bytes), 52));
        }
    }
    if !answer.checks.is_empty() {
        text.blank();
        text.heading("estimated anew");
        for Tried { budget_bytes, host_bytes, status } in &answer.checks {
            let host = host_bytes.map_or(String::new(), |host| format!(" and {host} of host memory"));
            text.line(Line::new().plain(&format!("  with {budget_bytes} bytes{host}: ")).add(tone(*status), word(*status)));
        }
    }
    if !answer.devices.is_empty() {
        text.blank();
        text.line(Line::new().add(Tone::Good, "smallest devices that it fits on"));
        let name = answer.devices.iter().map(|found| found.hardware.chars().count()).max().unwrap_or(0) + 4;
        for Recommendation { hardware, budget_bytes, .. } in &answer.devices {
            let budget = budget_bytes.map_or_else(|| "-".to_owned(), gib);
            text.line(Line::new().plain("  ").plain(hardware).right(Tone::Plain, &budget, name + 12));
        }
    }
    changes(&mut text, "what makes it fit there", &answer.changes, &answer.tried, width);
    reasons(&mut text, "to note", &answer.reasons, width);
    list(&mut text, "assumptions and remarks", &answer.notes, width);
    text
}

/// Devices, deployments and runtimes side by side.
pub fn comparison(answer: &Comparison, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    let rows = &answer.rows;
    let count = |verdict: Verdict| rows.iter().filter(|row| row.status == verdict).count();
    let fits = count(Verdict::Fits);
    let best =
        rows.iter().filter(|row| row.status == Verdict::Fits).min_by_key(|row| (highest(row).map(|peak| peak.high), row.budget_bytes));
    let best = best.map_or(String::new(), |row| {
        let need = highest(row).map_or(String::new(), |peak| format!(" with at most {}", gib(peak.high)));
        format!(", the least memory {} ({}) on {}{need}", row.model, row.deployment, row.hardware)
    });
    let line = Line::new().add(if fits > 0 { Tone::Good } else { Tone::Strong }, &format!("{fits} of {} fit", rows.len()));
    let rest =
        format!("{best}; {} may, {} do not, {} unknown", count(Verdict::Uncertain), count(Verdict::DoesNotFit), count(Verdict::Unknown));
    text.line(line.plain(&rest));
    text.blank();
    let mut requests: Vec<(String, String)> = Vec::new();
    for row in rows {
        let words = request(&row.request);
        let name = format!("{} ({})", row.model, row.deployment);
        match requests.iter_mut().find(|(known, _)| *known == words) {
            Some((_, names)) if names.split(", ").any(|known| known == name) => {}
            Some((_, names)) => *names = format!("{names}, {name}"),
            None => requests.push((words, name)),
        }
    }
    let alike = requests.len() == 1;
    for (words, names) in &requests {
        let words = if alike { words.clone() } else { format!("{words}: {names}") };
        text.wrapped(label("request"), Line::new().plain(&words), width);
    }
    text.blank();
    table(&mut text, rows);
    let mut told: Vec<&Reason> = Vec::new();
    for reason in rows.iter().filter(|row| row.status == Verdict::Unknown).filter_map(|row| row.reasons.first()) {
        if !told.contains(&reason) {
            told.push(reason);
        }
    }
    let told: Vec<Reason> = told.into_iter().cloned().collect();
    reasons(&mut text, "why unknown", &told, width);
    text
}

fn highest(row: &Compared) -> Option<Interval> {
    Interval::highest(row.stages.iter().map(|stage| stage.device))
}

fn table(text: &mut Text, rows: &[Compared]) {
    let widest = |title: &str, of: &dyn Fn(&Compared) -> usize| rows.iter().map(of).max().unwrap_or(0).max(title.len()) + 2;
    let deployment = widest("model", &|row| row.model.chars().count());
    let hardware = deployment + widest("deployment", &|row| row.deployment.chars().count());
    let verdict = hardware + widest("device", &|row| row.hardware.chars().count());
    let timed = rows.iter().any(|row| row.time.is_some());
    let priced = rows.iter().filter_map(|row| row.time.as_ref()).any(|time| time.cost.is_some());
    let columns: Vec<usize> = (1..=9).map(|n| verdict + 12 + n * 11).collect();
    let header = Line::new().quiet("model").pad(deployment).quiet("deployment").pad(hardware).quiet("device").pad(verdict).quiet("verdict");
    let titles = ["load", "encoding", "denoising", "decoding", "budget", "margin", "host"];
    let titles = titles.into_iter().chain(timed.then_some("time")).chain(priced.then_some("cost"));
    text.line(titles.zip(&columns).fold(header, |line, (title, column)| line.right(Tone::Quiet, title, *column)));
    for row in rows {
        let line = Line::new().plain(&row.model).pad(deployment).plain(&row.deployment).pad(hardware);
        let line = line.plain(&row.hardware).pad(verdict).add(tone(row.status), word(row.status));
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), number);
        let stage = |name: StageName| size(row.stages.iter().find(|stage| stage.name == name).map(|stage| stage.device.value));
        let margin = row
            .margin_bytes
            .map_or_else(|| "-".to_owned(), |margin| format!("{}{}", if margin < 0 { "-" } else { "" }, number(margin.unsigned_abs())));
        let cells = StageName::ALL.map(stage).into_iter().chain([size(row.budget_bytes), margin, size(row.host.required_bytes)]);
        let time = timed.then(|| times::cell(row.time.as_ref())).into_iter();
        let cells = cells.chain(time).chain(priced.then(|| times::cost_cell(row.time.as_ref())));
        text.line(cells.zip(&columns).fold(line, |line, (cell, column)| line.right(Tone::Plain, &cell, *column)));
    }
    text.line(Line::new().quiet("GiB: the device peak of each stage, the budget, what is left of it at worst, host memory"));
}
