//! From a model and a request to an estimate.
//!
//! [`Workload::evaluate`] does what does not depend on a device: settings are resolved, the request is lowered into an op
//! program, and the program is run under the runtime's allocator. [`Workload::estimate`] and [`Workload::summary`] compare the
//! result with a budget; a second device costs only that comparison.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{
    Buffer, BufferKind, Coverage, Estimate, HostBytes, Interval, LargestAllocation, PeakBytes, Phase, RankPeak, Reason, Shortfall, Stage,
    StageName, StagePeak, Summary, Tier, VERSION, Verdict,
};
use fv_spec::forecast::TimeForecast;
use fv_spec::request::{PartialRequest, Request};

use crate::budget::{Budget, in_gib};
use crate::caching::Config;
use crate::error::InputError;
use crate::family::{self, ByPlan, Lowered, Planned, PlannedStage};
use crate::forecast::request::of_plan;
use crate::forecast::workload::{Question as Timed, unknown};
use crate::modules::weights_only;
use crate::program::{Alive, Model as Allocator, Program, Runs, Sampling, Site, Timeline};
use crate::question::device_peak;
use crate::resolve::{Overrides, resolve};
use crate::settings::Settings;
use crate::spread::{Spread, Work};
use crate::verdict::{StageNeed, VerdictOutcome, verdict, worse};

/// A request evaluated, before any device is looked at.
#[derive(Debug)]
pub struct Workload {
    model: String,
    deployment: String,
    /// The request with every field resolved.
    pub request: Request,
    /// The effective settings.
    pub settings: Settings,
    /// What lowering gave; `None` where no rule covers the model.
    evaluated: Option<Evaluated>,
    /// Whether measurements say how far peaks lie from what is derived.
    spread_known: bool,
    /// The runtime's own planner, where there is one.
    by_plan: Option<Box<dyn ByPlan>>,
    /// What it answered last: an answer is asked for its verdict, its figures and its time in turn.
    answered: Mutex<Option<(Budget, Option<Arc<Planned>>)>>,
    /// Why the result is unknown, if it is.
    pub unknown: Vec<Reason>,
    coverage: Coverage,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Evaluated {
    program: Program,
    /// Under the runtime's allocator.
    timeline: Timeline,
    /// By stage, in the order of [`StageName::ALL`].
    peaks: [PeakBytes; 4],
    host: [HostBytes; 4],
    /// Assumptions behind these, which a plan replaces.
    notes: Vec<String>,
    details: bool,
    /// The stages of a report, but for what depends on a device.
    stages: OnceLock<Vec<Stage>>,
}

/// Reasons for which nothing is counted: extents that are no component's, and requests beyond what is evaluated.
const UNSOUND: [&str; 3] = ["missing-geometry", "too-large", "too-many-tiles"];

impl Workload {
    /// Evaluates a request. `details` keeps what reports of single buffers need.
    ///
    /// # Errors
    /// For input that nothing can be estimated from. What is merely not known makes the result `unknown` instead.
    pub fn evaluate(
        model: &Model,
        example: &Example,
        request: &PartialRequest,
        overrides: &Overrides,
        rules: &RulesFile,
        details: bool,
    ) -> Result<Self, Vec<InputError>> {
        let (settings, request) = resolve(model, example, request, overrides)?;
        Self::with_settings(model, example, request, settings, rules, details).within_reason()
    }

    /// [`evaluate`](Self::evaluate) without details, among others like it.
    pub(crate) fn evaluate_among(
        runs: &mut Runs,
        model: &Model,
        example: &Example,
        request: &PartialRequest,
        overrides: &Overrides,
        rules: &RulesFile,
    ) -> Result<Self, Vec<InputError>> {
        let (settings, request) = resolve(model, example, request, overrides)?;
        Self::lower(model, example, request, settings, rules, false, |program, allocator| runs.run(program, allocator)).within_reason()
    }

