//! The HunyuanVideo rules against recorded allocator traces of the classes on an H200: every allocation of at least 1 MiB and
//! every free of one, in order.

mod events;
mod exact;

use fv_estimate::hunyuan_video::geometry::{Dit, Latent};
use fv_estimate::hunyuan_video::transformer::Forward;
use fv_estimate::hunyuan_video::vae::{Coder, TILING};
use fv_estimate::modules::encoder::Encoder;
use fv_estimate::modules::residency::Streams;
use fv_estimate::modules::transformers_text;
use fv_estimate::program::{Builder, Tensor};
use fv_estimate::settings::Attention;

fn check(name: &str, build: impl FnOnce(&mut Builder) -> Tensor) {
    exact::check(&format!("families/s_{name}.txt.gz"), build);
}

#[test]
fn transformers() {
    let dit = Dit { hidden: 3072, ffn: 12288, heads: 24, patch: 2, dual: 2, single: 3 };
    for (name, batch, size, act) in [("hunyuan_544x960x61", 1, [544, 960, 61], 2), ("hunyuan_320x512x17_b2", 2, [320, 512, 17], 2)] {
        check(name, |p| {
            let forward = Forward { dit, latent: Latent::of(batch, size), text_tokens: 256, act, attention: Attention::Efficient };
            forward.emit(p, &mut Streams::whole())
        });
    }
}

#[test]
fn vaes() {
    for (name, batch, size, act, tiled, encode) in [
        ("vae_hunyuan_dec_bf16_320x512x13", 1, [320, 512, 13], 2, false, false),
        ("vae_hunyuan_dec_bf16_320x512x33", 1, [320, 512, 33], 2, false, false),
        ("vae_hunyuan_dec_bf16_272x480x9_b2", 2, [272, 480, 9], 2, false, false),
        ("vae_hunyuan_dec_fp32_320x512x13", 1, [320, 512, 13], 4, false, false),
        ("vae_hunyuan_dec_bf16_tiled_320x448x13", 1, [320, 448, 13], 2, true, false),
        ("vae_hunyuan_dec_bf16_tiled_320x448x33", 1, [320, 448, 33], 2, true, false),
        ("vae_hunyuan_enc_bf16_544x960x1", 1, [544, 960, 1], 2, false, true),
        ("vae_hunyuan_enc_bf16_320x512x33", 1, [320, 512, 33], 2, false, true),
    ] {
        check(name, |p| {
            let coder = Coder { act, tiling: tiled.then_some(TILING) };
            let [height, width, frames] = size;
            if encode { coder.encode(p, [batch, frames, height, width]) } else { coder.decode(p, Latent::of(batch, size)) }
        });
    }
}

#[test]
fn text_encoders() {
    let encoder = |parameters, per_block, [hidden, ffn, heads, head]: [u64; 4], gated| Encoder {
        parameters,
        blocks: (2, per_block),
        hidden,
        ffn,
        heads,
        head,
        gated,
        tokens: 0,
        geometry: true,
        shared_bias: false,
        masked: false,
    };
    let llama = encoder(0, 218_112_000, [4096, 14_336, 32, 128], true);
    let clip = encoder(0, 7_087_872, [768, 3072, 12, 64], false);
    for (name, encoder, batch, tokens, act) in [
        ("llama_bf16_351", &llama, 1, 351, 2),
        ("llama_fp16_351_b2", &llama, 2, 351, 2),
        ("clip_bf16_77", &clip, 1, 77, 2),
        ("clip_fp32_77_b2", &clip, 2, 77, 4),
    ] {
        check(name, |p| transformers_text::Forward { encoder, batch, tokens, act, fp16: false, leaf: None }.emit(p));
    }
}
