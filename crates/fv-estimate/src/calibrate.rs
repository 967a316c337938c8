//! Coefficients from reference runs: how far the peaks of completed runs lie from derived ones.
//!
//! Only like is put with like. Runs are grouped by family, runtime, metric and everything else that decides what a figure
//! means: device, partition, number of devices, revision of the runtime, first or warm request, kind of weights. A group gives
//! one spread; groups are never mixed. Several geometries in a group give an error by leaving each out in turn. One alone scales
//! the rule and says nothing of its accuracy. Observations are read and never changed.
//!
//! A rule is refused where its data does not support it: where a peak lies further from what is derived than [`supported`]
//! allows, or a geometry further above what the others give than [`LEFT_OUT`]. Both bounds come from the spreads that the
//! catalog holds, and a test keeps those inside of them.

use std::collections::{BTreeMap, BTreeSet};

use fv_spec::authored::{Coefficient, Execution, Metric, ReferenceRun, Runtime};
use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{PeakBytes, StageName};
use fv_spec::request::PartialRequest;
use serde_json::Value;

use crate::device::gib_to_bytes;
use crate::estimate::Workload;
use crate::resolve::Overrides;
use crate::spread::{ONE, Work};

/// Allocated may lie so far from what is derived, in millionths, before no scaling of the rule explains it: the error that
/// docs/accuracy.md demands of a rule at worst, 10 % (wan). Live tensors are counted, so there is nothing to scale.
const ALLOCATED: [u64; 2] = [900_000, 1_100_000];
/// The same for reserved, where the derived value is a replay of the allocator. All rows of docs/accuracy.md lie between 0.811 and
/// 1.179 of what the replay gives; with the margin of their fits that is 0.801 to 1.189, and a quarter is beyond all of them.
const RESERVED: [u64; 2] = [750_000, 1_250_000];
/// So far, in millionths, a geometry may lie above the high end that the other geometries give, before they do not say what an
/// unmeasured one takes. Of the spreads in the catalog the worst is 0.055 (cogvideox). Below there is no bound beside that of the
/// ratio itself: a low end that is too high only promises less.
pub const LEFT_OUT: u64 = 100_000;
/// What marks a source row that is a reference run; others are lines of tables of measured rows.
pub const FROM_RUN: &str = "run ";
/// Beyond the highest and lowest ratio, in millionths: the next geometry is not one of the measured ones.
const MARGIN: u64 = 10_000;

/// What decides whether two figures may stand in one fit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Context {
    /// The family of the rule.
    pub family: String,
    /// The runtime of the rule.
    pub runtime: Runtime,
    /// The metric, as written; its scope follows from it.
    pub metric: &'static str,
    /// The device.
    pub hardware: String,
    /// A partition of it.
    pub partition: Option<String>,
    /// Devices that took part.
    pub gpu_count: u32,
    /// The runtime's revision.
    pub revision: String,
    /// `first request` or `warm request`.
    pub execution: &'static str,
    /// `checkpoint`, or a seed of made-up weights.
    pub weights: String,
}

/// One measured peak beside the derived one.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The run.
    pub run: String,
    /// The model.
    pub model: String,
    /// The stage; `None`: the whole request.
    pub stage: Option<StageName>,
    /// Measured bytes of the rank that took most.
    pub measured: u64,
    /// Derived.
    pub derived: PeakBytes,
    /// Whether a VAE had run.
    pub work: Work,
    /// Pixels, frames and batch.
    pub geometry: [u64; 3],
}

/// Runs of one context.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// Their peaks.
    pub points: Vec<Point>,
    /// Whether any of them measured the start apart.
    pub startup: bool,
}

/// A run, or a stage of one, that is in no fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The run.
    pub run: String,
    /// Why.
    pub why: String,
}

/// What a group gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The coefficients by id; empty when refused.
    pub coefficients: BTreeMap<String, Coefficient>,
    /// Why the rule is not supported by its data.
    pub refused: Vec<String>,
    /// What a reader must know of the fit.
    pub notes: Vec<String>,
}

