//! Answers put together: what the command line and the browser say alike.
//!
//! A [`Question`] is a deployment on a device; a [`Workload`] is its request evaluated. Everything here is one of both, compared.

use std::collections::BTreeMap;

use fv_spec::authored::Runtime;
use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{Estimate, Setting};
use fv_spec::forecast::TimeForecast;
use fv_spec::questions::{Compared, StageDevice};
use fv_spec::request::PartialRequest;
use fv_spec::units::MAX_JSON_INTEGER;
use serde_json::Value;

use crate::budget::{Asked, Budget};
use crate::device::DeviceSpec;
use crate::error::InputError;
use crate::estimate::Workload;
use crate::evidence::{EvidenceQuery, WantedRevisions, match_evidence};
use crate::forecast::cost::Price;
use crate::place;
use crate::question::Question;
use crate::recommend::Candidate;
use crate::resolve::{Overrides, config_path, resolve, without_nulls};

/// Prices by device.
pub type Prices = BTreeMap<String, Price>;

/// How long a workload takes with what the device offers, and what that costs where its price is known; `None` without a device.
pub fn timed(question: &Question<'_>, workload: &Workload, budget: &Budget, prices: &Prices) -> Option<TimeForecast> {
    let device = question.device?;
    let mut forecast = workload.forecast(budget, question.model, question.example, question.rules);
    // The price is that of the whole device.
    let price = prices.get(&device.id).filter(|_| question.asked.partition.is_none());
    forecast.cost = price.zip(forecast.request).map(|(price, time)| price.cost(time, workload.settings.gpu_count, workload.request.batch));
    Some(forecast)
}

/// The estimate of a workload, with its forecast where there is a device. The workload must have been evaluated with details.
///
/// # Errors
/// When a size is beyond what programs read as an integer in JSON.
pub fn estimate(question: &Question<'_>, workload: &Workload, budget: &Budget, prices: &Prices) -> Result<Estimate, InputError> {
    let mut estimate = workload.estimate(question.device.map(|device| device.id.as_str()), budget);
    bounded(&estimate)?;
    estimate.forecast = timed(question, workload, budget, prices);
    Ok(estimate)
}

/// Integers of an answer are read by programs that know 53 bits.
fn bounded(estimate: &Estimate) -> Result<(), InputError> {
    let peaks = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.device.high.max(peaks.reserved.high));
    let buffers = estimate.stages.iter().flat_map(|stage| &stage.buffers).map(|buffer| buffer.bytes);
    let phases = estimate.stages.iter().flat_map(|stage| &stage.phases).map(|phase| phase.allocated_bytes);
    within(peaks.chain(buffers).chain(phases).chain(estimate.host.required_bytes).max())
}

/// That a size can be read as an integer in JSON.
///
/// # Errors
/// When it cannot.
pub fn within(largest: Option<u64>) -> Result<(), InputError> {
    match largest {
        Some(bytes) if bytes > MAX_JSON_INTEGER => {
            Err(InputError::new("too-large", "the request is too large: its sizes exceed 2^53 bytes"))
        }
        _ => Ok(()),
    }
}

/// What evidence is compared with.
pub fn query(question: &Question<'_>, workload: &Workload, revisions: WantedRevisions) -> EvidenceQuery {
    let Question { model, example, overrides, asked, .. } = *question;
    let settings = &workload.settings;
    // Environment variables are compared as such, and what follows from other settings needs no record.
    let written = |setting: &Setting| {
        // What a runtime without known settings is given is all that there is to compare.
        let unresolved = (settings.runtime == Runtime::FreeVideo).then(|| setting.key.clone());
        let key = config_path(settings.runtime, &setting.key).or(unresolved)?;
        Some(Setting { key, value: setting.value.clone(), provenance: setting.provenance })
    };
    let mut env = example.env.clone();
    env.extend(overrides.env.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))));
    let plain = resolve(model, example, &PartialRequest::default(), &Overrides::default());
    EvidenceQuery {
        runtime: example.runtime,
        deployment: example.id.clone(),
        base_config: without_nulls(example.runtime, &example.base_config, &overrides.set),
        settings: settings.reported.iter().filter_map(written).collect(),
        env,
        request: workload.request,
        default_request: plain.ok().map(|(_, request)| request),
        // Evidence names devices of the catalog.
        hardware: question.device.filter(|device| !device.custom).map(|device| device.id.clone()),
        partition: asked.partition.clone(),
        allocation_gb: asked.allocation_gb,
        gpu_count: settings.gpu_count,
        revisions,
        synthetic_weights: false,
        execution: None,
    }
}

/// A deployment evaluated for devices that share their memory with the host, or for those that do not.
#[derive(Debug)]
pub struct Evaluation<'a> {
    /// The deployment.
    pub example: &'a Example,
    /// Which devices.
    pub unified: bool,
    /// The request, evaluated.
    pub workload: Workload,
}

