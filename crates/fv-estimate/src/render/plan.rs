//! A plan: what it does, what it may use, where blocks live, how full memory gets, why, and how long it takes.

use fv_spec::estimate::Reason;
use fv_spec::family::ComponentType;
use fv_spec::plan::{
    BlockCache, Compute, Decoder, Encoder, EncoderProcess, Fit, Pass, Peak, Placement, Plan, StageName, SystemFacts, Tier, TwoPass,
    Upscale,
    budget::{Budget, Limit},
    forecast::{Coverage, Forecast},
};

use super::decisions;
use super::needs::{Scale, label, list};
use super::text::{Line, Text, Tone};
use super::words::{amount, duration, grouped, interval, memory, plural, pool, request, sourced};
use super::{Names, bounded, gib, number, while_doing};

/// A plan for people. The first line says what it does; the rest says why and with what.
pub fn plan(plan: &Plan, names: &Names<'_>, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    text.line(first_line(plan, names));
    text.blank();
    facts(&mut text, plan, width);
    budgets(&mut text, &plan.budgets, plan.system.devices, width);
    for placement in &plan.placements {
        block_map(&mut text, placement, plan.system.devices, width);
    }
    timeline(&mut text, plan, width);
    computing(&mut text, plan, width);
    decisions::all(&mut text, plan, width);
    forecast(&mut text, plan, width);
    revisions(&mut text, plan, width);
    list(&mut text, "assumptions and remarks", &plan.notes, width);
    text
}

fn first_line(plan: &Plan, names: &Names<'_>) -> Line {
    let (tone, word) = match plan.fit {
        Fit::Fits => (Tone::Good, "fits"),
        Fit::Uncertain => (Tone::Unsure, "uncertain"),
    };
    let PlannedBlocks { all, device, pinned, pageable, disk } = PlannedBlocks::of(&plan.placements);
    let on = names.device.map_or(String::new(), |name| format!(" on {name}"));
    let mut words = format!("{}{on} with {}", names.model, capacities(&plan.budgets));
    if all > 0 {
        let rest = [(pinned, "page-locked"), (pageable, "in ordinary host memory"), (disk, "read from disk at every step")];
        let rest = rest.into_iter().filter(|(count, _)| *count > 0).map(|(count, place)| format!(", {count} {place}"));
        words = format!("{words} keeps {device} of {all} blocks on the device{}", rest.collect::<String>());
    }
    match plan.forecast.as_ref().and_then(time) {
        Some(time) => words = format!("{words}; {time}"),
        None if plan.fit == Fit::Uncertain => words.push_str("; the policy admits it above its own figures, or without them"),
        None => {}
    }
    Line::new().add(tone, word).plain(&format!(": {words}"))
}

