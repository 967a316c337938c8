//! Where buffers lie: each gets its offset in its region. Two share bytes only where every use of one is over before any use of
//! the other begins, whatever the streams' speeds and whichever repetitions of a segment meet.
//!
//! A region is taken apart first. Buffers that are in use together with all others lie at the bottom; without them the rest falls
//! into parts that are never in use together and that each start from there, and so on. What is left of the parts (one for each
//! block, say) is packed by several orders, mended, and where the result is above the largest live sum, searched. Equal parts
//! are packed once.

mod fit;
mod lives;
mod parts;
mod search;

use fv_spec::program::{ALIGNMENT, Program};

use crate::order::Order;
use fit::Graph;
pub(crate) use lives::largest_live_sum;
pub(crate) use lives::{Conflicts, Lives, within_repetition};
use parts::{Part, parts};

/// How much work a packing may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Placements of single buffers in attempts to mend one part.
    pub repairs: u32,
    /// Buffers that the exact search of one part looks at; each of its nodes looks at all of them.
    pub looks: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { repairs: 50_000, looks: 2_000_000 }
    }
}

/// How well a region is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Its size.
    pub bytes: u64,
    /// The largest sum of buffers that are in use at one operation; no layout is smaller.
    pub largest_live_sum_bytes: u64,
    /// Whether no layout is smaller than this one: it is as large as the largest live sum, or a search went through all others.
    pub proven: bool,
    /// Nodes that were searched.
    pub nodes: u64,
    /// Buffers in it.
    pub buffers: u32,
}

impl Packed {
    /// Size by largest live sum, for people.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub fn ratio(&self) -> f64 {
        if self.largest_live_sum_bytes == 0 { 1.0 } else { self.bytes as f64 / self.largest_live_sum_bytes as f64 }
    }

    /// Whether it is at most so many hundredths of the largest live sum, or proven.
    pub fn within(&self, hundredths: u64) -> bool {
        self.proven || u128::from(self.bytes) * 100 <= u128::from(self.largest_live_sum_bytes) * u128::from(hundredths)
    }
}

/// Gives every buffer its offset and every region its size. The result has one entry for each region.
pub fn pack(program: &mut Program, effort: Effort) -> Vec<Packed> {
    let order = Order::of(program);
    pack_ordered(program, &order, effort)
}

/// The same for a program whose order is known.
pub fn pack_ordered(program: &mut Program, order: &Order, effort: Effort) -> Vec<Packed> {
    let lives = Lives::of(program, order);
    let regions = by_region(program);
    let mut packed = Vec::with_capacity(regions.len());
    for (region, buffers) in regions.iter().enumerate() {
        let sizes = buffers.iter().map(|buffer| program.buffers[*buffer as usize].bytes.next_multiple_of(ALIGNMENT)).collect();
        let mut packing = Packing::new(&lives, order, buffers, sizes);
        let result = packing.pack(effort);
        program.regions[region].bytes = result.bytes;
        for (buffer, offset) in buffers.iter().zip(&packing.offsets) {
            program.buffers[*buffer as usize].offset_bytes = Some(*offset);
        }
        packed.push(result);
    }
    packed
}

/// The buffers of each region.
pub(crate) fn by_region(program: &Program) -> Vec<Vec<u32>> {
    let mut regions = vec![Vec::new(); program.regions.len()];
    for (at, buffer) in (0..).zip(&program.buffers) {
        regions[buffer.region as usize].push(at);
    }
    regions
}

/// One region on the way.
struct Packing<'a> {
    lives: &'a Lives,
    order: &'a Order,
    buffers: &'a [u32],
    sizes: Vec<u64>,
    offsets: Vec<u64>,
}

impl<'a> Packing<'a> {
    fn new(lives: &'a Lives, order: &'a Order, buffers: &'a [u32], sizes: Vec<u64>) -> Self {
        Self { lives, order, buffers, offsets: vec![0; sizes.len()], sizes }
    }

    fn live_sum(&self, members: impl Iterator<Item = u32>) -> u64 {
        largest_live_sum(self.lives, self.order, members.map(|at| (self.buffers[at as usize], self.sizes[at as usize])))
    }

