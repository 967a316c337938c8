//! The video decoder, which has the budget without what adapters and tables take.

use fv_spec::plan::Architecture;

use super::activation::Thresholds;
use super::budget::Reserved;
use super::constants::{DECODER_DISK, DECODER_OUTPUT, DECODER_PINS, LARGE, hundredths};
use super::facts::Facts;

/// What is decided about the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub struct DecoderChoice {
    /// Whether blocks are copied to the device as they are needed.
    pub offload: bool,
    /// Blocks that stay there then.
    pub resident: i64,
    /// Whether there is a second slot.
    pub second_slot: bool,
    /// Whether blocks in host memory are page-locked.
    pub pin_weights: bool,
    /// Whether they are read from disk.
    pub disk: bool,
    /// Whether clips are written out at once.
    pub stream_output: bool,
    /// Host memory below which they are.
    pub output_minimum: i64,
    /// Whether linear weights are kept in FP16.
    pub half_precision_cache: bool,
}

/// Decides about the decoder.
pub(super) fn decide(facts: &Facts, thresholds: &Thresholds, vram: &Reserved, host: &Reserved) -> DecoderChoice {
    let offload = vram.budget < hundredths(LARGE);
    let fitting = (vram.budget - thresholds.decoder) / facts.shape.decoder_block;
    // Three copies of the video at a byte for each of three channels.
    let video = 3 * facts.canvas.area() * i64::from(facts.canvas.frames) * 3;
    let output_minimum = hundredths(DECODER_OUTPUT) + video;
    DecoderChoice {
        offload,
        resident: if offload { fitting.clamp(0, facts.shape.decoder_blocks) } else { facts.shape.decoder_blocks },
        second_slot: offload && !facts.small(vram.budget),
        pin_weights: offload && host.budget >= hundredths(DECODER_PINS),
        disk: offload && host.budget < hundredths(DECODER_DISK),
        stream_output: offload || host.budget < output_minimum,
        output_minimum,
        half_precision_cache: match facts.architecture {
            Architecture::BlackwellRtx => true,
            Architecture::Ada => facts.windows(),
            _ => false,
        },
    }
}
