//! The rules against the classes run on fake tensors (`tests/data/simulated/README.md`): every allocation of at least 1 MiB and
//! every release of one, in order and to the byte.

use super::diffusers_dit::Forward;
use super::geometry::{Dit, Latent, Rows, Vae};
use super::video_vae::{Coder, TILING};
use super::weights::Qwen;
use super::{audio_vae, qwen};
use crate::modules::residency::Streams;
use crate::program::{Builder, Program, Tensor};
use crate::settings::Attention;
use crate::wan::simulated::assert_equal;

/// A program whose results are dropped at its end.
fn program(build: impl FnOnce(&mut Builder) -> Vec<Tensor>) -> Program {
    let mut p = Builder::new(false);
    build(&mut p);
    p.finish().expect("small enough")
}

#[test]
fn transformer() {
    let dit = Dit { hidden: 5376, ffn: 14_336, heads: 56, head: 128, blocks: 2, rank: None, sparse_gate: false };
    for (name, [video, audio, text], batch, act, keep_fp32) in [
        ("keep", [14_040, 414, 300], 1, 2, true),
        ("cast", [14_040, 414, 300], 1, 2, false),
        ("fp32", [3_600, 414, 512], 2, 4, true),
    ] {
        let rows = Rows { text, condition: 0, audio, video };
        let forward = Forward { dit, rows, batch, act, keep_fp32, latents: 4, positions: 4, attention: Attention::Cudnn };
        assert_equal(&program(|p| forward.emit(p, &mut Streams::whole()).to_vec()), &format!("h3_dit_{name}"));
    }
}

#[test]
fn video() {
    let vae = Vae { layers: 2 };
    let coder = |act, keep_fp32, tiled: bool| Coder { vae, act, keep_fp32, tiling: tiled.then_some(TILING), slicing: false };
    for (name, [batch, height, width, frames], coder) in [
        ("dec_bf16", [1, 352, 640, 73], coder(2, false, false)),
        ("dec_bf16_tiled", [1, 480, 832, 56], coder(2, false, true)),
        ("dec_keep_tiled", [1, 480, 832, 56], coder(2, true, true)),
        ("dec_fp32_b2", [2, 352, 640, 56], coder(4, false, false)),
    ] {
        let latent = Latent::of(batch, frames, height, width);
        assert_equal(&program(|p| vec![coder.decode(p, latent, coder.act)]), &format!("h3_vae_{name}"));
    }
    for (name, clip, coder) in [
        ("enc_fp32", [2, 39, 256, 320], coder(4, false, false)),
        ("enc_bf16_tiled", [1, 39, 256, 480], coder(2, false, true)),
        ("enc_image", [1, 1, 480, 832], coder(2, true, true)),
    ] {
        assert_equal(&program(|p| vec![coder.encode(p, clip, coder.act)]), &format!("h3_vae_{name}"));
    }
}

#[test]
fn sound_and_text() {
    let decode = audio_vae::Decode { batch: 2, frames: 207, warm: false };
    let sound = program(|p| {
        let weights = p.list();
        vec![decode.emit(p, weights)]
    });
    assert_equal(&sound, "h3_audio_dec");
    let forward = qwen::Forward { qwen: Qwen { layers: 3, whole: true }, batch: 1, tokens: 1024, act: 2, all_states: true };
    assert_equal(&program(|p| vec![forward.emit(p)]), "h3_qwen_bf16");
}
