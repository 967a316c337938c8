//! MiniMax H3's components on their own, under diffusers.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::{ExpandedComponent, Model};
use fv_spec::units::Count;

use super::diffusers_dit::Forward;
use super::geometry::{Dit, LATENT, Latent, Rows, Vae};
use super::video_vae::{Coder, TILING};
use super::weights::Qwen;
use super::{audio_vae, qwen};
use crate::forecast::operations::Operations;
use crate::modules::FP32;
use crate::modules::parameter::Weights;
use crate::modules::residency::Streams;
use crate::modules::standalone::{Asked, Input, Libraries, Pass, Why};
use crate::program::{Builder, Tensor};
use crate::settings::{Attention, Placement};

/// Text rows of a benchmark that does not say.
const TEXT_ROWS: u64 = 300;
/// Bytes of a position in the pipeline, which computes them in double precision.
const POSITIONS: u64 = 8;

/// What is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A transformer's forward pass, with its weights where the placement says.
    Dit(Forward, Placement),
    /// Decoding.
    Decode(Coder, Latent),
    /// Encoding a clip of batch, frames, height and width.
    Encode(Coder, [u64; 4]),
    /// Decoding of sound.
    Audio(audio_vae::Decode),
    /// The text encoder.
    Text(qwen::Forward),
}

/// What a benchmark ran.
pub(super) fn read(_: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
    let uncovered = |what: &str| Err(Why::NotCovered(format!("no rule for the stage `{}` of a {what}", asked.stage)));
    let part = match role {
        Role::Transformer | Role::Transformer2 => {
            let dit = Dit::read(component)?;
            if dit.rank.is_some() || dit.sparse_gate {
                return Err("diffusers' class has neither factored modulation nor gates of sparse attention".to_owned().into());
            }
            let [height, width, frames] = asked.video()?;
            let placement = match asked.stage.as_str() {
                "denoise_forward" => Placement::Resident,
                "denoise_forward_group_offload" => {
                    Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: false }
                }
                _ => return uncovered("transformer"),
            };
            let act = asked.act(Dtype::Bf16);
            let forward = Forward {
                dit,
                rows: Rows::of(height, width, frames, asked.text_tokens.unwrap_or(TEXT_ROWS), 0),
                batch: asked.batch,
                act,
                keep_fp32: !asked.cast,
                // As the pipeline makes them.
                latents: FP32,
                positions: POSITIONS,
                attention: Attention::Cudnn,
                tiles: 0,
            };
            Part::Dit(forward, placement)
        }
        Role::Vae => {
            // A benchmark that does not tile turns the class's own tiling off.
            let tiling = asked.tiled.then_some(TILING);
            let act = asked.act(Dtype::Fp32);
            let coder =
                Coder { vae: Vae::read(component)?, act, keep_fp32: !asked.cast && act == 2, tiling, slicing: asked.sliced, int8: None };
            let [height, width, frames] = asked.video()?;
            match asked.stage.as_str() {
                "decode" => Part::Decode(coder, Latent::of(asked.batch, frames, height, width)),
                "encode" => Part::Encode(coder, [asked.batch, frames, height, width]),
                _ => return uncovered("VAE"),
            }
        }
        Role::AudioVae => {
            let frames = asked.tokens.ok_or_else(|| Why::Malformed("a number of latent frames is expected".to_owned()))?;
            if asked.stage != "decode" {
                return uncovered("audio VAE");
            }
            Part::Audio(audio_vae::Decode { batch: asked.batch, frames, warm: true })
        }
        Role::TextEncoder => {
            let qwen = Qwen::read(component.block_count.map(Count::get), component.parameter_count.get())?;
            let tokens = asked.tokens.ok_or_else(|| Why::Malformed("a number of tokens is expected".to_owned()))?;
            if asked.stage != "encode_prompt" {
                return uncovered("text encoder");
            }
            let act = asked.act(Dtype::Bf16);
            if act != 2 {
                return Err("which kernel grouped heads take in fp32 is not known".to_owned().into());
            }
            Part::Text(qwen::Forward { qwen, batch: asked.batch, tokens, act, all_states: true })
        }
        _ => return uncovered(role.word()),
    };
    Ok(Box::new(part))
}

impl Pass for Part {
    fn weights(&self) -> Weights {
        match self {
            Self::Dit(forward, _) => forward.dit.weights(),
            Self::Decode(coder, _) | Self::Encode(coder, _) => coder.vae.tensors(),
            Self::Audio(_) => audio_vae::tensors(),
            Self::Text(forward) => forward.qwen.tensors(),
        }
    }

    fn element(&self) -> (u64, bool) {
        match self {
            Self::Dit(forward, _) => (forward.act, forward.keep_fp32),
            Self::Decode(coder, _) | Self::Encode(coder, _) => (coder.act, coder.keep_fp32),
            Self::Audio(_) => (FP32, false),
            Self::Text(forward) => (forward.act, false),
        }
    }

    fn placement(&self) -> Placement {
        if let Self::Dit(_, placement) = self { *placement } else { Placement::Resident }
    }

    fn libraries(&self) -> Libraries {
        match self {
            Self::Dit(..) | Self::Decode(..) => Libraries::Biases,
            Self::Encode(..) | Self::Audio(_) => Libraries::None,
            Self::Text(_) => Libraries::Products,
        }
    }

    fn inputs(&self) -> Vec<Input> {
        match self {
            Self::Dit(forward, _) => forward.inputs(),
            Self::Decode(_, l) => {
                let dims = [("batch", l.batch), ("channels", LATENT), ("frames", l.frames), ("height", l.height), ("width", l.width)];
                vec![(dims.to_vec(), FP32)]
            }
            Self::Encode(coder, [batch, frames, height, width]) => {
                let dims = [("batch", *batch), ("channels", 3), ("frames", *frames), ("height", *height), ("width", *width)];
                vec![(dims.to_vec(), coder.act)]
            }
            Self::Audio(decode) => {
                vec![
                    (vec![("weights", audio_vae::computed_weights())], FP32),
                    (vec![("batch", decode.batch), ("channels", super::geometry::AUDIO_ROW), ("frames", decode.frames)], FP32),
                ]
            }
            Self::Text(forward) => vec![(vec![("batch", forward.batch), ("tokens", forward.tokens)], 8); 2],
        }
    }

    fn operations(&self) -> Option<Operations> {
        match self {
            Self::Dit(forward, _) => Some(forward.operations()),
            // In fp32 its products take neither the rate of BF16 nor one that the catalog has.
            Self::Decode(coder, latent) => (coder.act == 2).then(|| coder.operations(*latent)),
            _ => None,
        }
    }

    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        match self {
            Self::Dit(forward, _) => {
                let [video, audio] = forward.emit(p, streams);
                p.release(audio);
                video
            }
            Self::Decode(coder, latent) => coder.decode(p, *latent, FP32),
            Self::Encode(coder, clip) => coder.encode(p, *clip, coder.act),
            Self::Audio(decode) => {
                let weights = p.list();
                let waveform = decode.emit(p, weights);
                p.release_list(weights);
                waveform
            }
            Self::Text(forward) => forward.emit(p),
        }
    }
}
