//! Models that are small enough to be computed on a CPU in a test, with every part that the large ones have.

use fv_spec::program::{Element, Formats, Sampler, Schedule};

use super::choice::{Choices, Compute, Decode, Residency, TextKeys};
use super::geometry::{Dit, Model, Request, Sparse, Umt5, Vae};
use super::vae;

/// Like Wan 2.1, with one transformer and dense attention.
pub fn dense() -> Model {
    let text = Umt5 { hidden: 32, heads: 4, head_dim: 8, ffn: 64, layers: 3, vocabulary: 128, buckets: 32, max_distance: 128 };
    let transformer = Dit {
        hidden: 48,
        heads: 4,
        ffn: 96,
        blocks: 4,
        patch: [1, 2, 2],
        in_channels: 4,
        out_channels: 4,
        text: 32,
        frequencies: 256,
        sparse: None,
    };
    let vae = Vae { latent: 4, width: 8, residual_blocks: 2, output: 3, patch: 1, residual: false };
    Model { id: "tiny".to_owned(), text, transformer, boundary: None, vae }
}

/// Like `FastWan`: with video sparse attention.
pub fn sparse() -> Model {
    let dense = dense();
    let transformer = Dit { sparse: Some(Sparse { sparsity: 0.8 }), ..dense.transformer };
    Model { id: "tiny-sparse".to_owned(), transformer, ..dense }
}

/// Like the two experts of Wan 2.2.
pub fn two_experts() -> Model {
    Model { id: "tiny-experts".to_owned(), boundary: Some(0.875), ..dense() }
}

/// Like TI2V of Wan 2.2, whose video decoder works on patches.
pub fn patched() -> Model {
    let dense = dense();
    let transformer = Dit { in_channels: 8, out_channels: 8, ..dense.transformer };
    let vae = Vae { latent: 8, width: 12, residual_blocks: 2, output: 12, patch: 2, residual: true };
    Model { id: "tiny-patched".to_owned(), transformer, vae, ..dense }
}

/// A small request with guidance: four steps of `UniPC`.
pub fn request() -> Request {
    Request {
        height: 64,
        width: 96,
        frames: 9,
        schedule: Schedule { sampler: Sampler::UniPc, steps: 4, shift: 3.0, timesteps: Vec::new() },
        guidance: [5.0, 4.0],
        prompt_tokens: 7,
        negative_tokens: 5,
        text_rows: 16,
    }
}

/// The same without guidance, in three steps of distribution matching.
pub fn distilled() -> Request {
    let schedule = Schedule { sampler: Sampler::Dmd, steps: 3, shift: 8.0, timesteps: vec![1000, 757, 522] };
    Request { schedule, guidance: [1.0, 1.0], ..request() }
}

/// Everything resident and computed at once.
pub fn choices(model: &Model, compute: Element) -> Choices {
    let transformers = if model.boundary.is_some() { 2 } else { 1 };
    Choices {
        formats: Formats { compute, exact: if compute == Element::F64 { Element::F64 } else { Element::F32 }, block_weights: compute },
        text: Residency::resident(model.text.layers),
        transformers: vec![Residency::resident(model.transformer.blocks); transformers],
        compute: Compute {
            head_group: model.transformer.heads,
            feed_forward_chunk: u64::from(u32::MAX),
            projection_chunk: u64::from(u32::MAX),
            outputs_on_host: false,
            residual_on_host: false,
            text_keys: TextKeys::Kept,
            paired_guidance: true,
        },
        vae: Residency::resident(vae::blocks::blocks(&model.vae).len() as u64),
        decode: Decode { tiles: None, frames: 4, pixels: Element::U8 },
    }
}
