//! What a plan decides: where weights live, how rows and heads are split. None of it changes the output, formats apart.

pub use fv_spec::plan::TextKeys;
use fv_spec::program::{Element, Formats, Tier};

/// Everything that is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choices {
    /// How numbers are stored.
    pub formats: Formats,
    /// The text encoder's weights.
    pub text: Residency,
    /// Weights of the transformer, or of each expert.
    pub transformers: Vec<Residency>,
    /// How transformers compute.
    pub compute: Compute,
    /// The video decoder's weights; its blocks are what `vae::blocks` lists.
    pub vae: Residency,
    /// How it computes.
    pub decode: Decode,
}

/// Where the blocks of one component live. What a component has outside blocks is always on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residency {
    /// Of each block: device, pinned or disk.
    pub tiers: Vec<Tier>,
    /// Places on the device for blocks that do not live there: 1 or more, and 0 where all do.
    pub slots: u32,
    /// Page-locked places, each for one block, through which blocks on disk pass; 0 where none is on disk.
    pub ring: u32,
}

impl Residency {
    /// All of so many blocks on the device.
    pub fn resident(blocks: u64) -> Self {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
        Self { tiers: vec![Tier::Device; blocks], slots: 0, ring: 0 }
    }
}

/// How transformers compute. Rows are tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compute {
    /// Attention heads that are computed together; divides the number of heads.
    pub head_group: u64,
    /// Rows of the feed-forward layer at a time.
    pub feed_forward_chunk: u64,
    /// Rows of attention's projections at a time.
    pub projection_chunk: u64,
    /// Attention outputs are collected in host memory.
    pub outputs_on_host: bool,
    /// The residual stream is kept in host memory between the parts of a block.
    pub residual_on_host: bool,
    /// Keys and values of the text.
    pub text_keys: TextKeys,
    /// With guidance, both predictions go through each block together, so that its weights are moved once and two residual streams
    /// are alive; otherwise one prediction after the other.
    pub paired_guidance: bool,
}

/// How the video decoder computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decode {
    /// Tiles, which change the output where there are several.
    pub tiles: Option<Tiling>,
    /// Frames of a level that go on to the next one together: 1, 2 or 4. Fewer need less memory; blocks that do not live on the
    /// device are moved once for each such group.
    pub frames: u64,
    /// How colours leave: as bytes, or as numbers between -1 and 1.
    pub pixels: Element,
}

/// Tiles of a frame, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Rows of a tile.
    pub height: u64,
    /// Columns of a tile.
    pub width: u64,
    /// Rows from one tile to the next.
    pub stride_height: u64,
    /// Columns from one tile to the next.
    pub stride_width: u64,
}
