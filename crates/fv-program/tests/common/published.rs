//! The models of the catalog that there are programs for, with what their published pipelines ask for. That they are those of the
//! catalog is tested where the catalog is at hand, in `fv-tests`.

use fv_program::rates::{MatrixRates, Rates};
use fv_program::wan::geometry::{Dit, Model, Request, Sparse, Umt5, Vae};
use fv_spec::program::{Element, Formats, Sampler, Schedule};

/// Everything in BF16 but what has to be exact.
pub(crate) const BF16: Formats = Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 };
/// Blocks of the transformer in FP8.
pub(crate) const FP8: Formats = Formats { block_weights: Element::Fp8, ..BF16 };

pub(crate) const UMT5_XXL: Umt5 =
    Umt5 { hidden: 4096, heads: 64, head_dim: 64, ffn: 10_240, layers: 24, vocabulary: 256_384, buckets: 32, max_distance: 128 };
pub(crate) const WAN_1_3B: Dit = Dit {
    hidden: 1536,
    heads: 12,
    ffn: 8960,
    blocks: 30,
    patch: [1, 2, 2],
    in_channels: 16,
    out_channels: 16,
    text: 4096,
    frequencies: 256,
    sparse: None,
};
pub(crate) const FAST_WAN: Dit = Dit { sparse: Some(Sparse { sparsity: 0.8 }), ..WAN_1_3B };
pub(crate) const WAN_14B: Dit = Dit { hidden: 5120, heads: 40, ffn: 13_824, blocks: 40, ..WAN_1_3B };
pub(crate) const WAN_5B: Dit = Dit { hidden: 3072, heads: 24, ffn: 14_336, in_channels: 48, out_channels: 48, ..WAN_1_3B };
const FAST_5B: Dit = Dit { sparse: Some(Sparse { sparsity: 0.8 }), ..WAN_5B };
const VAE_21: Vae = Vae { latent: 16, width: 96, residual_blocks: 2, output: 3, patch: 1, residual: false };
const VAE_22: Vae = Vae { latent: 48, width: 256, residual_blocks: 2, output: 12, patch: 2, residual: true };

/// A model with the request that its pipeline makes.
pub(crate) struct Published {
    pub(crate) model: Model,
    pub(crate) request: Request,
}

fn published(id: &str, transformer: Dit, vae: Vae, size: [u64; 3], schedule: Schedule, guidance: [f64; 2]) -> Published {
    let boundary = (guidance[0] - guidance[1]).abs() > 0.0;
    let model = Model { id: id.to_owned(), text: UMT5_XXL, transformer, boundary: boundary.then_some(0.875), vae };
    let [width, height, frames] = size;
    let request = Request { height, width, frames, schedule, guidance, prompt_tokens: 512, negative_tokens: 512, text_rows: 512 };
    Published { model, request }
}

/// All of them.
pub(crate) fn all() -> [Published; 6] {
    let steps = |steps: u32, shift: f64| Schedule { sampler: Sampler::UniPc, steps, shift, timesteps: Vec::new() };
    let distilled = |shift: f64| Schedule { sampler: Sampler::Dmd, steps: 3, shift, timesteps: vec![1_000, 757, 522] };
    let (small, large, patched) = ([832, 480, 81], [1280, 720, 81], [1280, 704, 121]);
    [
        published("wan21-t2v-1.3b", WAN_1_3B, VAE_21, small, steps(50, 3.0), [3.0; 2]),
        published("wan21-t2v-14b", WAN_14B, VAE_21, large, steps(50, 5.0), [5.0; 2]),
        published("fastwan21", FAST_WAN, VAE_21, small, distilled(8.0), [1.0; 2]),
        published("wan22-ti2v-5b", WAN_5B, VAE_22, patched, steps(50, 5.0), [5.0; 2]),
        published("fastwan22-ti2v-5b", FAST_5B, VAE_22, patched, distilled(5.0), [1.0; 2]),
        published("wan22-t2v-a14b", WAN_14B, VAE_21, large, steps(40, 12.0), [4.0, 3.0]),
    ]
}

/// A card of the middle for [`rates`].
pub(crate) const MIDDLE: [u64; 4] = [165_000_000_000_000, 1_008_000_000_000, 26_000_000_000, 3_000_000_000];

/// How fast a card is, by its dense operations of BF16 and by bytes of its memory, of the link and of the disk, all a second.
pub(crate) fn rates([dense, memory, link, disk]: [u64; 4]) -> Rates {
    let products = dense * 7 / 10;
    Rates {
        matrix: MatrixRates { f64: products, f32: products / 2, bf16: products, fp8: products, int8: products },
        attention: dense * 6 / 10,
        memory,
        pinned_to_device: link,
        pageable_to_device: link,
        device_to_pinned: link,
        device_to_pageable: link,
        disk,
        host_memory: 20_000_000_000,
        launch_ns: 5_000,
        copy_ns: 10_000,
    }
}
