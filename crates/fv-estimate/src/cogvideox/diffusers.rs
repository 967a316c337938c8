//! A whole request through diffusers' `CogVideoXPipeline` and `CogVideoXImageToVideoPipeline` (0.42.1) with
//! `CogVideoXDPMScheduler`. A batch is a list of prompts, and of images.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::dit::{Dit, Forward, LATENT_CHANNELS, Positions};
use super::vae::{self, Coder, SPATIAL, TEMPORAL};
use crate::family::Lowered;
use crate::modules::encoder::{self, Encoder};
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::pipeline::{self, Guided, postprocess};
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, Dims, Tensor, sites};
use crate::settings::{Guidance, Settings};

sites! { "cogvideox.diffusers.pipeline":
    PROMPT "prompt embeddings" Activation;
    LATENTS "latents" Activation;
    ROPE "rotary table" Cache;
    MODEL_INPUT "model input" Activation;
    PREDICTION "prediction in fp32" Activation;
    PIXELS "image" Activation;
    IMAGE "image latents" Activation;
    ORIGINAL "predicted sample of the step before" Cache;
    SCHEDULER "scheduler temporaries" Activation;
}

/// A model of the family as one deployment loads it.
#[derive(Debug)]
pub(super) struct Parts {
    dit: Dit,
    text: Encoder,
}

impl Parts {
    /// Reads a model as `example` loads it. `Err` lists what is missing.
    pub(super) fn read(model: &Model, example: &Example) -> Result<Self, Vec<Reason>> {
        let [transformer, text, vae] =
            pipeline::components(model, example, "CogVideoX", [Role::Transformer, Role::TextEncoder, Role::Vae])?;
        let geometry = |text: String| vec![Reason::new("missing-geometry", text)];
        let whole: u64 = vae::tensors().iter().map(|parameter| parameter.elements).sum();
        if vae.parameter_count.get() != whole {
            return Err(geometry(format!("a VAE of {} parameters is not the whole VAE of CogVideoX", vae.parameter_count)));
        }
        Ok(Self { dit: Dit::read(transformer).map_err(geometry)?, text: Encoder::read(text, 0).map_err(geometry)? })
    }

    fn weights(&self) -> Vec<Weights> {
        vec![
            Weights::blocks(Role::TextEncoder, encoder::tensors(&self.text)),
            self.dit.weights(Role::Transformer),
            Weights::whole(Role::Vae, vae::tensors()),
        ]
    }

