//! Questions answered.
//!
//! A question names a model and a device by handle; `subject` is JSON as [`Subject::read`] takes it, `options` as each function says.

use std::rc::Rc;

use fv_estimate::answers::{self, Prices};
use fv_estimate::budget::{Asked, Budget};
use fv_estimate::device::DeviceSpec;
use fv_estimate::estimate::Workload;
use fv_estimate::place;
use fv_estimate::question::Question;
use fv_estimate::resolve::Overrides;
use fv_estimate::resolve::legal::{MAX_SIDE, legal};
use fv_spec::authored::Runtime;
use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{Estimate, Summary};
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::{Fields, Limits, Subject};
use crate::problem::{Problem, Problems, all};
use crate::session::{Handle, Key, Session};

/// A deployment on a device, and what is asked of it.
pub(crate) struct Asking {
    pub(crate) model: Rc<Model>,
    pub(crate) device: Option<Rc<DeviceSpec>>,
    pub(crate) rules: Rc<RulesFile>,
    pub(crate) subject: Subject,
}

impl Asking {
    /// Reads a question.
    pub(crate) fn new(session: &Session, model: Handle, device: Handle, subject: &str) -> Result<Self, Problems> {
        let (model, device, rules) = (session.model(model)?, session.device(device)?, session.rules()?);
        let mut subject = Subject::read(subject)?;
        subject.add_own(&model);
        within_this_part(&subject, &model)?;
        Ok(Self { model, device, rules, subject })
    }

    pub(crate) fn example(&self) -> Result<&Example, Problems> {
        self.subject.example(&self.model)
    }

    pub(crate) fn unified(&self) -> bool {
        self.device.as_ref().is_some_and(|device| place::unified_memory(device))
    }

    /// What the user sets, for this device.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides { unified_memory: self.unified(), ..self.subject.overrides.clone() }
    }

    pub(crate) fn question<'a>(&'a self, example: &'a Example, asked: &'a Asked, overrides: &'a Overrides) -> Question<'a> {
        Question { model: &self.model, example, rules: &self.rules, device: self.device.as_deref(), asked, overrides }
    }
}

/// That this build has the planner of a deployment: without it the answer would be that nothing is known.
fn within_this_part(subject: &Subject, model: &Model) -> Result<(), Problems> {
    if cfg!(feature = "whole") || subject.example(model)?.runtime != Runtime::FvRun {
        return Ok(());
    }
    let message = "config: our own runtime's planner is not in this part of the estimator: load the whole";
    Err(vec![Problem::new("not-in-this-part", "config", message)])
}

/// What the device offers to a workload, or everything that is wrong with either.
fn offered(question: &Question<'_>, workload: Result<Rc<Workload>, Problems>) -> Result<(Rc<Workload>, Budget), Problems> {
    let budget = place::offer(question.device, question.asked, question.example.runtime, question.rules).map_err(all);
    match (workload, budget) {
        (Ok(workload), Ok(mut budget)) => {
            if let Some(device) = question.device {
                place::check_device(&mut budget, device, &workload.settings);
            }
            Ok((workload, budget))
        }
        (workload, budget) => Err(workload.err().into_iter().chain(budget.err()).flatten().collect()),
    }
}

impl Session {
    /// A request on a device, and what that offers: evaluated anew, unless it was evaluated lately.
    pub(crate) fn placed<T>(
        &mut self,
        (model, device): (Handle, Handle),
        subject: &str,
        limits: &Limits,
        details: bool,
        answer: impl FnOnce(&Question<'_>, &Workload, &Budget) -> Result<T, Problems>,
    ) -> Result<T, Problems> {
        let asking = Asking::new(self, model, device, subject)?;
        let example = asking.example()?;
        let overrides = asking.overrides();
        let question = asking.question(example, &limits.asked, &overrides);
        let key = Key { model, unified: asking.unified(), subject: subject.to_owned() };
        let workload = match self.kept(&key, details) {
            Some(workload) => Ok(workload),
            None => question.evaluate(&asking.subject.request, details).map(Rc::new).map_err(all),
        };
        let (workload, budget) = offered(&question, workload)?;
        let answered = answer(&question, &workload, &budget)?;
        self.keep(key, details, &workload);
        Ok(answered)
    }

    /// `fv-catalog estimate`. Options: [`Limits`], and `withoutForecast`.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn estimate(&mut self, on: (Handle, Handle), subject: &str, options: &str) -> Result<Estimate, Problems> {
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let plain = fields.flag("withoutForecast");
        fields.finish()?;
        self.placed(on, subject, &limits, true, |question, workload, budget| {
            if plain {
                return Ok(workload.estimate(question.device.map(|device| device.id.as_str()), budget));
            }
            answers::estimate(question, workload, budget, &Prices::new()).map_err(|error| all(vec![error]))
        })
    }

    /// Verdict, stage peaks and margin.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn summary(&mut self, on: (Handle, Handle), subject: &str, options: &str) -> Result<Summary, Problems> {
        let limits = Limits::read(options)?;
        self.placed(on, subject, &limits, false, |_, workload, budget| Ok(workload.summary(budget)))
    }

    /// Which sizes and frame counts a deployment takes.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn legal(&self, model: Handle, subject: &str) -> Result<Value, Problems> {
        let asking = Asking::new(self, model, 0, subject)?;
        let legal = legal(&asking.model, asking.example()?);
        let [height, width] = legal.multiples();
        let last = legal.frames(legal.frame_counts().saturating_sub(1));
        let mut found = json!({
            "frames": { "first": legal.frames(0), "last": last, "step": legal.frame_step() },
            "multiples": { "height": height, "width": width },
            "maxSide": MAX_SIDE,
        });
        if let Some([height, width]) = legal.only_size() {
            found["only"] = json!({ "height": height, "width": width });
        }
        if let Some(fps) = legal.fps {
            found["fps"] = json!(fps);
        }
        Ok(found)
    }
}

/// The compact JSON of an answer, or of what is wrong with the question.
pub(crate) fn written<T: Serialize>(answer: Result<T, Problems>) -> String {
    // Our types always serialise: keys are text and numbers are finite.
    answer.map_or_else(crate::problem::json, |answer| serde_json::to_string(&answer).unwrap_or_default())
}