    /// The workload, unless an allocation is larger than any address space.
    fn within_reason(self) -> Result<Self, Vec<InputError>> {
        let too_large = self.unknown.iter().filter(|reason| reason.code == "too-large");
        let errors: Vec<InputError> = too_large.map(|reason| InputError::new("too-large", reason.message.clone())).collect();
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// [`evaluate`](Self::evaluate) of settings that are resolved already: for arrangements that no setting expresses.
    pub fn with_settings(model: &Model, example: &Example, request: Request, settings: Settings, rules: &RulesFile, details: bool) -> Self {
        let run = |program: &Program, allocator| program.run(&Allocator::Caching(allocator), Sampling::Ends);
        Self::lower(model, example, request, settings, rules, details, run)
    }

    fn lower(
        model: &Model,
        example: &Example,
        request: Request,
        settings: Settings,
        rules: &RulesFile,
        details: bool,
        run: impl FnOnce(&Program, Config) -> Timeline,
    ) -> Self {
        let mut workload = Self {
            model: model.id.clone(),
            deployment: example.id.clone(),
            request,
            unknown: settings.unknown.clone(),
            coverage: Coverage::default(),
            notes: settings.notes.clone(),
            settings,
            evaluated: None,
            by_plan: None,
            answered: Mutex::default(),
            spread_known: false,
        };
        let runtime = workload.settings.runtime;
        let rules_of = family::find(&model.memory_rules);
        workload.by_plan = rules_of.and_then(|family| family.by_plan(model, example, &workload.settings, &request, rules));
        let lowered = rules_of.and_then(|family| family.lower(model, example, &workload.settings, &request, details));
        let rule = format!("{} x {}", model.memory_rules, runtime.word());
        if lowered.is_none() && workload.by_plan.is_some() {
            // All that is known is the planner's, which lowers what it decides.
            workload.coverage.rules.push(rule);
            return workload;
        }
        let covered = matches!(lowered, Some(Ok(_)));
        // Where the family's rules do not cover the model, weights and video are known all the same.
        let floor = |why: Option<Vec<Reason>>| weights_only::lower(model, example, &workload.settings, &request, details, why);
        let lowered = match lowered {
            Some(Err(reasons)) if !reasons.iter().any(|reason| UNSOUND.contains(&reason.code.as_str())) => floor(Some(reasons)),
            Some(lowered) => lowered,
            None => floor(None),
        };
        match lowered {
            Ok(mut lowered) => {
                if covered {
                    workload.coverage.rules.push(rule.clone());
                }
                workload.coverage.uncovered = lowered.uncovered.iter().map(|reason| reason.message.clone()).collect();
                workload.unknown.append(&mut lowered.uncovered);
                let spread = Spread::of(rules, &model.memory_rules, runtime);
                workload.coverage.extrapolated = spread.outside(&request);
                if covered {
                    workload.coverage.extrapolated.extend(spread.note());
                    workload.spread_known = spread.measured();
                    if workload.settings.gpu_count > 1 {
                        let text = "no run on several GPUs was measured, and what their exchange takes is not counted";
                        workload.coverage.extrapolated.push(text.to_owned());
                    }
                }
                // What the process allows itself is compared with the peaks afterwards, like a budget.
                let allocator = Config { allowed: None, gc_threshold: None, ..workload.settings.allocator.clone() };
                let timeline = run(&lowered.program, allocator);
                let peaks = stage_peaks(&lowered.program, &timeline, &spread, request.references > 0);
                if timeline.out_of_memory {
                    workload.unknown.push(Reason::new("too-large", "an allocation is larger than any address space"));
                }
                let Lowered { program, host, notes, .. } = lowered;
                workload.evaluated = Some(Evaluated { program, timeline, peaks, host, notes, details, stages: OnceLock::new() });
            }
            Err(reasons) => {
                workload.coverage.uncovered.push(rule);
                workload.coverage.uncovered.extend(reasons.iter().map(|reason| reason.message.clone()));
                workload.unknown.extend(reasons);
            }
        }
        workload
    }

    /// Peaks of each stage under the allocator, without what a device adds; `None` where no rule covers the model.
    pub fn peaks(&self) -> Option<&[PeakBytes; 4]> {
        self.evaluated.as_ref().map(|evaluated| &evaluated.peaks)
    }

    /// What each stage needs, apart from what a device adds; empty where no rule covers the model.
    pub fn needs(&self) -> Vec<StageNeed> {
        let Some(evaluated) = &self.evaluated else { return Vec::new() };
        StageName::ALL
            .into_iter()
            .zip(evaluated.peaks.iter().zip(&evaluated.host))
            .map(|(stage, (peaks, host))| StageNeed { stage, need: Some((*peaks, *host)) })
            .collect()
    }

    fn outcome(&self, budget: &Budget, planned: Option<&Planned>) -> VerdictOutcome {
        if let Some(planned) = planned {
            return VerdictOutcome {
                device: planned.status,
                host: planned.host,
                overall: planned.status,
                reasons: planned.reasons.clone(),
                margin_bytes: planned.margin_bytes,
                short: planned.short,
                host_required: planned.host_bytes(),
                host_capacity: budget.host_bytes,
            };
        }
        let mut outcome = verdict(&self.needs(), budget, self.settings.allocator.allowed);
        if !self.unknown.is_empty() {
            outcome.overall = Verdict::Unknown;
            outcome.device = Verdict::Unknown;
            // What is not known could also mean less, so nothing is known to be missing.
            outcome.short = None;
            outcome.reasons.retain(|reason| !COMPARED.contains(&reason.code.as_str()));
            outcome.reasons.splice(0..0, self.unknown.iter().cloned());
        } else if self.evaluated.is_none() || !budget.reasons.is_empty() {
            outcome.overall = Verdict::Unknown;
        } else if !self.spread_known {
            // What does not fit by its live tensors does not fit; the upper end is no bound, so nothing is known to fit.
            outcome.margin_bytes = None;
            if outcome.short.is_none() {
                outcome.overall = worse(outcome.overall, Verdict::Uncertain);
                outcome.device = worse(outcome.device, Verdict::Uncertain);
                let rule = self.coverage.rules.join(", ");
                let message = format!("no rule says how far measured peaks lie from what is derived ({rule}): the upper end is not known");
                outcome.reasons.insert(0, Reason::new("unknown-spread", message));
            }
        }
        outcome
    }

    /// Peaks of a stage on a device: `reserved` with the fixed cost added.
    fn on_device(peaks: PeakBytes, host: HostBytes, budget: &Budget) -> Option<PeakBytes> {
        let device = budget.fixed.device_peak(peaks.reserved, host.pinned_bytes)?;
        Some(PeakBytes { device, ..peaks })
    }

    /// Each rank's peaks where there are several: all of them run the same program over their share.
    fn ranks(&self, peaks: PeakBytes, host: HostBytes, budget: &Budget) -> Vec<RankPeak> {
        let count = self.settings.gpu_count;
        match Self::on_device(peaks, host, budget) {
            Some(peak_bytes) if count > 1 => (0..count).map(|rank| RankPeak { rank, peak_bytes }).collect(),
            _ => Vec::new(),
        }
    }

    /// The answer of the runtime's own planner, where it has one for this device.
    fn planned(&self, budget: &Budget) -> Option<Arc<Planned>> {
        let planner = self.by_plan.as_ref()?;
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, planned)) = answered.as_ref().filter(|(last, _)| last == budget) {
            return planned.clone();
        }
        let answer = planner.planned(budget).map(Arc::new);
        *answered = Some((budget.clone(), answer.clone()));
        answer
    }

