//! `largest`, `minimum` and `compare`.

use std::{collections::BTreeMap, io::Write};

use clap::Args;
use fv_catalog::output::Format;
use fv_cli::terminal;
use fv_estimate::{
    answers, budget,
    device::DeviceSpec,
    error::InputError,
    forecast::cost::Price,
    largest::{Answer, Wanted, largest as find_largest},
    minimum::minimum as find_minimum,
    question::Question,
    recommend::smallest,
    render::{self, Names},
};
use fv_spec::{
    authored::Runtime,
    compiled::{Example, Model, RulesFile},
    estimate::{VERSION, Verdict},
    questions::{Compared, Comparison, Extent, LargestAnswer, Minimum},
};
use rayon::prelude::*;

use super::ask::{
    Asks, Devices, Limits, On, Place, PriceArgs, RuntimeName, Work, add_own, is_unified, model, needed, no_deployment, refused,
};
use super::estimate::required;
use crate::cli::{Context, Done, Stop};

/// `largest`.
#[derive(Debug, Args)]
pub(crate) struct LargestArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    on: On,
    /// Let what may fit count as fitting
    #[arg(long)]
    admit_uncertain: bool,
    /// Without a model: settings, sizes, buffers and the next larger clips of each, too
    #[arg(long)]
    explain: bool,
    /// Exit 1 unless the request itself fits or, without a model, anything does
    #[arg(long)]
    require_fit: bool,
}

/// `minimum`.
#[derive(Debug, Args)]
#[command(mut_arg("positional", needed))]
pub(crate) struct MinimumArgs {
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    on: On,
    /// Devices that are listed
    #[arg(long, value_name = "N", default_value_t = 5, allow_negative_numbers = true)]
    limit: usize,
    /// Exit 1 unless the request fits on the device that is named
    #[arg(long)]
    require_fit: bool,
}

/// `compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Models, by id or checkpoint
    #[arg(value_name = "MODEL", required = true)]
    models: Vec<String>,
    #[command(flatten)]
    devices: Devices,
    /// Only these deployments: separated by commas, or given several times
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    deployment: Vec<String>,
    /// Only deployments with one of these runtimes: separated by commas, or given several times
    #[arg(long, value_enum, value_delimiter = ',')]
    runtime: Vec<RuntimeName>,
    #[command(flatten)]
    asks: Asks,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    prices: PriceArgs,
    /// Exit 1 unless something fits
    #[arg(long)]
    require_fit: bool,
}

/// The device, once everything wrong with it has been said.
fn sound(place: &Place) -> Result<(), Stop> {
    if place.errors.is_empty() { Ok(()) } else { Err(refused(place.errors.clone())) }
}

