//! Stored tensors of components.
//!
//! Sizes decide how an allocator packs weights into segments and how a page-locking allocator rounds them, so every tensor
//! counts for itself.

use fv_spec::authored::Role;

use super::FP32;

/// One parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its elements.
    pub elements: u64,
    /// Rows, which are output channels, of a matrix that quantisation covers: the projections and the feed-forward layer of
    /// a block. 0 for everything that stays unquantised.
    pub rows: u64,
    /// Whether diffusers keeps it in fp32 when the rest is narrower (`_keep_in_fp32_modules` of the class).
    pub fp32: bool,
}

impl Parameter {
    /// Bytes of an element where the component is stored in a type of `size` bytes, and whether what the class keeps in fp32
    /// is kept.
    pub fn element(&self, size: u64, keep_fp32: bool) -> u64 {
        if keep_fp32 && self.fp32 { FP32 } else { size }
    }
}

/// The widest state or hidden layer that is read. The widest published ones are below 2^17.
pub const MAX_WIDTH: u64 = 1 << 20;
/// The most blocks that are read: each is placed in the allocator. Published models have some dozens.
pub const MAX_BLOCKS: u64 = 1024;

/// A figure of the catalog from 1 to `most`.
pub(crate) fn within(what: &str, value: u64, most: u64) -> Result<u64, String> {
    if (1..=most).contains(&value) { Ok(value) } else { Err(format!("{what}: found {value}, allowed: 1 to {most}")) }
}

/// Checks that so many blocks of so many parameters are a part of a component.
pub(crate) fn counts(what: &str, blocks: u64, block: u64, all: u64) -> Result<(), String> {
    within(&format!("{what}: block_count"), blocks, MAX_BLOCKS)?;
    match blocks.checked_mul(block) {
        Some(held) if held <= all => Ok(()),
        _ => Err(format!("{what}: {blocks} blocks of {block} parameters are more than its {all}")),
    }
}

/// A parameter that is neither quantised nor kept in fp32.
pub fn plain(elements: u64) -> Parameter {
    Parameter { elements, rows: 0, fp32: false }
}

/// A parameter that diffusers keeps in fp32.
pub fn kept(elements: u64) -> Parameter {
    Parameter { elements, rows: 0, fp32: true }
}

/// A matrix that quantisation covers.
pub fn matrix(inputs: u64, outputs: u64) -> Parameter {
    Parameter { elements: inputs * outputs, rows: outputs, fp32: false }
}

/// Like blocks of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// How many.
    pub count: u64,
    /// The parameters of one.
    pub block: Vec<Parameter>,
}

/// A component as it is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights {
    /// Its role in the model.
    pub role: Role,
    /// Its blocks, in the order in which they run.
    pub groups: Vec<Group>,
    /// The parameters outside the blocks, in the order of the class.
    pub rest: Vec<Parameter>,
    /// How many tensors at the start of [`rest`](Self::rest) are buffers: hooks that move parameters leave them where they are.
    pub buffers: usize,
}

impl Weights {
    /// A component without blocks.
    pub fn whole(role: Role, rest: Vec<Parameter>) -> Self {
        Self { role, groups: Vec::new(), rest, buffers: 0 }
    }

    /// A component of like blocks: their number, the parameters of one, and those outside.
    pub fn blocks(role: Role, (count, block, rest): (u64, Vec<Parameter>, Vec<Parameter>)) -> Self {
        Self { role, groups: if count > 0 { vec![Group { count, block }] } else { Vec::new() }, rest, buffers: 0 }
    }

    /// Parameters in all, buffers left out.
    pub fn parameters(&self) -> u64 {
        let sum = |list: &[Parameter]| list.iter().map(|p| p.elements).sum::<u64>();
        sum(&self.rest[self.buffers..]) + self.groups.iter().map(|group| group.count * sum(&group.block)).sum::<u64>()
    }
}
