//! What was chosen, with its program: a choice is believed once the program's buffers have their places.

use fv_spec::authored::Role;
use fv_spec::program::{Program, Tier};

use super::{Choices, Chosen, Options, Unsolved};
use crate::arena::{Effort, Packed, pack};
use crate::optimal::Budgets;
use crate::refused::Refused;
use crate::wan;
use crate::wan::geometry::Model;
use crate::wan::summary::Summary;
use crate::wan::vae;

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
    /// The program would have about so many operations, more than are written out.
    TooLong(u64),
}

/// Operations that a program is written out with, at most: one of 14B at 1280 x 720, computed in small pieces, has some 290,000.
pub const MOST_OPERATIONS: u64 = 1 << 19;

/// Operations of the decoder for each visit of a block, about.
const OPERATIONS_OF_A_VISIT: u64 = 12;

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
            self.written_out(&choices).map_err(Unsettled::TooLong)?;
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

impl Options<'_> {
    /// Whether a program is short enough to be written out.
    ///
    /// # Errors
    /// About how many operations it has.
    pub fn written_out(&self, choices: &Choices) -> Result<(), u64> {
        let operations = self.operations(choices);
        if operations > MOST_OPERATIONS { Err(operations) } else { Ok(()) }
    }

    /// Those of transformers in a step and in the last one, and the decoder's.
    fn operations(&self, choices: &Choices) -> u64 {
        let (model, request) = (self.model, self.request);
        let summary = Summary::new(model, request, self.formats, choices.compute, 0);
        let of_block: u64 = summary.block.iter().map(|counted| counted.times).sum();
        let blocks = model.transformer.blocks * summary.sweeps * choices.transformers.len() as u64;
        let latent = model.latent(request);
        let tiles = vae::tiles::tiles(&model.vae, [latent.height, latent.width], choices.decode.tiles).len() as u64;
        let together = usize::try_from(choices.decode.frames).unwrap_or(1);
        let visits = vae::blocks::order(&model.vae, together, false).len() as u64;
        let decoder = OPERATIONS_OF_A_VISIT.saturating_mul(visits).saturating_mul(tiles).saturating_mul(latent.frames);
        of_block.saturating_mul(2 * blocks).saturating_add(decoder)
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
