//! Many points at once: models, settings and sizes, each evaluated once and compared with all devices.
//!
//! A [`Plan`] is the list of points in order, without holding them: models and deployments, then sizes, frames, batches and
//! settings, and devices innermost. Points are numbered from 0, and those of one request follow each other.

use std::sync::Arc;

use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{StageName, Verdict};
use fv_spec::questions::{LeftOut, LeftOutKind, SweepRow};
use fv_spec::request::{PartialRequest, Request};
use serde_json::Value;

use crate::budget::{Asked, Budget};
use crate::device::DeviceSpec;
use crate::error::InputError;
use crate::estimate::Workload;
use crate::place;
use crate::program::Runs;
use crate::question;
use crate::resolve::legal::{Legal, MAX_BATCH, MAX_FRAMES, legal};
use crate::resolve::{Overrides, resolve};

/// One combination of the settings that vary.
pub type Varied = Vec<(String, Value)>;

/// What is combined with what.
#[derive(Debug, Clone, Default)]
pub struct Axes {
    /// Height and width.
    pub sizes: Vec<[u32; 2]>,
    /// Frames: every legal count in these ranges, or exactly these.
    pub frames: Vec<Range>,
    /// Videos at once.
    pub batches: Vec<Range>,
    /// Settings that vary.
    pub settings: Vec<Varied>,
}

/// Whole numbers from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u32,
    /// Not beyond this.
    pub last: u32,
    /// From one to the next; `None` where only legal ones are meant.
    pub step: Option<u32>,
}

/// A deployment with the points that it takes.
#[derive(Debug)]
struct Line<'a> {
    model: &'a Model,
    example: &'a Example,
    sizes: Vec<Option<[u32; 2]>>,
    frames: Vec<Option<u32>>,
    /// For each combination of settings, the devices' budgets.
    settings: Vec<Variant>,
}

#[derive(Debug)]
struct Variant {
    words: String,
    /// The first request, resolved.
    first: Request,
    /// For devices with memory of their own, and for those that share it.
    overrides: [Overrides; 2],
    /// Whether the runtime's settings are resolved.
    resolved: bool,
    /// Whether both kinds of device are the same to the runtime.
    alike: bool,
    budgets: Arc<Vec<Budget>>,
}

/// The points of a sweep.
#[derive(Debug)]
pub struct Plan<'a> {
    lines: Vec<Line<'a>>,
    batches: Vec<Option<u32>>,
    devices: &'a [DeviceSpec],
    rules: &'a RulesFile,
    request: PartialRequest,
    /// Requests before each line, and all at the end.
    before: Vec<u128>,
    /// What only some of the deployments take.
    pub left_out: Vec<LeftOut>,
}

/// What all deployments of a sweep are asked.
struct Question<'a> {
    devices: &'a [DeviceSpec],
    asked: &'a Asked,
    rules: &'a RulesFile,
    request: &'a PartialRequest,
    overrides: &'a Overrides,
}

