//! A whole request through diffusers' modular pipeline for MiniMax H3 (0.42.1, `modular_pipelines/minimax_h3`): text to video and
//! sound, with a keyframe at either end or none.
//!
//! One request is one packed sequence, guidance is baked into the weights, and so many points of the schedule drive one forward
//! less. The pipeline has no `enable_model_cpu_offload`; what stands for it is its components manager, which moves components
//! out when the next one would not fit with 3 GB to spare. The program moves everything else out, which is what such a device
//! ends with; on a larger one more stays than is needed.

use fv_spec::authored::Role;
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::audio_vae::Decode;
use super::diffusers_dit::Forward;
use super::geometry::{AUDIO_ROW, LATENT, Latent, Rows, TEXT, VIDEO_ROW, audio_latents};
use super::model::H3;
use super::qwen;
use super::video_vae::Coder;
use crate::family::Lowered;
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, sites};
use crate::settings::{Placement, Settings};

sites! { "minimax_h3.diffusers.pipeline":
    VISUAL "visual embeddings of keyframes" Activation;
    KEYFRAME "keyframe" Activation;
    LAYOUT "places, tags and positions of rows" Activation;
    PLAN "timesteps of rows for each step" Cache;
    NOISE "noise" Activation;
    ROWS "latent rows" Activation;
    SCHEDULER "scheduler temporaries" Activation;
    LATENTS "latents" Activation;
    POSTPROCESSED "decoded video in [0, 1]" Output;
}

/// Merged visual tokens and those that feed the language model's first three layers.
const VISUAL_LEVELS: u64 = 4;

