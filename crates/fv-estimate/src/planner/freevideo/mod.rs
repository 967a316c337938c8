//! The policy `freevideo`: the published adaptive rules for MiniMax H3 and `FastH3`, reproduced in whole bytes.
//!
//! It is not monotone in memory: its reserve shrinks below 10 GiB, and above the small band it admits what its own table says
//! needs more. Both are kept as published; docs/planner.md lists what the rules are and where sources differ.
//!
//! * [`question`]: what is asked, checked; [`facts`]: the same in the terms of the rules; [`geometry`]: frames and rows.
//! * [`budget`], [`activation`], `small`, `residency`, `slots`, `compute`, [`vae`], `two_pass`, `macos`: one module for each rule.
//! * [`decide`](mod@decide): all of them in order. `assemble`, `decisions`: the plan. [`refusal`]: what would do instead.
//! * [`table`]: plans of a table of machines and requests.

pub mod activation;
pub(super) mod assemble;
pub mod budget;
mod compute;
mod constants;
pub mod decide;
mod decisions;
pub mod facts;
pub mod geometry;
mod macos;
pub mod question;
pub mod refusal;
mod residency;
mod slots;
mod small;
pub mod table;
pub(super) mod two_pass;
pub mod vae;

pub use compute::BACKENDS;
pub use constants::{BLOCK, NEEDS, ROWS, TEXT_TOKENS};
pub use question::{Asked, AttentionAsked, Machine, Planner, Pool, Question, Task, TwoPassAsked, cached_precision, is_geforce};

use fv_spec::plan::refusal::{Refusal, Unplanned};
use fv_spec::plan::{OperatingSystem, PolicyName, Runtime, VERSION};

use super::Outcome;
use crate::error::InputError;
use assemble::{Decision, FIRST, ONLY, SECOND};
use decide::{Decided, Short, decide};
use facts::Facts;
use question::Resolved;

/// The passes of a request as they were decided: the one on the canvas that was asked for, and the first of two before it.
struct Passes {
    target: (Facts, Decided),
    first: Option<(Facts, Decided)>,
}

impl Passes {
    /// The passes in order with their names and steps, and the last of them: the one on the canvas that was asked for.
    fn in_order(&self, [base, refine]: [u32; 2]) -> (Vec<Decision<'_>>, Decision<'_>) {
        let (facts, decided) = &self.target;
        let name = if self.first.is_some() { SECOND } else { ONLY };
        let target = Decision { name, facts, decided, steps: refine };
        let first = self.first.as_ref().map(|(facts, decided)| Decision { name: FIRST, facts, decided, steps: base });
        (first.into_iter().chain([target]).collect(), target)
    }
}

/// Decides every pass of a request.
fn passes(facts: &Facts, two_pass: bool) -> Result<Passes, Short> {
    let decided = decide(facts)?;
    let first = if two_pass {
        let first = two_pass::first_facts(facts, &decided);
        Some((first, decide(&first)?))
    } else {
        None
    };
    Ok(Passes { target: (*facts, decided), first })
}

impl Planner {
    /// Plans a request.
    ///
    /// A refusal names what is short; what would do instead is searched for by [`Planner::advise`].
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn plan(&self, question: &Question) -> Result<Outcome, Vec<InputError>> {
        let resolved = self.resolve(question)?;
        if resolved.system.os.value == OperatingSystem::Macos {
            return Ok(self.macos(&resolved));
        }
        Ok(match passes(&resolved.facts, resolved.two_pass.is_some()) {
            Ok(found) => {
                let steps = resolved.two_pass.unwrap_or([0, resolved.request.steps]);
                let (passes, target) = found.in_order(steps);
                Outcome::Planned(Box::new(assemble::plan(self, &resolved, &passes, &target)))
            }
            Err(short) => Outcome::Refused(Box::new(self.refuse(&resolved, &short))),
        })
    }

    fn macos(&self, resolved: &Resolved) -> Outcome {
        let (reserved, minimum) = macos::reserved(resolved);
        let budgets = macos::budgets(resolved, &reserved);
        if reserved.budget < minimum {
            return Outcome::Refused(Box::new(self.refuse_unified(resolved, &reserved, minimum, budgets)));
        }
        let Resolved { system, request, .. } = resolved.clone();
        Outcome::Unplanned(Box::new(Unplanned {
            version: VERSION,
            policy: PolicyName::Freevideo,
            model: self.model.clone(),
            runtime: Runtime::FreeVideo,
            system,
            request,
            budgets,
            reasons: macos::unknown(),
        }))
    }

    /// Fills in what would do in place of a refused request: less memory, a smaller request, other changes. Each was planned.
    ///
    /// # Errors
    /// Everything that is wrong with the question.
    pub fn advise(&self, question: &Question, refusal: Refusal) -> Result<Refusal, Vec<InputError>> {
        let resolved = self.resolve(question)?;
        Ok(refusal::advise(&resolved, &self.legal, refusal))
    }
}
