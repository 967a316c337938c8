//! Many points at once: models, settings and sizes, each evaluated once and compared with all devices.
//!
//! A [`Plan`] is the list of points in order, without holding them: models and deployments, then settings, sizes, frames and
//! batches, and devices innermost. Points are numbered from 0, and those of one request follow each other.

use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{StageName, Verdict};
use fv_spec::questions::SweepRow;
use fv_spec::request::PartialRequest;
use serde_json::Value;

use crate::budget::{Asked, Budget};
use crate::device::DeviceSpec;
use crate::error::InputError;
use crate::estimate::Workload;
use crate::place;
use crate::question::Question;
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
    /// For devices with memory of their own, and for those that share it.
    overrides: [Overrides; 2],
    /// Whether both kinds of device are the same to the runtime.
    alike: bool,
    budgets: Vec<Budget>,
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
    /// What is left out, and why.
    pub notes: Vec<String>,
}

impl<'a> Plan<'a> {
    /// The plan of all combinations. A size or a frame count that only some of the models take is left out for the others;
    /// one that none takes is an error.
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
        let (mut errors, mut notes) = (Vec::new(), Vec::new());
        for (what, ranges, most) in [("frames", &axes.frames, MAX_FRAMES), ("batch", &axes.batches, MAX_BATCH)] {
            for range in ranges.iter().filter(|range| range.first == 0 || range.last > most) {
                let message = format!("{what} {}..{}: allowed are 1 to {most}, such as 1..{}", range.first, range.last, most.min(81));
                errors.push(InputError::new("invalid-value", message));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let batches: Vec<u32> =
            axes.batches.iter().flat_map(|range| (range.first..=range.last).step_by(range.step.unwrap_or(1).max(1) as usize)).collect();
        let legal_of: Vec<_> = deployments.iter().map(|(model, example)| legal(model, example)).collect();
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
            for frames in range.step.into_iter().flat_map(|step| (range.first..=range.last).step_by(step.max(1) as usize)) {
                if !legal_of.iter().any(|legal| legal.takes_frames(frames)) {
                    errors.push(InputError::new("invalid-frames", format!("frames {frames}: no model takes so many")));
                }
                if errors.len() > MOST_ERRORS {
                    return Err(errors);
                }
            }
        }
        let mut lines = Vec::new();
        for ((model, example), legal) in deployments.iter().zip(&legal_of) {
            let mut frames: Vec<u32> = axes.frames.iter().flat_map(|range| in_range(*range, legal)).collect();
            frames.sort_unstable();
            frames.dedup();
            let sizes: Vec<[u32; 2]> = axes.sizes.iter().copied().filter(|[height, width]| legal.takes_size(*height, *width)).collect();
            if sizes.len() < axes.sizes.len() || (frames.is_empty() && !axes.frames.is_empty()) {
                notes.push(format!("{} ({}): sizes and frame counts that it does not take are left out", model.id, example.id));
            }
            let (sizes, frames) = (or_default(sizes, axes.sizes.is_empty()), or_default(frames, axes.frames.is_empty()));
            let mut settings = Vec::new();
            // What is wrong with settings does not depend on sizes; those that the points have are known to be right.
            let first = with(request, sizes.first().copied().flatten(), frames.first().copied().flatten(), batches.first().copied());
            for varied in &axes.settings {
                if sizes.is_empty() || frames.is_empty() {
                    continue;
                }
                match Variant::new(model, example, &first, overrides, varied, devices, asked, rules) {
                    Ok(variant) => settings.push(variant),
                    Err(wrong) => {
                        let code = |error: &InputError| error.code == "unknown-key";
                        // Each runtime has its own names.
                        if deployments.len() > 1 && wrong.iter().all(code) {
                            notes.extend(wrong.iter().map(|error| format!("{} ({}) is left out: {error}", model.id, example.id)));
                        } else {
                            errors.extend(wrong);
                        }
                    }
                }
            }
            lines.push(Line { model, example, sizes, frames, settings });
        }
        let batches = or_default(batches, axes.batches.is_empty());
        let before = std::iter::once(0)
            .chain(lines.iter().scan(0, |sum, line| {
                *sum += line.requests(batches.len());
                Some(*sum)
            }))
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self { lines, batches, devices, rules, request: *request, before, notes })
    }

    /// Requests, each compared with all devices.
    pub fn requests(&self) -> u128 {
        self.before.last().copied().unwrap_or(0)
    }

    /// Points.
    pub fn points(&self) -> u128 {
        self.requests() * self.devices.len() as u128
    }

    /// Points of one request.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The rows of one request, a device after the other, each given to `row`.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn rows(&self, request: u64, mut row: impl FnMut(&SweepRow)) -> Result<(), Vec<InputError>> {
        let number = u128::from(request);
        let Some(at) = self.before.windows(2).position(|pair| (pair[0]..pair[1]).contains(&number)) else { return Ok(()) };
        let line = &self.lines[at];
        let mut rest = usize::try_from(number - self.before[at]).unwrap_or(usize::MAX);
        let mut digit = |length: usize| {
            let place = rest % length;
            rest /= length;
            place
        };
        let batch = self.batches[digit(self.batches.len())];
        let frames = line.frames[digit(line.frames.len())];
        let size = line.sizes[digit(line.sizes.len())];
        let variant = &line.settings[digit(line.settings.len())];
        let asked = with(&self.request, size, frames, batch);
        let mut evaluated: [Option<(SweepRow, Workload)>; 2] = [None, None];
        for (device, budget) in self.devices.iter().zip(&variant.budgets) {
            let kind = usize::from(place::unified_memory(device) && !variant.alike);
            if evaluated[kind].is_none() {
                let overrides = &variant.overrides[kind];
                let workload = Workload::evaluate(line.model, line.example, &asked, overrides, self.rules, false)?;
                evaluated[kind] = Some((line.row(variant, &workload), workload));
            }
            if let Some((filled, workload)) = &mut evaluated[kind] {
                fill(filled, workload, device, budget);
                row(filled);
            }
        }
        Ok(())
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

