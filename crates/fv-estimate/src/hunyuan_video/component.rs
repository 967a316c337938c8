//! HunyuanVideo's components on their own, under diffusers.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::ExpandedComponent;

use super::geometry::{Dit, LATENT_CHANNELS, Latent, POOLED, TEXT};
use super::transformer::Forward;
use super::vae::{self, Coder, Halves};
use crate::forecast::operations::Operations;
use crate::modules::parameter::Weights;
use crate::modules::residency::Streams;
use crate::modules::standalone::{Asked, EncoderPass, Input, Libraries, Pass, Why};
use crate::program::{Builder, Tensor};
use crate::settings::Attention;

/// Text tokens of the pipeline's default (`max_sequence_length`).
const TEXT_TOKENS: u64 = 256;

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Dit(Forward),
    Decode(Coder, Latent),
    /// Batch, frames, height and width.
    Encode(Coder, [u64; 4]),
}

/// What a benchmark ran.
pub(super) fn read(component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
    let part = match (role, asked.stage.as_str()) {
        (Role::Transformer, "denoise_forward") => Part::Dit(Forward {
            dit: Dit::read(component)?,
            latent: Latent::of(asked.batch, asked.video()?),
            text_tokens: asked.text_tokens.unwrap_or(TEXT_TOKENS),
            act: asked.act(Dtype::Bf16),
            attention: Attention::Efficient,
        }),
        (Role::Vae, "decode" | "encode") => {
            if asked.sliced && asked.batch > 1 {
                return Err("no rule for slices of a VAE on its own".to_owned().into());
            }
            if vae::loaded(component)? != Halves::Both {
                return Err("only a part of the VAE is loaded".to_owned().into());
            }
            let coder = Coder { act: asked.act(Dtype::Fp32), tiling: asked.tiled.then_some(vae::TILING) };
            let video @ [height, width, frames] = asked.video()?;
            if asked.stage == "decode" {
                Part::Decode(coder, Latent::of(asked.batch, video))
            } else {
                Part::Encode(coder, [asked.batch, frames, height, width])
            }
        }
        (Role::Transformer | Role::Vae, other) => return Err(format!("no rule for the stage `{other}` of a {}", role.word()).into()),
        _ => return EncoderPass::read(component, role, TEXT_TOKENS, asked),
    };
    Ok(Box::new(part))
}

impl Pass for Part {
    fn weights(&self) -> Weights {
        match self {
            Self::Dit(forward) => forward.dit.weights(),
            Self::Decode(..) | Self::Encode(..) => Weights::whole(Role::Vae, vae::tensors(Halves::Both)),
        }
    }

    fn element(&self) -> (u64, bool) {
        match self {
            Self::Dit(forward) => (forward.act, false),
            Self::Decode(coder, _) | Self::Encode(coder, _) => (coder.act, false),
        }
    }

    fn libraries(&self) -> Libraries {
        // The VAE's attention has linear layers.
        Libraries::Biases
    }

    fn inputs(&self) -> Vec<Input> {
        match self {
            Self::Dit(f) => {
                let batch = ("batch", f.latent.batch);
                vec![
                    (f.latent.dims(LATENT_CHANNELS).to_vec(), f.act),
                    (vec![batch, ("tokens", f.text_tokens), ("width", TEXT)], f.act),
                    (vec![batch, ("width", POOLED)], f.act),
                    (vec![batch, ("tokens", f.text_tokens)], 8),
                ]
            }
            Self::Decode(coder, latent) => vec![(latent.dims(LATENT_CHANNELS).to_vec(), coder.act)],
            Self::Encode(coder, [batch, frames, height, width]) => {
                let dims = [("batch", *batch), ("channels", 3), ("frames", *frames), ("height", *height), ("width", *width)];
                vec![(dims.to_vec(), coder.act)]
            }
        }
    }

    fn operations(&self) -> Option<Operations> {
        match self {
            Self::Dit(forward) => Some(forward.operations()),
            Self::Decode(coder, latent) => {
                Some(vae::DECODER.operations(latent.batch, vae::pixels(latent), coder.tiling.as_ref(), coder.act))
            }
            Self::Encode(..) => None,
        }
    }

    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        match self {
            Self::Dit(forward) => forward.emit(p, streams),
            Self::Decode(coder, latent) => coder.decode(p, *latent),
            Self::Encode(coder, video) => coder.encode(p, *video),
        }
    }
}
