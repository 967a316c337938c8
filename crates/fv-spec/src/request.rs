//! A request: what is asked of a model, apart from how it is executed.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// One generation request, with every field resolved. Sizes are pixels and counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Pixel rows of the video.
    pub height: u32,
    /// Pixel columns of the video.
    pub width: u32,
    /// Frames of the decoded video.
    pub num_frames: u32,
    /// Videos generated together.
    pub batch: u32,
    /// Classifier-free guidance; above 1 a second, unconditional prediction is made at each step.
    pub guidance_scale: f64,
    /// Denoising steps.
    pub num_inference_steps: u32,
    /// Tokens that the text encoder is given, padding included.
    pub text_tokens: u32,
    /// Conditioning images, clips or audio tracks.
    pub references: u32,
}

/// A request as asked for: what is left out comes from the deployment's `default_request`, then from the family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of `Request`")]
pub struct PartialRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_frames: Option<u32>,
    /// In place of `num_frames`, where the family has a frame rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guidance_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_inference_steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub references: Option<u32>,
}
