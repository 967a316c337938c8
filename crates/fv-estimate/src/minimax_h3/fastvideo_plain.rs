//! A request through FastVideo's public code for MiniMax H3 with a checkpoint in plain types, on one device: text to video and sound
//! (`fastvideo/pipelines/basic/minimax_h3` and the classes it loads, commits 99cd355a and 03d322f6).
//!
//! Blocks and encoder layers move as FastVideo moves those of every model. The transformer's forward pass is that of diffusers'
//! class, which runs the same operations, with video sparse attention where it is asked for. The VAE is stored in fp32 and runs
//! under autocast, which keeps half-precision copies of the decoder's matrices; clips go to the host as they are finished.

use fv_spec::authored::Role;
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::audio_vae::Decode;
use super::diffusers_dit::{Forward, tiles};
use super::fastvideo::{tiles_per_call, variable};
use super::geometry::{AUDIO_ROW, LATENT, Latent, Rows, TEXT, VIDEO_ROW, audio_latents};
use super::model::H3;
use super::qwen;
use super::video_vae::Coder;
use crate::family::Lowered;
use crate::modules::residency::{Residency, library_workspace, load_stage};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, sites};
use crate::resolve::fastvideo::neutral;
use crate::settings::{Attention, Settings};
use crate::storage::Storage;

sites! { "minimax_h3.fastvideo.pipeline":
    PROMPT "prompt embeddings" Activation;
    LAYOUT "places, tags and positions of rows" Activation;
    ROWS "latent rows" Activation;
    SCHEDULER "scheduler temporaries" Activation;
    LATENTS "latents" Activation;
}

/// Variables that only the notes' code reads, and the public one does not have.
const NOT_PUBLIC: [&str; 6] = [
    "FASTVIDEO_H3_PARK_MODULES",
    "FASTVIDEO_H3_ENCODER_LAYERWISE",
    "FASTVIDEO_H3_ENCODER_FUSED_DEQUANT",
    "FASTVIDEO_H3_VSA_TILE_FIRST",
    "FASTVIDEO_H3_VSA_SM89_KERNEL",
    "FASTVIDEO_H3_FFN_CHUNK_TOKENS",
];

/// What the public code does that is not modelled.
fn uncovered(settings: &Settings, request: &Request) -> Vec<Reason> {
    let plain = [Role::Transformer, Role::TextEncoder, Role::Vae, Role::AudioVae]
        .into_iter()
        .all(|role| settings.component(role).is_some_and(|component| matches!(component.precision.stored, Storage::Plain(_))));
    let large_tiles = matches!(settings.attention, Attention::VideoSparse { tile, .. } if tile != 64);
    let mut reasons: Vec<Reason> = [
        (!plain, "weights in a quantised type"),
        (settings.gpu_count > 1, "a sequence divided over several devices"),
        (request.references > 0, "references"),
        (request.batch > 1, "several videos at once"),
        (settings.compile, "compiled code"),
        (settings.fused_rope, "the fused kernels of FASTVIDEO_MINIMAX_H3_FUSIONS"),
        (large_tiles, "sparse attention with tiles of 256 rows"),
    ]
    .into_iter()
    .filter(|(there, _)| *there)
    .map(|(_, what)| Reason::new("uncovered-arrangement", format!("what FastVideo's MiniMax H3 takes with {what} is not modelled")))
    .collect();
    reasons.extend(NOT_PUBLIC.into_iter().filter(|name| variable(settings, name).is_some_and(|text| !neutral(name, text))).map(|name| {
        Reason::new(
            "uncovered-arrangement",
            format!("{name} is read by unreleased code alone, and only with its FP8 checkpoint is it known how"),
        )
    }));
    reasons
}

/// Lowers a request.
///
/// # Errors
/// What is not modelled, or cannot be placed.
pub fn lower(h3: &H3, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let reasons = uncovered(settings, request);
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let mut p = Builder::new(details);
    let mut residency = Residency::new(h3.weights(), settings, &mut p)?;
    let act = |role: Role| settings.component(role).map_or(2, |component| bytes_of(component.precision.computed));
    let size @ [height, width, frames] = [request.height, request.width, request.num_frames].map(u64::from);
    let rows = Rows::of(height, width, frames, request.text_tokens.into(), 0);
    residency.note("derived from FastVideo's public code for MiniMax H3, which is in no released version, and not measured");
    load_stage(&mut p, &mut residency);

    p.stage(StageName::Encoding);
    residency.enter(&mut p, Role::TextEncoder);
    p.phase("libraries");
    let library = p.list();
    library_workspace(&mut p, library);
    let mut streams = residency.streams(&mut p, Role::TextEncoder);
    streams.prime(&mut p);
    streams.begin(&mut p);
    // Two layers' weights are there at most, and the widest moment of a layer with them.
    streams.begin_group(&mut p);
    streams.end_group(&mut p);
    streams.begin_group(&mut p);
    let encoder = qwen::Forward { qwen: h3.text, batch: 1, tokens: rows.text, act: act(Role::TextEncoder), all_states: false };
    let states = encoder.emit(&mut p);
    streams.end_group(&mut p);
    streams.end(&mut p);
    let prompt = p.alloc(&PROMPT, &[("tokens", rows.text), ("width", TEXT)], act(Role::Transformer));
    p.release(states);
    residency.leave(&mut p, Role::TextEncoder);
    residency.host_during(StageName::Encoding);
    p.phase("layout");
    let kept = p.list();
    p.keep(kept, prompt);
    for columns in [3, 1, 1] {
        let layout = p.alloc(&LAYOUT, &[("rows", rows.all()), ("columns", columns)], 8);
        p.keep(kept, layout);
    }
    for (own, channels) in [(rows.video, VIDEO_ROW), (rows.audio, AUDIO_ROW)] {
        let latents = p.alloc(&ROWS, &[("rows", own), ("channels", channels)], FP32);
        p.keep(kept, latents);
    }

    p.stage(StageName::Denoising);
    residency.enter(&mut p, Role::Transformer);
    let sparse = matches!(settings.attention, Attention::VideoSparse { .. });
    let forward = Forward {
        dit: h3.dit,
        rows,
        batch: 1,
        act: act(Role::Transformer),
        keep_fp32: act(Role::Transformer) != FP32,
        latents: FP32,
        positions: 8,
        attention: settings.attention,
        tiles: if sparse { tiles(height, width, frames, &rows) } else { 0 },
    };
    let mut streams = residency.streams(&mut p, Role::Transformer);
    streams.prime(&mut p);
    residency.host_during(StageName::Denoising);
    let steps = u64::from(request.num_inference_steps).saturating_sub(1).max(1);
    p.repeat_sampled(steps, 2, 0, |p| {
        let predictions = forward.emit(p, &mut streams);
        p.phase("scheduler");
        p.touch(&SCHEDULER, &[("tensors", 4), ("rows", rows.video), ("channels", VIDEO_ROW)], FP32);
        for prediction in predictions {
            p.release(prediction);
        }
    });
    residency.leave(&mut p, Role::Transformer);

    decode(&mut p, &mut residency, h3, settings, size);
    p.release_list(kept);
    residency.finish(p)
}