    /// Lowers a request.
    #[expect(clippy::too_many_lines, reason = "one request, stage by stage")]
    pub(super) fn lower(&self, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
        let mut p = Builder::new(details);
        let mut residency = Residency::new(self.weights(), settings, &mut p)?;
        // Half of the channels are an image's.
        let image = self.dit.in_channels > LATENT_CHANNELS;
        pipeline::uncovered(&mut residency, settings, request, "CogVideoX", u32::from(image));
        let act = |role: Role| settings.component(role).map_or(2, |c| bytes_of(c.precision.computed));
        let batch = u64::from(request.batch);
        let guided = settings.guidance != Guidance::None;
        let branches = if guided { 2 } else { 1 };
        let latent_frames = u64::from(request.num_frames).saturating_sub(1) / TEMPORAL + 1;
        // Version 1.5 adds frames up to whole patches and drops them before decoding.
        let frames = latent_frames.next_multiple_of(self.dit.patch_frames);
        let (height, width) = (u64::from(request.height) / SPATIAL, u64::from(request.width) / SPATIAL);
        let text_tokens = u64::from(request.text_tokens);
        let element = act(Role::TextEncoder);
        load_stage(&mut p, &mut residency);

        p.stage(StageName::Encoding);
        residency.enter(&mut p, Role::TextEncoder);
        p.phase("libraries");
        let library = p.list();
        product_workspace(&mut p, library);
        let embeds = |branches: u64| [("batch", branches * batch), ("tokens", text_tokens), ("text width", self.text.hidden)];
        let mut prompts: Vec<Tensor> = Vec::new();
        for _ in 0..branches {
            let states = residency.encode(&mut p, Role::TextEncoder, &self.text, batch, text_tokens)?;
            p.phase("prompt_embeddings");
            prompts.push(p.alloc(&PROMPT, &embeds(1), element));
            p.release(states);
        }
        if guided {
            // Both branches together; the negative one keeps its name.
            let joined = p.alloc(&PROMPT, &embeds(2), element);
            let positive = std::mem::replace(&mut prompts[0], joined);
            p.release(positive);
        }
        residency.host_during(StageName::Encoding);
        p.phase("latents");
        let latent_dims = |branches: u64| {
            [("batch", branches * batch), ("frames", frames), ("channels", LATENT_CHANNELS), ("height", height), ("width", width)]
        };
        let vae_act = act(Role::Vae);
        let mut images: Vec<Tensor> = Vec::new();
        if image {
            // The image, encoded alone and followed by blank frames.
            let pixels = Map { batch, channels: 3, frames: 1, height: request.height.into(), width: request.width.into(), element };
            images.push(pixels.alloc(&mut p, &PIXELS));
            residency.enter(&mut p, Role::Vae);
            let streams = residency.streams(&mut p, Role::Vae);
            let coder = Coder { act: vae_act, streams: &streams };
            let moments = p.list();
            p.repeat(batch, |p| {
                let one = Map { batch: 1, ..pixels.of(vae_act) };
                let (encoded, _) = coder.code(p, one, false, settings.tiling, false);
                p.keep(moments, encoded);
            });
            p.phase("latents");
            let blank = p.alloc(&IMAGE, &latent_dims(1), element);
            images.push(p.alloc(&IMAGE, &latent_dims(1), element));
            p.release(blank);
            p.release_list(moments);
        }
        let noise = p.alloc(&LATENTS, &latent_dims(1), element);
        let latents = p.alloc(&LATENTS, &latent_dims(1), element);
        p.release(noise);
        let forward = Forward {
            dit: self.dit,
            batch: branches * batch,
            latent: [frames, height, width],
            text_tokens,
            act: act(Role::Transformer),
            attention: settings.attention,
        };
        let rotary = self.dit.positions != Positions::Table;
        let rope: Vec<Tensor> = (0..if rotary { 2 } else { 0 }).map(|_| p.alloc(&ROPE, &forward.rotary_table(), FP32)).collect();

        p.stage(StageName::Denoising);
        // What a step leaves to the next: its input, the prediction in fp32 of both branches and guided, the predicted sample.
        p.phase("model_input");
        let joined = |p: &mut Builder| {
            let [batch, frames, _, height, width] = latent_dims(branches);
            p.alloc(&MODEL_INPUT, &[batch, frames, ("channels", self.dit.in_channels), height, width], element)
        };
        let input = joined(&mut p);
        let image_input = (image && guided).then(|| p.alloc(&MODEL_INPUT, &latent_dims(2), element));
        let prediction = p.alloc(&PREDICTION, &latent_dims(branches), FP32);
        let combined = guided.then(|| p.alloc(&PREDICTION, &latent_dims(1), FP32));
        let original = p.alloc(&ORIGINAL, &latent_dims(1), FP32);
        residency.enter(&mut p, Role::Transformer);
        p.phase("libraries");
        bias_workspace(&mut p, library);
        residency.host_during(StageName::Denoising);
        let mut streams = residency.streams(&mut p, Role::Transformer);
        p.repeat_sampled(request.num_inference_steps.into(), 2, 0, |p| {
            p.phase("model_input");
            if guided {
                let next = p.alloc(&MODEL_INPUT, &latent_dims(2), element);
                p.replace(input, next);
            }
            if let Some(image_input) = image_input {
                let next = p.alloc(&MODEL_INPUT, &latent_dims(2), element);
                p.replace(image_input, next);
            }
            if image {
                let next = joined(p);
                p.replace(input, next);
            }
            let predicted = forward.emit(p, &mut streams);
            let (all, one) = (latent_dims(branches), latent_dims(1));
            let guided = Guided { sites: [&PREDICTION; 2], all: &all, one: &one, before: (prediction, combined) };
            guided.step(p, predicted, forward.act);
            Self::step(p, &latent_dims(1), element, [latents, original]);
        });

        p.stage(StageName::Decoding);
        p.phase("decode_input");
        let latent = Map { batch, channels: LATENT_CHANNELS, frames: latent_frames, height, width, element: vae_act };
        let z = latent.of(element).alloc(&mut p, &LATENTS);
        residency.enter(&mut p, Role::Vae);
        residency.host_during(StageName::Decoding);
        let streams = residency.streams(&mut p, Role::Vae);
        let coder = Coder { act: vae_act, streams: &streams };
        let (video, map) = coder.code(&mut p, latent, true, settings.tiling, settings.vae_slicing);
        p.release(z);
        postprocess(&mut p, map);
        p.release(video);
        for tensor in
            prompts.into_iter().chain(rope).chain(images).chain(image_input).chain(combined).chain([latents, input, prediction, original])
        {
            p.release(tensor);
        }
        residency.finish(p)
    }

