//! The best of each part, the program that it makes, and whether that is what was reckoned with.

use fv_program::optimal::{Budgets, Least};
use fv_program::rates::costs;
use fv_program::simulate::{Simulated, replay};
use fv_program::wan::choice::Choices;
use fv_program::wan::options::{Chosen, Known, Layout, Options, Settled, Taken, Unsettled, Unsolved};
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

/// The fastest plan within the budgets. `known` is of this model, request and formats.
pub(super) fn solve<'a>(covered: &'a Covered, resolved: &'a Resolved, depth: Depth, known: &mut Known) -> Found<'a> {
    let budgets = resolved.layout;
    let Ok(mut options) = Options::new(&covered.model, &resolved.generated, resolved.formats, &resolved.speed.rates) else {
        return unknown();
    };
    options.known = std::mem::take(known);
    let found = match depth {
        Depth::Outline => outline(&mut options, &budgets),
        Depth::Layout => options.layout(&budgets).map(|layout| (layout, None)),
        Depth::Whole => options.settle(&budgets).map(|Settled { layout, program, .. }| (layout, Some(program))),
    };
    *known = std::mem::take(&mut options.known);
    let (Layout { chosen, choices, taken, budgets }, program) = match found {
        Ok(found) => found,
        Err(Unsettled::Unsolved(Unsolved::Part(role, needs)) | Unsettled::Over(role, needs)) => return Found::Short(Short { role, needs }),
        Err(Unsettled::TooLong(operations)) => return Found::TooLong(operations),
        Err(Unsettled::Unsolved(Unsolved::Rate(_)) | Unsettled::Refused(_)) => return unknown(),
    };
    let played = match program.map(|program| (costs(&program, &resolved.speed.rates), program)) {
        Some((Ok(costs), program)) => {
            let simulated = replay(&program, &costs, |_| {});
            Some((program, simulated))
        }
        Some((Err(_), _)) => return unknown(),
        None => None,
    };
    Found::Solved(Solved { options, budgets, chosen, choices, taken, played })
}

fn unknown<'a>() -> Found<'a> {
    Found::Short(Short { role: Role::Transformer, needs: Vec::new() })
}

/// What the solver reckons with.
fn outline(options: &mut Options<'_>, budgets: &Budgets) -> Result<(Layout, Option<Program>), Unsettled> {
    let chosen = options.solve(budgets).map_err(Unsettled::Unsolved)?;
    let (choices, taken) = (options.choices(&chosen), options.reckoned(&chosen));
    options.written_out(&choices).map_err(Unsettled::TooLong)?;
    Ok((Layout { chosen, choices, taken, budgets: *budgets }, None))
}
