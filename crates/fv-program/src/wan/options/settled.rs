//! What was chosen, with its program: a choice is believed once the program's buffers have their places.

use fv_spec::authored::Role;
use fv_spec::program::{Program, Tier};

use super::{Choices, Chosen, Options, Unsolved};
use crate::arena::{Effort, Packed, pack};
use crate::optimal::Budgets;
use crate::refused::Refused;
use crate::wan;
use crate::wan::geometry::Model;

/// Memory that one part takes: on the device without what the driver takes, and page-locked, what parts hand over included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The part.
    pub role: Role,
    /// Of the device.
    pub device_bytes: u64,
    /// Of the host.
    pub host_bytes: u64,
}

/// A choice whose program is within the budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// What was chosen for each part.
    pub chosen: Chosen,
    /// The same for lowering.
    pub choices: Choices,
    /// The program, its buffers in their places.
    pub program: Program,
    /// How well each region is packed.
    pub packed: Vec<Packed>,
    /// What its parts take, in the order in which they run.
    pub taken: Vec<Taken>,
    /// What had to be reckoned with, so that the layout is within what there is.
    pub budgets: Budgets,
}

/// Why nothing was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsettled {
    /// Nothing fits, or a rate is not known.
    Unsolved(Unsolved),
    /// The request or what was chosen cannot be lowered.
    Refused(Vec<Refused>),
    /// Every program that was looked at takes more than was reckoned with.
    Over,
}

/// Solutions whose program takes more than was reckoned with, at most.
const ATTEMPTS: usize = 8;

impl Options<'_> {
    /// The best of each part whose program is within the budgets: where a layout takes more than was reckoned with, less is reckoned
    /// with.
    ///
    /// # Errors
    /// [`Unsettled`].
    pub fn settle(&mut self, limit: &Budgets) -> Result<Settled, Unsettled> {
        let mut budgets = *limit;
        for _ in 0..ATTEMPTS {
            let chosen = self.solve(&budgets).map_err(Unsettled::Unsolved)?;
            let choices = self.choices(&chosen);
            let mut program = wan::lower(self.model, self.request, &choices).map_err(Unsettled::Refused)?;
            let packed = pack(&mut program, Effort::default());
            let taken = taken(self.model, &program);
            let over = taken.iter().map(|taken| over(taken, limit)).fold([0, 0], |a, b| [a[0].max(b[0]), a[1].max(b[1])]);
            if over == [0, 0] {
                return Ok(Settled { chosen, choices, program, packed, taken, budgets });
            }
            budgets.device_bytes = budgets.device_bytes.saturating_sub(over[0]);
            budgets.host_bytes = budgets.host_bytes.saturating_sub(over[1]);
        }
        Err(Unsettled::Over)
    }
}

fn over(taken: &Taken, limit: &Budgets) -> [u64; 2] {
    let device = taken.device_bytes.saturating_add(limit.registered(taken.host_bytes));
    [device.saturating_sub(limit.device_bytes), taken.host_bytes.saturating_sub(limit.host_bytes)]
}

/// Components in the order in which they run.
pub fn roles(model: &Model) -> Vec<Role> {
    std::iter::once(Role::TextEncoder).chain(model.transformers().iter().copied()).chain([Role::Vae]).collect()
}

fn taken(model: &Model, program: &Program) -> Vec<Taken> {
    let bytes = |name: &str, tier: Tier| {
        program.regions.iter().filter(|region| region.name == name && region.tier == tier).map(|region| region.bytes).sum::<u64>()
    };
    let request = bytes("request", Tier::Pinned);
    let of =
        |role: Role| Taken { role, device_bytes: bytes(role.word(), Tier::Device), host_bytes: bytes(role.word(), Tier::Pinned) + request };
    roles(model).into_iter().map(of).collect()
}