pub(crate) fn largest(context: &mut Context, arguments: &LargestArgs) -> Done {
    context.data_format()?;
    let store = context.store()?;
    let (work, on) = (&arguments.work, &arguments.on);
    let one = work.names_a_model();
    if !one && work.deployment.is_some() {
        return Err(Stop::Usage("a deployment belongs to a model: name the model, too".into()));
    }
    let models = if one { vec![work.find(&store)?] } else { work.all(&store)? };
    let asked = if one { vec![(&models[0], work.example(&models[0])?)] } else { chosen(&models, work.runtime) };
    let place = on.find(&store)?;
    sound(&place)?;
    work.asks.sound()?;
    let Some(device) = &place.device else {
        return Err(Stop::Usage("the largest clip depends on the device: name it with --hardware, --vram-gib or --device-file".into()));
    };
    let rules = store.rules()?;
    let overrides = work.asks.overrides(is_unified(device));
    let wanted = Wanted { admit_uncertain: arguments.admit_uncertain, pareto: one, changes: one, adapted: true };
    let answer = |(model, example): &(&Model, &Example)| {
        let question = Question { model, example, rules: &rules, device: Some(device), asked: &place.asked, overrides: &overrides };
        find_largest(&question, &work.asks.request(), wanted)
    };
    let found: Vec<Result<Answer, Vec<InputError>>> = asked.par_iter().map(answer).collect();
    let mut result = LargestAnswer {
        version: VERSION,
        hardware: device.id.clone(),
        admit_uncertain: arguments.admit_uncertain,
        answers: Vec::new(),
        unknown: Vec::new(),
    };
    let mut errors = Vec::new();
    for ((model, example), found) in asked.iter().zip(found) {
        match found {
            Ok(Ok(mut largest)) => {
                largest.notes.extend(work.choice(model, example).filter(|_| one));
                result.answers.push(*largest);
            }
            Ok(Err(unknown)) => result.unknown.push(unknown),
            Err(wrong) => errors.push((model, example, wrong)),
        }
    }
    if result.answers.is_empty() && result.unknown.is_empty() {
        return Err(refused(errors.into_iter().flat_map(|(.., wrong)| wrong).collect()));
    }
    for (model, example, wrong) in errors {
        left_out(context, model, example, &wrong)?;
    }
    let name = if one { models[0].name.as_str() } else { "" };
    match context.data_format()? {
        Format::Json => context.value(&result)?,
        _ => context.text(&render::largest(
            &result,
            &Names { model: name, device: Some(&device.name) },
            arguments.explain,
            terminal::width(),
        ))?,
    }
    let some = |extent: &Extent| extent.largest.is_some();
    let fits =
        result.answers.iter().any(|answer| if one { answer.status == Verdict::Fits } else { some(&answer.frames) || some(&answer.size) });
    required(arguments.require_fit, fits)
}

fn left_out(context: &mut Context, model: &Model, example: &Example, wrong: &[InputError]) -> Done {
    for error in wrong {
        writeln!(context.err, "note: {} ({}) is left out: {error}", model.id, example.id)?;
    }
    Ok(())
}

/// The deployments of all models, or those with a runtime.
fn chosen(models: &[Model], runtime: Option<RuntimeName>) -> Vec<(&Model, &Example)> {
    let runtime = runtime.map(RuntimeName::runtime);
    let wanted = |example: &&Example| runtime.is_none_or(|runtime| runtime == example.runtime);
    models.iter().flat_map(|model| model.examples.iter().filter(wanted).map(move |example| (model, example))).collect()
}

pub(crate) fn minimum(context: &mut Context, arguments: &MinimumArgs) -> Done {
    context.data_format()?;
    let store = context.store()?;
    let work = &arguments.work;
    let model = work.find(&store)?;
    let example = work.example(&model)?;
    let place = arguments.on.find(&store)?;
    sound(&place)?;
    work.asks.sound()?;
    let rules = store.rules()?;
    let overrides = work.asks.overrides(place.device.as_ref().is_some_and(is_unified));
    let device = place.device.as_ref();
    let question = Question { model: &model, example, rules: &rules, device, asked: &place.asked, overrides: &overrides };
    let mut answer = find_minimum(&question, &work.asks.request()).map_err(refused)?;
    answers::within(answer.fits_bytes.max(answer.host_bytes)).map_err(|error| refused(vec![error]))?;
    answer.notes.extend(work.choice(&model, example));
    let devices: Vec<DeviceSpec> = store.devices()?.iter().map(DeviceSpec::from).collect();
    let host = budget::Asked { host_gb: place.asked.host_gb, reserve_bytes: place.asked.reserve_bytes, ..budget::Asked::default() };
    let everywhere = Question { device: None, asked: &host, ..question };
    answer.devices = smallest(&everywhere, &work.asks.request(), &devices, arguments.limit).map_err(refused)?;
    let names = Names { model: &model.name, device: device.map(|device| device.name.as_str()) };
    match context.data_format()? {
        Format::Json => context.value(&answer)?,
        _ => context.text(&render::minimum(&answer, &names, terminal::width()))?,
    }
    let Minimum { status, .. } = answer;
    required(arguments.require_fit, device.is_some() && status == Verdict::Fits)
}