/// Lowers a request.
#[expect(clippy::too_many_lines, reason = "one request, stage by stage")]
pub fn lower(h3: &H3, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let mut p = Builder::new(details);
    let mut residency = Residency::new(h3.weights(), settings, &mut p)?;
    let component = |role: Role| settings.component(role).ok_or_else(|| vec![Reason::new("unresolved-component", role.word())]);
    let (dit, vae, text) = (component(Role::Transformer)?, component(Role::Vae)?, component(Role::TextEncoder)?);
    let moved = matches!(dit.placement, Placement::Moved { .. });
    let act = bytes_of(dit.precision.computed);
    let (height, width, frames) = (u64::from(request.height), u64::from(request.width), u64::from(request.num_frames));
    let keyframes = u64::from(request.references);
    let rows = Rows::of(height, width, frames, request.text_tokens.into(), keyframes);
    let latent = Latent::of(1, frames, height, width);
    let vae_act = bytes_of(vae.precision.computed);
    let coder = Coder {
        vae: h3.vae,
        act: vae_act,
        keep_fp32: vae.precision.keep_fp32 && vae_act != FP32,
        tiling: settings.tiling,
        slicing: settings.vae_slicing,
        int8: None,
    };
    if request.batch > 1 {
        residency.uncovered(Reason::new("uncovered-batch", "the pipeline packs one request into one sequence: a batch is not modelled"));
    }
    if h3.dit.rank.is_some() || h3.dit.sparse_gate {
        let text = "diffusers' class has neither factored modulation nor gates of sparse attention: such a transformer is not modelled";
        residency.uncovered(Reason::new("uncovered-transformer", text));
    }
    let text_act = bytes_of(text.precision.computed);
    if text_act == FP32 {
        let text = "which attention kernel the text encoder's grouped heads take in fp32 is not known";
        residency.uncovered(Reason::new("uncovered-attention", text));
    }
    if moved {
        residency.note(
            "model_cpu_offload stands for the components manager's automatic offloading: figures are with all but the component at \
             work moved out; where there is room, others stay",
        );
    }

    load_stage(&mut p, &mut residency);

    p.stage(StageName::Encoding);
    residency.enter(&mut p, Role::TextEncoder);
    p.phase("libraries");
    let library = p.list();
    product_workspace(&mut p, library);
    let kept = p.list();
    let visual = (keyframes > 0).then(|| {
        // What the vision tower itself takes is below what the language model takes for the same tokens.
        let tokens = [("levels", VISUAL_LEVELS), ("tokens", rows.text), ("width", TEXT)];
        p.alloc(&VISUAL, &tokens, text_act)
    });
    let prompt = qwen::Forward { qwen: h3.text, batch: 1, tokens: rows.text, act: text_act, all_states: true }.emit(&mut p);
    if let Some(visual) = visual {
        p.release(visual);
    }
    p.keep(kept, prompt);
    residency.host_during(StageName::Encoding);
    if keyframes > 0 {
        if moved {
            p.phase("move_out");
            residency.leave(&mut p, Role::TextEncoder);
        }
        residency.enter(&mut p, Role::Vae);
        p.repeat(keyframes, |p| {
            p.phase("encode_input");
            let pixels = [("channels", 3), ("height", height), ("width", width)];
            let [narrow, wide] = [1, FP32].map(|size| p.alloc(&KEYFRAME, &pixels, size));
            let moments = coder.encode(p, [1, 1, height, width], FP32);
            for tensor in [moments, wide, narrow] {
                p.release(tensor);
            }
        });
        residency.host_during(StageName::Encoding);
        if moved {
            p.phase("move_out");
            residency.leave(&mut p, Role::Vae);
        }
    }
    p.phase("layout");
    let steps = u64::from(request.num_inference_steps).saturating_sub(1).max(1);
    for (columns, element) in [(3, 8), (1, 8), (1, 8)] {
        let layout = p.alloc(&LAYOUT, &[("rows", rows.all()), ("columns", columns)], element);
        p.keep(kept, layout);
    }
    p.phase("latents");
    let z = [("channels", LATENT), ("frames", latent.frames), ("height", latent.height), ("width", latent.width)];
    let noise = p.alloc(&NOISE, &z, FP32);
    let generated = p.alloc(&ROWS, &[("rows", rows.video), ("channels", VIDEO_ROW)], FP32);
    p.release(noise);
    let video_rows = if keyframes > 0 {
        let joined = p.alloc(&ROWS, &[("rows", rows.visual()), ("channels", VIDEO_ROW)], FP32);
        p.release(generated);
        joined
    } else {
        generated
    };
    let audio_rows = p.alloc(&ROWS, &[("rows", rows.audio), ("channels", AUDIO_ROW)], FP32);
    p.phase("timesteps");
    p.repeat_sampled(steps, 2, 0, |p| {
        let plan = p.alloc(&PLAN, &[("rows", rows.all())], 8);
        p.keep(kept, plan);
    });

    p.stage(StageName::Denoising);
    residency.enter(&mut p, Role::Transformer);
    p.phase("libraries");
    bias_workspace(&mut p, library);
    residency.host_during(StageName::Denoising);
    let forward = Forward {
        dit: h3.dit,
        rows,
        batch: 1,
        act,
        keep_fp32: dit.precision.keep_fp32 && act != FP32,
        latents: FP32,
        positions: 8,
        attention: settings.attention,
        tiles: 0,
    };
    let mut streams = residency.streams(&mut p, Role::Transformer);
    let euler = |p: &mut Builder| {
        p.phase("scheduler");
        p.touch(&SCHEDULER, &[("tensors", 4), ("rows", rows.video), ("channels", VIDEO_ROW)], FP32);
    };
    // A step's predictions go when the next step's are there.
    let predictions = forward.emit(&mut p, &mut streams);
    euler(&mut p);
    p.repeat_sampled(steps - 1, 2, 0, |p| {
        let next = forward.emit(p, &mut streams);
        for (old, new) in predictions.into_iter().zip(next) {
            p.replace(old, new);
        }
        euler(p);
    });

    p.stage(StageName::Decoding);
    residency.enter(&mut p, Role::Vae);
    residency.host_during(StageName::Decoding);
    p.phase("decode_input");
    let mut latents = p.alloc(&LATENTS, &z, FP32);
    p.release(video_rows);
    let kept_latents = p.retain(latents);
    for _ in 0..2 {
        let next = p.alloc(&LATENTS, &z, FP32);
        p.release(latents);
        latents = next;
    }
    let mut video = coder.decode(&mut p, latent, FP32);
    p.phase("postprocess");
    let pixels = [("channels", 3), ("frames", frames), ("height", height), ("width", width)];
    let decoded = video;
    if vae_act != FP32 {
        video = p.alloc(&POSTPROCESSED, &pixels, FP32);
    }
    // Scaled, shifted and clamped: each a new tensor.
    for step in 0..3 {
        let next = p.alloc(&POSTPROCESSED, &pixels, FP32);
        if step > 0 || vae_act != FP32 {
            p.release(video);
        }
        video = next;
    }
    for tensor in [decoded, video, latents] {
        p.release(tensor);
    }
    residency.enter(&mut p, Role::AudioVae);
    residency.host_during(StageName::Decoding);
    let waveform = Decode { batch: 2, frames: audio_latents(frames), warm: false }.emit(&mut p, kept);
    for tensor in predictions.into_iter().chain([waveform, kept_latents, audio_rows]) {
        p.release(tensor);
    }
    residency.finish(p)
}
