//! The Wan family: 2.1 and 2.2, text- and image-conditioned, dense and sparse, one expert or two.
//!
//! * [`model`]: a model of the catalog, read into what the rules need; [`geometry`] and [`weights`] are its parts.
//! * [`residency`]: where weights are, stage by stage.
//! * [`diffusers`]: a request through diffusers' pipelines; [`diffusers_dit`] and [`diffusers_vae`] are its models.
//! * [`fastvideo`]: a request through FastVideo's; [`fastvideo_dit`] is its transformer, [`fastvideo_vae`] what its VAE does otherwise.
//! * [`text`]: the encoders; [`transformers_text`] is how transformers runs them for diffusers.

pub mod component;
pub mod diffusers;
pub mod diffusers_dit;
pub mod diffusers_vae;
pub mod fastvideo;
pub mod fastvideo_dit;
mod fastvideo_text;
pub mod fastvideo_vae;
pub mod geometry;
pub mod model;
pub mod residency;
#[cfg(test)]
mod simulated;
pub mod text;
pub mod transformers_text;
pub mod weights;

use crate::settings::Tiling;
use fv_spec::authored::Dtype;
use geometry::{Latent, Vae};

/// Bytes of an fp32 value.
const FP32: u64 = 4;

/// Bytes of an activation of a type: the models compute in fp32 or in a type of two bytes.
fn bytes_of(dtype: Dtype) -> u64 {
    if dtype == Dtype::Fp32 { FP32 } else { 2 }
}

/// Whether a latent is larger than a tile: a smaller one is not tiled.
pub(crate) fn tiled(vae: &Vae, latent: Latent, tiling: &Tiling) -> bool {
    latent.height > u64::from(tiling.tile[0]) / vae.spatial || latent.width > u64::from(tiling.tile[1]) / vae.spatial
}