/// `16.00 GiB of device memory and 32.00 GiB of host memory`.
fn capacities(budgets: &[Budget]) -> String {
    let one = |budget: &Budget| format!("{} of {}", gib(budget.capacity_bytes), memory(budget.resource));
    budgets.iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// The forecast in a few words: the whole request, or else steps.
fn time(forecast: &Forecast) -> Option<String> {
    let steps = |pass: &fv_spec::plan::forecast::PassTime| format!("{} steps of {}", pass.steps, duration(pass.step.value_ns));
    let steps = forecast.passes.iter().map(steps).collect::<Vec<_>>().join(" and ");
    match &forecast.request {
        Some(request) => {
            Some(format!("about {} from start to end{}", interval(request), if steps.is_empty() { steps } else { format!(", {steps}") }))
        }
        None => (!steps.is_empty()).then(|| format!("about {steps}")),
    }
}

/// Blocks of all transformers, by where they live.
#[derive(Default)]
struct PlannedBlocks {
    all: u64,
    device: u64,
    pinned: u64,
    pageable: u64,
    disk: u64,
}

impl PlannedBlocks {
    fn of(placements: &[Placement]) -> Self {
        let transformers = placements.iter().filter(|placement| placement.component.component_type() == ComponentType::Transformer);
        transformers.fold(Self::default(), |sum, placement| Self {
            all: sum.all + u64::from(placement.block_count),
            device: sum.device + placement.count(Tier::Device),
            pinned: sum.pinned + placement.count(Tier::Pinned),
            pageable: sum.pageable + placement.count(Tier::Pageable),
            disk: sum.disk + placement.count(Tier::Disk),
        })
    }
}

fn facts(text: &mut Text, plan: &Plan, width: usize) {
    text.wrapped(label("request"), Line::new().plain(&request(&plan.request)), width);
    system(text, &plan.system, width);
    let policy = format!("{} for the engine {}; {}", plan.policy.word(), plan.runtime.word(), plan.id);
    text.wrapped(label("policy"), Line::new().plain(&policy), width);
}

pub(super) fn system(text: &mut Text, system: &SystemFacts, width: usize) {
    let mut words = vec![sourced(&system.os, ""), sourced(&system.architecture, "")];
    words.extend(system.compute_capability.as_ref().map(|capability| format!("compute capability {}", sourced(capability, ""))));
    words.extend(
        system
            .geforce
            .map(|geforce| format!("{}GeForce ({})", if geforce.value { "" } else { "no " }, super::words::source(geforce.source))),
    );
    if system.devices != 1 {
        words.push(plural(system.devices.into(), "device"));
    }
    words.push(sourced(&system.precision, "weights"));
    words.push(format!("attention {}", sourced(&system.attention_backends, "")));
    let device = system.device.as_ref().map_or(String::new(), |device| format!("{device}: "));
    text.wrapped(label("system"), Line::new().plain(&format!("{device}{}", words.join(", "))), width);
}

/// Columns of figures in tables of memory.
const FIGURES: [usize; 3] = [22, 33, 44];

/// Capacity, reserve and budget of each pool, with where they come from.
pub(super) fn budgets(text: &mut Text, budgets: &[Budget], devices: u32, width: usize) {
    if budgets.is_empty() {
        return;
    }
    text.blank();
    let header = Line::new().quiet("memory, GiB");
    let header =
        ["there is", "reserve", "budget"].iter().zip(FIGURES).fold(header, |line, (title, end)| line.right(Tone::Quiet, title, end));
    text.line(header);
    for budget in budgets {
        let line = Line::new().plain(&pool(budget.resource, budget.rank, devices));
        let line = line.right(Tone::Plain, &number(budget.capacity_bytes), FIGURES[0]).right(
            Tone::Plain,
            &number(budget.reserve_bytes),
            FIGURES[1],
        );
        text.line(line.right(Tone::Strong, &number(budget.budget_bytes), FIGURES[2]));
        let reserve = budget.reserve_reason;
        let mut below = vec![capacity(budget), format!("{} [{}]", reserve.meaning(), reserve.word())];
        if budget.workspace_bytes > 0 {
            below.push(format!("{} of it for adapters and tables before weights are placed", gib(budget.workspace_bytes)));
        }
        if let Some(limit) = budget.allocator_limit_bytes {
            below.push(format!("the process lets its own allocator take at most {}", gib(limit)));
        }
        if let Some(retention) = budget.retention_bytes.filter(|retention| *retention != budget.budget_bytes) {
            below.push(format!("weights may stay in {}", gib(retention)));
        }
        text.wrapped(Line::new().plain("    "), Line::new().quiet(&below.join("; ")), width);
    }
}

/// What limits a pool, and what else is known of it.
fn capacity(budget: &Budget) -> String {
    let known = [
        (Limit::Free, "free", Some(&budget.free)),
        (Limit::Total, "total", budget.total.as_ref()),
        (Limit::Cap, "at most", budget.cap.as_ref()),
        (Limit::CgroupLimit, "control group", budget.cgroup_limit.as_ref()),
    ];
    let shown = |wanted: bool| {
        let some = known.iter().filter(move |(limit, ..)| (*limit == budget.limited_by) == wanted);
        some.filter_map(|(_, name, known)| known.map(|known| format!("{name} {}", amount(known))))
    };
    shown(true).chain(shown(false)).collect::<Vec<_>>().join("; ")
}

/// Where blocks live.
const PLACES: [(Tier, &str); 4] = [
    (Tier::Device, "on the device"),
    (Tier::Pinned, "page-locked in host memory"),
    (Tier::Pageable, "in ordinary host memory"),
    (Tier::Disk, "read from disk each time"),
];

/// Blocks that are drawn one by one.
const MAPPED: u64 = 4_096;

fn block_map(text: &mut Text, placement: &Placement, devices: u32, width: usize) {
    text.blank();
    let rank = if devices > 1 { format!(", rank {}", placement.rank) } else { String::new() };
    let mut words = vec![format!("{} of {}", plural(placement.block_count.into(), "block"), gib(placement.block_bytes))];
    words.push(match placement.slots {
        0 => "none is copied".to_owned(),
        1 => "one slot to copy into and compute from in turn".to_owned(),
        slots => format!("{slots} slots to copy ahead"),
    });
    if placement.pin_bytes > 0 {
        words.push(format!("up to {} page-locked", gib(placement.pin_bytes)));
    }
    text.wrapped(
        Line::new().add(Tone::Strong, placement.component.word()).plain(&format!("{rank}  ")),
        Line::new().quiet(&words.join(", ")),
        width,
    );
    // A map of more says nothing; no model in use comes near.
    let mapped = placement.runs.iter().filter(|_| placement.runs.iter().map(|run| u64::from(run.count)).sum::<u64>() <= MAPPED);
    let marks = mapped.flat_map(|run| std::iter::repeat_n(run.tier, usize::try_from(run.count).unwrap_or(0)));
    let marks: Vec<(Tone, &str)> = marks.map(|tier| (tier_tone(tier), mark(tier))).collect();
    for row in marks.chunks(width - 2) {
        text.line(row.iter().fold(Line::new().plain("  "), |line, (tone, mark)| line.add(*tone, mark)));
    }
    let legend = PLACES.iter().filter(|(tier, _)| placement.count(*tier) > 0);
    for (tier, name) in legend {
        let bytes = u128::from(placement.count(*tier)) * u128::from(placement.block_bytes);
        let words = format!(" {name} {} ({})", placement.count(*tier), gib(u64::try_from(bytes).unwrap_or(u64::MAX)));
        text.line(Line::new().plain("  ").add(tier_tone(*tier), mark(*tier)).quiet(&words));
    }
}

fn mark(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "█",
        Tier::Pinned => "▓",
        Tier::Pageable => "░",
        Tier::Disk => "·",
    }
}

