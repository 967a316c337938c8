//! A whole request through diffusers' Wan pipelines (0.42.1): `WanPipeline` and `WanImageToVideoPipeline`.
//!
//! What the pipelines keep between stages, and the order in which offload hooks move modules, follow
//! `diffusers/pipelines/wan` and accelerate's `cpu_offload_with_hook`: a module is moved in when it runs, the one before it in
//! `model_cpu_offload_seq` is moved out just before, and nothing else is.

use fv_spec::authored::Role;
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::diffusers_dit::Forward;
use super::diffusers_vae::Coder;
use super::geometry::{Dit, Latent};
use super::model::Wan;
use crate::family::Lowered;
use crate::modules::maps::Map;
use crate::modules::pipeline;
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, Tensor, sites};
use crate::settings::{Guidance, Settings};

sites! { "wan.diffusers.pipeline":
    PROMPT "prompt embeddings" Activation;
    IMAGE "image embeddings" Activation;
    LATENTS "latents" Activation;
    MASK "latent mask" Activation;
    CONDITION "image condition" Activation;
    MODEL_INPUT "model input" Activation;
    GUIDED "guided prediction" Activation;
    HISTORY "scheduler history" Cache;
    SCHEDULER "scheduler temporaries" Activation;
    PIXELS "conditioning video" Activation;
    JOINED "decoded videos" Output;
}