/// The legal frame counts in a range.
fn in_range(range: Range, legal: &Legal) -> impl Iterator<Item = u32> + use<> {
    let legal = *legal;
    let (first, last) = (range.first, range.last.min(legal.frames(legal.frame_counts().saturating_sub(1))));
    let start = legal.place_of_frames(first);
    let all = (start..legal.frame_counts()).map(move |place| legal.frames(place)).take_while(move |frames| *frames <= last);
    all.filter(move |frames| *frames >= first && range.step.is_none_or(|step| (frames - first).is_multiple_of(step.max(1))))
}

impl Line<'_> {
    fn requests(&self, batches: usize) -> u128 {
        [self.settings.len(), self.sizes.len(), self.frames.len(), batches].iter().map(|length| *length as u128).product()
    }

    /// A row with what is the same on every device.
    fn row(&self, variant: &Variant, workload: &Workload) -> SweepRow {
        let request = &workload.request;
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
            host_bytes: workload.needs().iter().filter_map(|need| need.need.map(|(_, host)| host.pinned_bytes + host.pageable_bytes)).max(),
            budget_bytes: None,
            margin_bytes: None,
            reason: None,
        }
    }
}

fn fill(row: &mut SweepRow, workload: &Workload, device: &DeviceSpec, budget: &Budget) {
    let summary = workload.summary(budget);
    row.hardware.clone_from(&device.id);
    row.status = summary.status;
    let peak = |name: StageName| summary.stages.iter().find(|stage| stage.name == name).map(|stage| stage.peak_bytes.device.value);
    row.load_bytes = peak(StageName::Load);
    row.encoding_bytes = peak(StageName::Encoding);
    row.denoising_bytes = peak(StageName::Denoising);
    row.decoding_bytes = peak(StageName::Decoding);
    row.budget_bytes = budget.budget_bytes;
    row.margin_bytes = summary.margin_bytes;
    let reason = || workload.unknown.first().or(budget.reasons.first()).map(|reason| reason.code.clone());
    row.reason = (summary.status == Verdict::Unknown).then(reason).flatten();
}

impl Variant {
    #[expect(clippy::too_many_arguments, reason = "one call, with all that a question has")]
    fn new(
        model: &Model,
        example: &Example,
        request: &PartialRequest,
        overrides: &Overrides,
        varied: &Varied,
        devices: &[DeviceSpec],
        asked: &Asked,
        rules: &RulesFile,
    ) -> Result<Self, Vec<InputError>> {
        let mut dedicated = overrides.clone();
        dedicated.set.extend(varied.iter().cloned());
        dedicated.unified_memory = false;
        let overrides = [dedicated.clone(), Overrides { unified_memory: true, ..dedicated }];
        let resolved = overrides.each_ref().map(|overrides| resolve(model, example, request, overrides));
        let [Ok((own, _)), Ok((shared, _))] = &resolved else {
            return Err(resolved.into_iter().find_map(Result::err).unwrap_or_default());
        };
        let alike = own == shared;
        let mut budgets = Vec::with_capacity(devices.len());
        for device in devices {
            let question = Question { model, example, rules, device: Some(device), asked, overrides: &overrides[0] };
            budgets.push(question.budget(if question.unified() { shared } else { own })?);
        }
        let words = varied.iter().map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{key}={text}")
        });
        Ok(Self { words: words.collect::<Vec<_>>().join(" "), alike, overrides, budgets })
    }
}
