//! CogVideoX's components on their own, under diffusers.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::ExpandedComponent;

use super::dit::{Dit, Forward, Positions};
use super::vae::{self, Coder, LATENT_CHANNELS, SPATIAL, TEMPORAL, TILING};
use crate::forecast::operations::Operations;
use crate::modules::FP32;
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::residency::Streams;
use crate::modules::standalone::{Asked, EncoderPass, Input, Libraries, Pass, Why};
use crate::program::{Builder, Tensor};
use crate::settings::{Attention, Tiling};

/// What the pipeline pads a prompt to.
const TEXT_TOKENS: u64 = 226;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Dit(Forward),
    /// Decoding latents or encoding pixels.
    Vae {
        decodes: bool,
        input: Map,
        tiling: Option<Tiling>,
        sliced: bool,
    },
}

/// What a benchmark ran.
pub(super) fn read(component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
    let part = match (role, asked.stage.as_str()) {
        (Role::Transformer, "denoise_forward") => {
            let dit = Dit::read(component)?;
            let [frames, height, width] = latent(asked)?;
            Part::Dit(Forward {
                dit,
                batch: asked.batch,
                latent: [frames.next_multiple_of(dit.patch_frames), height, width],
                text_tokens: asked.text_tokens.unwrap_or(TEXT_TOKENS),
                act: asked.act(Dtype::Bf16),
                attention: Attention::Cudnn,
            })
        }
        (Role::Vae, stage @ ("decode" | "encode")) => {
            let whole: u64 = vae::tensors().iter().map(|parameter| parameter.elements).sum();
            if component.parameter_count.get() != whole {
                return Err(format!("{} is not the whole VAE of CogVideoX", component.component).into());
            }
            let [height, width, frames] = asked.video()?;
            let [latent_frames, rows, columns] = latent(asked)?;
            let (batch, element, decodes) = (asked.batch, asked.act(Dtype::Bf16), stage == "decode");
            let input = if decodes {
                Map { batch, channels: LATENT_CHANNELS, frames: latent_frames, height: rows, width: columns, element }
            } else {
                Map { batch, channels: 3, frames, height, width, element }
            };
            Part::Vae { decodes, input, tiling: asked.tiled.then_some(TILING), sliced: asked.sliced }
        }
        (Role::Transformer | Role::Vae, stage) => return Err(format!("no rule for the stage `{stage}` of a {}", role.word()).into()),
        _ => return EncoderPass::read(component, role, TEXT_TOKENS, asked),
    };
    Ok(Box::new(part))
}

/// Latent frames, rows and columns.
fn latent(asked: &Asked) -> Result<[u64; 3], Why> {
    let [height, width, frames] = asked.video()?;
    Ok([frames.saturating_sub(1) / TEMPORAL + 1, height / SPATIAL, width / SPATIAL])
}

impl Pass for Part {
    fn weights(&self) -> Weights {
        match self {
            Self::Dit(forward) => forward.dit.weights(Role::Transformer),
            Self::Vae { .. } => Weights::whole(Role::Vae, vae::tensors()),
        }
    }

    fn element(&self) -> (u64, bool) {
        match self {
            Self::Dit(forward) => (forward.act, true),
            Self::Vae { input, .. } => (input.element, false),
        }
    }

    fn libraries(&self) -> Libraries {
        if matches!(self, Self::Dit(_)) { Libraries::Biases } else { Libraries::None }
    }

    fn inputs(&self) -> Vec<Input> {
        match self {
            Self::Dit(f) => {
                let [frames, height, width] = f.latent;
                let batch = ("batch", f.batch);
                let channels = ("channels", f.dit.in_channels);
                let mut inputs = vec![
                    (vec![batch, ("frames", frames), channels, ("height", height), ("width", width)], f.act),
                    (vec![batch, ("text tokens", f.text_tokens), ("width", Forward::TEXT_WIDTH)], f.act),
                ];
                if f.dit.positions != Positions::Table {
                    inputs.extend(vec![(f.rotary_table(), FP32); 2]);
                }
                inputs
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
            Self::Vae { decodes: true, input, tiling, .. } => {
                let pixels = [input.height * SPATIAL, input.width * SPATIAL, (input.frames - 1) * TEMPORAL + 1];
                Some(vae::DECODER.operations(input.batch, pixels, tiling.as_ref(), input.element))
            }
            Self::Vae { .. } => None,
        }
    }

    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        match *self {
            Self::Dit(forward) => forward.emit(p, streams),
            Self::Vae { decodes, input, tiling, sliced } => Coder { act: input.element, streams }.code(p, input, decodes, tiling, sliced).0,
        }
    }
}
