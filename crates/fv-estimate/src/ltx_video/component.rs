//! LTX-Video's components on their own, under diffusers.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::ExpandedComponent;

use super::dit::{Dit, Forward};
use super::vae::{Coder, LATENT_CHANNELS, SPATIAL, TEMPORAL, TILING, Vae};
use crate::forecast::operations::Operations;
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::residency::Streams;
use crate::modules::standalone::{Asked, EncoderPass, Input, Libraries, Pass, Why};
use crate::program::{Builder, Tensor};
use crate::settings::{Attention, Tiling};

/// Text tokens of a benchmark of the transformer that does not say.
const TEXT_TOKENS: u64 = 256;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Dit(Forward),
    /// Decoding a latent or encoding pixels.
    Vae {
        vae: Vae,
        encodes: bool,
        input: Map,
        tiling: Option<Tiling>,
        sliced: bool,
    },
}

/// What a benchmark ran.
pub(super) fn read(component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
    let part = match (role, asked.stage.as_str()) {
        (Role::Transformer, "denoise_forward") => {
            let [batch, frames, height, width] = latent(asked)?;
            Part::Dit(Forward {
                dit: Dit::read(component)?,
                batch,
                tokens: frames * height * width,
                text_tokens: asked.text_tokens.unwrap_or(TEXT_TOKENS),
                act: asked.act(Dtype::Bf16),
                attention: Attention::Cudnn,
                per_token_timesteps: asked.expand_timesteps,
            })
        }
        (Role::Vae, stage @ ("decode" | "encode")) => {
            let [height, width, frames] = asked.video()?;
            let [batch, latent_frames, rows, columns] = latent(asked)?;
            let element = asked.act(Dtype::Bf16);
            let encodes = stage == "encode";
            let input = if encodes {
                Map { batch, channels: 3, frames, height, width, element }
            } else {
                Map { batch, channels: LATENT_CHANNELS, frames: latent_frames, height: rows, width: columns, element }
            };
            let vae = Vae::of(component.parameter_count.get())?;
            Part::Vae { vae, encodes, input, tiling: asked.tiled.then_some(TILING), sliced: asked.sliced }
        }
        (Role::Transformer | Role::Vae, stage) => return Err(format!("no rule for the stage `{stage}` of a {}", role.word()).into()),
        _ => return EncoderPass::read(component, role, 128, asked),
    };
    Ok(Box::new(part))
}

/// Videos, latent frames, rows and columns.
fn latent(asked: &Asked) -> Result<[u64; 4], Why> {
    let [height, width, frames] = asked.video()?;
    Ok([asked.batch, frames.saturating_sub(1) / TEMPORAL + 1, height / SPATIAL, width / SPATIAL])
}

impl Pass for Part {
    fn weights(&self) -> Weights {
        match self {
            Self::Dit(forward) => forward.dit.weights(Role::Transformer),
            Self::Vae { vae, .. } => Weights::whole(Role::Vae, vae.tensors()),
        }
    }

    fn element(&self) -> (u64, bool) {
        match self {
            Self::Dit(forward) => (forward.act, false),
            Self::Vae { input, .. } => (input.element, false),
        }
    }

    fn libraries(&self) -> Libraries {
        match self {
            Self::Dit(_) => Libraries::Biases,
            // Of the VAEs only a decoder with timesteps has products.
            Self::Vae { vae, encodes, .. } if vae.timestep() && !encodes => Libraries::Biases,
            Self::Vae { .. } => Libraries::None,
        }
    }

    fn inputs(&self) -> Vec<Input> {
        match self {
            Self::Dit(f) => {
                let batch = ("batch", f.batch);
                vec![
                    (vec![batch, ("tokens", f.tokens), ("channels", LATENT_CHANNELS)], f.act),
                    (vec![batch, ("text tokens", f.text_tokens), ("width", Forward::TEXT_WIDTH)], f.act),
                ]
            }
            Self::Vae { input, .. } => {
                let dims = [
                    ("batch", input.batch),
                    ("channels", input.channels),
                    ("frames", input.frames),
                    ("height", input.height),
                    ("width", input.width),
                ];
                vec![(dims.to_vec(), input.element)]
            }
        }
    }

    fn operations(&self) -> Option<Operations> {
        match self {
            Self::Dit(forward) => Some(forward.operations()),
            Self::Vae { vae, encodes: false, input, tiling, .. } => {
                let pixels = [input.height * SPATIAL, input.width * SPATIAL, (input.frames - 1) * TEMPORAL + 1];
                Some(vae.decoder().operations(input.batch, pixels, tiling.as_ref(), input.element))
            }
            Self::Vae { .. } => None,
        }
    }

    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        match *self {
            Self::Dit(forward) => forward.emit(p, streams),
            Self::Vae { vae, encodes, input, tiling, sliced } => {
                let coder = Coder { vae, act: input.element, streams };
                let code = if encodes { Coder::encode_as } else { Coder::decode_as };
                code(&coder, p, input, tiling, sliced).0
            }
        }
    }
}