/// The video and the sound.
fn decode(p: &mut Builder, residency: &mut Residency<'_>, h3: &H3, settings: &Settings, [height, width, frames]: [u64; 3]) {
    p.stage(StageName::Decoding);
    residency.enter(p, Role::Vae);
    residency.host_during(StageName::Decoding);
    p.phase("decode_input");
    let latent = Latent::of(1, frames, height, width);
    let latents =
        p.alloc(&LATENTS, &[("channels", LATENT), ("frames", latent.frames), ("height", latent.height), ("width", latent.width)], FP32);
    let act = settings.component(Role::Vae).map_or(FP32, |vae| bytes_of(vae.precision.computed));
    let coder = Coder { vae: h3.vae, act, keep_fp32: act != FP32, tiling: settings.tiling, slicing: false, int8: None };
    let narrow = p.list();
    coder.cast_weights(p, narrow);
    coder.decode_to_host(p, latent, tiles_per_call(settings));
    p.release_list(narrow);
    p.release(latents);
    residency.leave(p, Role::Vae);
    residency.enter(p, Role::AudioVae);
    residency.host_during(StageName::Decoding);
    let weights = p.list();
    let waveform = Decode { batch: 2, frames: audio_latents(frames), warm: false }.emit(p, weights);
    p.release(waveform);
    p.release_list(weights);
    residency.leave(p, Role::AudioVae);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::minimax_h3::geometry::{Dit, Vae};
    use crate::modules::residency::Streams;
    use crate::program::{Model as Allocator, Sampling};
    use crate::settings::Attention;

    /// Live bytes of the widest moment.
    fn peak(emit: impl FnOnce(&mut Builder)) -> u64 {
        let mut p = Builder::new(false);
        p.stage(StageName::Denoising);
        p.phase("all");
        emit(&mut p);
        let program = p.finish().expect("small enough");
        program.run(&Allocator::None, Sampling::Ends).phases.iter().map(|phase| phase.live).max().unwrap_or(0)
    }

    /// FastVideo's own classes on fake tensors (facts of the project, section 3.6): hundredths of a GiB beside the weights.
    #[test]
    fn forward_passes_that_were_simulated() {
        let dit = Dit { hidden: 5376, ffn: 14_336, heads: 56, head: 128, blocks: 4, rank: None, sparse_gate: true };
        for ([height, width, frames], sparse, simulated) in [
            ([480, 832, 243], false, 489),
            ([768, 1344, 243], false, 1235),
            ([480, 832, 124], true, 423),
            ([480, 832, 243], true, 778),
            ([768, 1344, 124], true, 1009),
            ([768, 1344, 243], true, 1879),
        ] {
            let rows = Rows::of(height, width, frames, 300, 0);
            let tiles = if sparse { tiles(height, width, frames, &rows) } else { 0 };
            let attention = Attention::Flash;
            let forward = Forward { dit, rows, batch: 1, act: 2, keep_fp32: true, latents: 4, positions: 8, attention, tiles };
            let derived = peak(|p| {
                for prediction in forward.emit(p, &mut Streams::whole()) {
                    p.release(prediction);
                }
            });
            let simulated = simulated * (1 << 30) / 100;
            assert!(derived.abs_diff(simulated) * 100 <= simulated * 3, "{height}x{width}x{frames} {sparse}: {derived}, {simulated}");
        }
    }

    /// The same of decoding, the copies of the weights included.
    #[test]
    fn decoding_that_was_simulated() {
        let tiling = Some(crate::minimax_h3::video_vae::TILING);
        let coder = Coder { vae: Vae { layers: 36 }, act: 2, keep_fp32: true, tiling, slicing: false, int8: None };
        for ([height, width, frames], simulated) in [([768, 1344, 124], 550), ([480, 832, 243], 492)] {
            let derived = peak(|p| {
                let copies = p.list();
                coder.cast_weights(p, copies);
                coder.decode_to_host(p, Latent::of(1, frames, height, width), 1);
                p.release_list(copies);
            });
            let simulated = simulated * (1 << 30) / 100;
            assert!(derived.abs_diff(simulated) * 100 <= simulated * 5, "{height}x{width}x{frames}: {derived}, {simulated}");
        }
    }
}
