//! One model on its own: weights on the device, inputs, and one forward pass from an empty cache. What benchmarks of a single
//! component measure, and so what the accuracy of the rules is judged on.

use fv_spec::authored::Role;
use fv_spec::estimate::BufferKind::Activation;
use fv_spec::estimate::StageName;

use super::diffusers_dit::Forward;
use super::diffusers_vae::Coder;
use super::geometry::Latent;
use super::model::Encoder;
use super::residency::{library_workspace, load_parameters, product_workspace};
use super::weights::Halves;
use super::{text, transformers_text};
use crate::caching::Config;
use crate::pinned;
use crate::program::{Builder, Model, Program, Sampling, Site};
use crate::settings::{Placement, Tiling};

static INPUT: Site = Site { name: "input", kind: Activation, rule: "wan.component" };
/// Pixels of a side of the image encoder's input.
const IMAGE_SIDE: u64 = 224;

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
    /// Alive before the pass: weights, inputs, and what libraries keep.
    pub base: u64,
    /// Highest sum of tensors alive during it.
    pub allocated: u64,
    /// The same without what the allocator rounds up and without workspaces.
    pub tensors: u64,
    /// The most that the allocator held during it.
    pub reserved: u64,
    /// Page-locked host memory.
    pub pinned: u64,
}

/// The peaks of `part`. `None` when a size exceeds what the rules count in.
pub fn peaks(part: &Part) -> Option<ComponentPeaks> {
    let program = lower(part)?;
    let timeline = program.run(&Model::Caching(Config::default()), Sampling::Ends);
    let mut peaks = ComponentPeaks { base: 0, allocated: 0, tensors: 0, reserved: 0, pinned: pinned_bytes(part)? };
    for (span, held) in program.phases().iter().zip(&timeline.phases) {
        if span.stage == StageName::Denoising {
            peaks.tensors = peaks.tensors.max(held.tensors);
            peaks.allocated = peaks.allocated.max(held.allocated);
            peaks.reserved = peaks.reserved.max(held.reserved);
        } else {
            peaks.base = peaks.base.max(held.allocated);
        }
    }
    Some(peaks)
}

/// Host memory that is page-locked for weights that pass by, each tensor on its own.
fn pinned_bytes(part: &Part) -> Option<u64> {
    let Part::Dit(forward, Placement::Streamed { pinned: true, .. } | Placement::Leaf { pinned: true }) = part else { return Some(0) };
    let size = |p: &super::weights::Parameter| p.elements * p.element(forward.act, forward.keep_fp32);
    let (block, rest) = (forward.dit.block_tensors(), forward.dit.other_tensors());
    let blocks = block.iter().map(|p| (size(p), forward.dit.blocks));
    pinned::pinned_bytes(blocks.chain(rest.iter().map(|p| (size(p), 1))))
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
                let rest: Vec<_> = dit.buffers().into_iter().chain(dit.other_tensors()).collect();
                load_parameters(
                    &mut p,
                    Role::Transformer,
                    (dit.blocks, &dit.block_tensors(), &rest),
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
            let role = if encoder.tokens > 0 { Role::ImageEncoder } else { Role::TextEncoder };
            load_parameters(&mut p, role, (blocks, &block, &rest), (*act, false), weights);
        }
    }
    p.phase("inputs");
    let inputs = p.list();
    match part {
        // UMT5 has no biases, so only plain products leave a workspace.
        Part::Encoder(encoder, ..) if encoder.tokens == 0 => product_workspace(&mut p, inputs),
        Part::Dit(..) | Part::Encoder(..) => library_workspace(&mut p, inputs),
        Part::Decode(..) | Part::Encode(..) => {}
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
        Part::Encoder(encoder, [batch, _], _) if encoder.tokens > 0 => {
            input(&mut p, &[("batch", *batch), ("channels", 3), ("height", IMAGE_SIDE), ("width", IMAGE_SIDE)], 4);
        }
        Part::Encoder(_, [batch, tokens], _) => {
            for _ in 0..2 {
                // Token numbers and their mask.
                input(&mut p, &[("batch", *batch), ("tokens", *tokens)], 8);
            }
        }
    }
    p.stage(StageName::Denoising);
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
            transformers_text::Forward { encoder, batch: *batch, tokens: *tokens, act: *act, leaf: None }.emit(&mut p)
        }
    };
    p.release(output);
    p.finish()
}