/// Groups the runs of `models`.
pub fn groups<'a>(models: impl IntoIterator<Item = &'a Model>, rules: &RulesFile) -> (BTreeMap<Context, Group>, Vec<Left>) {
    let (mut groups, mut left) = (BTreeMap::new(), Vec::new());
    for model in models {
        for run in &model.reference_runs {
            if let Err(why) = add(model, run, rules, &mut groups, &mut left) {
                left.push(Left { run: run.id.clone(), why });
            }
        }
    }
    (groups, left)
}

fn add(
    model: &Model,
    run: &ReferenceRun,
    rules: &RulesFile,
    groups: &mut BTreeMap<Context, Group>,
    left: &mut Vec<Left>,
) -> Result<(), String> {
    let memory = run.memory.as_ref().ok_or("it records no memory")?;
    let metric = memory.metric;
    if metric == Metric::DeviceUsed {
        return Err("device_used contains the fixed cost of the process, which is measured apart; no spread is fitted to it".to_owned());
    }
    let workload = derive(model, run, rules)?;
    let peaks = *workload.peaks().ok_or("no rule covers it")?;
    let revisions = &run.context.revisions;
    let context = Context {
        family: model.memory_rules.clone(),
        runtime: run.context.runtime,
        metric: metric.word(),
        hardware: run.hardware.clone(),
        partition: run.hardware_partition.clone(),
        gpu_count: run.gpu_count,
        revision: revisions.runtime.clone().or_else(|| revisions.fastvideo.clone()).unwrap_or_default(),
        execution: match run.execution {
            Execution::FirstRequest => "first request",
            Execution::WarmRequest => "warm request",
        },
        weights: run.context.weights.clone().unwrap_or_else(|| "checkpoint".to_owned()),
    };
    let request = workload.request;
    let geometry = [u64::from(request.height) * u64::from(request.width), request.num_frames.into(), request.batch.into()];
    let vae = |stage: StageName| stage == StageName::Decoding || (request.references > 0 && stage != StageName::Load);
    let point = |stage: Option<StageName>, gib: f64, derived: PeakBytes, work: Work| -> Result<Point, String> {
        let measured = gib_to_bytes("a recorded peak", gib).map_err(|error| error.message)?;
        Ok(Point { run: run.id.clone(), model: model.id.clone(), stage, measured, derived, work, geometry })
    };
    let most = |of: &dyn Fn(&fv_spec::authored::RankPeaks) -> Option<f64>| {
        memory.per_gpu.iter().filter_map(of).fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))))
    };
    let group = groups.entry(context).or_default();
    let mut compare = |group: &mut Group, point: Point| {
        if of_metric(&point.derived, metric) == 0 {
            let stage = point.stage.map_or("the request", StageName::word);
            left.push(Left { run: run.id.clone(), why: format!("{stage}: nothing is derived there, so nothing scales") });
        } else {
            group.points.push(point);
        }
    };
    if let Some(gib) = most(&|rank| rank.startup_peak) {
        group.startup = true;
        compare(group, point(Some(StageName::Load), gib, peaks[StageName::Load as usize], Work::Plain)?);
    }
    let names: BTreeSet<&String> = memory.per_gpu.iter().flat_map(|rank| rank.stages.keys()).collect();
    let (mut by_stage, mut unnamed) = (false, Vec::new());
    for name in names {
        let Some(stage) = StageName::ALL.into_iter().find(|stage| stage.word() == name && *stage != StageName::Load) else {
            unnamed.push(name);
            continue;
        };
        if let Some(gib) = most(&|rank| rank.stages.get(name).copied()) {
            let work = if vae(stage) { Work::Vae } else { Work::Plain };
            compare(group, point(Some(stage), gib, peaks[stage as usize], work)?);
            by_stage = true;
        }
    }
    if !by_stage && let Some(gib) = most(&|rank| Some(rank.request_peak)) {
        // The largest stage of a request, loading apart.
        let stages = StageName::ALL.into_iter().filter(|stage| *stage != StageName::Load);
        if let Some(stage) = stages.max_by_key(|stage| of_metric(&peaks[*stage as usize], metric)) {
            let work = if vae(stage) { Work::Vae } else { Work::Plain };
            compare(group, point(None, gib, peaks[stage as usize], work)?);
        }
    }
    for name in unnamed {
        left.push(Left { run: run.id.clone(), why: format!("the stage `{name}` is none that the rules derive") });
    }
    Ok(())
}

