//! A Wan model of the catalog, read into what the rules need.

use std::collections::BTreeSet;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::Reason;

use super::geometry::{Dit, Vae};
use super::weights::Halves;
use crate::modules::encoder::{self, Encoder, IMAGE_TOKENS};
use crate::modules::fastvideo_text;
use crate::modules::parameter::Weights;
use crate::settings::Settings;

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
            text: component(Role::TextEncoder).map(|c| Encoder::read(c, 0)).transpose().map_err(geometry)?,
            image: component(Role::ImageEncoder).map(|c| Encoder::read(c, IMAGE_TOKENS)).transpose().map_err(geometry)?,
        })
    }

    /// Its components as they are loaded, in the order in which they run.
    pub fn weights(&self, settings: &Settings) -> Vec<Weights> {
        let fastvideo = settings.runtime == Runtime::FastVideo;
        let text = self.text.as_ref().map(|text| {
            let tensors = if fastvideo { fastvideo_text::tensors(text, settings.tensor_parallel.into()) } else { encoder::tensors(text) };
            Weights::blocks(Role::TextEncoder, tensors)
        });
        let image = self.image.as_ref().map(|image| Weights::blocks(Role::ImageEncoder, encoder::tensors(image)));
        let tables = settings.runtime == Runtime::Diffusers;
        let experts = [(Role::Transformer, Some(self.dit)), (Role::Transformer2, self.dit2)];
        let experts = experts.into_iter().filter_map(|(role, dit)| Some(dit?.weights(role, tables)));
        let vae = Weights::whole(Role::Vae, self.vae.tensors(self.halves));
        text.into_iter().chain(image).chain(experts).chain([vae]).collect()
    }
}
