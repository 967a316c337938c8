//! The rules of CogVideoX against recorded allocator traces.

mod events;
mod recorded;

use fv_estimate::cogvideox::dit::{Dit, Forward, Positions};
use fv_estimate::cogvideox::vae::{Coder, LATENT_CHANNELS, SPATIAL, TEMPORAL, TILING};
use fv_estimate::modules::maps::Map;
use fv_estimate::modules::residency::Streams;
use fv_estimate::settings::Attention;
use recorded::check;

#[test]
fn transformers() {
    let dit = |hidden, in_channels, patch_frames, positions| Dit { hidden, blocks: 3, in_channels, patch_frames, positions };
    let small = dit(1920, 16, 1, Positions::Table);
    let large = dit(3072, 16, 1, Positions::Rotary);
    let image = dit(3072, 32, 1, Positions::RotaryAndTable);
    let later = dit(3072, 16, 2, Positions::Rotary);
    for (name, dit, [height, width, frames], batch) in [
        ("cog2b_480x720x49_b2", small, [480, 720, 49], 2),
        ("cog2b_fp16_256x384x17_b2", small, [256, 384, 17], 2),
        ("cog5b_480x720x49", large, [480, 720, 49], 1),
        ("cog5b_480x848x33_b2", large, [480, 848, 33], 2),
        ("cog5bi2v_480x720x49_b2", image, [480, 720, 49], 2),
        ("cog1.5_768x1360x81", later, [768, 1360, 81], 1),
        ("cog1.5_480x720x41_b2", later, [480, 720, 41], 2),
    ] {
        let frames: u64 = (frames - 1) / TEMPORAL + 1;
        let latent = [frames.next_multiple_of(dit.patch_frames), height / SPATIAL, width / SPATIAL];
        let forward = Forward { dit, batch, latent, text_tokens: 226, act: 2, attention: Attention::Cudnn };
        check(&format!("families/s_{name}.txt.gz"), 5, |p| {
            let _ = forward.emit(p, &mut Streams::whole());
        });
    }
}

#[test]
fn vaes() {
    for (name, act, [height, width, frames], batch, decodes, tiled) in [
        ("dec_bf16_480x720x17", 2, [480, 720, 17], 1, true, false),
        ("dec_fp16_480x720x17", 2, [480, 720, 17], 1, true, false),
        ("dec_fp32_480x720x17", 4, [480, 720, 17], 1, true, false),
        ("dec_bf16_480x720x49", 2, [480, 720, 49], 1, true, false),
        ("dec_bf16_256x384x9_b2", 2, [256, 384, 9], 2, true, false),
        ("dec_bf16_tiled_480x720x17", 2, [480, 720, 17], 1, true, true),
        ("enc_bf16_480x720x1", 2, [480, 720, 1], 1, false, false),
        ("enc_bf16_480x720x17", 2, [480, 720, 17], 1, false, false),
        ("enc_bf16_tiled_480x720x9", 2, [480, 720, 9], 1, false, true),
    ] {
        let streams = Streams::whole();
        let coder = Coder { act, streams: &streams };
        let pixels = Map { batch, channels: 3, frames, height, width, element: act };
        let latent =
            Map { channels: LATENT_CHANNELS, frames: (frames - 1) / TEMPORAL + 1, ..pixels.sized(height / SPATIAL, width / SPATIAL) };
        check(&format!("families/s_vae_cog_{name}.txt.gz"), 10, |p| {
            let _ = coder.code(p, if decodes { latent } else { pixels }, decodes, tiled.then_some(TILING), false);
        });
    }
}
