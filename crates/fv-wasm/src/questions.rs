//! Questions that a first view does not ask: evidence, recommendations, the largest clip, the smallest budget, comparisons, plans.

use std::rc::Rc;

use fv_estimate::answers::{self, Evaluation, Prices, candidates, compared, evaluations, within};
use fv_estimate::budget::Asked;
use fv_estimate::device::{DeviceSpec, reserve_to_bytes};
use fv_estimate::error::InputError;
use fv_estimate::evidence::{assess, match_evidence};
use fv_estimate::forecast::request::time;
use fv_estimate::largest::{Wanted, largest};
use fv_estimate::minimum::minimum;
use fv_estimate::planner::machine::{Memory, Missing, Stated, Wishes};
use fv_estimate::planner::optimal::{self, Depth};
use fv_estimate::planner::{Outcome, freevideo};
use fv_estimate::question::Question;
use fv_estimate::recommend::{recommend, smallest};
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Assessment, EvidenceMatch, Reason, Recommendations, VERSION};
use fv_spec::plan::PolicyName;
use fv_spec::questions::{Comparison, LargestAnswer, Minimum, PlaceChanges};
use serde_json::Value;

use crate::answers::Asking;
use crate::arguments::{Fields, Limits, Subject, precision};
use crate::problem::{Problem, Problems, all};
use crate::session::{Handle, Session};

/// Devices that an answer lists, unless another number is asked for.
const LISTED: u32 = 5;

/// The deployments that are meant: the chosen one, or all.
fn chosen<'a>(subject: &'a Subject, model: &'a Model) -> Result<Vec<&'a Example>, Problems> {
    if subject.chosen() { Ok(vec![subject.example(model)?]) } else { Ok(model.examples.iter().collect()) }
}

impl Session {
    fn devices(&self, handles: &[Handle]) -> Result<Vec<DeviceSpec>, Problems> {
        let mut devices: Vec<DeviceSpec> = Vec::new();
        for handle in handles {
            let device = self.device(*handle)?.ok_or_else(no_device)?;
            if !devices.iter().any(|known| known.id == device.id) {
                devices.push((*device).clone());
            }
        }
        if devices.is_empty() { Err(no_device()) } else { Ok(devices) }
    }

    fn models(&self, handles: &[Handle], subject: &Subject) -> Result<Vec<Rc<Model>>, Problems> {
        if handles.len() > 1 && subject.chosen() {
            let message = "config: a deployment belongs to one model: leave it out, or ask about one model";
            return Err(vec![Problem::new("conflict", "config", message)]);
        }
        handles.iter().map(|handle| self.model(*handle)).collect()
    }