fn tier_tone(tier: Tier) -> Tone {
    match tier {
        Tier::Device => Tone::Good,
        Tier::Pinned => Tone::Plain,
        Tier::Pageable | Tier::Disk => Tone::Unsure,
    }
}

/// Where figures of the timeline end.
const STAGE: usize = 16;
const DEVICE: usize = 26;
const HOST: [usize; 2] = [12, 10];

/// A row of the timeline: everything that is known of one stage of one pass on one rank.
struct Row<'a> {
    stage: StageName,
    pass: Option<&'a str>,
    rank: Option<u32>,
    peaks: Vec<&'a Peak>,
}

impl Row<'_> {
    fn peak(&self, tier: Tier) -> Option<&Peak> {
        self.peaks.iter().copied().find(|peak| peak.tier == tier)
    }

    fn name(&self, devices: u32) -> String {
        let rank = self.rank.filter(|_| devices > 1).map_or(String::new(), |rank| format!(" r{rank}"));
        let pass = self.pass.filter(|pass| *pass != "only").map_or(String::new(), |pass| format!(" {pass}"));
        format!("{}{pass}{rank}", self.stage.word())
    }
}

fn rows(peaks: &[Peak]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for peak in peaks {
        let pass = peak.pass.as_deref();
        // Host memory has no rank: it belongs to whatever of the stage came before.
        let same = |row: &Row<'_>| {
            row.stage == peak.stage && row.pass == pass && (row.rank == peak.rank || peak.rank.is_none() || row.rank.is_none())
        };
        match rows.iter_mut().find(|row| same(row)) {
            Some(row) => {
                row.rank = row.rank.or(peak.rank);
                row.peaks.push(peak);
            }
            None => rows.push(Row { stage: peak.stage, pass, rank: peak.rank, peaks: vec![peak] }),
        }
    }
    rows.sort_by_key(|row| row.stage);
    rows
}

