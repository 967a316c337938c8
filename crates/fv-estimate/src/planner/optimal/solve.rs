//! The best of each part, the program that it makes, and whether that is what was reckoned with.

use fv_program::optimal::{Budgets, Least};
use fv_program::rates::costs;
use fv_program::simulate::{Simulated, replay};
use fv_program::wan::choice::Choices;
use fv_program::wan::options::{Chosen, Options, Settled, Taken, Unsettled, Unsolved, roles};
use fv_spec::plan::Role;
use fv_spec::program::Program;

use super::Depth;
use super::model::Covered;
use super::question::Resolved;

/// What was found.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub(super) enum Found<'a> {
    Solved(Solved<'a>),
    Short(Short),
    /// The program would have about so many operations.
    TooLong(u64),
}

/// The fastest plan.
pub(super) struct Solved<'a> {
    pub(super) options: Options<'a>,
    pub(super) budgets: Budgets,
    pub(super) chosen: Chosen,
    pub(super) choices: Choices,
    pub(super) taken: Vec<Taken>,
    /// The program with its buffers in their places, and how long it takes.
    pub(super) played: Option<(Program, Simulated)>,
}

/// What does not fit: a part, and the smallest needs of all its ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Short {
    pub(super) role: Role,
    pub(super) needs: Vec<Least>,
}

/// The fastest plan within the budgets.
pub(super) fn solve<'a>(covered: &'a Covered, resolved: &'a Resolved, depth: Depth) -> Found<'a> {
    let budgets = resolved.layout;
    let unknown = || Found::Short(Short { role: Role::Transformer, needs: Vec::new() });
    let Ok(mut options) = Options::new(&covered.model, &resolved.generated, resolved.formats, &resolved.speed.rates) else {
        return unknown();
    };
    let short = |unsolved| match unsolved {
        Unsolved::Part(role, needs) => Found::Short(Short { role, needs }),
        Unsolved::Rate(_) => unknown(),
    };
    if depth == Depth::Outline {
        let chosen = match options.solve(&budgets) {
            Ok(chosen) => chosen,
            Err(unsolved) => return short(unsolved),
        };
        let (choices, taken) = (options.choices(&chosen), reckoned(covered, &options, &chosen));
        if let Err(operations) = options.written_out(&choices) {
            return Found::TooLong(operations);
        }
        return Found::Solved(Solved { options, budgets, chosen, choices, taken, played: None });
    }
    let Settled { chosen, choices, program, taken, budgets, .. } = match options.settle(&budgets) {
        Ok(settled) => settled,
        Err(Unsettled::Unsolved(unsolved)) => return short(unsolved),
        Err(Unsettled::TooLong(operations)) => return Found::TooLong(operations),
        Err(Unsettled::Refused(_) | Unsettled::Over) => return unknown(),
    };
    let Ok(costs) = costs(&program, &resolved.speed.rates) else { return unknown() };
    let simulated = replay(&program, &costs, |_| {});
    Found::Solved(Solved { options, budgets, chosen, choices, taken, played: Some((program, simulated)) })
}

/// What the solver reckons with.
fn reckoned(covered: &Covered, options: &Options<'_>, chosen: &Chosen) -> Vec<Taken> {
    let of = |role: Role| {
        let need = match role {
            Role::TextEncoder => chosen.text.need,
            Role::Vae => chosen.decode.need,
            _ => chosen.transformer.need,
        };
        Taken { role, device_bytes: need.device_bytes, host_bytes: need.host_bytes + options.request_bytes }
    };
    roles(&covered.model).into_iter().map(of).collect()
}
