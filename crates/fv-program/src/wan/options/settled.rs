//! What was chosen, with its program: a choice is believed once the program's buffers have their places.

use fv_spec::authored::Role;
use fv_spec::program::{Program, Tier};

use super::{Choices, Chosen, Compute, Decoding, Options, Unsolved, decode, transformer};
use crate::arena::{Effort, Packed, pack};
use crate::optimal::{Budgets, Least};
use crate::rates::Rates;
use crate::refused::Refused;
use crate::wan;
use crate::wan::geometry::Model;
use crate::wan::summary::Summary;

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

/// A choice whose layout is within the budgets.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// What was chosen for each part.
    pub chosen: Chosen,
    /// The same for lowering.
    pub choices: Choices,
    /// What its parts take, in the order in which they run.
    pub taken: Vec<Taken>,
    /// What had to be reckoned with, so that the layout is within what there is.
    pub budgets: Budgets,
}

/// A layout with its program.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    /// The layout.
    pub layout: Layout,
    /// The program, its buffers in their places.
    pub program: Program,
    /// How well each region is packed.
    pub packed: Vec<Packed>,
}

/// What is the same whatever the budgets: of one model, request and formats.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// What programs take, by what was chosen.
    taken: Vec<(Choices, Vec<Taken>)>,
    /// How the video is decoded in tiles, at these rates.
    pub(super) tiled: Option<(Rates, Vec<Decoding>)>,
}

/// A program that was written out, if it was.
type Written = Option<(Program, Vec<Packed>)>;

/// Why nothing was settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsettled {
    /// Nothing fits, or a rate is not known.
    Unsolved(Unsolved),
    /// The request or what was chosen cannot be lowered.
    Refused(Vec<Refused>),
    /// A part fits by what is reckoned and not by its layouts: what those take that were made, what the driver keeps included.
    Over(Role, Vec<Least>),
    /// The program would have about so many operations, more than are written out.
    TooLong(u64),
}

/// Operations that a program is written out with, at most: one of 14B at 1280 x 720, computed in small pieces, has some 290,000.
pub const MOST_OPERATIONS: u64 = 1 << 19;

/// Solutions whose program takes more than was reckoned with, at most.
const ATTEMPTS: usize = 8;

impl Options<'_> {
    /// The best of each part whose program is within the budgets: where a layout takes more than was reckoned with, less is reckoned
    /// with.
    ///
    /// # Errors
    /// [`Unsettled`].
    pub fn settle(&mut self, limit: &Budgets) -> Result<Settled, Unsettled> {
        let (layout, written) = self.attempts(limit)?;
        let (program, packed) = match written {
            Some(written) => written,
            None => self.write(&layout.choices)?,
        };
        Ok(Settled { layout, program, packed })
    }

    /// The same without the program, which is not written out again where it was.
    ///
    /// # Errors
    /// [`Unsettled`].
    pub fn layout(&mut self, limit: &Budgets) -> Result<Layout, Unsettled> {
        Ok(self.attempts(limit)?.0)
    }

    fn attempts(&mut self, limit: &Budgets) -> Result<(Layout, Written), Unsettled> {
        let mut budgets = *limit;
        let mut over: Option<(Role, Vec<Least>)> = None;
        for _ in 0..ATTEMPTS {
            let chosen = match (self.solve(&budgets), &over) {
                (Ok(chosen), _) => chosen,
                // Less was reckoned with than there is.
                (Err(Unsolved::Part(..)), Some(_)) => break,
                (Err(unsolved), _) => return Err(Unsettled::Unsolved(unsolved)),
            };
            let choices = self.choices(&chosen);
            let (taken, written) = self.taken(&choices)?;
            let reckoned = self.reckoned(&chosen);
            let mut within = true;
            for (taken, reckoned) in taken.iter().zip(&reckoned) {
                let needed = Least { device_bytes: taken.of_device(limit), host_bytes: taken.host_bytes };
                let [device, host] = beyond(&needed, limit);
                if device == 0 && host == 0 {
                    continue;
                }
                within = false;
                let (role, all) = over.get_or_insert((taken.role, Vec::new()));
                if *role == taken.role {
                    all.push(needed);
                }
                // Another choice is made only below what this one was reckoned with.
                if device > 0 {
                    let bytes = (limit.device_bytes.saturating_sub(device)).min(reckoned.of_device(limit).saturating_sub(1));
                    budgets.device_bytes = budgets.device_bytes.min(bytes);
                }
                if host > 0 {
                    let bytes = (limit.host_bytes.saturating_sub(host)).min(reckoned.host_bytes.saturating_sub(1));
                    budgets.host_bytes = budgets.host_bytes.min(bytes);
                }
            }
            if within {
                return Ok((Layout { chosen, choices, taken, budgets }, written));
            }
        }
        let (role, needs) = over.unwrap_or((Role::Transformer, Vec::new()));
        Err(Unsettled::Over(role, needs))
    }

    /// What a program takes; the program too, if it had to be written out for that.
    fn taken(&mut self, choices: &Choices) -> Result<(Vec<Taken>, Written), Unsettled> {
        if let Some((_, taken)) = self.known.taken.iter().find(|(known, _)| known == choices) {
            return Ok((taken.clone(), None));
        }
        let (program, packed) = self.write(choices)?;
        let taken = taken(self.model, &program);
        self.known.taken.push((choices.clone(), taken.clone()));
        Ok((taken, Some((program, packed))))
    }

    fn write(&self, choices: &Choices) -> Result<(Program, Vec<Packed>), Unsettled> {
        self.written_out(choices).map_err(Unsettled::TooLong)?;
        let mut program = wan::lower(self.model, self.request, choices).map_err(Unsettled::Refused)?;
        let packed = pack(&mut program, Effort::default());
        Ok((program, packed))
    }

    /// What a choice was reckoned with, part by part.
    pub fn reckoned(&self, chosen: &Chosen) -> Vec<Taken> {
        let of = |role: Role| {
            let need = match role {
                Role::TextEncoder => chosen.text.need,
                Role::Vae => chosen.decode.need,
                _ => chosen.transformer.need,
            };
            Taken { role, device_bytes: need.device_bytes, host_bytes: need.host_bytes + self.request_bytes }
        };
        roles(self.model).into_iter().map(of).collect()
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

    fn operations(&self, choices: &Choices) -> u64 {
        let decoding = decode::operations(self.model, self.request, &choices.decode);
        self.operations_of_steps(&choices.compute).saturating_add(decoding)
    }

    /// Of transformers in a step and in the last one.
    pub(super) fn operations_of_steps(&self, compute: &Compute) -> u64 {
        transformer::operations(self.model, &Summary::new(self.model, self.request, self.formats, *compute, 0))
    }
}

impl Taken {
    /// Of the device, with what the driver keeps for page-locked memory.
    fn of_device(&self, limit: &Budgets) -> u64 {
        self.device_bytes.saturating_add(limit.registered(self.host_bytes))
    }
}

/// What is needed beyond so much of the device and of the host.
fn beyond(needed: &Least, limit: &Budgets) -> [u64; 2] {
    [needed.device_bytes.saturating_sub(limit.device_bytes), needed.host_bytes.saturating_sub(limit.host_bytes)]
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