    /// Whether a planner's figures are shown: where it made a plan, and where there are no others.
    fn shows(&self, planned: &Planned) -> bool {
        planned.plan.is_some() || self.evaluated.is_none()
    }

    /// Device peaks of the stages in order: those of the plan alone where there is one.
    fn stage_peaks(&self, budget: &Budget, planned: Option<&Planned>) -> Vec<StagePeak> {
        if let Some(planned) = planned.filter(|planned| self.shows(planned)) {
            return peaks_of(&planned.stages);
        }
        let Some(evaluated) = &self.evaluated else { return Vec::new() };
        let needs = StageName::ALL.into_iter().zip(evaluated.peaks.iter().zip(&evaluated.host));
        needs.filter_map(|(name, (peaks, host))| Some(StagePeak { name, peak_bytes: Self::on_device(*peaks, *host, budget)? })).collect()
    }

    /// Host memory of the stage that needs most on this device. `None` where no rule covers the model.
    pub fn host_bytes(&self, budget: &Budget) -> Option<u64> {
        let derived = || {
            let host = self.evaluated.iter().flat_map(|evaluated| &evaluated.host);
            host.map(|host| host.pinned_bytes.saturating_add(host.pageable_bytes)).max()
        };
        self.planned(budget).and_then(|planned| planned.host_bytes()).or_else(derived)
    }

    /// Verdict, stage peaks and margin.
    pub fn summary(&self, budget: &Budget) -> Summary {
        let planned = self.planned(budget);
        let outcome = self.outcome(budget, planned.as_deref());
        let stages = self.stage_peaks(budget, planned.as_deref());
        let margin_bytes = if self.unknown.is_empty() { outcome.margin_bytes } else { None };
        Summary { status: outcome.overall, stages, margin_bytes }
    }

