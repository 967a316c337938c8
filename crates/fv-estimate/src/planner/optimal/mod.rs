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

pub(crate) use fv_program::wan::options::Known;
use fv_program::wan::options::MOST_OPERATIONS;
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;
use fv_spec::plan::refusal::{Refusal, Unplanned};
use fv_spec::plan::{OperatingSystem, PolicyName, Role, Runtime, VERSION};
use fv_spec::program::Program;

pub(crate) use budget::{host_for, reserve_of};
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
    /// What it takes: the program is lowered and its buffers are placed, unless that is known, and not played.
    Layout,
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

    /// What is wrong with a request, whatever the machine.
    pub fn wrong_with(&self, request: &Asked) -> Vec<InputError> {
        let mut errors = Vec::new();
        question::request(&self.covered, request, &mut errors);
        errors
    }

    /// Plans a request. A refusal names what is short; what would do instead is searched for by [`Planner::advise`].
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn plan(&self, question: &Question, rules: &RulesFile, depth: Depth) -> Result<Outcome, Vec<InputError>> {
        Ok(self.answer(question, rules, depth, &mut Known::default())?.outcome)
    }

    /// [`plan`](Self::plan) with what estimates show beside it. What is `known` is of the same request and precision.
    pub(crate) fn answer(
        &self,
        question: &Question,
        rules: &RulesFile,
        depth: Depth,
        known: &mut Known,
    ) -> Result<Answer, Vec<InputError>> {
        let resolved = question::resolve(&self.covered, question, rules)?;
        let answer = |outcome| Answer { outcome, program: None, short: None };
        if resolved.system.os.value == OperatingSystem::Macos {
            let message = "fv-run has no program for Metal: plans are for CUDA devices";
            return Ok(answer(unplanned(&self.covered.model.id, &resolved, vec![Reason::new("uncovered-backend", message)])));
        }
        Ok(match solve::solve(&self.covered, &resolved, depth, known) {
            Found::Solved(solved) => {
                let plan = assemble::plan(&self.covered, &resolved, &solved);
                let program = solved.played.map(|(program, _)| program);
                Answer { program, ..answer(Outcome::Planned(Box::new(plan))) }
            }
            Found::TooLong(operations) => {
                let message =
                    format!("the program would have some {operations} operations, and no more than {MOST_OPERATIONS} are laid out");
                answer(unplanned(&self.covered.model.id, &resolved, vec![Reason::new("too-large", message)]))
            }
            Found::Short(short) => {
                let refusal = refusal::refuse(&self.covered, &resolved, &short);
                Answer { short: Some(short.role), ..answer(Outcome::Refused(Box::new(refusal))) }
            }
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

/// What the policy answers, with what estimates show beside it.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer.
    pub(crate) outcome: Outcome,
    /// Of a whole plan, its program with every buffer in its place.
    pub(crate) program: Option<Program>,
    /// Of a refusal, the part that does not fit.
    pub(crate) short: Option<Role>,
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
