//! What a program needs and takes, weights apart.

use fv_spec::program::{Buffer, BufferKind, Program, Stream, Tier};

use crate::arena::{Lives, largest_live_sum};
use crate::order::Order;
use crate::rates::{Cost, Rates, UnknownRate, costs};

/// A program with what its operations cost.
pub(super) struct Measured {
    program: Program,
    costs: Vec<Cost>,
    order: Order,
    lives: Lives,
}

impl Measured {
    pub(super) fn new(program: Program, rates: &Rates) -> Result<Self, UnknownRate> {
        let costs = costs(&program, rates)?;
        let order = Order::of(&program);
        Ok(Self { lives: Lives::of(&program, &order), order, program, costs })
    }

    /// The largest sum of what is alive in a region of this name and memory, weights apart, in segments whose names are wanted.
    pub(super) fn peak(&self, region: &str, tier: Tier, wanted: impl Fn(&str) -> bool) -> u64 {
        let mut changes = vec![(0_u64, 0_u64); self.costs.len() + 1];
        for (_, buffer) in self.buffers(region, tier) {
            changes[buffer.first as usize].0 += buffer.bytes;
            changes[buffer.last as usize + 1].1 += buffer.bytes;
        }
        let alive = changes.iter().scan(0, |alive, (begin, end)| {
            *alive = *alive + begin - end;
            Some(*alive)
        });
        self.program.ops().zip(alive).filter(|((segment, _), _)| wanted(&segment.name)).map(|(_, alive)| alive).max().unwrap_or(0)
    }

    /// The same in the whole program, in whatever order streams run.
    pub(super) fn peak_of_all(&self, region: &str, tier: Tier) -> u64 {
        let buffers = self.buffers(region, tier).map(|(at, buffer)| (at, buffer.bytes));
        largest_live_sum(&self.lives, &self.order, buffers)
    }

    fn buffers(&self, region: &str, tier: Tier) -> impl Iterator<Item = (u32, &Buffer)> {
        let of = |buffer: &Buffer| &self.program.regions[buffer.region as usize];
        let all = (0..).zip(&self.program.buffers).filter(|(_, buffer)| buffer.kind != BufferKind::Weights);
        all.filter(move |(_, buffer)| of(buffer).name == region && of(buffer).tier == tier)
    }

    /// Compute stream, one operation after another: all, or those of blocks, or the others.
    pub(super) fn computing_ns(&self, in_block: Option<bool>) -> u64 {
        let ops = self.program.ops().zip(&self.costs).filter(|((_, op), _)| op.stream == Stream::Compute);
        ops.filter(|((_, op), _)| in_block.is_none_or(|wanted| op.block.is_some() == wanted)).map(|(_, cost)| cost.ns).sum()
    }
}
