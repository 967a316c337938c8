//! The Wan family: 2.1 and 2.2, text- and image-conditioned, dense and sparse, one expert or two.
//!
//! * [`geometry`]: what the rules read of a model and a request.
//! * [`diffusers_dit`], [`diffusers_vae`]: allocations of diffusers' classes.

pub mod diffusers_dit;
pub mod diffusers_vae;
pub mod geometry;
