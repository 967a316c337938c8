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
    for (name, [video, audio, text], batch, act, keep_fp32) in
        [("keep", [14_040, 414, 300], 1, 2, true), ("cast", [14_040, 414, 300], 1, 2, false), ("fp32", [3_600, 414, 512], 2, 4, true)]
    {
        let rows = Rows { text, condition: 0, audio, video };
        let forward = Forward { dit, rows, batch, act, keep_fp32, latents: 4, positions: 4, attention: Attention::Cudnn, tiles: 0 };
        assert_equal(&program(|p| forward.emit(p, &mut Streams::whole()).to_vec()), &format!("h3_dit_{name}"));
    }
}

#[test]
fn video() {
    let vae = Vae { layers: 2 };
    let coder = |act, keep_fp32, tiled: bool| Coder { vae, act, keep_fp32, tiling: tiled.then_some(TILING), slicing: false, int8: None };
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

/// Measured peaks of whole components on an H200: rows of `h200_diffusers_peaks.csv` and `families/peaks.csv`.
#[test]
fn measured_peaks() {
    use super::component::Part;
    use crate::modules::standalone::peaks;
    use crate::settings::Placement;
    let dit = Dit { hidden: 5376, ffn: 14_336, heads: 56, head: 128, blocks: 50, rank: None, sparse_gate: false };
    let transformer = |[height, width, frames]: [u64; 3], text, batch, keep_fp32| {
        let rows = Rows::of(height, width, frames, text, 0);
        let forward = Forward { dit, rows, batch, act: 2, keep_fp32, latents: 4, positions: 8, attention: Attention::Cudnn, tiles: 0 };
        Part::Dit(forward, Placement::Resident)
    };
    let vae = Vae { layers: 36 };
    let coder = |act, keep_fp32, tiled: bool| Coder { vae, act, keep_fp32, tiling: tiled.then_some(TILING), slicing: false, int8: None };
    let decode = |[height, width, frames]: [u64; 3], coder| Part::Decode(coder, Latent::of(1, frames, height, width));
    let encode = |[height, width, frames]: [u64; 3], coder| Part::Encode(coder, [1, frames, height, width]);
    let (large, small) = ([768, 1344, 124], [480, 832, 124]);
    let rows = [
        (transformer([480, 832, 243], 300, 1, false), 66_460_933_120, 71_404_151_808_u64),
        (transformer(small, 300, 1, false), 66_454_966_272, 69_021_261_824),
        (transformer([480, 832, 243], 300, 1, true), 66_496_390_656, 71_749_387_264),
        (transformer(small, 300, 1, true), 66_489_868_800, 69_214_932_992),
        (transformer(large, 300, 1, true), 66_500_104_704, 73_340_435_968),
        (transformer(small, 300, 2, true), 66_498_789_888, 71_932_260_352),
        (transformer(small, 100, 1, true), 66_487_811_584, 69_180_868_096),
        (decode(large, coder(2, false, false)), 5_262_270_464, 8_355_965_952),
        (decode(large, coder(2, false, true)), 5_262_270_464, 7_017_210_880),
        (decode([480, 832, 39], coder(2, false, false)), 5_249_387_520, 6_173_765_632),
        (decode(large, coder(2, true, true)), 5_627_209_728, 7_382_150_144),
        (decode(small, coder(2, true, true)), 5_618_071_040, 6_297_263_616),
        (decode([480, 832, 39], coder(2, true, false)), 5_614_326_784, 6_628_882_432),
        (decode([480, 832, 39], coder(2, true, true)), 5_614_326_784, 5_992_696_320),
        (decode(small, coder(4, false, false)), 10_464_535_040, 12_849_900_544),
        (decode([480, 832, 39], coder(4, false, true)), 10_460_790_784, 11_215_732_736),
        (decode([480, 832, 22], coder(4, false, false)), 10_460_042_240, 12_169_690_624),
        (encode([480, 832, 1], coder(2, true, true)), 5_580_322_816, 5_960_527_872),
        (encode([768, 1344, 1], coder(2, true, true)), 5_584_742_400, 5_973_524_480),
        (encode([480, 832, 34], coder(2, true, true)), 5_659_715_584, 9_977_282_560),
        (encode([480, 832, 17], coder(2, true, false)), 5_618_661_376, 30_906_591_744),
        (Part::Audio(audio_vae::Decode { batch: 2, frames: 207, warm: true }), 879_455_744, 999_375_360),
        (Part::Audio(audio_vae::Decode { batch: 2, frames: 405, warm: true }), 879_326_208, 1_114_433_536),
    ];
    let mut wrong = Vec::new();
    for (i, (part, base, peak)) in rows.iter().enumerate() {
        let derived = peaks(part).expect("small enough");
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let percent = |a: u64, b: u64| (a as f64 / b as f64 - 1.0) * 100.0;
        let (at_rest, highest) = (percent(derived.base, *base), percent(derived.allocated, *peak));
        let limit = if matches!(part, Part::Audio(_)) { 1.0 } else { 0.1 };
        if at_rest.abs().max(highest.abs()) > limit {
            wrong.push(format!("{i}: base {at_rest:+.2} %, peak {highest:+.2} %"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
