//! `estimate`, `explain`, `match`, `assess` and `recommend`.

use std::{collections::BTreeMap, io::Write};

use clap::Args;
use fv_catalog::output::Format;
use fv_cli::terminal;
use fv_estimate::{
    device::DeviceSpec,
    error::InputError,
    estimate::Workload,
    evidence::{EvidenceQuery, WantedRevisions, assess as assess_evidence, match_evidence},
    heuristics::heuristics,
    largest::{Wanted, largest},
    place,
    question::Question,
    recommend::{Candidate, recommend as sort},
    render::{self, Names, Text},
    resolve::{config_path, resolve, without_nulls},
};
use fv_spec::{
    authored::Runtime,
    compiled::{Example, Model, RulesFile},
    estimate::{Estimate, Explanation, Recommendations, Setting, VERSION, Verdict},
    questions::PlaceChanges,
    request::{PartialRequest, Request},
    units::MAX_JSON_INTEGER,
};
use serde_json::Value;

use super::ask::{Devices, Evaluated, Limits, On, Place, PriceArgs, Work, evaluate, is_unified, needed, refused, timed};
use crate::cli::{Context, Done, Stop};

/// `estimate` and `explain`.
#[derive(Debug, Args)]
#[command(mut_arg("positional", needed))]
pub(crate) struct EstimateArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    on: On,
    /// Exit 1 unless the answer is that it fits
    #[arg(long)]
    require_fit: bool,
}

/// `match`.
#[derive(Debug, Args)]
#[command(mut_arg("positional", needed))]
pub(crate) struct MatchArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    revisions: Revisions,
}

/// `assess`.
#[derive(Debug, Args)]
#[command(mut_arg("positional", needed))]
pub(crate) struct AssessArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    revisions: Revisions,
    /// Exit 1 unless the answer is that it fits
    #[arg(long)]
    require_fit: bool,
}

/// `recommend`.
#[derive(Debug, Args)]
#[command(mut_arg("deployment", |arg| arg.help("Only this deployment of the model; without it, all")))]
#[command(mut_arg("runtime", |arg| arg.help("Only the first deployment with this runtime")))]
pub(crate) struct RecommendArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    devices: Devices,
    /// Partitions, too, each on its own
    #[arg(long, help_heading = "Device")]
    partitions: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    prices: PriceArgs,
    /// Lines of each list; without it 10 for people and all as JSON
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    limit: Option<usize>,
    #[command(flatten)]
    revisions: Revisions,
    /// Exit 1 unless something fits
    #[arg(long)]
    require_fit: bool,
}

/// Revisions that would run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Evidence")]
struct Revisions {
    /// The revision of the runtime that would run; without it no recorded run is more than unverified
    #[arg(long, value_name = "REVISION")]
    runtime_revision: Option<String>,
    /// The revision of the checkpoint that would be loaded
    #[arg(long, value_name = "REVISION")]
    model_revision: Option<String>,
}

/// A model, evaluated on a device.
struct Asked {
    model: Model,
    /// The deployment's place in the model.
    example: usize,
    place: Place,
    evaluated: Evaluated,
    rules: RulesFile,
}

impl Asked {
    fn new(context: &Context, work: &Work, on: &On) -> Result<Self, Stop> {
        // Before the work, so that a format that is not for answers is refused at once.
        context.data_format()?;
        let store = context.store()?;
        let model = work.find(&store)?;
        let example = work.example(&model)?;
        let place = on.find(&store)?;
        work.asks.sound()?;
        let rules = store.rules()?;
        let evaluated = evaluate(&model, example, work, &place, &rules)?;
        let example = model.examples.iter().position(|other| other.id == example.id).unwrap_or_default();
        Ok(Self { model, example, place, evaluated, rules })
    }

    fn example(&self) -> &Example {
        &self.model.examples[self.example]
    }

    fn names(&self) -> Names<'_> {
        Names { model: &self.model.name, device: self.place.device.as_ref().map(|device| device.name.as_str()) }
    }

    fn estimate(&self) -> Result<Estimate, Stop> {
        let Evaluated { workload, budget } = &self.evaluated;
        let mut estimate = workload.estimate(self.place.device.as_ref().map(|device| device.id.as_str()), budget);
        bounded(&estimate)?;
        if let Some(device) = &self.place.device {
            let about = (&self.model, self.example(), &self.rules);
            estimate.forecast = Some(timed((workload, budget), about, device, self.place.asked.partition.as_deref(), &BTreeMap::new()));
        }
        Ok(estimate)
    }

    /// What evidence is compared with.
    fn query(&self, work: &Work, revisions: &Revisions) -> EvidenceQuery {
        let device = self.place.device.as_ref().filter(|device| !device.custom);
        let mut query = query(&self.model, self.example(), &self.evaluated.workload, work, revisions);
        query.hardware = device.map(|device| device.id.clone());
        query.partition.clone_from(&self.place.asked.partition);
        query.allocation_gb = self.place.asked.allocation_gb;
        query
    }
}

