//! A model of the family, read into what the rules need.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::units::Count;

use super::audio_vae;
use super::geometry::{Dit, Vae};
use super::weights::Qwen;
use crate::modules::parameter::Weights;

/// A model as one deployment loads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H3 {
    /// The transformer.
    pub dit: Dit,
    /// The video VAE.
    pub vae: Vae,
    /// The text encoder.
    pub text: Qwen,
}

impl H3 {
    /// Reads a model as `example` loads it.
    ///
    /// # Errors
    /// What is missing.
    pub fn read(model: &Model, example: &Example) -> Result<Self, Vec<Reason>> {
        let need = |role: Role| -> Result<&ExpandedComponent, Vec<Reason>> {
            let found = example.components.get(&role).or_else(|| model.components.get(&role));
            found.ok_or_else(|| vec![Reason::new("missing-component", format!("the model has no {}", role.word()))])
        };
        let geometry = |text: String| vec![Reason::new("missing-geometry", text)];
        let known = [Role::Transformer, Role::TextEncoder, Role::Vae, Role::AudioVae];
        if let Some(other) = model.components.keys().chain(example.components.keys()).find(|role| !known.contains(role)) {
            return Err(vec![Reason::new("uncovered-component", format!("the rules for MiniMax H3 do not cover a {}", other.word()))]);
        }
        let (audio, text) = (need(Role::AudioVae)?, need(Role::TextEncoder)?);
        if audio.parameter_count.get() != audio_vae::tensors().parameters() {
            return Err(geometry("the audio VAE is not the one that the rules know".to_owned()));
        }
        Ok(Self {
            dit: Dit::read(need(Role::Transformer)?).map_err(geometry)?,
            vae: Vae::read(need(Role::Vae)?).map_err(geometry)?,
            text: Qwen::read(text.block_count.map(Count::get), text.parameter_count.get()).map_err(geometry)?,
        })
    }

    /// Its components as they are loaded, in the order in which they run.
    pub fn weights(&self) -> Vec<Weights> {
        vec![self.text.tensors(), self.dit.weights(), self.vae.tensors(), audio_vae::tensors()]
    }
}