/// Lowers a request.
#[expect(clippy::too_many_lines, reason = "one request, stage by stage")]
pub fn lower(wan: &Wan, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let mut p = Builder::new(details);
    let mut residency = Residency::new(wan.weights(settings), settings, &mut p)?;
    let act = |role: Role| settings.component(role).map_or(2, |c| bytes_of(c.precision.computed));
    let batch = u64::from(request.batch);
    let latent = Latent::of(&wan.vae, batch, request.num_frames.into(), request.height.into(), request.width.into());
    let latent_dims = |channels: u64| {
        [("batch", latent.batch), ("channels", channels), ("frames", latent.frames), ("height", latent.height), ("width", latent.width)]
    };
    let coder = Coder::diffusers(wan.vae, act(Role::Vae));
    let image_to_video = request.references > 0;
    let pixels = [request.height.into(), request.width.into()];

    load_stage(&mut p, &mut residency);

    p.stage(StageName::Encoding);
    let text = wan.text.as_ref().ok_or_else(|| vec![Reason::new("missing-component", "the model has no text encoder")])?;
    residency.enter(&mut p, Role::TextEncoder);
    p.phase("libraries");
    // UMT5 has no biases, so the workspace of products with a bias comes with the model after it.
    let library = p.list();
    product_workspace(&mut p, library);
    let prompts = if settings.guidance == Guidance::None { 1 } else { 2 };
    let tokens = u64::from(request.text_tokens);
    let embed = [("batch", batch), ("tokens", tokens), ("text width", text.hidden)];
    let mut kept: Vec<Tensor> = Vec::new();
    for _ in 0..prompts {
        let states = residency.encode(&mut p, Role::TextEncoder, text, batch, tokens)?;
        // Cut to the prompt's length, padded with zeros and stacked again, then repeated: each a copy.
        p.phase("prompt_embeddings");
        let stacked = p.alloc(&PROMPT, &embed, act(Role::TextEncoder));
        p.release(states);
        let repeated = p.alloc(&PROMPT, &embed, act(Role::TextEncoder));
        p.release(stacked);
        kept.push(repeated);
    }
    let mut image_embeds = None;
    if let (true, Some(image)) = (image_to_video, wan.image.as_ref()) {
        residency.enter(&mut p, Role::ImageEncoder);
        p.phase("libraries");
        bias_workspace(&mut p, library);
        let states = residency.encode(&mut p, Role::ImageEncoder, image, batch, image.tokens)?;
        p.phase("image_embeddings");
        let dims = [("batch", batch), ("tokens", image.tokens), ("features", image.hidden)];
        image_embeds = Some(p.alloc(&IMAGE, &dims, act(Role::Transformer)));
        p.release(states);
    }
    residency.host_during(StageName::Encoding);
    p.phase("latents");
    let reference = [("channels", 3), ("height", request.height.into()), ("width", request.width.into())];
    let image = image_to_video.then(|| p.alloc(&PIXELS, &reference, FP32));
    let latents = p.alloc(&LATENTS, &latent_dims(wan.vae.latent_channels), FP32);
    let condition = if image_to_video {
        residency.enter(&mut p, Role::Vae);
        // Wan 2.2 TI2V encodes the image alone, the others the image followed by blank frames.
        let frames = if wan.vae.residual { 1 } else { u64::from(request.num_frames) };
        let video = [("batch", 1), ("channels", 3), ("frames", frames), ("height", request.height.into()), ("width", request.width.into())];
        p.phase("encode_input");
        let blank = p.alloc(&PIXELS, &video, FP32);
        let clip = p.alloc(&PIXELS, &video, FP32);
        p.release(blank);
        // The pipeline keeps the clip that it made until the condition is ready.
        let narrow = (coder.act != FP32).then(|| p.alloc(&PIXELS, &video, coder.act));
        let moments = match settings.tiling {
            Some(tiling) if coder.tiles(pixels, &tiling) => coder.encode_tiled(&mut p, 1, frames, pixels, tiling),
            _ => coder.encode(&mut p, 1, frames, request.height.into(), request.width.into()),
        };
        if let Some(narrow) = narrow {
            p.release(narrow);
        }
        p.phase("image_condition");
        let frames = if wan.vae.residual { 1 } else { latent.frames };
        let dims = |channels: u64| {
            [("batch", batch), ("channels", channels), ("frames", frames), ("height", latent.height), ("width", latent.width)]
        };
        let scaled = p.alloc(&CONDITION, &dims(wan.vae.latent_channels), FP32);
        // Besides the image's latent, Wan 2.1 and A14B carry a mask of the conditioned frames, four channels wide.
        let joined = p.alloc(&CONDITION, &dims(wan.vae.latent_channels + if wan.vae.residual { 0 } else { wan.vae.temporal }), FP32);
        p.release(clip);
        p.release(scaled);
        p.release(moments);
        Some(joined)
    } else {
        None
    };
    let mask = p.alloc(&MASK, &latent_dims(if image_to_video { 1 } else { wan.vae.latent_channels }), FP32);

    p.stage(StageName::Denoising);
    let experts: Vec<(Role, Dit)> = [(Role::Transformer, Some(wan.dit)), (Role::Transformer2, wan.dit2)]
        .into_iter()
        .filter_map(|(role, dit)| Some((role, dit?)))
        .collect();
    let steps = u64::from(request.num_inference_steps);
    let history = p.alloc(
        &HISTORY,
        &[
            ("outputs", 3),
            ("batch", batch),
            ("channels", wan.vae.latent_channels),
            ("frames", latent.frames),
            ("height", latent.height),
            ("width", latent.width),
        ],
        FP32,
    );
    // What a step leaves to the next: its input, and the predictions, which go when the next step's are there.
    let guided = settings.guidance != Guidance::None;
    let left = |p: &mut Builder, dit: &Dit, element: u64| {
        let input = p.alloc(&MODEL_INPUT, &latent_dims(dit.in_channels), element);
        let predictions = [true, guided].map(|on| on.then(|| p.alloc(&GUIDED, &latent_dims(dit.out_channels), element)));
        (input, predictions)
    };
    p.phase("model_input");
    let (model_input, predictions) = left(&mut p, &wan.dit, act(Role::Transformer));
    for (i, (role, dit)) in experts.iter().enumerate() {
        residency.enter(&mut p, *role);
        if i == 0 && image_embeds.is_none() {
            p.phase("libraries");
            bias_workspace(&mut p, library);
        }
        residency.host_during(StageName::Denoising);
        let share = if experts.len() == 1 {
            steps
        } else if i == 0 {
            steps.div_ceil(2)
        } else {
            steps / 2
        };
        let Some(component) = settings.component(*role) else { continue };
        let forward = Forward {
            dit: *dit,
            latent,
            text_tokens: tokens,
            image_tokens: if image_to_video && dit.image_branch { wan.image.as_ref().map_or(0, |image| image.tokens) } else { 0 },
            act: bytes_of(component.precision.computed),
            keep_fp32: component.precision.keep_fp32,
            attention: settings.attention,
            per_token_timesteps: settings.per_token_timesteps,
        };
        let mut streams = residency.streams(&mut p, *role);
        streams.prime(&mut p);
        p.repeat_sampled(share, if guided { 1 } else { 2 }, 0, |p| {
            p.phase("model_input");
            let input = p.alloc(&MODEL_INPUT, &latent_dims(dit.in_channels), forward.act);
            p.replace(model_input, input);
            for previous in predictions.into_iter().flatten() {
                let prediction = forward.emit_with(p, &mut streams);
                p.replace(previous, prediction);
            }
            let out = latent_dims(dit.out_channels);
            if let (true, Some(prediction)) = (guided, predictions[0]) {
                p.phase("guidance");
                let difference = p.alloc(&GUIDED, &out, forward.act);
                let scaled = p.alloc(&GUIDED, &out, forward.act);
                p.release(difference);
                let sum = p.alloc(&GUIDED, &out, forward.act);
                p.release(scaled);
                p.replace(prediction, sum);
            }
            p.phase("scheduler");
            let [batch, channels, frames, height, width] = out;
            p.touch(&SCHEDULER, &[("tensors", 3), batch, channels, frames, height, width], FP32);
        });
    }

    p.stage(StageName::Decoding);
    residency.enter(&mut p, Role::Vae);
    residency.host_during(StageName::Decoding);
    p.phase("decode_input");
    let z = latent_dims(wan.vae.latent_channels);
    // Cast, divided and shifted: each a new tensor that takes the place of the one before.
    let mut latents = latents;
    for _ in 0..if coder.act == FP32 { 2 } else { 3 } {
        let next = p.alloc(&LATENTS, &z, coder.act);
        p.release(latents);
        latents = next;
    }
    let clip = Map {
        batch,
        channels: 3,
        frames: request.num_frames.into(),
        height: request.height.into(),
        width: request.width.into(),
        element: coder.act,
    };
    let video = match settings.tiling {
        Some(tiling) if super::tiled(&wan.vae, latent, &tiling) => coder.decode_tiled(&mut p, latent, tiling),
        _ if settings.vae_slicing && batch > 1 => {
            pipeline::in_slices(&mut p, (&JOINED, clip), |p| coder.decode(p, Latent { batch: 1, ..latent }))
        }
        _ => coder.decode(&mut p, latent),
    };
    pipeline::postprocess(&mut p, clip);
    p.release(video);
    let left = [model_input].into_iter().chain(predictions.into_iter().flatten()).chain([latents, mask, history]);
    for tensor in kept.into_iter().chain(image_embeds).chain(image).chain(condition).chain(left) {
        p.release(tensor);
    }
    residency.finish(p)
}