/// What evidence is compared with, apart from the device.
fn query(model: &Model, example: &Example, workload: &Workload, work: &Work, revisions: &Revisions) -> EvidenceQuery {
    let settings = &workload.settings;
    let overrides = work.asks.overrides(false);
    // Environment variables are compared as such, and what follows from other settings needs no record.
    let written = |setting: &Setting| {
        // What a runtime without known settings is given is all that there is to compare.
        let unresolved = (settings.runtime == Runtime::FreeVideo).then(|| setting.key.clone());
        let key = config_path(settings.runtime, &setting.key).or(unresolved)?;
        Some(Setting { key, value: setting.value.clone(), provenance: setting.provenance })
    };
    let mut env = example.env.clone();
    env.extend(overrides.env.into_iter().map(|(name, value)| (name, Value::String(value))));
    let plain = resolve(model, example, &PartialRequest::default(), &fv_estimate::resolve::Overrides::default());
    EvidenceQuery {
        runtime: example.runtime,
        deployment: example.id.clone(),
        base_config: without_nulls(example.runtime, &example.base_config, &overrides.set),
        settings: settings.reported.iter().filter_map(written).collect(),
        env,
        request: workload.request,
        default_request: plain.ok().map(|(_, request)| request),
        hardware: None,
        partition: None,
        allocation_gb: None,
        gpu_count: settings.gpu_count,
        revisions: WantedRevisions {
            runtime: revisions.runtime_revision.clone(),
            model: revisions.model_revision.clone(),
            components: BTreeMap::new(),
        },
        synthetic_weights: false,
        execution: None,
    }
}

/// Integers of an answer are read by programs that know 53 bits.
fn bounded(estimate: &Estimate) -> Done {
    let peaks = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.device.high.max(peaks.reserved.high));
    let buffers = estimate.stages.iter().flat_map(|stage| &stage.buffers).map(|buffer| buffer.bytes);
    let phases = estimate.stages.iter().flat_map(|stage| &stage.phases).map(|phase| phase.allocated_bytes);
    let host = estimate.host.required_bytes;
    if peaks.chain(buffers).chain(phases).chain(host).max() > Some(MAX_JSON_INTEGER) {
        return Err(Stop::Usage("the request is too large: its sizes exceed 2^53 bytes".into()));
    }
    Ok(())
}

pub(crate) fn estimate(context: &mut Context, arguments: &EstimateArgs) -> Done {
    let asked = Asked::new(context, &arguments.work, &arguments.on)?;
    let estimate = asked.estimate()?;
    match context.data_format()? {
        Format::Json => context.value(&estimate)?,
        _ => context.text(&render::estimate(&estimate, &asked.names(), terminal::width()))?,
    }
    required(arguments.require_fit, estimate.status == Verdict::Fits)
}

pub(crate) fn explain(context: &mut Context, arguments: &EstimateArgs) -> Done {
    let asked = Asked::new(context, &arguments.work, &arguments.on)?;
    let workload = &asked.evaluated.workload;
    let heuristics = heuristics(&asked.model, asked.example(), &workload.settings, &workload.request);
    let explanation = Explanation { version: VERSION, estimate: asked.estimate()?, heuristics };
    match context.data_format()? {
        Format::Json => context.value(&explanation)?,
        _ => context.text(&render::explanation(&explanation, &asked.names(), terminal::width()))?,
    }
    required(arguments.require_fit, explanation.estimate.status == Verdict::Fits)
}

pub(crate) fn match_runs(context: &mut Context, arguments: &MatchArgs) -> Done {
    let asked = Asked::new(context, &arguments.work, &arguments.on)?;
    let matches = match_evidence(&asked.query(&arguments.work, &arguments.revisions), &asked.model.reference_runs);
    match context.data_format()? {
        Format::Json => context.value(&matches),
        _ => context.text(&render::evidence(&matches, &asked.names(), &asked.example().id, terminal::width())),
    }
}

pub(crate) fn assess(context: &mut Context, arguments: &AssessArgs) -> Done {
    let asked = Asked::new(context, &arguments.work, &arguments.on)?;
    let runs = &asked.model.reference_runs;
    let matches = match_evidence(&asked.query(&arguments.work, &arguments.revisions), runs);
    let assessment = assess_evidence(asked.estimate()?, matches, runs);
    match context.data_format()? {
        Format::Json => context.value(&assessment)?,
        _ => context.text(&render::assessment(&assessment, &asked.names(), terminal::width()))?,
    }
    required(arguments.require_fit, assessment.status == Verdict::Fits)
}