/// Predicted peaks of the stages in order, against the budgets.
fn timeline(text: &mut Text, plan: &Plan, width: usize) {
    text.blank();
    let rows = rows(&plan.peaks);
    if rows.is_empty() {
        text.line(Line::new().add(Tone::Strong, "peaks").quiet("  the policy predicts none"));
        return;
    }
    let most = rows.iter().filter_map(|row| row.peak(Tier::Device)).map(|peak| peak.bytes).max().unwrap_or(0);
    let start = DEVICE + 2;
    let cells = width - start - HOST[0] - HOST[1] - 1;
    let header = Line::new().quiet("stage").right(Tone::Quiet, "device GiB", DEVICE).pad(start).quiet("against its limit");
    text.line(header.right(Tone::Quiet, "page-locked", width - HOST[1]).right(Tone::Quiet, "host", width));
    for row in &rows {
        let line = Line::new().plain(&row.name(plan.system.devices)).pad(STAGE);
        let line = match row.peak(Tier::Device) {
            Some(peak) => {
                let line = line.right(Tone::Strong, &number(peak.bytes), DEVICE).pad(start);
                let scale = Scale::new(most, Some(peak.limit_bytes), cells, true);
                scale.bar(line, tone(peak), peak.bytes, fv_spec::estimate::Interval::exact(peak.bytes))
            }
            None => line.right(Tone::Quiet, "-", DEVICE),
        };
        let figure = |line: Line, tier, end| match row.peak(tier) {
            Some(peak) => line.right(if peak.bytes > peak.limit_bytes { Tone::Unsure } else { Tone::Plain }, &number(peak.bytes), end),
            None => line.right(Tone::Quiet, "-", end),
        };
        text.line(figure(figure(line, Tier::Pinned, width - HOST[1]), Tier::Pageable, width));
    }
    limits(text, &plan.peaks, width);
    let mut bases: Vec<String> = Vec::new();
    for peak in &plan.peaks {
        let words = format!("{} [{}]", peak.basis.meaning(), peak.basis.word());
        if !bases.contains(&words) {
            bases.push(words);
        }
    }
    text.wrapped(Line::new().plain("  "), Line::new().quiet(&format!("they rest on {}", bases.join("; "))), width);
}

fn tone(peak: &Peak) -> Tone {
    if peak.bytes > peak.limit_bytes { Tone::Unsure } else { Tone::Good }
}

/// What peaks are held against, and which exceed it: colour alone says nothing.
fn limits(text: &mut Text, peaks: &[Peak], width: usize) {
    let mut told: Vec<String> = Vec::new();
    for peak in peaks {
        let words = format!("{} of {} memory", gib(peak.limit_bytes), tier_word(peak.tier));
        if !told.contains(&words) {
            told.push(words);
        }
    }
    text.wrapped(Line::new().quiet("│ limits: "), Line::new().quiet(&told.join(", ")), width);
    for peak in peaks.iter().filter(|peak| peak.bytes > peak.limit_bytes) {
        let over = gib(peak.bytes - peak.limit_bytes);
        let words = format!("{} takes {over} more {} memory than its limit", while_doing(peak.stage.word()), tier_word(peak.tier));
        text.wrapped(Line::new().add(Tone::Unsure, "! "), Line::new().plain(&words), width);
    }
}

fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Pinned => "page-locked",
        Tier::Pageable => "host",
        Tier::Disk => "disk",
    }
}