impl<'a> Plan<'a> {
    /// The plan of all combinations. What only some of the deployments take is left out for the others; a value that none takes
    /// is an error.
    ///
    /// # Errors
    /// What is wrong with the axes, the settings or the figures of the devices.
    pub fn new(
        deployments: &[(&'a Model, &'a Example)],
        devices: &'a [DeviceSpec],
        asked: &Asked,
        rules: &'a RulesFile,
        request: &PartialRequest,
        overrides: &Overrides,
        axes: &Axes,
    ) -> Result<Self, Vec<InputError>> {
        let errors = out_of_bounds(axes);
        if !errors.is_empty() {
            return Err(errors);
        }
        let legal_of: Vec<_> = deployments.iter().map(|(model, example)| legal(model, example)).collect();
        let mut errors = legal_nowhere(axes, &legal_of);
        if errors.len() > MOST_ERRORS {
            return Err(errors);
        }
        let question = Question { devices, asked, rules, request, overrides };
        let mut batches: Vec<u32> =
            axes.batches.iter().flat_map(|range| (range.first..=range.last).step_by(range.step.unwrap_or(1).max(1) as usize)).collect();
        batches.sort_unstable();
        batches.dedup();
        let (mut lines, mut left_out) = (Vec::new(), Vec::new());
        // Why deployments do not take a combination of settings, by combination.
        let mut refused: Vec<Vec<InputError>> = vec![Vec::new(); axes.settings.len()];
        let mut taken = vec![false; axes.settings.len()];
        for ((model, example), legal) in deployments.iter().zip(&legal_of) {
            let (mut line, mut left) = Line::new(model, example, legal, axes);
            let outcomes = line.variants(&question, &axes.settings, batches.first().copied());
            let mut illegal: Vec<(LeftOutKind, String, String)> = Vec::new();
            for (at, outcome) in outcomes.into_iter().enumerate() {
                match outcome {
                    Ok(variant) => {
                        // A runtime whose settings are not resolved takes every setting, and knows none.
                        taken[at] |= variant.resolved;
                        line.settings.push(variant);
                    }
                    Err(wrong) => {
                        let known = wrong.iter().any(|error| error.code != "unknown-key");
                        let kind = if known { LeftOutKind::Request } else { LeftOutKind::Setting };
                        let why = wrong.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; ");
                        illegal.push((kind, words(&axes.settings[at]), why));
                        refused[at].extend(wrong);
                    }
                }
            }
            left.extend(line.illegal(&illegal));
            left_out.extend(left);
            lines.push(line);
        }
        for (wrong, _) in refused.into_iter().zip(taken).filter(|(_, taken)| !taken) {
            // Where a runtime knows the setting and refuses its value, that others do not know it is of no interest.
            let known = wrong.iter().any(|error| error.code != "unknown-key");
            errors.extend(wrong.into_iter().filter(|error| !known || error.code != "unknown-key"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let batches = or_default(batches, axes.batches.is_empty());
        let before = std::iter::once(0)
            .chain(lines.iter().scan(0, |sum, line| {
                *sum += line.requests(batches.len());
                Some(*sum)
            }))
            .collect();
        Ok(Self { lines, batches, devices, rules, request: *request, before, left_out })
    }

    /// Requests, each compared with all devices.
    pub fn requests(&self) -> u128 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Points.
    pub fn points(&self) -> u128 {
        self.requests() * self.devices.len() as u128
    }

    /// How long each axis is, at most over the deployments, apart from combinations of settings.
    pub fn extents(&self) -> Vec<(&'static str, u128)> {
        let most = |of: fn(&Line<'_>) -> usize| self.lines.iter().map(of).max().unwrap_or(0) as u128;
        vec![
            ("deployment", self.lines.len() as u128),
            ("size", most(|line| line.sizes.len())),
            ("frame count", most(|line| line.frames.len())),
            ("batch", self.batches.len() as u128),
            ("device", self.devices.len() as u128),
        ]
    }

    /// Points of one request.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The rows of one request, a device after the other, each given to `row`. What a plain estimate refuses, such as sizes beyond
    /// any address space, is `unknown` for that reason.
    /// `reuse` keeps what the next requests may need again: those of one size follow each other, and settings without effect on it
    /// cost no second replay.
    pub fn rows(&self, request: u64, reuse: &mut Reuse, mut row: impl FnMut(&SweepRow)) {
        let number = u128::from(request);
        let Some(at) = self.before.windows(2).position(|pair| (pair[0]..pair[1]).contains(&number)) else { return };
        let line = &self.lines[at];
        let mut rest = usize::try_from(number - self.before[at]).unwrap_or(usize::MAX);
        let mut digit = |length: usize| {
            let place = rest % length;
            rest /= length;
            place
        };
        let variant = &line.settings[digit(line.settings.len())];
        let batch = self.batches[digit(self.batches.len())];
        let frames = line.frames[digit(line.frames.len())];
        let size = line.sizes[digit(line.sizes.len())];
        let asked = with(&self.request, size, frames, batch);
        let mut evaluated: [Option<(SweepRow, Option<Workload>)>; 2] = [None, None];
        for (device, budget) in self.devices.iter().zip(variant.budgets.iter()) {
            let kind = usize::from(place::unified_memory(device) && !variant.alike);
            let (filled, workload) = evaluated[kind].get_or_insert_with(|| {
                let overrides = &variant.overrides[kind];
                let (model, example) = (line.model, line.example);
                let workload = match line.settings.len() {
                    2.. => Workload::evaluate_among(&mut reuse.0, model, example, &asked, overrides, self.rules),
                    _ => Workload::evaluate(model, example, &asked, overrides, self.rules, false),
                };
                match workload {
                    Ok(workload) => (line.row(variant, &workload.request), Some(workload)),
                    Err(errors) => {
                        let mut refused = line.row(variant, &whole(&asked, &variant.first));
                        refused.reason = errors.first().map(|error| error.code.to_owned());
                        (refused, None)
                    }
                }
            });
            filled.hardware.clone_from(&device.id);
            filled.budget_bytes = budget.budget_bytes;
            if let Some(workload) = workload {
                fill(filled, workload, budget);
            }
            row(filled);
        }
    }
}

/// What requests of a sweep that follow each other have in common.
#[derive(Debug, Default)]
pub struct Reuse(Runs);

/// What is wrong with the ends of ranges.
fn out_of_bounds(axes: &Axes) -> Vec<InputError> {
    let mut errors = Vec::new();
    for (what, ranges, most) in [("frames", &axes.frames, MAX_FRAMES), ("batch", &axes.batches, MAX_BATCH)] {
        for range in ranges.iter().filter(|range| range.first == 0 || range.last > most) {
            let message = format!("{what} {}..{}: allowed are 1 to {most}, such as 1..{}", range.first, range.last, most.min(81));
            errors.push(InputError::new("invalid-value", message));
        }
    }
    errors
}

/// Sizes and frame counts that no deployment takes.
fn legal_nowhere(axes: &Axes, legal_of: &[Legal]) -> Vec<InputError> {
    let mut errors = Vec::new();
    for [height, width] in &axes.sizes {
        if !legal_of.iter().any(|legal| legal.takes_size(*height, *width)) {
            errors.push(InputError::new("invalid-size", format!("size {width}x{height}: no model takes it")));
        }
    }
    for range in &axes.frames {
        if range.step.is_none() && !legal_of.iter().any(|legal| in_range(*range, legal).next().is_some()) {
            let message = format!("frames {}..{}: no legal frame count of any model lies in it", range.first, range.last);
            errors.push(InputError::new("invalid-frames", message));
        }
        for frames in counts(*range) {
            if !legal_of.iter().any(|legal| legal.takes_frames(frames)) {
                errors.push(InputError::new("invalid-frames", format!("frames {frames}: no model takes so many")));
            }
            if errors.len() > MOST_ERRORS {
                return errors;
            }
        }
    }
    errors
}

/// The counts of a range that says which they are.
fn counts(range: Range) -> impl Iterator<Item = u32> {
    range.step.into_iter().flat_map(move |step| (range.first..=range.last).step_by(step.max(1) as usize))
}

/// A combination of settings as it stands in a row.
fn words(varied: &Varied) -> String {
    let one = |(key, value): &(String, Value)| format!("{key}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    varied.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// What is asked for, the rest as in another request.
fn whole(asked: &PartialRequest, rest: &Request) -> Request {
    Request {
        height: asked.height.unwrap_or(rest.height),
        width: asked.width.unwrap_or(rest.width),
        num_frames: asked.num_frames.unwrap_or(rest.num_frames),
        batch: asked.batch.unwrap_or(rest.batch),
        ..*rest
    }
}

/// What is given, or one point where what is left out is as by default.
fn or_default<T>(given: Vec<T>, by_default: bool) -> Vec<Option<T>> {
    if by_default { vec![None] } else { given.into_iter().map(Some).collect() }
}

/// The request of a point.
fn with(request: &PartialRequest, size: Option<[u32; 2]>, frames: Option<u32>, batch: Option<u32>) -> PartialRequest {
    let mut request = *request;
    if let Some([height, width]) = size {
        (request.height, request.width) = (Some(height), Some(width));
    }
    if frames.is_some() {
        (request.num_frames, request.seconds) = (frames, None);
    }
    request.batch = batch.or(request.batch);
    request
}

/// More than this many errors are not listed.
const MOST_ERRORS: usize = 20;
/// More values than this are counted and not named.
const MOST_VALUES: usize = 32;

/// The legal frame counts in a range.
fn in_range(range: Range, legal: &Legal) -> impl Iterator<Item = u32> + use<> {
    let legal = *legal;
    let (first, last) = (range.first, range.last.min(legal.frames(legal.frame_counts().saturating_sub(1))));
    let start = legal.place_of_frames(first);
    let all = (start..legal.frame_counts()).map(move |place| legal.frames(place)).take_while(move |frames| *frames <= last);
    all.filter(move |frames| *frames >= first && range.step.is_none_or(|step| (frames - first).is_multiple_of(step.max(1))))
}

impl<'a> Line<'a> {
    /// A deployment with the sizes and frame counts that it takes, and those that it does not.
    fn new(model: &'a Model, example: &'a Example, legal: &Legal, axes: &Axes) -> (Self, Vec<LeftOut>) {
        let mut frames: Vec<u32> = axes.frames.iter().flat_map(|range| in_range(*range, legal)).collect();
        frames.sort_unstable();
        frames.dedup();
        let mut sizes: Vec<[u32; 2]> = Vec::new();
        let mut other_sizes = Vec::new();
        for [height, width] in &axes.sizes {
            if !legal.takes_size(*height, *width) {
                other_sizes.push(format!("{width}x{height}"));
            } else if !sizes.contains(&[*height, *width]) {
                sizes.push([*height, *width]);
            }
        }
        let none_in = |range: &&Range| range.step.is_none() && in_range(**range, legal).next().is_none();
        let empty = axes.frames.iter().filter(none_in).map(|range| format!("{}..{}", range.first, range.last));
        let listed = axes.frames.iter().flat_map(|range| counts(*range)).filter(|frames| !legal.takes_frames(*frames));
        let other_frames: Vec<String> = empty.chain(listed.map(|frames| frames.to_string())).collect();
        let (sizes, frames) = (or_default(sizes, axes.sizes.is_empty()), or_default(frames, axes.frames.is_empty()));
        let line = Self { model, example, sizes, frames, settings: Vec::new() };
        let left = [
            line.left_out(LeftOutKind::Size, other_sizes, legal.sizes_in_words()),
            line.left_out(LeftOutKind::Frames, other_frames, legal.frames_in_words()),
        ];
        (line, left.into_iter().flatten().collect())
    }

    fn left_out(&self, kind: LeftOutKind, mut values: Vec<String>, reason: String) -> Option<LeftOut> {
        let count = values.len() as u64;
        values.truncate(MOST_VALUES);
        let (model, deployment) = (self.model.id.clone(), self.example.id.clone());
        (count > 0).then_some(LeftOut { model, deployment, kind, count, values, reason })
    }

    /// Combinations of settings that it does not take, put together by what is wrong with them.
    fn illegal(&self, all: &[(LeftOutKind, String, String)]) -> Vec<LeftOut> {
        let mut reasons: Vec<(LeftOutKind, &str)> = Vec::new();
        for (kind, _, why) in all {
            if !reasons.contains(&(*kind, why)) {
                reasons.push((*kind, why));
            }
        }
        let of = |kind, reason: &str| {
            let same = all.iter().filter(|(other, _, why)| *other == kind && why == reason);
            same.map(|(_, words, _)| if words.is_empty() { "all".to_owned() } else { words.clone() }).collect()
        };
        reasons.into_iter().filter_map(|(kind, reason)| self.left_out(kind, of(kind, reason), reason.to_owned())).collect()
    }

    /// What becomes of each combination of settings; of none where no size or no frame count is left.
    fn variants(&self, question: &Question<'_>, settings: &[Varied], batch: Option<u32>) -> Vec<Result<Variant, Vec<InputError>>> {
        // What is wrong with settings does not depend on sizes; those that the points have are known to be right.
        let (Some(size), Some(frames)) = (self.sizes.first(), self.frames.first()) else { return Vec::new() };
        let first = with(question.request, *size, *frames, batch);
        // Few combinations differ in what a device offers them.
        let mut budgets: Vec<Arc<Vec<Budget>>> = Vec::new();
        let mut variant = |varied| {
            let mut variant = Variant::new(self.model, self.example, &first, question, varied)?;
            match budgets.iter().find(|known| **known == variant.budgets) {
                Some(known) => variant.budgets = Arc::clone(known),
                None => budgets.push(Arc::clone(&variant.budgets)),
            }
            Ok(variant)
        };
        settings.iter().map(&mut variant).collect()
    }

    fn requests(&self, batches: usize) -> u128 {
        [self.settings.len(), self.sizes.len(), self.frames.len(), batches].iter().map(|length| *length as u128).product()
    }

    /// A row with what is the same on every device.
    fn row(&self, variant: &Variant, request: &Request) -> SweepRow {
        SweepRow {
            model: self.model.id.clone(),
            deployment: self.example.id.clone(),
            hardware: String::new(),
            width: request.width,
            height: request.height,
            num_frames: request.num_frames,
            batch: request.batch,
            settings: variant.words.clone(),
            status: Verdict::Unknown,
            load_bytes: None,
            encoding_bytes: None,
            denoising_bytes: None,
            decoding_bytes: None,
            host_bytes: None,
            budget_bytes: None,
            margin_bytes: None,
            reason: None,
        }
    }
}

fn fill(row: &mut SweepRow, workload: &Workload, budget: &Budget) {
    let summary = workload.summary(budget);
    row.status = summary.status;
    let peak = |name: StageName| summary.stages.iter().find(|stage| stage.name == name).map(|stage| stage.peak_bytes.device.value);
    row.load_bytes = peak(StageName::Load);
    row.encoding_bytes = peak(StageName::Encoding);
    row.denoising_bytes = peak(StageName::Denoising);
    row.decoding_bytes = peak(StageName::Decoding);
    row.margin_bytes = summary.margin_bytes;
    row.host_bytes = workload.host_bytes(budget);
    row.reason = if summary.status == Verdict::Unknown { workload.why_unknown(budget) } else { None };
}

impl Variant {
    fn new(
        model: &Model,
        example: &Example,
        first: &PartialRequest,
        question: &Question<'_>,
        varied: &Varied,
    ) -> Result<Self, Vec<InputError>> {
        let Question { devices, asked, rules, overrides, .. } = question;
        let mut dedicated = (*overrides).clone();
        dedicated.set.extend(varied.iter().cloned());
        dedicated.unified_memory = false;
        let overrides = [dedicated.clone(), Overrides { unified_memory: true, ..dedicated }];
        let outcomes = overrides.each_ref().map(|overrides| resolve(model, example, first, overrides));
        let [Ok((own, first)), Ok((shared, _))] = &outcomes else {
            return Err(outcomes.into_iter().find_map(Result::err).unwrap_or_default());
        };
        let alike = own == shared;
        let mut budgets = Vec::with_capacity(devices.len());
        for device in *devices {
            let question = question::Question { model, example, rules, device: Some(device), asked, overrides: &overrides[0] };
            budgets.push(question.budget(if question.unified() { shared } else { own })?);
        }
        let resolved = !own.unknown.iter().any(|reason| reason.code == "uncovered-runtime");
        Ok(Self { words: words(varied), first: *first, resolved, alike, overrides, budgets: Arc::new(budgets) })
    }
}