/// The exit code that `--require-fit` asks for.
pub(super) fn required(asked: bool, fits: bool) -> Done {
    if asked && !fits { Err(Stop::No) } else { Ok(()) }
}

/// Lists for people have as many lines as fit on a screen.
const LINES: usize = 10;

pub(crate) fn recommend(context: &mut Context, arguments: &RecommendArgs) -> Done {
    context.data_format()?;
    let store = context.store()?;
    let work = &arguments.work;
    let one = work.names_a_model();
    if !one && work.deployment.is_some() {
        return Err(Stop::Usage("a deployment belongs to a model: name the model, too".into()));
    }
    let models = if one { vec![work.find(&store)?] } else { work.all(&store)? };
    let rules = store.rules()?;
    let mut errors = Vec::new();
    let devices = arguments.devices.find(&store, &mut errors)?;
    work.asks.sound()?;
    let prices = arguments.prices.read(&store)?;
    let limits = arguments.limits.asked(&mut errors);
    // Limits are wrong or right for all devices alike, and without one.
    errors.extend(place::offer(None, &limits, Runtime::FvRun, &rules).err().into_iter().flatten());
    let kinds: Vec<bool> =
        [false, true].into_iter().filter(|unified| devices.iter().any(|device| is_unified(device) == *unified)).collect();
    let mut candidates = Vec::new();
    let mut requests: Vec<(String, Request)> = Vec::new();
    let mut refusals = Vec::new();
    for model in &models {
        if !one && work.example(model).is_err() {
            continue;
        }
        let workloads = match workloads(context, model, work, &rules, &kinds, errors.clone()) {
            Ok(workloads) => workloads,
            // What one model cannot be asked, another may.
            Err(Stop::Usage(message)) if !one && errors.is_empty() => {
                refusals.push((model, message));
                continue;
            }
            Err(stop) => return Err(stop),
        };
        for (example, unified, workload) in &workloads {
            if requests.last().is_none_or(|(id, _)| *id != example.id) {
                requests.push((example.id.clone(), workload.request));
            }
            let mut query = query(model, example, workload, work, &arguments.revisions);
            for device in devices.iter().filter(|device| is_unified(device) == *unified) {
                let whole = std::iter::once(None);
                let parts = device.partitions.iter().filter(|_| arguments.partitions).map(|partition| Some(partition.id.as_str()));
                for partition in whole.chain(parts) {
                    let asked = fv_estimate::budget::Asked { partition: partition.map(str::to_owned), ..limits.clone() };
                    let mut budget = place::offer(Some(device), &asked, example.runtime, &rules).map_err(refused)?;
                    place::check_device(&mut budget, device, &workload.settings);
                    let mut estimate = workload.estimate(Some(&device.id), &budget);
                    estimate.forecast = Some(timed((workload, &budget), (model, example, &rules), device, partition, &prices));
                    bounded(&estimate)?;
                    query.hardware = Some(device.id.clone());
                    query.partition = partition.map(str::to_owned);
                    candidates.push(Candidate {
                        model: (!one).then(|| model.id.clone()),
                        hardware: device.id.clone(),
                        partition: partition.map(str::to_owned),
                        deployment: example.id.clone(),
                        gpu_count: workload.settings.gpu_count,
                        capacity_bytes: budget.capacity_bytes,
                        evidence: match_evidence(&query, &model.reference_runs),
                        estimate,
                        runs: &model.reference_runs,
                    });
                }
            }
        }
    }
    if candidates.is_empty() {
        let messages = refusals.into_iter().map(|(_, message)| message).collect::<Vec<_>>();
        return Err(Stop::Usage(if messages.is_empty() {
            "no model has a deployment in that runtime".into()
        } else {
            messages.join("\nerror: ")
        }));
    }
    for (model, message) in refusals {
        writeln!(context.err, "note: {} is left out: {}", model.id, message.replace("\nerror: ", "; "))?;
    }
    let considered = candidates.len();
    let mut found = sort(candidates);
    if one && !arguments.devices.hardware.is_empty() {
        found.changes = changes_for(&models[0], work, &devices, &limits, &rules, &found)?;
    }
    let fits = !found.measured.is_empty() || !found.analytical.is_empty();
    if context.data_format()? == Format::Json {
        if let Some(limit) = arguments.limit {
            for list in [&mut found.measured, &mut found.analytical, &mut found.uncertain, &mut found.unknown] {
                list.truncate(limit);
            }
        }
        context.value(&found)?;
    } else {
        let limit = arguments.limit.unwrap_or(LINES);
        let all = format!("any of {} model{}", models.len(), if models.len() == 1 { "" } else { "s" });
        let (name, requests) = if one { (models[0].name.as_str(), &requests[..]) } else { (all.as_str(), &[][..]) };
        let asked = render::Asked { model: name, requests, considered, limit };
        context.text(&render::recommendations(&found, &asked, terminal::width()))?;
    }
    required(arguments.require_fit, fits)
}