/// A deployment that cannot take a request or a setting, with why.
pub type LeftOut<'a> = (&'a Example, Vec<InputError>);

/// Deployments of a model evaluated once for each kind of memory that `devices` have. One that cannot take the request or a setting is
/// left out, as long as another can.
///
/// # Errors
/// What is wrong, when nothing is left.
pub fn evaluations<'a>(
    model: &Model,
    examples: &[&'a Example],
    request: &PartialRequest,
    overrides: &Overrides,
    rules: &RulesFile,
    devices: &[DeviceSpec],
) -> Result<(Vec<Evaluation<'a>>, Vec<LeftOut<'a>>), Vec<InputError>> {
    let mut kinds: Vec<bool> =
        [false, true].into_iter().filter(|unified| devices.iter().any(|device| place::unified_memory(device) == *unified)).collect();
    if kinds.is_empty() {
        // Without a device, which is an error of its own, the request is looked at all the same.
        kinds.push(false);
    }
    let mut found: Vec<Evaluation<'a>> = Vec::new();
    let mut left_out: Vec<LeftOut<'a>> = Vec::new();
    for example in examples {
        for &unified in &kinds {
            let overrides = Overrides { unified_memory: unified, ..overrides.clone() };
            match Workload::evaluate(model, example, request, &overrides, rules, false) {
                Ok(workload) => found.push(Evaluation { example, unified, workload }),
                Err(wrong) if left_out.last().is_some_and(|(last, known)| last.id == example.id && *known == wrong) => {}
                Err(wrong) => left_out.push((example, wrong)),
            }
        }
    }
    // A runtime whose settings are not resolved takes every setting, and knows none.
    let blind = |found: &Evaluation<'_>| found.workload.unknown.iter().any(|reason| reason.code == "uncovered-runtime");
    if found.is_empty() || (!left_out.is_empty() && found.iter().all(blind)) {
        return Err(left_out.into_iter().flat_map(|(_, wrong)| wrong).collect());
    }
    Ok((found, left_out))
}

/// A deployment on each of some devices, and on their partitions where these are wanted, to be sorted by
/// [`recommend`](crate::recommend::recommend). `several`: whether models are told apart.
///
/// # Errors
/// What is wrong with limits or sizes.
pub fn candidates<'a>(
    question: &Question<'a>,
    evaluation: &Evaluation<'a>,
    devices: &[DeviceSpec],
    (partitions, several): (bool, bool),
    revisions: &WantedRevisions,
    prices: &Prices,
) -> Result<Vec<Candidate<'a>>, Vec<InputError>> {
    let workload = &evaluation.workload;
    let mut found = Vec::new();
    let mut query = query(question, workload, revisions.clone());
    let model: &'a Model = question.model;
    for device in devices.iter().filter(|device| place::unified_memory(device) == evaluation.unified) {
        let parts = device.partitions.iter().filter(|_| partitions).map(|partition| Some(partition.id.clone()));
        for partition in std::iter::once(None).chain(parts) {
            let asked = Asked { partition, ..question.asked.clone() };
            let question = Question { device: Some(device), asked: &asked, ..*question };
            let budget = question.budget(&workload.settings)?;
            let estimate = estimate(&question, workload, &budget, prices).map_err(|error| vec![error])?;
            query.hardware = (!device.custom).then(|| device.id.clone());
            query.partition.clone_from(&asked.partition);
            found.push(Candidate {
                model: several.then(|| model.id.clone()),
                hardware: device.id.clone(),
                partition: asked.partition.clone(),
                deployment: question.example.id.clone(),
                gpu_count: workload.settings.gpu_count,
                capacity_bytes: budget.capacity_bytes,
                evidence: match_evidence(&query, &model.reference_runs),
                estimate,
                runs: &model.reference_runs,
            });
        }
    }
    Ok(found)
}

/// A line of a comparison: the question's deployment on its device.
///
/// # Errors
/// What is wrong with the request, the settings, the figures of the device or sizes.
pub fn compared(question: &Question<'_>, workload: &Workload, prices: &Prices) -> Result<Compared, Vec<InputError>> {
    let budget = question.budget(&workload.settings)?;
    let summary = workload.summary(&budget);
    let hardware = question.device.map(|device| device.id.as_str());
    let estimate = workload.estimate(hardware, &budget);
    Ok(Compared {
        model: question.model.id.clone(),
        deployment: question.example.id.clone(),
        runtime: question.example.runtime.word().to_owned(),
        hardware: hardware.unwrap_or_default().to_owned(),
        request: workload.request,
        status: summary.status,
        stages: summary.stages.iter().map(|stage| StageDevice { name: stage.name, device: stage.peak_bytes.device }).collect(),
        budget_bytes: budget.budget_bytes,
        margin_bytes: summary.margin_bytes,
        host: estimate.host,
        reasons: estimate.reasons,
        time: timed(question, workload, &budget, prices).and_then(|time| time.summary()),
    })
}