    /// The outcome of the summary, without writing a plan out where it is known without that.
    pub(crate) fn brief(&self, budget: &Budget) -> Brief {
        let Some(fitted) = self.by_plan.as_ref().and_then(|planner| planner.fitted(budget)) else {
            return Brief::from(&self.summary(budget));
        };
        let left = i128::from(budget.budget_bytes.unwrap_or(0)) - i128::from(fitted.device_bytes);
        let device_peak = Some(Interval::exact(fitted.device_bytes));
        Brief { status: Verdict::Fits, device_peak, margin_bytes: i64::try_from(left).ok() }
    }

    /// How long the request takes with what a device offers: as planned, where the runtime plans. Model and deployment are those that were
    /// evaluated.
    pub fn forecast(&self, budget: &Budget, model: &Model, example: &Example, rules: &RulesFile) -> TimeForecast {
        if let Some(planned) = self.planned(budget) {
            let why = || planned.reasons.first().cloned().unwrap_or_else(|| Reason::new("estimate-unknown", "there is no plan"));
            return planned.plan.as_ref().map_or_else(|| unknown(why()), |plan| of_plan(plan, &budget.rates, rules));
        }
        let question = Timed { model, example, settings: &self.settings, request: &self.request, geforce: budget.geforce, rules };
        question.forecast(&budget.rates)
    }

    /// Whether a planner may make a plan, which is quicker than making it; nothing where only the summary says.
    pub(crate) fn outlook(&self, budget: &Budget) -> Option<Verdict> {
        let may = self.by_plan.as_ref()?.may_fit(budget)?;
        Some(if may { Verdict::Uncertain } else { Verdict::DoesNotFit })
    }

    /// The code of the first reason for an unknown verdict.
    pub(crate) fn why_unknown(&self, budget: &Budget) -> Option<String> {
        let of_planner = || self.planned(budget)?.reasons.first().cloned();
        let first = self.unknown.first().or(budget.reasons.first()).cloned();
        first.or_else(of_planner).map(|reason| reason.code)
    }

    /// The runtime's own planner, where there is one.
    pub(crate) fn planner(&self) -> Option<&dyn ByPlan> {
        self.by_plan.as_deref()
    }

    /// The whole estimate. The workload must have been evaluated with details.
    pub fn estimate(&self, hardware: Option<&str>, budget: &Budget) -> Estimate {
        let planned = self.planned(budget);
        let outcome = self.outcome(budget, planned.as_deref());
        let planned = planned.filter(|planned| self.shows(planned));
        // A request that was refused has no plan of its own; the smallest one shows what it is short of.
        let smallest = || self.by_plan.as_ref().map_or_else(Vec::new, |planner| planner.smallest(budget));
        let refused = planned.as_ref().filter(|planned| planned.status == Verdict::DoesNotFit && planned.stages.is_empty());
        let smallest = refused.map(|_| smallest());
        let shown = smallest.as_deref().or(planned.as_deref().map(|planned| &planned.stages[..]));
        let peaks = shown.map_or_else(|| self.stage_peaks(budget, None), peaks_of);
        let stages = match (shown, &self.evaluated) {
            (Some(shown), _) => StageName::ALL.into_iter().map(|name| planned_stage(name, shown)).collect(),
            (None, Some(evaluated)) => self.stages(evaluated, budget),
            (None, None) => Vec::new(),
        };
        let shortfall = outcome.short.map(|short| Shortfall {
            tier: short.tier.word().to_owned(),
            stage: short.stage.word().to_owned(),
            bytes: short.bytes,
            buffers: stages
                .iter()
                .find(|stage| stage.name == short.stage.word())
                .map_or_else(Vec::new, |stage| stage.buffers.iter().take(SHORTFALL_BUFFERS).cloned().collect()),
        });
        let mut notes = self.notes.clone();
        match &planned {
            Some(planned) => notes.extend(planned.notes.iter().cloned()),
            None => notes.extend(self.evaluated.iter().flat_map(|evaluated| evaluated.notes.iter().cloned())),
        }
        notes.extend(budget.notes.iter().cloned());
        let mut coverage = self.coverage.clone();
        if let Some(planned) = &planned {
            // What is derived is not shown, and neither how far it reaches.
            coverage.extrapolated.clone_from(&planned.extrapolated);
        }
        if budget.fixed.extrapolated && self.evaluated.is_some() && planned.is_none() {
            coverage.extrapolated.push(format!("fixed cost of {}: {}", budget.fixed.class, budget.fixed.source));
        }
        Estimate {
            version: VERSION,
            model: self.model.clone(),
            deployment: self.deployment.clone(),
            hardware: hardware.map(str::to_owned),
            request: self.request,
            status: outcome.overall,
            reasons: outcome.reasons.clone(),
            capacity_gib: highest(&peaks).map(|device| in_gib(device.value)).filter(|_| outcome.overall != Verdict::Unknown),
            memory: budget.report(),
            host: outcome.host_report(),
            shortfall,
            stages,
            settings: self.settings.reported.iter().chain(planned.iter().flat_map(|planned| &planned.settings)).cloned().collect(),
            coverage,
            notes,
            forecast: None,
        }
    }