fn of_metric(peaks: &PeakBytes, metric: Metric) -> u64 {
    if metric == Metric::TorchPeakAllocated { peaks.allocated.value } else { peaks.reserved.value }
}

/// The run evaluated as it was configured.
fn derive(model: &Model, run: &ReferenceRun, rules: &RulesFile) -> Result<Workload, String> {
    let context = &run.context;
    let example = model.examples.iter().find(|example| example.id == context.deployment);
    let example = example.ok_or_else(|| format!("the model has no deployment `{}`", context.deployment))?;
    let mut base_config = context.config.clone();
    base_config.insert("default_request".to_owned(), Value::Object(context.request.clone()));
    let example = Example { base_config, env: context.env.clone(), ..example.clone() };
    let workload = Workload::evaluate(model, &example, &PartialRequest::default(), &Overrides::default(), rules, false)
        .map_err(|errors| errors.into_iter().map(|error| error.message).collect::<Vec<_>>().join("; "))?;
    match workload.unknown.first() {
        Some(reason) => Err(format!("what it did is not covered: {}", reason.message)),
        None => Ok(workload),
    }
}

/// Measured over derived, in millionths, rounded up.
fn ratio(point: &Point, metric: &str) -> u64 {
    let allocated = metric == Metric::TorchPeakAllocated.word();
    let derived = of_metric(&point.derived, if allocated { Metric::TorchPeakAllocated } else { Metric::TorchPeakReserved });
    let ratio = (u128::from(point.measured) * u128::from(ONE)).div_ceil(u128::from(derived.max(1)));
    u64::try_from(ratio).unwrap_or(u64::MAX)
}

fn ends(ratios: &[u64]) -> [u64; 2] {
    let low = ratios.iter().copied().min().unwrap_or(ONE).min(ONE);
    let high = ratios.iter().copied().max().unwrap_or(ONE).max(ONE);
    [low.saturating_sub(MARGIN), high.saturating_add(MARGIN)]
}

/// The lowest and the highest ratio of a metric, as millionths, that its rule supports. `None` for one that is in no fit.
pub fn supported(metric: Metric) -> Option<[u64; 2]> {
    match metric {
        Metric::TorchPeakAllocated => Some(ALLOCATED),
        Metric::TorchPeakReserved => Some(RESERVED),
        Metric::DeviceUsed => None,
    }
}

/// Why a geometry that lies so far above what the others give is none that they explain.
fn left_out_wrong(error: u64) -> Option<String> {
    (error > LEFT_OUT).then(|| {
        format!(
            "a geometry lies {} of what is derived above the high end that the others give, {} is the most: the rule does not say what \
             an unmeasured one takes",
            percent(error),
            percent(LEFT_OUT)
        )
    })
}