/// How each part computes.
fn computing(text: &mut Text, plan: &Plan, width: usize) {
    text.blank();
    for encoder in &plan.encoders {
        text.wrapped(label("encoder"), Line::new().plain(&encoder_words(encoder)), width);
    }
    for pass in &plan.passes {
        one_pass(text, pass, plan, width);
    }
    if let Some(two_pass) = &plan.two_pass {
        text.wrapped(label("between"), Line::new().plain(&two_pass_words(two_pass)), width);
    }
    for decoder in &plan.decoders {
        text.wrapped(label("decoder"), Line::new().plain(&decoder_words(decoder)), width);
    }
}

fn encoder_words(encoder: &Encoder) -> String {
    let how = match encoder.process {
        EncoderProcess::Separate => "in a process that ends before the next component is loaded",
        EncoderProcess::Same => "in the same process",
        EncoderProcess::Skipped => "not run, its output is at hand",
    };
    let least = encoder.host_minimum_bytes.map_or(String::new(), |bytes| format!("; at least {} of host memory", gib(bytes)));
    format!("{} {how}{least}", encoder.component.word())
}

fn one_pass(text: &mut Text, pass: &Pass, plan: &Plan, width: usize) {
    let name = if plan.passes.len() > 1 { &pass.name } else { "sampling" };
    let words =
        format!("{} x {}, {}, {}", pass.width, pass.height, plural(pass.video_tokens, "video token"), plural(pass.steps.into(), "step"));
    text.wrapped(label(name), Line::new().plain(&words), width);
    for compute in &pass.compute {
        let many = pass.compute.len() > 1;
        let component = if many { format!("{}: ", compute.component.word()) } else { String::new() };
        text.wrapped(label(""), Line::new().plain(&format!("{component}{}", compute_words(compute))), width);
    }
    if let Some(cache) = &pass.block_cache {
        text.wrapped(label(""), Line::new().plain(&cache_words(cache)), width);
    }
}

fn compute_words(compute: &Compute) -> String {
    let window = compute.attention.window.filter(|window| *window != compute.attention.global);
    let window = window.map_or(String::new(), |window| format!(" and {} within windows", window.word()));
    let mut words = vec![
        format!("GEMM {}", compute.gemm.word().replace('_', " ")),
        format!("attention {}{window}", compute.attention.global.word()),
        format!("{} together", plural(compute.head_group.into(), "head")),
    ];
    if compute.head_parallelism > 1 {
        words.push(format!("{} groups at once", compute.head_parallelism));
    }
    let place = |host: bool| if host { "in host memory" } else { "on the device" };
    words.push(format!("attention outputs {}", place(compute.outputs_on_host)));
    words.push(format!("residual stream {}", place(compute.residual_on_host)));
    if compute.feed_forward_recompute {
        words.push("wide activation computed twice".to_owned());
    }
    let rows = |count: u32| grouped(count);
    words.push(format!(
        "feed-forward {} rows and projections {} rows at a time",
        rows(compute.feed_forward_chunk),
        rows(compute.projection_chunk)
    ));
    if let Some(windows) = compute.window_batch {
        words.push(format!("{} together", plural(windows.into(), "window")));
    }
    words.push(plural(compute.slots.into(), "slot"));
    words.join(", ")
}

fn cache_words(cache: &BlockCache) -> String {
    let most = cache.most_blocks.map_or_else(
        || "as many blocks as free memory takes stay on the device once copied".to_owned(),
        |most| format!("up to {} stay on the device once copied", plural(most.into(), "block")),
    );
    format!(
        "{most}, {} by the plan's own figures: {} are left for them, {} more never used; measured again after the first step",
        cache.predicted_blocks,
        gib(cache.allowance_bytes),
        gib(cache.margin_bytes)
    )
}

