//! The Mochi rules against recorded allocator traces of the classes on an H200: every allocation of at least 1 MiB and every free
//! of one, in order.

mod events;
mod exact;

use fv_estimate::mochi::geometry::{Dit, Latent};
use fv_estimate::mochi::transformer::Forward;
use fv_estimate::mochi::vae::{Coder, TILING};
use fv_estimate::modules::residency::Streams;
use fv_estimate::program::{Builder, Tensor};
use fv_estimate::settings::Attention;

fn check(name: &str, build: impl FnOnce(&mut Builder) -> Tensor) {
    exact::check(&format!("families/s_{name}.txt.gz"), build);
}

#[test]
fn transformers() {
    let dit = Dit { hidden: 3072, ffn: 8192, heads: 24, patch: 2, blocks: 3 };
    for (name, batch, size, valid_tokens) in
        [("mochi_480x848x163", 1, [480, 848, 163], 256), ("mochi_480x848x31_b2", 2, [480, 848, 31], 40)]
    {
        check(name, |p| {
            let latent = Latent::of(batch, size);
            let forward = Forward { dit, latent, text_tokens: 256, valid_tokens, act: 2, attention: Attention::Cudnn };
            forward.emit(p, &mut Streams::whole())
        });
    }
}

#[test]
fn vaes() {
    for (name, batch, size, act, tiled, encode) in [
        ("vae_mochi_dec_bf16_480x848x19", 1, [480, 848, 19], 2, false, false),
        ("vae_mochi_dec_bf16_256x384x13_b2", 2, [256, 384, 13], 2, false, false),
        ("vae_mochi_dec_fp32_480x848x13", 1, [480, 848, 13], 4, false, false),
        ("vae_mochi_dec_bf16_tiled_320x448x19", 1, [320, 448, 19], 2, true, false),
        ("vae_mochi_enc_bf16_320x512x19", 1, [320, 512, 19], 2, false, true),
    ] {
        check(name, |p| {
            let coder = Coder { act, tiling: tiled.then_some(TILING) };
            let [height, width, frames] = size;
            if encode { coder.encode(p, [batch, frames, height, width]) } else { coder.decode(p, Latent::of(batch, size)) }
        });
    }
}
