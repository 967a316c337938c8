//! What several families are made of: parameters, encoders, and where weights are stage by stage.
//!
//! * [`parameter`]: a stored tensor of a component, and [`parameter::Weights`], a component as a list of them.
//! * [`residency`]: what is on the device in each stage, and how weights come and go.
//! * [`encoder`]: text and image encoders of the catalog; [`transformers_text`] is how transformers runs them for diffusers
//!   (Llama and CLIP's text encoder in `transformers_llama`),
//!   `fastvideo_text` and `vision` how FastVideo does.
//! * [`maps`]: feature maps of video autoencoders, and what a convolution needs beside them.
//! * [`pipeline`]: what diffusers' pipelines have in common.
//! * [`standalone`]: one component on its own, as benchmarks measure it.
//! * [`weights_only`]: what is known of a model without a rule.

pub mod encoder;
pub(crate) mod fastvideo_text;
pub mod maps;
pub mod parameter;
pub mod pipeline;
pub mod residency;
pub mod standalone;
pub(crate) mod tiles;
mod transformers_llama;
pub mod transformers_text;
pub(crate) mod vision;
pub mod weights_only;

use fv_spec::authored::Dtype;

/// Bytes of an fp32 value.
pub const FP32: u64 = 4;

/// Bytes of an activation of a type: the models compute in fp32 or in a type of two bytes.
pub fn bytes_of(dtype: Dtype) -> u64 {
    if dtype == Dtype::Fp32 { FP32 } else { 2 }
}
