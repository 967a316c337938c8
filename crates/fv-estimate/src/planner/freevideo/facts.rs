//! Machine and request in the terms of the rules. Bytes and counts are signed, and none is beyond 2^50, so that sums of several
//! stay within 64 bits; products are made in 128.

use fv_spec::plan::{Architecture, OperatingSystem, Precision};

use super::constants::{GIB, SMALL, SMALL_WINDOWS, hundredths};
use super::{activation, budget};

/// The model's extents that the rules use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of the transformer.
    pub blocks: i64,
    /// Width of the residual stream.
    pub hidden: i64,
    /// Width of the feed-forward layer.
    pub feed_forward: i64,
    /// Blocks of the video decoder.
    pub decoder_blocks: i64,
    /// Bytes of one of them.
    pub decoder_block: i64,
}

/// A canvas and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Pixel columns.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Frames, already legal.
    pub frames: u32,
    /// Latent frames.
    pub latent_frames: u32,
    /// Rows of the packed sequence.
    pub video_tokens: u64,
}

impl Canvas {
    /// Pixels of a frame.
    pub fn area(&self) -> i64 {
        i64::from(self.width) * i64::from(self.height)
    }
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The operating system; Linux or Windows.
    pub os: OperatingSystem,
    /// The GPU's generation.
    pub architecture: Architecture,
    /// The format of the cached weights.
    pub precision: Precision,
    /// Whether both sorts of attention are `SageAttention` 2's.
    pub sage_only: bool,
    /// Device memory that is free, and no more than there is, or may be used.
    pub free_vram: i64,
    /// The same of host memory.
    pub free_host: i64,
    /// All host memory.
    pub total_host: i64,
    /// A reserve of device memory that was given.
    pub vram_reserve: Option<i64>,
    /// Whether that is one that was relaxed before.
    pub relaxed: bool,
    /// A reserve of host memory that was given.
    pub host_reserve: Option<i64>,
    /// The host peak of an earlier complete run of the same request on the same machine.
    pub demonstrated_host: Option<i64>,
    /// Whether to try below what is admitted.
    pub capacity_trial: bool,
    /// What is computed.
    pub canvas: Canvas,
    /// Rows of video and references.
    pub rows: i64,
    /// What adapters and tables take.
    pub workspace: i64,
    /// Bytes of a transformer block, with its adapters.
    pub block: i64,
    /// The model.
    pub shape: Shape,
}

impl Facts {
    /// Whether it is Windows.
    pub(super) fn windows(&self) -> bool {
        self.os == OperatingSystem::Windows
    }

    /// Whether an Ampere card computes in BF16 from FP8 weights: it has rules of its own.
    pub(super) fn ampere_bf16(&self) -> bool {
        self.architecture == Architecture::Ampere && self.precision != Precision::Int8
    }

    /// Whether a budget is in the small band: below 10 GiB, on Windows below 11 GiB where the workspace does not fit.
    pub(super) fn small(&self, budget: i64) -> bool {
        budget < hundredths(SMALL)
            || (self.has_workspace() && budget < hundredths(SMALL_WINDOWS) && budget < activation::windows_workspace(self, false))
    }

    /// Whether the rules of Windows's workspace apply.
    pub(super) fn has_workspace(&self) -> bool {
        self.windows() && !self.ampere_bf16()
    }

    /// Budgets, before anything is admitted.
    pub(super) fn budgets(&self) -> [budget::Reserved; 2] {
        [budget::vram(self), budget::host(self)]
    }
}

/// The largest number of bytes that a fact may have: 10^6 GiB.
pub(super) const MOST: i64 = 1_000_000 * GIB;
