//! The rules of LTX-Video, and of its T5 encoder, against recorded allocator traces.

mod events;
mod recorded;

use fv_estimate::ltx_video::dit::{Dit, Forward};
use fv_estimate::ltx_video::vae::{Coder, LATENT_CHANNELS, SPATIAL, TEMPORAL, TILING, Vae};
use fv_estimate::modules::encoder::Encoder;
use fv_estimate::modules::maps::Map;
use fv_estimate::modules::residency::Streams;
use fv_estimate::modules::transformers_text;
use fv_estimate::settings::Attention;
use recorded::check;

#[test]
fn transformers() {
    let small = Dit { hidden: 2048, ffn: 8192, heads: 32, blocks: 3 };
    let large = Dit { hidden: 4096, ffn: 16_384, heads: 32, blocks: 3 };
    for (name, dit, [height, width, frames], batch, text_tokens, per_token_timesteps) in [
        ("ltx2b_512x704x161", small, [512, 704, 161], 1, 256, false),
        ("ltx2b_480x832x97_b2_text128", small, [480, 832, 97], 2, 128, false),
        ("ltx2b_rows_480x704x97_b2_text128", small, [480, 704, 97], 2, 128, true),
        ("ltx13b_480x832x97_b2_text128", large, [480, 832, 97], 2, 128, false),
    ] {
        let tokens = ((frames - 1) / TEMPORAL + 1) * (height / SPATIAL) * (width / SPATIAL);
        let forward = Forward { dit, batch, tokens, text_tokens, act: 2, attention: Attention::Cudnn, per_token_timesteps };
        check(&format!("families/s_{name}.txt.gz"), 5, |p| {
            let _ = forward.emit(p, &mut Streams::whole());
        });
    }
}

#[test]
fn vaes() {
    for (name, vae, act, [height, width, frames], batch, encodes, tiled) in [
        ("ltx_dec_bf16_480x832x33", Vae::V090, 2, [480, 832, 33], 1, false, false),
        ("ltx_dec_fp32_480x832x33", Vae::V090, 4, [480, 832, 33], 1, false, false),
        ("ltx_dec_bf16_352x608x25_b2", Vae::V090, 2, [352, 608, 25], 2, false, false),
        ("ltx_dec_bf16_tiled_576x704x33", Vae::V090, 2, [576, 704, 33], 1, false, true),
        ("ltx_enc_bf16_480x704x1", Vae::V090, 2, [480, 704, 1], 1, true, false),
        ("ltx095_dec_bf16_480x832x33", Vae::V095, 2, [480, 832, 33], 1, false, false),
        ("ltx095_dec_fp32_480x832x17", Vae::V095, 4, [480, 832, 17], 1, false, false),
        ("ltx095_dec_bf16_tiled_576x704x33", Vae::V095, 2, [576, 704, 33], 1, false, true),
        ("ltx095_enc_bf16_480x704x1", Vae::V095, 2, [480, 704, 1], 1, true, false),
        ("ltx095_enc_bf16_480x704x33", Vae::V095, 2, [480, 704, 33], 1, true, false),
    ] {
        let streams = Streams::whole();
        let coder = Coder { vae, act, streams: &streams };
        let pixels = Map { batch, channels: 3, frames, height, width, element: act };
        let latent =
            Map { channels: LATENT_CHANNELS, frames: (frames - 1) / TEMPORAL + 1, ..pixels.sized(height / SPATIAL, width / SPATIAL) };
        let tiling = tiled.then_some(TILING);
        check(&format!("families/s_vae_{name}.txt.gz"), 10, |p| {
            let _ = if encodes { coder.encode_as(p, pixels, tiling, false) } else { coder.decode_as(p, latent, tiling, false) };
        });
    }
}

#[test]
fn text_encoders() {
    for (name, tokens, batch, act, masked) in [
        ("t5_bf16_226", 226, 1, 2, false),
        ("t5_bf16_256_mask", 256, 1, 2, true),
        ("t5_bf16_128_b2", 128, 2, 2, false),
        ("t5_fp32_226", 226, 1, 4, false),
    ] {
        let encoder = Encoder {
            parameters: 0,
            blocks: (2, 0),
            hidden: 4096,
            ffn: 10_240,
            heads: 64,
            head: 64,
            gated: true,
            tokens: 0,
            geometry: true,
            shared_bias: true,
            masked,
        };
        check(&format!("families/s_{name}.txt.gz"), 5, |p| {
            let _ = transformers_text::Forward { encoder: &encoder, batch, tokens, act, fp16: false, leaf: None }.emit(p);
        });
    }
}