    fn pack(&mut self, effort: Effort) -> Packed {
        let sum = self.live_sum(0..u32::try_from(self.sizes.len()).unwrap_or(u32::MAX));
        let mut result = self.above_long_lives(sum).unwrap_or_else(|| self.apart(effort));
        result.largest_live_sum_bytes = sum;
        result.proven |= result.bytes <= sum;
        result
    }

    /// Most regions hold few buffers for long, such as weights, and many for a short time. With the former at the bottom the rest
    /// falls into many small parts, which is quick, and is right where nothing is lost by it.
    fn above_long_lives(&mut self, sum: u64) -> Option<Packed> {
        let (long, short) = lives::by_length(self.lives, self.order, self.buffers);
        if long.is_empty() || short.is_empty() {
            return None;
        }
        let base: u64 = long.iter().map(|at| self.sizes[*at as usize]).sum();
        let buffers: Vec<u32> = short.iter().map(|at| self.buffers[*at as usize]).collect();
        let sizes = short.iter().map(|at| self.sizes[*at as usize]).collect();
        let mut rest = Packing::new(self.lives, self.order, &buffers, sizes);
        let packed = rest.apart(Effort { repairs: 0, looks: 0 });
        let bytes = base + packed.bytes;
        if bytes > sum {
            return None;
        }
        for (at, offset) in short.iter().zip(&rest.offsets) {
            self.offsets[*at as usize] = base + offset;
        }
        let mut top = 0;
        for at in long {
            self.offsets[at as usize] = top;
            top += self.sizes[at as usize];
        }
        Some(Packed { bytes, buffers: u32::try_from(self.sizes.len()).unwrap_or(u32::MAX), ..packed })
    }

    /// Takes the region apart and packs what is left.
    fn apart(&mut self, effort: Effort) -> Packed {
        let conflicts = Conflicts::among(self.lives, self.order, self.buffers);
        let mut parts = parts(&conflicts, &self.sizes, &mut self.offsets);
        for part in &mut parts {
            part.bound = part.base + self.live_sum(part.members.iter().copied());
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bound));
        let bottom = self.offsets.iter().zip(&self.sizes).map(|(offset, size)| offset + size).max().unwrap_or(0);
        let buffers = u32::try_from(self.sizes.len()).unwrap_or(u32::MAX);
        let mut result = Packed { bytes: 0, largest_live_sum_bytes: 0, proven: false, nodes: 0, buffers };
        let (bytes, least) = self.pack_parts(&parts, &conflicts, bottom, effort, &mut result.nodes);
        (result.bytes, result.proven) = (bytes, bytes <= least);
        result
    }

    /// Packs parts; the size of the region, and the size that every layout has at least.
    fn pack_parts(&mut self, parts: &[Part], conflicts: &Conflicts, bottom: u64, effort: Effort, nodes: &mut u64) -> (u64, u64) {
        let mut least = parts.iter().map(|part| part.bound).max().unwrap_or(0).max(bottom);
        let mut bytes = bottom;
        let mut known: std::collections::HashMap<Graph, fit::Layout> = std::collections::HashMap::new();
        let mut places = vec![(u32::MAX, 0); self.sizes.len()];
        for (number, part) in (0..).zip(parts) {
            for (place, at) in (0..).zip(&part.members) {
                places[*at as usize] = (number, place);
            }
        }
        for (number, part) in (0..).zip(parts) {
            let graph = Graph::of(part, number, &places, conflicts, &self.sizes);
            let layout = known.entry(graph).or_insert_with_key(|graph| {
                let cliques = || {
                    let members: Vec<u32> = part.members.iter().map(|at| self.buffers[*at as usize]).collect();
                    search::cliques(self.lives, self.order, &members)
                };
                let layout = fit::fit(graph, least - part.base, effort, cliques);
                *nodes += u64::from(layout.nodes);
                layout
            });
            for (at, offset) in part.members.iter().zip(&layout.offsets) {
                self.offsets[*at as usize] = part.base + offset;
            }
            bytes = bytes.max(part.base + layout.height);
            if layout.smallest {
                least = least.max(part.base + layout.height);
            }
        }
        (bytes, least)
    }
}