    /// `CogVideoXDPMScheduler.step` from its second call on: latents and the predicted sample are replaced.
    fn step(p: &mut Builder, dims: Dims<'_>, element: u64, [latents, original]: [Tensor; 2]) {
        p.phase("scheduler");
        let fp32 = |p: &mut Builder| p.alloc(&SCHEDULER, dims, FP32);
        let narrow = |p: &mut Builder| p.alloc(&SCHEDULER, dims, element);
        let scaled = [(); 2].map(|()| fp32(p));
        let sample = p.alloc(&ORIGINAL, dims, FP32);
        for tensor in scaled {
            p.release(tensor);
        }
        // Twice: a sample, less another, plus noise.
        let advance = |p: &mut Builder| {
            let noise = narrow(p);
            let parts = [narrow(p), fp32(p)];
            let difference = fp32(p);
            for part in parts {
                p.release(part);
            }
            let scaled = narrow(p);
            let sum = fp32(p);
            for tensor in [difference, scaled, noise] {
                p.release(tensor);
            }
            sum
        };
        let first = advance(p);
        let parts = [(); 2].map(|()| fp32(p));
        let denoised = fp32(p);
        for part in parts {
            p.release(part);
        }
        let advanced = advance(p);
        for tensor in [first, denoised] {
            p.release(tensor);
        }
        p.replace(original, sample);
        let next = p.alloc(&LATENTS, dims, element);
        p.release(advanced);
        p.replace(latents, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cogvideox::vae::TILING;
    use crate::modules::pipeline::testing;

    #[test]
    fn stages_peak_where_the_recorded_pipelines_do() {
        let dit = |in_channels, positions| Dit { hidden: 3072, blocks: 3, in_channels, patch_frames: 1, positions };
        let text = || testing::text();
        let video = Parts { dit: dit(16, Positions::Rotary), text: text() };
        let image = Parts { dit: dit(32, Positions::RotaryAndTable), text: text() };
        for (parts, frames, references, moved, tiling, recorded) in [
            (&video, 17, 0, false, None, [2_406_565_376, 3_460_211_712, 18_190_615_552]),
            (&video, 17, 0, true, None, [1_134_377_984, 1_981_201_408, 16_329_057_280]),
            (&video, 9, 0, false, Some(TILING), [2_406_565_376, 3_022_714_368, 5_347_557_888]),
            (&image, 9, 1, false, None, [4_502_267_904, 3_137_781_760, 14_355_280_896]),
        ] {
            testing::check([480, 720, frames], (226, references), (moved, tiling), recorded, 5, |settings, request| {
                parts.lower(settings, request, false).expect("a program")
            });
        }
    }
}
