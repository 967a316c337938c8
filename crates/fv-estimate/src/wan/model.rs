//! A Wan model of the catalog, read into what the rules need, and what lowering a request gives.

use std::collections::BTreeSet;

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::{HostBytes, Reason};

use super::geometry::{Dit, Vae};
use super::weights::Halves;
use crate::program::Program;

/// A text or image encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoder {
    /// Parameters of the loaded part.
    pub parameters: u64,
    /// Like blocks and the parameters of one.
    pub blocks: (u64, u64),
    /// Width of its states.
    pub hidden: u64,
    /// Width of its feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Whether the feed-forward layer is gated.
    pub gated: bool,
    /// Tokens of its output, where that does not depend on the request: 257 for the image encoder.
    pub tokens: u64,
    /// Whether the catalog gives the geometry; without it only the weights are known.
    pub geometry: bool,
}

/// A Wan model as one deployment loads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wan {
    /// The transformer, or the first of two experts.
    pub dit: Dit,
    /// The second expert.
    pub dit2: Option<Dit>,
    /// The VAE.
    pub vae: Vae,
    /// What of it is loaded.
    pub halves: Halves,
    /// The text encoder.
    pub text: Option<Encoder>,
    /// The image encoder.
    pub image: Option<Encoder>,
}

/// Tokens of CLIP ViT-H/14 at 224 pixels: 16 x 16 patches and one for the class.
pub const IMAGE_TOKENS: u64 = 257;

impl Wan {
    /// Reads a model as `example` loads it. `Err` lists what is missing.
    pub fn read(model: &Model, example: &Example) -> Result<Self, Vec<Reason>> {
        let component = |role: Role| example.components.get(&role).or_else(|| model.components.get(&role));
        let need =
            |role: Role| component(role).ok_or_else(|| vec![Reason::new("missing-component", format!("the model has no {}", role.word()))]);
        let geometry = |text: String| vec![Reason::new("missing-geometry", text)];
        let vae_component = need(Role::Vae)?;
        let vae = Vae::read(vae_component).map_err(geometry)?;
        let sum = |halves: Halves| vae.tensors(halves).iter().map(|p| p.elements).sum::<u64>();
        let halves = [Halves::Both, Halves::Decoder].into_iter().find(|halves| sum(*halves) == vae_component.parameter_count.get());
        let halves = halves.ok_or_else(|| {
            geometry(format!("a VAE of {} parameters is neither the whole Wan VAE nor its decoder", vae_component.parameter_count))
        })?;
        let known: BTreeSet<Role> = [Role::Transformer, Role::Transformer2, Role::TextEncoder, Role::ImageEncoder, Role::Vae].into();
        if let Some(other) = model.components.keys().chain(example.components.keys()).find(|role| !known.contains(role)) {
            return Err(vec![Reason::new("uncovered-component", format!("the rules for Wan do not cover a {}", other.word()))]);
        }
        Ok(Self {
            dit: Dit::read(need(Role::Transformer)?).map_err(geometry)?,
            dit2: component(Role::Transformer2).map(Dit::read).transpose().map_err(geometry)?,
            vae,
            halves,
            text: component(Role::TextEncoder).map(|c| Encoder::read(c, 0)),
            image: component(Role::ImageEncoder).map(|c| Encoder::read(c, IMAGE_TOKENS)),
        })
    }
}

impl Encoder {
    /// Reads an encoder; `tokens` of its output where that does not depend on the request.
    pub fn read(component: &ExpandedComponent, tokens: u64) -> Self {
        let number = |name: &str| component.geometry.as_ref().and_then(|g| g.get(name)).and_then(serde_json::Value::as_u64);
        let (hidden, ffn, heads, head) =
            (number("hidden_size"), number("ffn_size"), number("num_attention_heads"), number("attention_head_dim"));
        Self {
            parameters: component.parameter_count.get(),
            blocks: (
                component.block_count.map_or(0, fv_spec::units::Count::get),
                component.block_parameter_count.map_or(0, fv_spec::units::Count::get),
            ),
            geometry: hidden.is_some() && ffn.is_some() && heads.is_some() && head.is_some(),
            hidden: hidden.unwrap_or(0),
            ffn: ffn.unwrap_or(0),
            heads: heads.unwrap_or(0),
            head: head.unwrap_or(0),
            gated: component.geometry.as_ref().and_then(|g| g.get("gated_ffn")).and_then(serde_json::Value::as_bool).unwrap_or(false),
            tokens,
        }
    }
}

/// A request lowered: its program, and what it needs outside the device.
#[derive(Debug)]
pub struct Lowered {
    /// The device's events.
    pub program: Program,
    /// Host memory by stage, in the order of [`fv_spec::estimate::StageName::ALL`].
    pub host: [HostBytes; 4],
    /// What the rules do not cover: each makes the result `unknown`.
    pub uncovered: Vec<Reason>,
    /// Assumptions for the reader.
    pub notes: Vec<String>,
}
