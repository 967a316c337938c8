//! HunyuanVideo, text to video.
//!
//! * [`geometry`]: what the rules read of a model, and its stored tensors.
//! * [`transformer`]: a forward pass under diffusers.

pub mod geometry;
pub mod transformer;
