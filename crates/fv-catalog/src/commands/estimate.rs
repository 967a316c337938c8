//! `estimate`, `explain`, `match`, `assess` and `recommend`.

use std::{collections::BTreeMap, io::Write};

use clap::Args;
use fv_catalog::output::Format;
use fv_cli::terminal;
use fv_estimate::{
    answers::{self, Evaluation, Prices},
    device::DeviceSpec,
    error::InputError,
    evidence::{WantedRevisions, assess as assess_evidence, match_evidence},
    heuristics::heuristics,
    largest::{Wanted, largest},
    place,
    question::Question,
    recommend::recommend as sort,
    render::{self, Names, Text},
    resolve::Overrides,
};
use fv_spec::{
    authored::Runtime,
    compiled::{Example, Model, RulesFile},
    estimate::{Estimate, EvidenceMatch, Explanation, Recommendations, VERSION, Verdict},
    questions::PlaceChanges,
    request::Request,
};

use super::ask::{Devices, Evaluated, Limits, On, Place, PriceArgs, Work, evaluate, is_unified, needed, refused};
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
    overrides: Overrides,
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
        let overrides = work.asks.overrides(place.device.as_ref().is_some_and(is_unified));
        Ok(Self { model, example, place, evaluated, rules, overrides })
    }

    fn example(&self) -> &Example {
        &self.model.examples[self.example]
    }

    fn names(&self) -> Names<'_> {
        Names { model: &self.model.name, device: self.place.device.as_ref().map(|device| device.name.as_str()) }
    }

    /// The workload on the device.
    fn question(&self) -> Question<'_> {
        let Self { model, place, rules, overrides, .. } = self;
        Question { model, example: self.example(), rules, device: place.device.as_ref(), asked: &place.asked, overrides }
    }

    fn estimate(&self) -> Result<Estimate, Stop> {
        let Evaluated { workload, budget } = &self.evaluated;
        let question = self.question();
        answers::estimate(&question, workload, budget, &Prices::new()).map_err(|error| refused(vec![error]))
    }

    /// Recorded runs, judged.
    fn matches(&self, revisions: &Revisions) -> EvidenceMatch {
        let query = answers::query(&self.question(), &self.evaluated.workload, revisions.wanted());
        match_evidence(&query, &self.model.reference_runs)
    }
}

impl Revisions {
    fn wanted(&self) -> WantedRevisions {
        WantedRevisions { runtime: self.runtime_revision.clone(), model: self.model_revision.clone(), components: BTreeMap::new() }
    }
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
    let matches = asked.matches(&arguments.revisions);
    match context.data_format()? {
        Format::Json => context.value(&matches),
        _ => context.text(&render::evidence(&matches, &asked.names(), &asked.example().id, terminal::width())),
    }
}

pub(crate) fn assess(context: &mut Context, arguments: &AssessArgs) -> Done {
    let asked = Asked::new(context, &arguments.work, &arguments.on)?;
    let runs = &asked.model.reference_runs;
    let matches = asked.matches(&arguments.revisions);
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
    let overrides = work.asks.overrides(false);
    let mut candidates = Vec::new();
    let mut requests: Vec<(String, Request)> = Vec::new();
    let mut refusals = Vec::new();
    for model in &models {
        if !one && work.example(model).is_err() {
            continue;
        }
        let workloads = match workloads(context, model, work, &rules, &devices, errors.clone()) {
            Ok(workloads) => workloads,
            // What one model cannot be asked, another may.
            Err(Stop::Usage(message)) if !one && errors.is_empty() => {
                refusals.push((model, message));
                continue;
            }
            Err(stop) => return Err(stop),
        };
        for evaluation in &workloads {
            let Evaluation { example, workload, .. } = evaluation;
            if requests.last().is_none_or(|(id, _)| *id != example.id) {
                requests.push((example.id.clone(), workload.request));
            }
            let question = Question { model, example, rules: &rules, device: None, asked: &limits, overrides: &overrides };
            let wanted = (arguments.partitions, !one);
            let revisions = arguments.revisions.wanted();
            candidates.extend(answers::candidates(&question, evaluation, &devices, wanted, &revisions, &prices).map_err(refused)?);
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

/// The deployments that were asked about, evaluated. One that cannot take the request or a setting is left out, as long as another can.
fn workloads<'a>(
    context: &mut Context,
    model: &'a Model,
    work: &Work,
    rules: &RulesFile,
    devices: &[DeviceSpec],
    mut errors: Vec<InputError>,
) -> Result<Vec<Evaluation<'a>>, Stop> {
    let one = work.deployment.is_some() || work.runtime.is_some();
    let examples: Vec<&Example> = if one { vec![work.example(model)?] } else { model.examples.iter().collect() };
    let overrides = work.asks.overrides(false);
    match answers::evaluations(model, &examples, &work.asks.request(), &overrides, rules, devices) {
        Ok((found, left_out)) if errors.is_empty() => {
            for (example, wrong) in left_out {
                for error in wrong {
                    writeln!(context.err, "note: {} is left out: {error}", example.id)?;
                }
            }
            return Ok(found);
        }
        Ok((_, left_out)) => errors.extend(left_out.into_iter().flat_map(|(_, wrong)| wrong)),
        Err(wrong) => errors.extend(wrong),
    }
    Err(if errors.is_empty() { Stop::Usage(format!("{} has no deployment", model.id)) } else { refused(errors) })
}

impl Context {
    /// Writes text for people.
    pub(super) fn text(&mut self, text: &Text) -> Done {
        Ok(self.out.write_all(terminal::shown(text, self.global.color.paints()).as_bytes())?)
    }
}