    fn stages(&self, evaluated: &Evaluated, budget: &Budget) -> Vec<Stage> {
        let mut stages = evaluated.stages.get_or_init(|| evaluated.stages()).clone();
        for (stage, (peaks, host)) in stages.iter_mut().zip(evaluated.peaks.iter().zip(&evaluated.host)) {
            stage.peak_bytes = Self::on_device(*peaks, *host, budget);
            stage.ranks = self.ranks(*peaks, *host, budget);
        }
        stages
    }
}

impl Evaluated {
    /// What a report says of the stages, but for what depends on a device.
    fn stages(&self) -> Vec<Stage> {
        let spans = self.program.phases();
        let of_stage = |name: StageName| (0..spans.len()).filter(move |phase| spans[*phase].stage == name);
        let highest: Vec<Option<usize>> =
            StageName::ALL.iter().map(|name| of_stage(*name).max_by_key(|phase| self.timeline.phases[*phase].live)).collect();
        let wanted: Vec<usize> = if self.details { highest.iter().filter_map(|phase| *phase).collect() } else { Vec::new() };
        let mut alive = self.program.alive(&self.timeline, &wanted).into_iter();
        StageName::ALL
            .into_iter()
            .enumerate()
            .map(|(i, name)| {
                let phases = of_stage(name)
                    .map(|phase| Phase {
                        name: spans[phase].name.to_owned(),
                        repeat: spans[phase].repeat,
                        allocated_bytes: self.timeline.phases[phase].allocated,
                    })
                    .collect();
                let largest = of_stage(name)
                    .filter_map(|phase| Some((self.program.largest(&self.timeline, phase)?, phase)))
                    .max_by_key(|((_, bytes), _)| *bytes)
                    .map(|((shape, bytes), phase)| LargestAllocation {
                        name: shape.site.name.to_owned(),
                        phase: spans[phase].name.to_owned(),
                        bytes,
                    });
                Stage {
                    name: name.word().to_owned(),
                    phases,
                    buffers: highest[i].and_then(|_| alive.next()).map_or_else(Vec::new, buffers),
                    largest_allocation: largest,
                    peak_bytes: None,
                    ranks: Vec::new(),
                    host: self.host[i],
                }
            })
            .collect()
    }
}

/// The device peak over all stages.
fn highest(stages: &[StagePeak]) -> Option<Interval> {
    Interval::highest(stages.iter().map(|stage| stage.peak_bytes.device))
}

/// Peaks of the stages of a plan.
fn peaks_of(stages: &[PlannedStage]) -> Vec<StagePeak> {
    stages.iter().filter_map(|stage| Some(StagePeak { name: stage.name, peak_bytes: stage.peaks? })).collect()
}

/// What a summary comes to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Brief {
    /// The verdict.
    pub(crate) status: Verdict,
    /// The largest of each figure of the device over all stages.
    pub(crate) device_peak: Option<Interval>,
    /// What is left of the budget, negative where it is exceeded.
    pub(crate) margin_bytes: Option<i64>,
}

impl From<&Summary> for Brief {
    fn from(summary: &Summary) -> Self {
        Self { status: summary.status, device_peak: device_peak(summary), margin_bytes: summary.margin_bytes }
    }
}

/// What a report says of a stage as planned.
fn planned_stage(name: StageName, stages: &[PlannedStage]) -> Stage {
    let planned = stages.iter().find(|stage| stage.name == name);
    Stage {
        name: name.word().to_owned(),
        phases: planned.map_or_else(Vec::new, |stage| stage.phases.clone()),
        buffers: planned.map_or_else(Vec::new, |stage| stage.buffers.clone()),
        largest_allocation: None,
        peak_bytes: planned.and_then(|stage| stage.peaks),
        ranks: Vec::new(),
        host: planned.map_or_else(HostBytes::default, |stage| stage.host),
    }
}