    /// `fv-catalog match`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn matches(&mut self, on: (Handle, Handle), subject: &str, options: &str) -> Result<EvidenceMatch, Problems> {
        let limits = Limits::read(options)?;
        self.placed(on, subject, &limits, true, |question, workload, _| {
            Ok(match_evidence(&answers::query(question, workload, limits.revisions.clone()), &question.model.reference_runs))
        })
    }

    /// `fv-catalog assess`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn assess(&mut self, on: (Handle, Handle), subject: &str, options: &str) -> Result<Assessment, Problems> {
        let limits = Limits::read(options)?;
        self.placed(on, subject, &limits, true, |question, workload, budget| {
            let runs = &question.model.reference_runs;
            let matches = match_evidence(&answers::query(question, workload, limits.revisions.clone()), runs);
            let estimate = answers::estimate(question, workload, budget, &Prices::new()).map_err(|error| all(vec![error]))?;
            Ok(assess(estimate, matches, runs))
        })
    }

    /// `fv-catalog recommend`. Options: [`Limits`], `partitions`, and `changes` for what would make it fit where it does not.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn recommend(&self, model: Handle, devices: &[Handle], subject: &str, options: &str) -> Result<Recommendations, Problems> {
        let asking = Asking::new(self, model, 0, subject)?;
        let devices = self.devices(devices)?;
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let (partitions, changes) = (fields.flag("partitions"), fields.flag("changes"));
        fields.finish()?;
        let examples = chosen(&asking.subject, &asking.model)?;
        let (subject, overrides) = (&asking.subject, &asking.subject.overrides);
        let (found, _) = evaluations(&asking.model, &examples, &subject.request, overrides, &asking.rules, &devices).map_err(all)?;
        let mut all_candidates = Vec::new();
        for evaluation in &found {
            let Evaluation { example, .. } = evaluation;
            let question = asking.question(example, &limits.asked, overrides);
            let wanted = (partitions, false);
            all_candidates.extend(candidates(&question, evaluation, &devices, wanted, &limits.revisions, &Prices::new()).map_err(all)?);
        }
        let mut answer = recommend(all_candidates);
        if changes {
            answer.changes = changes_for(&asking, &examples, &devices, &limits.asked, &answer);
        }
        Ok(answer)
    }

    /// `fv-catalog largest`, for one model or several. Options: [`Limits`] and `admitUncertain`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn largest(&self, models: &[Handle], device: Handle, subject: &str, options: &str) -> Result<LargestAnswer, Problems> {
        let (device, rules, subject) = (self.device(device)?.ok_or_else(no_device)?, self.rules()?, Subject::read(subject)?);
        let models = self.models(models, &subject)?;
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let admit_uncertain = fields.flag("admitUncertain");
        fields.finish()?;
        let one = models.len() == 1;
        let overrides =
            fv_estimate::resolve::Overrides { unified_memory: fv_estimate::place::unified_memory(&device), ..subject.overrides.clone() };
        let wanted = Wanted { admit_uncertain, pareto: one, changes: one, adapted: true };
        let mut result =
            LargestAnswer { version: VERSION, hardware: device.id.clone(), admit_uncertain, answers: Vec::new(), unknown: Vec::new() };
        let mut errors = Vec::new();
        for model in &models {
            let examples = if one { vec![subject.example(model)?] } else { chosen(&subject, model)? };
            for example in examples {
                let question =
                    Question { model, example, rules: &rules, device: Some(&device), asked: &limits.asked, overrides: &overrides };
                match largest(&question, &subject.request, wanted) {
                    Ok(Ok(found)) => result.answers.push(*found),
                    Ok(Err(unknown)) => result.unknown.push(unknown),
                    // What one deployment cannot be asked, another may.
                    Err(wrong) => errors.extend(wrong),
                }
            }
        }
        if result.answers.is_empty() && result.unknown.is_empty() { Err(all(errors)) } else { Ok(result) }
    }

    /// `fv-catalog minimum`: `device` may be none, `devices` are those to choose from. Options: [`Limits`] and `limit`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn minimum(
        &self,
        (model, device): (Handle, Handle),
        devices: &[Handle],
        subject: &str,
        options: &str,
    ) -> Result<Minimum, Problems> {
        let asking = Asking::new(self, model, device, subject)?;
        let devices = if devices.is_empty() { Vec::new() } else { self.devices(devices)? };
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let limit = fields.whole("limit").unwrap_or(LISTED) as usize;
        fields.finish()?;
        let (example, overrides) = (asking.example()?, asking.overrides());
        let question = asking.question(example, &limits.asked, &overrides);
        let mut answer = minimum(&question, &asking.subject.request).map_err(all)?;
        within(answer.fits_bytes.max(answer.host_bytes)).map_err(|error| all(vec![error]))?;
        let host = Asked { host_gb: limits.asked.host_gb, reserve_bytes: limits.asked.reserve_bytes, ..Asked::default() };
        let everywhere = Question { device: None, asked: &host, ..question };
        answer.devices = smallest(&everywhere, &asking.subject.request, &devices, limit).map_err(all)?;
        Ok(answer)
    }

    /// `fv-catalog compare`. Options: [`Limits`].
    ///
    /// # Errors
    /// Everything that is wrong with the question. A deployment that cannot be asked is left out, as long as another can.
    pub fn compare(&self, models: &[Handle], devices: &[Handle], subject: &str, options: &str) -> Result<Comparison, Problems> {
        let limits = Limits::read(options)?;
        let (devices, rules, subject) = (self.devices(devices)?, self.rules()?, Subject::read(subject)?);
        let models = self.models(models, &subject)?;
        let mut result = Comparison { version: VERSION, rows: Vec::new() };
        let mut errors = Vec::new();
        for model in &models {
            for example in chosen(&subject, model)? {
                let row = |device: &DeviceSpec| {
                    let overrides = fv_estimate::resolve::Overrides {
                        unified_memory: fv_estimate::place::unified_memory(device),
                        ..subject.overrides.clone()
                    };
                    let question =
                        Question { model, example, rules: &rules, device: Some(device), asked: &limits.asked, overrides: &overrides };
                    compared(&question, &*question.evaluate(&subject.request, false).map(Box::new)?, &Prices::new())
                };
                match devices.iter().map(row).collect::<Result<Vec<_>, _>>() {
                    Ok(rows) => result.rows.extend(rows),
                    Err(wrong) => errors.extend(wrong),
                }
            }
        }
        if result.rows.is_empty() { Err(all(errors)) } else { Ok(result) }
    }

    /// `fv-catalog plan`: a plan, a refusal, or why there is no rule. Options: [`Limits`], `policy` (`optimal` or `freevideo`),
    /// `precision`, `computeCapability`, `ramReserveGiB`, and of the policy freevideo `onePass`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn plan(&self, model: Handle, device: Handle, subject: &str, options: &str) -> Result<Value, Problems> {
        let asking = Asking::new(self, model, device, subject)?;
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let policy = fields.text("policy");
        let one_pass = fields.flag("onePass");
        let mut reserve = |name: &'static str| {
            let gib = fields.number(name)?;
            reserve_to_bytes(&format!("`{name}`"), gib).map_err(|error| fields.problems.push(error.into())).ok()
        };
        let ram_reserve_bytes = reserve("ramReserveGiB");
        let wishes = Wishes {
            precision: precision(&mut fields),
            compute_capability: fields.text("computeCapability"),
            vram_reserve_bytes: limits.asked.reserve_bytes,
            ram_reserve_bytes,
            ..Wishes::default()
        };
        let policy = match policy.as_deref().map(PolicyName::parse) {
            Some(None) => {
                let message =
                    format!("policy: allowed are {}", PolicyName::ALL.iter().map(|policy| policy.word()).collect::<Vec<_>>().join(" and "));
                fields.problems.push(Problem::new("invalid-value", "policy", message));
                None
            }
            Some(known) => known,
            None if asking.model.memory_rules == "wan" => Some(PolicyName::Optimal),
            None => Some(PolicyName::Freevideo),
        };
        fields.finish()?;
        let host = limits.asked.host_gb.map(|gb| fv_estimate::device::gb_to_bytes("`hostMemoryGb`", gb)).transpose();
        let host = host.map_err(|error| all(vec![error]))?;
        let memory = Memory { vram: limits.asked.memory_budget_bytes, ram: host };
        let offers = Asked { allocation_gb: limits.asked.allocation_gb, partition: limits.asked.partition.clone(), ..Asked::default() };
        let device = asking.device.as_deref();
        let stated = Stated::new(device, &offers, memory, &wishes, &asking.rules).map_err(all)?;
        missing(stated.missing())?;
        let (machine, _) = stated.machine(None, None, None).map_err(all)?;
        let rates = device.map(|device| device.rates.clone()).unwrap_or_default();
        let request = asking.subject.request;
        let outcome = if policy == Some(PolicyName::Optimal) {
            let covered = optimal::model::covered(&asking.model).map_err(uncovered)?;
            let request = optimal::Asked {
                width: request.width,
                height: request.height,
                frames: request.num_frames,
                seconds: request.seconds,
                steps: request.num_inference_steps,
                text_tokens: request.text_tokens.map(u64::from),
                guidance: request.guidance_scale,
            };
            let question = optimal::Question { request, machine, rates, reference: self.reference() };
            let planner = optimal::Planner::new(covered);
            let outcome = planner.plan(&question, &asking.rules, Depth::Whole).map_err(all)?;
            advised(outcome, |refusal| planner.advise(&question, &asking.rules, refusal))
        } else {
            let planner = freevideo::Planner::new(&asking.model).map_err(uncovered)?;
            let request = freevideo::Asked {
                width: request.width,
                height: request.height,
                frames: request.num_frames,
                seconds: request.seconds,
                steps: request.num_inference_steps,
                text_tokens: request.text_tokens.map(u64::from),
                two_pass: (!one_pass).then(freevideo::TwoPassAsked::default),
                ..freevideo::Asked::default()
            };
            let question = freevideo::Question { request, machine, capacity_trial: false, demonstrated_host_bytes: None };
            let mut outcome = planner.plan(&question).map_err(all)?;
            if let Outcome::Planned(plan) = &mut outcome {
                time(plan, &rates, &asking.rules);
            }
            advised(outcome, |refusal| planner.advise(&question, refusal))
        };
        outcome.map_err(all)
    }
}