pub(crate) fn compare(context: &mut Context, arguments: &CompareArgs) -> Done {
    context.data_format()?;
    let store = context.store()?;
    let mut named: Vec<Model> = Vec::new();
    for name in &arguments.models {
        let mut found = model(&store, name.trim())?;
        add_own(&mut found, &arguments.runtime, &arguments.deployment);
        if !named.iter().any(|known| known.id == found.id) {
            named.push(found);
        }
    }
    let asked = deployments(&named, &arguments.deployment, &arguments.runtime)?;
    let mut errors = Vec::new();
    if !arguments.devices.narrowed() {
        let text = "say which devices: --hardware names them, --only, --kind, --vendor, --min-memory-gib and --max-memory-gib choose";
        return Err(Stop::Usage(text.into()));
    }
    arguments.asks.sound()?;
    let devices = arguments.devices.find(&store, &mut errors)?;
    let limits = arguments.limits.asked(&mut errors);
    if !errors.is_empty() {
        return Err(refused(errors));
    }
    let rules = store.rules()?;
    let prices = arguments.prices.read(&store)?;
    let mut result = Comparison { version: VERSION, rows: Vec::new() };
    let mut refusals = Vec::new();
    for (model, example) in &asked {
        match rows(model, example, &devices, &arguments.asks, &limits, &rules, &prices) {
            Ok(rows) => result.rows.extend(rows),
            Err(wrong) => refusals.push((*model, *example, wrong)),
        }
    }
    if result.rows.is_empty() {
        return Err(refused(refusals.into_iter().flat_map(|(.., wrong)| wrong).collect()));
    }
    for (model, example, wrong) in refusals {
        left_out(context, model, example, &wrong)?;
    }
    match context.data_format()? {
        Format::Json => context.value(&result)?,
        _ => context.text(&render::comparison(&result, terminal::width()))?,
    }
    required(arguments.require_fit, result.rows.iter().any(|row| row.status == Verdict::Fits))
}

/// The deployments of these models that were named, or run in a runtime that was; all where neither was said.
pub(super) fn deployments<'a>(
    models: &'a [Model],
    ids: &[String],
    runtimes: &[RuntimeName],
) -> Result<Vec<(&'a Model, &'a Example)>, Stop> {
    let runtimes: Vec<Runtime> = runtimes.iter().map(|runtime| runtime.runtime()).collect();
    let all: Vec<(&Model, &Example)> = models.iter().flat_map(|model| model.examples.iter().map(move |example| (model, example))).collect();
    for id in ids {
        if let Some(model) = models.first().filter(|_| !all.iter().any(|(_, example)| example.id.eq_ignore_ascii_case(id))) {
            return Err(no_deployment(model, id));
        }
    }
    let wanted = |example: &Example| {
        (ids.is_empty() || ids.iter().any(|id| example.id.eq_ignore_ascii_case(id)))
            && (runtimes.is_empty() || runtimes.contains(&example.runtime))
    };
    let found: Vec<(&Model, &Example)> = all.into_iter().filter(|(_, example)| wanted(example)).collect();
    if found.is_empty() {
        return Err(Stop::Usage("no deployment of these models is of that name and runtime".into()));
    }
    Ok(found)
}

/// A deployment on each device.
fn rows(
    model: &Model,
    example: &Example,
    devices: &[DeviceSpec],
    asks: &Asks,
    limits: &budget::Asked,
    rules: &RulesFile,
    prices: &BTreeMap<String, Price>,
) -> Result<Vec<Compared>, Vec<InputError>> {
    let mut found = Vec::new();
    for device in devices {
        let overrides = asks.overrides(is_unified(device));
        let question = Question { model, example, rules, device: Some(device), asked: limits, overrides: &overrides };
        let workload = question.evaluate(&asks.request(), false)?;
        found.push(answers::compared(&question, &workload, prices)?);
    }
    Ok(found)
}