/// Fits the spread of one group.
pub fn fit(context: &Context, group: &Group, date: &str) -> Fit {
    let mut fit = Fit { coefficients: BTreeMap::new(), refused: Vec::new(), notes: Vec::new() };
    let allocated = context.metric == Metric::TorchPeakAllocated.word();
    let [least, most] = if allocated { ALLOCATED } else { RESERVED };
    for point in &group.points {
        let found = ratio(point, context.metric);
        if !(least..=most).contains(&found) {
            let stage = point.stage.map_or("its largest stage", StageName::word);
            fit.refused.push(format!(
                "{}, {stage}: measured {} of what is derived, supported are {} to {}: no scaling of the rule explains that, the rule \
                 itself is wrong there",
                point.run,
                percent(found),
                percent(least),
                percent(most)
            ));
        }
    }
    if !fit.refused.is_empty() {
        return fit;
    }
    if !group.startup {
        fit.notes.push("no run measured the start apart, so what the rule covers of loading stays unknown".to_owned());
    }
    for work in [Work::Plain, Work::Vae] {
        let points: Vec<&Point> = group.points.iter().filter(|point| point.work == work).collect();
        if points.is_empty() {
            continue;
        }
        let ratios: Vec<u64> = points.iter().map(|point| ratio(point, context.metric)).collect();
        let error = left_out(&points, &ratios);
        let what = if work == Work::Vae { "stages with a VAE" } else { "other stages" };
        if let Some(wrong) = error.and_then(|[_, above]| left_out_wrong(above)) {
            fit.refused.push(format!("{what}: {wrong}"));
            continue;
        }
        if error.is_none() {
            fit.notes.push(format!("{what}: one geometry scales the rule and says nothing of its accuracy"));
        }
        let [low, high] = ends(&ratios);
        let metrics =
            if allocated { vec![("allocated-high", high, 1)] } else { vec![("reserved-low", low, 0), ("reserved-high", high, 1)] };
        let runs: BTreeSet<String> = points.iter().map(|point| format!("{FROM_RUN}{}/{}", point.model, point.run)).collect();
        for (name, value, end) in metrics {
            let side = if end == 0 { "lowest" } else { "highest" };
            let coefficient = Coefficient {
                value: of_one(value),
                unit: "ratio".to_owned(),
                rule: context.family.clone(),
                runtime: context.runtime,
                metric: format!("measured {} / derived, {side}", context.metric),
                range: range(&points),
                source_rows: runs.iter().cloned().collect(),
                date: date.to_owned(),
                leave_one_out_error: error.map(|error| of_one(error[end])),
            };
            fit.coefficients.insert(format!("spread-{}-{}-{}{name}", context.family, context.runtime.word(), work.infix()), coefficient);
        }
    }
    if !fit.refused.is_empty() {
        fit.coefficients.clear();
    }
    fit
}

/// By how much a geometry lies outside of what the others give, below and above, in millionths. `None` with one geometry.
fn left_out(points: &[&Point], ratios: &[u64]) -> Option<[u64; 2]> {
    let geometries: BTreeSet<[u64; 3]> = points.iter().map(|point| point.geometry).collect();
    if geometries.len() < 2 {
        return None;
    }
    let mut worst = [0, 0];
    for geometry in geometries {
        let of =
            |own: bool| points.iter().zip(ratios).filter(move |(point, _)| (point.geometry == geometry) == own).map(|(_, ratio)| *ratio);
        let [low, high] = ends(&of(false).collect::<Vec<_>>());
        for ratio in of(true) {
            worst[0] = worst[0].max(low.saturating_sub(ratio));
            worst[1] = worst[1].max(ratio.saturating_sub(high));
        }
    }
    Some(worst)
}

fn range(points: &[&Point]) -> BTreeMap<String, [f64; 2]> {
    let mut range = BTreeMap::new();
    for point in points {
        for (name, value) in ["pixels", "num_frames", "batch"].into_iter().zip(point.geometry) {
            #[expect(clippy::cast_precision_loss, reason = "extents are small")]
            let value = value as f64;
            let ends = range.entry(name.to_owned()).or_insert([value, value]);
            *ends = [ends[0].min(value), ends[1].max(value)];
        }
    }
    range
}

#[expect(clippy::cast_precision_loss, reason = "millionths near one")]
fn of_one(millionths: u64) -> f64 {
    millionths as f64 / ONE as f64
}

fn percent(millionths: u64) -> String {
    format!("{}.{} %", millionths / 10_000, millionths / 1_000 % 10)
}