/// A refusal gets what would do instead.
fn advised(
    outcome: Outcome,
    advise: impl FnOnce(fv_spec::plan::refusal::Refusal) -> Result<fv_spec::plan::refusal::Refusal, Vec<InputError>>,
) -> Result<Value, Vec<InputError>> {
    let value = match outcome {
        Outcome::Planned(plan) => serde_json::to_value(plan),
        Outcome::Refused(refusal) => serde_json::to_value(advise(*refusal)?),
        Outcome::Unplanned(unplanned) => serde_json::to_value(unplanned),
    };
    Ok(value.unwrap_or_default())
}

fn no_device() -> Problems {
    vec![Problem::new("no-hardware", "hardware", "hardware: the answer depends on the device, and none is given")]
}

fn uncovered(reasons: Vec<Reason>) -> Problems {
    reasons.into_iter().map(|reason| Problem::new(&reason.code, "model", reason.message)).collect()
}

/// What is neither given nor known.
fn missing(missing: Missing) -> Result<(), Problems> {
    let mut problems = Vec::new();
    if missing.vram {
        let message = "how much device memory is free was not said: give `hardware` or `memoryBudgetGiB`";
        problems.push(Problem::new("missing-capacity", "memoryBudgetGiB", message));
    }
    if missing.ram {
        problems.push(Problem::new("missing-capacity", "hostMemoryGb", "how much host memory is free was not said: give `hostMemoryGb`"));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// What would make a request fit on each device on which nothing does.
fn changes_for(
    asking: &Asking,
    examples: &[&Example],
    devices: &[DeviceSpec],
    limits: &Asked,
    found: &Recommendations,
) -> Vec<PlaceChanges> {
    let mut offered = Vec::new();
    for device in devices {
        if found.measured.iter().chain(&found.analytical).any(|fits| fits.hardware == device.id) {
            continue;
        }
        let overrides = fv_estimate::resolve::Overrides {
            unified_memory: fv_estimate::place::unified_memory(device),
            ..asking.subject.overrides.clone()
        };
        let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: false };
        // A deployment may not take the request, as long as another one did; of what is unknown no change is known either.
        let answer = examples.iter().find_map(|example| {
            let question = Question { device: Some(device), ..asking.question(example, limits, &overrides) };
            Some((*example, largest(&question, &asking.subject.request, wanted).ok()?.ok()?))
        });
        if let Some((example, answer)) = answer {
            offered.push(PlaceChanges {
                hardware: device.id.clone(),
                deployment: example.id.clone(),
                status: answer.status,
                changes: answer.changes,
                tried: answer.tried,
                chosen: None,
            });
        }
    }
    offered
}
