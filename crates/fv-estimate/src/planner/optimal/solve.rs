//! The best of each part, the program that it makes, and whether that is what was reckoned with.

use fv_program::arena::{Effort, pack};
use fv_program::optimal::{Budgets, Least};
use fv_program::rates::costs;
use fv_program::simulate::{Simulated, replay};
use fv_program::wan::choice::Choices;
use fv_program::wan::options::{Chosen, Options, Unsolved};
use fv_program::wan::{self, planned};
use fv_spec::plan::{Role, Tier};
use fv_spec::program::Program;

use super::Depth;
use super::model::Covered;
use super::question::Resolved;

/// What was found.
#[expect(clippy::large_enum_variant, reason = "there is one of them")]
pub(super) enum Found<'a> {
    Solved(Solved<'a>),
    Short(Short),
}

/// Memory that one part takes: on the device without what the driver takes, and page-locked, what parts hand over included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) role: Role,
    pub(super) device_bytes: u64,
    pub(super) host_bytes: u64,
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

/// Solutions whose program takes more than was reckoned with, at most.
const ATTEMPTS: usize = 8;

/// The fastest plan within the budgets.
pub(super) fn solve<'a>(covered: &'a Covered, resolved: &'a Resolved, depth: Depth) -> Found<'a> {
    let mut budgets = resolved.layout;
    let unknown = || Found::Short(Short { role: Role::Transformer, needs: Vec::new() });
    let Ok(mut options) = Options::new(&covered.model, &resolved.generated, resolved.formats, &resolved.speed.rates) else {
        return unknown();
    };
    for _ in 0..ATTEMPTS {
        let chosen = match options.solve(&budgets) {
            Ok(chosen) => chosen,
            Err(Unsolved::Part(role, needs)) => return Found::Short(Short { role, needs }),
            Err(Unsolved::Rate(_)) => return unknown(),
        };
        let choices = options.choices(&chosen);
        if depth == Depth::Outline {
            let taken = reckoned(covered, &options, &chosen);
            return Found::Solved(Solved { options, budgets, chosen, choices, taken, played: None });
        }
        let Ok(mut program) = wan::lower(&covered.model, &resolved.generated, &choices) else { return unknown() };
        pack(&mut program, Effort::default());
        let taken = taken(covered, &program);
        let over = taken.iter().map(|taken| over(taken, &resolved.layout)).fold([0, 0], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
        if over == [0, 0] {
            let Ok(costs) = costs(&program, &resolved.speed.rates) else { return unknown() };
            let simulated = replay(&program, &costs, |_| {});
            return Found::Solved(Solved { options, budgets, chosen, choices, taken, played: Some((program, simulated)) });
        }
        // The layout takes more than was reckoned with: reckon with less.
        budgets.device_bytes = budgets.device_bytes.saturating_sub(over[0]);
        budgets.host_bytes = budgets.host_bytes.saturating_sub(over[1]);
    }
    unknown()
}

fn over(taken: &Taken, budgets: &Budgets) -> [u64; 2] {
    let device = taken.device_bytes.saturating_add(budgets.registered(taken.host_bytes));
    [device.saturating_sub(budgets.device_bytes), taken.host_bytes.saturating_sub(budgets.host_bytes)]
}

/// Components in the order in which they run.
pub(super) fn roles(covered: &Covered) -> Vec<Role> {
    let experts = super::model::experts(&covered.model).iter().copied();
    std::iter::once(Role::TextEncoder).chain(experts).chain([Role::Vae]).collect()
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
    roles(covered).into_iter().map(of).collect()
}

/// What the program takes.
fn taken(covered: &Covered, program: &Program) -> Vec<Taken> {
    let bytes = |name: &str, tier: Tier| {
        program.regions.iter().filter(|region| region.name == name && region.tier == tier).map(|region| region.bytes).sum::<u64>()
    };
    let request = bytes("request", Tier::Pinned);
    let of =
        |role: Role| Taken { role, device_bytes: bytes(role.word(), Tier::Device), host_bytes: bytes(role.word(), Tier::Pinned) + request };
    roles(covered).into_iter().map(of).collect()
}

/// The plan's components in its words, for the placements of an outline too.
pub(super) fn placements(covered: &Covered, choices: &Choices) -> Vec<fv_spec::plan::Placement> {
    planned::placements(&covered.model, choices)
}
