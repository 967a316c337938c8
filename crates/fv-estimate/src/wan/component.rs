//! One model on its own: weights on the device, inputs, a first and a second forward pass. What benchmarks of a single
//! component measure, and so what the accuracy of the rules is judged on.

use fv_spec::authored::Role;
use fv_spec::estimate::BufferKind::Activation;
use fv_spec::estimate::StageName;

use super::diffusers_dit::Forward;
use super::diffusers_vae::Coder;
use super::geometry::Latent;
use super::model::Encoder;
use super::residency::{library_workspace, load_parameters};
use super::text;
use super::weights::Halves;
use crate::program::{Builder, Program, Site};
use crate::settings::{Placement, Tiling};

static INPUT: Site = Site { name: "input", kind: Activation, rule: "wan.component" };
static STREAMED_LEAF: Site = Site { name: "streamed layer", kind: Activation, rule: "wan.component" };

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A transformer's forward pass, with its weights where the placement says.
    Dit(Forward, Placement),
    /// Decoding.
    Decode(Coder, Latent, Option<Tiling>),
    /// Encoding a clip of batch, frames, height and width.
    Encode(Coder, [u64; 4], Option<Tiling>),
    /// An encoder over batch and tokens, at so many bytes an activation.
    Encoder(Encoder, [u64; 2], u64),
}

/// Peaks of the measured pass, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentPeaks {
    /// Alive before the pass: weights, inputs, and what the first pass left.
    pub base: u64,
    /// Highest sum of tensors alive during it.
    pub allocated: u64,
    /// The most that the allocator held during it.
    pub reserved: u64,
}

/// The program of `part`: the stage `denoising` is the measured pass, whatever the part.
pub fn lower(part: &Part) -> Option<Program> {
    let mut p = Builder::new(false);
    p.stage(StageName::Load);
    p.phase("weights");
    let weights = p.list();
    match part {
        Part::Dit(forward, placement) => {
            if *placement == Placement::Resident {
                let dit = &forward.dit;
                load_parameters(
                    &mut p,
                    Role::Transformer,
                    (dit.blocks, &dit.block_tensors(), &dit.other_tensors()),
                    (forward.act, forward.keep_fp32),
                    weights,
                );
            }
        }
        Part::Decode(coder, ..) | Part::Encode(coder, ..) => {
            load_parameters(&mut p, Role::Vae, (0, &[], &coder.vae.tensors(Halves::Both)), (coder.act, false), weights);
        }
        Part::Encoder(encoder, _, act) => {
            let (blocks, block, rest) = text::tensors(encoder);
            load_parameters(&mut p, Role::TextEncoder, (blocks, &block, &rest), (*act, false), weights);
        }
    }
    p.phase("inputs");
    let inputs = p.list();
    if matches!(part, Part::Dit(..) | Part::Encoder(..)) {
        library_workspace(&mut p, inputs);
    }
    let input = |p: &mut Builder, dims: &[(&'static str, u64)], size: u64| {
        let tensor = p.alloc(&INPUT, dims, size);
        p.keep(inputs, tensor);
    };
    match part {
        Part::Dit(f, _) => {
            let l = f.latent;
            input(
                &mut p,
                &[("batch", l.batch), ("channels", f.dit.in_channels), ("frames", l.frames), ("height", l.height), ("width", l.width)],
                f.act,
            );
            input(&mut p, &[("batch", l.batch), ("tokens", f.text_tokens), ("width", f.dit.text)], f.act);
            if f.image_tokens > 0 {
                input(&mut p, &[("batch", l.batch), ("tokens", f.image_tokens), ("features", super::geometry::IMAGE_FEATURES)], f.act);
            }
        }
        Part::Decode(c, l, _) => {
            input(
                &mut p,
                &[("batch", l.batch), ("channels", c.vae.latent_channels), ("frames", l.frames), ("height", l.height), ("width", l.width)],
                c.act,
            );
        }
        Part::Encode(c, [batch, frames, height, width], _) => {
            input(&mut p, &[("batch", *batch), ("channels", 3), ("frames", *frames), ("height", *height), ("width", *width)], c.act);
        }
        Part::Encoder(_, [batch, tokens], _) => input(&mut p, &[("batch", *batch), ("tokens", *tokens)], 8),
    }
    for stage in [StageName::Encoding, StageName::Denoising] {
        p.stage(stage);
        let output = match part {
            Part::Dit(forward, placement) => {
                let mut streams = super::residency::component_streams(&mut p, forward, *placement);
                forward.emit_with(&mut p, &mut streams)
            }
            Part::Decode(coder, latent, Some(tiling)) if super::tiled(&coder.vae, *latent, tiling) => {
                coder.decode_tiled(&mut p, *latent, *tiling)
            }
            Part::Decode(coder, latent, _) => coder.decode(&mut p, *latent),
            Part::Encode(coder, [batch, frames, height, width], Some(tiling)) if coder.tiles([*height, *width], tiling) => {
                coder.encode_tiled(&mut p, *batch, *frames, [*height, *width], *tiling)
            }
            Part::Encode(coder, [batch, frames, height, width], _) => coder.encode(&mut p, *batch, *frames, *height, *width),
            Part::Encoder(encoder, [batch, tokens], act) => {
                let units = text::Units { embedding: (0, 1), block: Vec::new(), leaf: false, gathered: false };
                text::forward(&mut p, encoder, &units, &STREAMED_LEAF, &STREAMED_LEAF, *batch, *tokens, *act)
            }
        };
        p.release(output);
    }
    p.finish()
}
