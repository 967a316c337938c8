//! Wan's components on their own, under diffusers.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::{ExpandedComponent, Model};

use super::diffusers_dit::Forward;
use super::diffusers_vae::{Coder, Style};
use super::geometry::{Dit, IMAGE_FEATURES, Latent, Vae};
use super::weights::Halves;
use crate::forecast::operations::Operations;
use crate::modules::encoder::IMAGE_TOKENS;
use crate::modules::parameter::Weights;
use crate::modules::residency::Streams;
use crate::modules::standalone::{Asked, EncoderPass, Input, Libraries, Pass, Why};
use crate::program::{Builder, Tensor};
use crate::settings::{Attention, Placement, Tiling};

/// What the pipelines pad a prompt to.
const TEXT_TOKENS: u64 = 512;
/// Tile sizes of diffusers' class.
const TILING: Tiling = Tiling { tile: [256, 256], stride: [192, 192], temporal: None };

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A transformer's forward pass, with its weights where the placement says.
    Dit(Forward, Placement),
    /// Decoding.
    Decode(Coder, Latent, Option<Tiling>),
    /// Encoding a clip of batch, frames, height and width.
    Encode(Coder, [u64; 4], Option<Tiling>),
}

/// What a benchmark ran.
pub(super) fn read(model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
    let part = match role {
        Role::Transformer | Role::Transformer2 => {
            let dit = Dit::read(component)?;
            let vae = Vae::read(model.components.get(&Role::Vae).ok_or_else(|| format!("{} has no VAE", model.id))?)?;
            let [height, width, frames] = asked.video()?;
            let placement = match asked.stage.as_str() {
                "denoise_forward" => Placement::Resident,
                "denoise_forward_group_offload" => {
                    Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: false }
                }
                other => return Err(format!("no rule for the stage `{other}` of a transformer").into()),
            };
            let forward = Forward {
                dit,
                latent: Latent::of(&vae, asked.batch, frames, height, width),
                text_tokens: asked.text_tokens.unwrap_or(TEXT_TOKENS),
                image_tokens: if dit.image_branch { IMAGE_TOKENS } else { 0 },
                act: asked.act(Dtype::Bf16),
                keep_fp32: !asked.cast,
                attention: Attention::Cudnn,
                per_token_timesteps: asked.expand_timesteps,
            };
            Part::Dit(forward, placement)
        }
        Role::Vae => {
            let vae = Vae::read(component)?;
            let coder = Coder { vae, act: asked.act(Dtype::Fp32), workspace: true, style: Style::Diffusers };
            let [height, width, frames] = asked.video()?;
            let tiling = asked.tiled.then_some(TILING);
            if asked.sliced && asked.batch > 1 {
                return Err("no rule for slices of a VAE on its own".to_owned().into());
            }
            let whole: u64 = vae.tensors(Halves::Both).iter().map(|parameter| parameter.elements).sum();
            if component.parameter_count.get() != whole {
                return Err("only a part of the VAE is loaded".to_owned().into());
            }
            match asked.stage.as_str() {
                "decode" => Part::Decode(coder, Latent::of(&vae, asked.batch, frames, height, width), tiling),
                "encode" => Part::Encode(coder, [asked.batch, frames, height, width], tiling),
                other => return Err(format!("no rule for the stage `{other}` of a VAE").into()),
            }
        }
        _ => return EncoderPass::read(component, role, TEXT_TOKENS, asked),
    };
    Ok(Box::new(part))
}

impl Pass for Part {
    fn weights(&self) -> Weights {
        match self {
            Self::Dit(forward, _) => forward.dit.weights(Role::Transformer, true),
            Self::Decode(coder, ..) | Self::Encode(coder, ..) => Weights::whole(Role::Vae, coder.vae.tensors(Halves::Both)),
        }
    }

    fn element(&self) -> (u64, bool) {
        match self {
            Self::Dit(forward, _) => (forward.act, forward.keep_fp32),
            Self::Decode(coder, ..) | Self::Encode(coder, ..) => (coder.act, false),
        }
    }

    fn placement(&self) -> Placement {
        if let Self::Dit(_, placement) = self { *placement } else { Placement::Resident }
    }

    fn libraries(&self) -> Libraries {
        if matches!(self, Self::Dit(..)) { Libraries::Biases } else { Libraries::None }
    }

    fn inputs(&self) -> Vec<Input> {
        let latent = |l: &Latent, channels: u64| {
            vec![("batch", l.batch), ("channels", channels), ("frames", l.frames), ("height", l.height), ("width", l.width)]
        };
        match self {
            Self::Dit(f, _) => {
                let batch = ("batch", f.latent.batch);
                let mut inputs = vec![
                    (latent(&f.latent, f.dit.in_channels), f.act),
                    (vec![batch, ("tokens", f.text_tokens), ("width", f.dit.text)], f.act),
                ];
                if f.image_tokens > 0 {
                    inputs.push((vec![batch, ("tokens", f.image_tokens), ("features", IMAGE_FEATURES)], f.act));
                }
                inputs
            }
            Self::Decode(c, l, _) => vec![(latent(l, c.vae.latent_channels), c.act)],
            Self::Encode(c, [batch, frames, height, width], _) => {
                let dims = [("batch", *batch), ("channels", 3), ("frames", *frames), ("height", *height), ("width", *width)];
                vec![(dims.to_vec(), c.act)]
            }
        }
    }

    fn operations(&self) -> Option<Operations> {
        match self {
            Self::Dit(forward, _) => Some(forward.operations()),
            Self::Decode(coder, latent, tiling) => {
                let vae = &coder.vae;
                let pixels = [latent.height * vae.spatial, latent.width * vae.spatial, (latent.frames - 1) * vae.temporal + 1];
                Some(vae.decoder().operations(latent.batch, pixels, tiling.as_ref(), coder.act))
            }
            Self::Encode(..) => None,
        }
    }

    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        match self {
            Self::Dit(forward, _) => forward.emit_with(p, streams),
            Self::Decode(coder, latent, Some(tiling)) if super::tiled(&coder.vae, *latent, tiling) => {
                coder.decode_tiled(p, *latent, *tiling)
            }
            Self::Decode(coder, latent, _) => coder.decode(p, *latent),
            Self::Encode(coder, [batch, frames, height, width], Some(tiling)) if coder.tiles([*height, *width], tiling) => {
                coder.encode_tiled(p, *batch, *frames, [*height, *width], *tiling)
            }
            Self::Encode(coder, [batch, frames, height, width], _) => coder.encode(p, *batch, *frames, *height, *width),
        }
    }
}
