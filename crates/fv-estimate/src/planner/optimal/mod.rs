//! The policy `optimal`: the fastest way to run a request on our own runtime within both budgets, by [`fv_program::wan::options`].
//!
//! * [`model`]: a model of the catalog with what its published pipelines ask for. [`question`]: what is asked, checked.
//! * [`rates`](mod@rates): how fast operations are taken to be, and how far off that may be.
//! * [`budget`]: what is kept back.
//! * [`solve`](mod@solve): the best of each part, its program, and whether that is what was reckoned with.
//! * [`assemble`], [`decisions`]: the plan. [`refusal`]: what is short, and what would do instead.

mod assemble;
mod budget;
mod decisions;
pub mod model;
pub mod question;
pub mod rates;
mod refusal;
mod solve;

use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;
use fv_spec::plan::refusal::{Refusal, Unplanned};
use fv_spec::plan::{OperatingSystem, PolicyName, Runtime, VERSION};

pub use model::Covered;
pub use question::{Asked, Question};

use super::Outcome;
use crate::error::InputError;
use question::Resolved;
use solve::Found;

/// How much of a plan is worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// All of it: the whole program is lowered, its buffers are placed, and every block's time is played.
    Whole,
    /// What decides: no program is lowered, there is no layout, times are those that the solver reckons with, and no decision is
    /// explained.
    Outline,
}

/// A model as the policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Planner {
    covered: Covered,
}

impl Planner {
    /// The planner of a model that has a program.
    pub fn new(covered: Covered) -> Self {
        Self { covered }
    }

    /// The model.
    pub fn covered(&self) -> &Covered {
        &self.covered
    }

    /// Plans a request. A refusal names what is short; what would do instead is searched for by [`Planner::advise`].
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn plan(&self, question: &Question, rules: &RulesFile, depth: Depth) -> Result<Outcome, Vec<InputError>> {
        let resolved = question::resolve(&self.covered, question, rules)?;
        if resolved.system.os.value == OperatingSystem::Macos {
            let message = "fv-run has no program for Metal: plans are for CUDA devices";
            return Ok(unplanned(&self.covered.model.id, &resolved, vec![Reason::new("uncovered-backend", message)]));
        }
        Ok(match solve::solve(&self.covered, &resolved, depth) {
            Found::Solved(solved) => Outcome::Planned(Box::new(assemble::plan(&self.covered, &resolved, &solved))),
            Found::Short(short) => Outcome::Refused(Box::new(refusal::refuse(&self.covered, &resolved, &short))),
        })
    }

    /// Fills in what would do in place of a refused request: less memory, a smaller request, other changes. Each was planned.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn advise(&self, question: &Question, rules: &RulesFile, refusal: Refusal) -> Result<Refusal, Vec<InputError>> {
        let resolved = question::resolve(&self.covered, question, rules)?;
        Ok(refusal::advise(self, question, rules, &resolved, refusal))
    }
}

/// A request that there is no program for.
fn unplanned(model: &str, resolved: &Resolved, reasons: Vec<Reason>) -> Outcome {
    Outcome::Unplanned(Box::new(Unplanned {
        version: VERSION,
        policy: PolicyName::Optimal,
        model: model.to_owned(),
        runtime: Runtime::FvRun,
        system: resolved.system.clone(),
        request: resolved.request.clone(),
        budgets: resolved.budgets.to_vec(),
        reasons,
    }))
}