/// What would make a request fit on each device on which nothing does.
fn changes_for(
    model: &Model,
    work: &Work,
    devices: &[DeviceSpec],
    limits: &fv_estimate::budget::Asked,
    rules: &RulesFile,
    found: &Recommendations,
) -> Result<Vec<PlaceChanges>, Stop> {
    let named = work.example(model)?;
    let request = work.asks.request();
    // Of what is unknown no change is known either: then that of the first deployment that is not.
    let examples = std::iter::once(named).chain(model.examples.iter().filter(|other| other.id != named.id));
    let examples: Vec<&Example> = if work.deployment.is_some() || work.runtime.is_some() { vec![named] } else { examples.collect() };
    let mut offered = Vec::new();
    for device in devices {
        if found.measured.iter().chain(&found.analytical).any(|fits| fits.hardware == device.id) {
            continue;
        }
        let overrides = work.asks.overrides(is_unified(device));
        let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: false };
        // A deployment may not take the request, as long as another one did.
        let answer = examples.iter().find_map(|example| {
            let question = Question { model, example, rules, device: Some(device), asked: limits, overrides: &overrides };
            Some((*example, largest(&question, &request, wanted).ok()?.ok()?))
        });
        if let Some((example, answer)) = answer {
            let (hardware, deployment) = (device.id.clone(), example.id.clone());
            let chosen = work.choice(model, example);
            offered.push(PlaceChanges {
                hardware,
                deployment,
                status: answer.status,
                changes: answer.changes,
                tried: answer.tried,
                chosen,
            });
        }
    }
    Ok(offered)
}

/// A deployment evaluated for devices that share their memory with the host, or for those that do not.
type Evaluation<'a> = (&'a Example, bool, Workload);

/// The deployments that were asked about, evaluated once for each kind of memory. One that cannot take the request or a
/// setting is left out, as long as another can.
fn workloads<'a>(
    context: &mut Context,
    model: &'a Model,
    work: &Work,
    rules: &RulesFile,
    kinds: &[bool],
    mut errors: Vec<InputError>,
) -> Result<Vec<Evaluation<'a>>, Stop> {
    let one = work.deployment.is_some() || work.runtime.is_some();
    let examples: Vec<&Example> = if one { vec![work.example(model)?] } else { model.examples.iter().collect() };
    // Without a device, which is an error of its own, the request is looked at all the same.
    let kinds = if kinds.is_empty() { &[false] } else { kinds };
    let mut found: Vec<Evaluation<'a>> = Vec::new();
    let mut refusals: Vec<(&Example, Vec<InputError>)> = Vec::new();
    for example in examples {
        for unified in kinds {
            match Workload::evaluate(model, example, &work.asks.request(), &work.asks.overrides(*unified), rules, false) {
                Ok(workload) => found.push((example, *unified, workload)),
                Err(wrong) if refusals.last().is_some_and(|(last, known)| last.id == example.id && *known == wrong) => {}
                Err(wrong) => refusals.push((example, wrong)),
            }
        }
    }
    // A runtime whose settings are not resolved takes every setting, and knows none.
    let blind = |workload: &Workload| workload.unknown.iter().any(|reason| reason.code == "uncovered-runtime");
    let refuse = found.is_empty() || !errors.is_empty() || (!refusals.is_empty() && found.iter().all(|(.., workload)| blind(workload)));
    if refuse {
        errors.extend(refusals.into_iter().flat_map(|(_, wrong)| wrong));
        return Err(if errors.is_empty() { Stop::Usage(format!("{} has no deployment", model.id)) } else { refused(errors) });
    }
    for (example, wrong) in refusals {
        for error in wrong {
            writeln!(context.err, "note: {} is left out: {error}", example.id)?;
        }
    }
    Ok(found)
}

impl Context {
    /// Writes text for people.
    pub(super) fn text(&mut self, text: &Text) -> Done {
        Ok(self.out.write_all(terminal::shown(text, self.global.color.paints()).as_bytes())?)
    }
}