fn two_pass_words(two_pass: &TwoPass) -> String {
    let TwoPass { base_steps, refine_steps, restart_seed_offset, upscale } = two_pass;
    let scaled = match upscale {
        None => "both canvases are the same".to_owned(),
        Some(Upscale { width, height, crop_left, crop_top, checkpoint_bytes, workspace_bytes }) => {
            let crop = match (crop_left, crop_top) {
                (0, 0) => String::new(),
                _ => format!(", of which {crop_left} columns on the left and {crop_top} rows at the top are cut off"),
            };
            format!(
                "scaled up to {width} x {height}{crop} by a checkpoint of {} that takes {} of device memory",
                gib(*checkpoint_bytes),
                gib(*workspace_bytes)
            )
        }
    };
    format!("{base_steps} steps, then {refine_steps} to refine with the seed + {restart_seed_offset}; {scaled}")
}

fn decoder_words(decoder: &Decoder) -> String {
    let mut words = vec![format!(
        "{} in {} of {}",
        decoder.component.word(),
        plural(decoder.clips.into(), "clip"),
        plural(decoder.clip_latent_frames.into(), "latent frame")
    )];
    if let Some(tiles) = decoder.tiles {
        words.push(format!(
            "{} x {} tiles of {} pixels that share {} or more",
            tiles.columns, tiles.rows, tiles.tile_pixels, tiles.overlap_pixels
        ));
    }
    words.push(if decoder.offload { "blocks copied as they are needed" } else { "every block on the device" }.to_owned());
    for (yes, what) in [
        (decoder.tile_group, "each block once for all tiles of a clip"),
        (decoder.preload, "weights read before sampling ends"),
        (decoder.pin_weights, "weights page-locked"),
        (decoder.half_precision_cache, "linear weights in FP16 as well"),
    ] {
        if yes {
            words.push(what.to_owned());
        }
    }
    words.push(if decoder.stream_output { "each clip written out at once" } else { "the whole video kept until the end" }.to_owned());
    words.join(", ")
}

fn forecast(text: &mut Text, plan: &Plan, width: usize) {
    text.blank();
    let Some(forecast) = &plan.forecast else {
        let why = unforecast(&plan.unforecast).unwrap_or_else(|| "there are no figures for this engine on this device".to_owned());
        text.wrapped(Line::new().add(Tone::Strong, "time").quiet("  "), Line::new().quiet(&format!("none: {why}")), width);
        return;
    };
    let coverage = match forecast.coverage {
        Coverage::Measured => "within what was measured",
        Coverage::Extrapolated => "extrapolated",
        Coverage::Derived => "from the device's facts alone",
    };
    text.wrapped(Line::new().add(Tone::Strong, "time").quiet("  "), Line::new().quiet(&format!("{coverage}: {}", forecast.basis)), width);
    let mut row = |name: &str, words: &str| text.wrapped(Line::new().plain("  ").plain(name).pad(20), Line::new().plain(words), width);
    for pass in &forecast.passes {
        let name = if pass.name == "only" { "step".to_owned() } else { format!("step, {} pass", pass.name) };
        row(&name, &format!("{}, {} of them", interval(&pass.step), pass.steps));
    }
    for stage in &forecast.stages {
        row(stage.name.word(), &interval(&stage.time));
    }
    match &forecast.request {
        Some(request) => row("start to end", &interval(request)),
        None => row("start to end", "not every stage has a figure"),
    }
    if let Some(why) = unforecast(&plan.unforecast) {
        row("unknown", &why);
    }
    for note in &forecast.notes {
        text.item(Line::new().plain(note), width);
    }
}

/// What a forecast lacks, in a line.
pub(super) fn unforecast(reasons: &[Reason]) -> Option<String> {
    let messages: Vec<&str> = reasons.iter().map(|reason| reason.message.as_str()).collect();
    (!messages.is_empty()).then(|| messages.join("; "))
}

fn revisions(text: &mut Text, plan: &Plan, width: usize) {
    if plan.plan_revisions.is_empty() {
        return;
    }
    text.blank();
    text.heading("plans that took its place while it ran");
    for revision in &plan.plan_revisions {
        let words = format!("{} while {}: {}", revision.id, while_doing(revision.stage.word()), revision.reason.meaning());
        text.item(Line::new().plain(&words).quiet(&format!(" [{}]", revision.reason.word())), width);
    }
}