/// Reasons that compare a need with a limit.
const COMPARED: [&str; 6] =
    ["exceeds-budget", "between-allocated-and-reserved", "exceeds-pool", "pool-uncertain", "host-memory-short", "allocator-cap"];

/// How many buffers a shortfall names.
const SHORTFALL_BUFFERS: usize = 8;

/// Peaks of each stage: the highest of its phases. With `references` the VAE has run by the end of encoding, and what the
/// allocator got for it stays.
fn stage_peaks(program: &Program, timeline: &Timeline, spread: &Spread, references: bool) -> [PeakBytes; 4] {
    let mut highest = [(0, 0, 0); 4];
    for (span, held) in program.phases().iter().zip(&timeline.phases) {
        let (tensors, allocated, reserved) = &mut highest[span.stage as usize];
        *tensors = held.tensors.max(*tensors);
        *allocated = held.allocated.max(*allocated);
        *reserved = held.reserved.max(*reserved);
    }
    let mut peaks = [PeakBytes::default(); 4];
    for ((peak, stage), (tensors, allocated, reserved)) in peaks.iter_mut().zip(StageName::ALL).zip(highest) {
        let vae = stage == StageName::Decoding || (references && stage != StageName::Load);
        *peak = spread.ends(if vae { Work::Vae } else { Work::Plain }).peaks(tensors, allocated, reserved);
    }
    peaks
}

/// What is alive at a peak, for people: weights of a component, of one element size, are one buffer.
fn buffers(alive: Vec<Alive<'_>>) -> Vec<Buffer> {
    let mut buffers: Vec<Buffer> = Vec::with_capacity(alive.len());
    // What was put together: where it is in `buffers`, what it is, its element size and how many kinds it has.
    let mut sums: Vec<(usize, &Site, u64, usize)> = Vec::new();
    for item in alive {
        let (site, element) = (item.shape.site, item.shape.element);
        let count = u32::try_from(item.count).unwrap_or(u32::MAX);
        let summed = site.kind == BufferKind::Weights || site.kind == BufferKind::Staging;
        if summed {
            let same = |sum: &&mut (usize, &Site, u64, usize)| sum.2 == element && sum.1.name == site.name && sum.1.rule == site.rule;
            if let Some((at, .., kinds)) = sums.iter_mut().find(same) {
                buffers[*at].bytes += item.bytes;
                buffers[*at].count += count;
                *kinds += 1;
                continue;
            }
            sums.push((buffers.len(), site, element, 1));
        }
        buffers.push(Buffer {
            name: site.name.to_owned(),
            kind: site.kind,
            tier: Tier::Device,
            bytes: item.bytes,
            count,
            formula: if summed { parameters(&item) } else { formula(&item) },
            rule: site.rule.to_owned(),
        });
    }
    for (at, _, element, _) in sums.into_iter().filter(|(.., kinds)| *kinds > 1) {
        let total = buffers[at].bytes / element;
        buffers[at].formula = format!("{total} parameters x {element} B");
    }
    buffers.retain(|buffer| buffer.bytes > 0);
    buffers.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)).then_with(|| a.formula.cmp(&b.formula)));
    buffers
}

/// `1418996800 parameters x 2 B`.
fn parameters(item: &Alive<'_>) -> String {
    let parameters: u64 = item.shape.dims.iter().map(|(_, extent)| *extent).product::<u64>() * item.count;
    format!("{parameters} {} x {} B", item.shape.dims.first().map_or("parameters", |(name, _)| name), item.shape.element)
}

/// `batch 1 x tokens 32760 x hidden 1536 x 2 B`.
fn formula(item: &Alive<'_>) -> String {
    let mut text = String::with_capacity(96);
    for (name, extent) in item.shape.dims {
        text.push_str(name);
        text.push(' ');
        push_number(&mut text, *extent);
        text.push_str(" x ");
    }
    push_number(&mut text, item.shape.element);
    text.push_str(" B");
    if item.bytes / item.count != item.shape.dims.iter().map(|(_, extent)| *extent).product::<u64>() * item.shape.element {
        text.push_str(", grown since");
    }
    text
}

/// Adds a number without a text of its own in between.
fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + u8::try_from(number % 10).unwrap_or(0)));
}
