//! A whole request through FastVideo's Wan pipelines (0.2.1, `pipelines/basic/wan` and `pipelines/stages`), on one of its ranks.
//!
//! Every rank runs the same program. Nothing that a stage puts on the batch is dropped before the request ends: prompt
//! embeddings, latents, image latents and the scheduler's history are there while the video is decoded, and with layerwise
//! offload so is the first block of each transformer. The video stays on the device when the request is over.

use fv_spec::authored::Role;
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::diffusers_vae::Coder;
use super::fastvideo_dit::Forward;
use super::geometry::{Dit, Latent};
use super::model::Wan;
use crate::family::Lowered;
use crate::modules::encoder::Encoder;
use crate::modules::fastvideo_text;
use crate::modules::residency::{Residency, Streams, library_workspace, load_stage};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::{Attention, Guidance, Placement, Settings};
use crate::storage::Storage;

sites! { "wan.fastvideo.pipeline":
    IMAGE "image embeddings" Activation;
    LATENTS "latents" Activation;
    MASK "latent mask" Activation;
    CONDITION "image condition" Activation;
    MODEL_INPUT "model input" Activation;
    GUIDED "guided prediction" Activation;
    HISTORY "scheduler history" Cache;
    SCHEDULER "scheduler temporaries" Activation;
    TILE_INDICES "indices of tiles" Cache;
    PIXELS "conditioning video" Activation;
}

const ACT: u64 = 2;
const INT64: u64 = 8;
const FP64: u64 = 8;
/// Text tokens that the transformer is given: shorter prompts are filled up (`t5_postprocess_text`).
const TEXT_TOKENS: u64 = 512;
/// Pixels to which an image-conditioned video of Wan 2.2 TI2V is fitted (`max_area` of `input_validation.py`).
const TI2V_AREA: u64 = 480 * 832;
/// What the multistep scheduler (`scheduling_flow_unipc_multistep.py`) keeps between steps: two converted predictions and the last sample.
const HISTORY_TENSORS: u64 = 3;
/// What it makes in a step beside its result, in tensors of the latents' size.
const SCHEDULER_TENSORS: u64 = 5;

/// Lowers a request.
pub fn lower(wan: &Wan, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let text = supported(wan, settings, request)?;
    let mut p = Builder::new(details);
    let mut residency = Residency::new(wan.weights(settings), settings, &mut p)?;
    remark(wan, settings, request, &mut residency);
    let video = Video {
        wan,
        settings,
        latent: Latent::of(&wan.vae, 1, request.num_frames.into(), request.height.into(), request.width.into()),
        frames: request.num_frames.into(),
        height: request.height.into(),
        width: request.width.into(),
        with_image: request.references > 0,
        text_element: settings.component(Role::TextEncoder).map_or(ACT, |c| bytes_of(c.precision.computed)),
    };
    if let (Some(vae), Some(tiling)) = (settings.component(Role::Vae), settings.tiling) {
        let decoder = Coder::fastvideo_decoder(wan.vae, &vae.precision, video.latent_element());
        decoder.refuses(video.latent, &tiling).map_or(Ok(()), |reason| Err(vec![reason]))?;
    }

    load_stage(&mut p, &mut residency);
    let request_list = p.list();
    video.encode(&mut p, &mut residency, text, request.text_tokens.into(), request_list)?;
    let latents = video.latents(&mut p, &mut residency, request_list);
    video.denoise(&mut p, &mut residency, request.num_inference_steps.into(), latents, request_list);
    video.decode(&mut p, &mut residency);
    p.release_list(request_list);
    residency.finish(p)
}

/// Checks what the pipelines cannot run at all. The text encoder is the result.
fn supported<'a>(wan: &'a Wan, settings: &Settings, request: &Request) -> Result<&'a Encoder, Vec<Reason>> {
    let mut reasons = Vec::new();
    if request.batch != 1 {
        reasons.push(Reason::new("unsupported-batch", "FastVideo's denoising stage takes one video at a time"));
    }
    if settings.guidance == Guidance::Batched {
        reasons.push(Reason::new("uncovered-guidance", "FastVideo's Wan stages make the two predictions one after the other"));
    }
    if settings.per_token_timesteps && settings.sequence_parallel > 1 {
        reasons.push(Reason::new(
            "unsupported-parallelism",
            "with timesteps for each token the sequence cannot be divided over ranks: the time embedding is not",
        ));
    }
    if !settings.feature_cache && wan.vae.residual {
        reasons.push(Reason::new(
            "unsupported-decoding",
            "FastVideo 0.2.1 does not put the patches of Wan 2.2's VAE together without its feature cache",
        ));
    }
    match &wan.text {
        Some(text) if reasons.is_empty() => Ok(text),
        Some(_) => Err(reasons),
        None => {
            reasons.push(Reason::new("missing-component", "the model has no text encoder"));
            Err(reasons)
        }
    }
}

/// What is left out or assumed.
fn remark(wan: &Wan, settings: &Settings, request: &Request, residency: &mut Residency<'_>) {
    if settings.compile {
        // Attention, where the peak is, stays eager (FASTVIDEO_DISABLE_ATTENTION_COMPILE is unset by default); compiling can only
        // spare temporaries of the other phases.
        residency.note("the transformer is compiled: its attention is not, and sets the peak; other phases are counted as run eagerly");
    }
    for role in [Role::Transformer, Role::Transformer2] {
        let Some(component) = settings.component(role) else { continue };
        match component.precision.stored {
            Storage::Plain(_) => {}
            Storage::Fp8PerTensor | Storage::Fp8PerChannel => {
                residency.note("FP8 products are taken to run as such, which needs compute capability 8.9; older cards widen each matrix");
            }
            stored => residency.uncovered(Reason::new(
                "uncovered-quantisation",
                format!("the temporaries of products with {stored:?} weights are not modelled"),
            )),
        }
        if settings.shard > 1 || component.placement == Placement::Gathered {
            residency.note("the gathering of sharded weights follows PyTorch's source; it was not recorded");
        }
    }
    if let Attention::VideoSparse { tile: 256, .. } = settings.attention {
        residency.note("the kernel for tiles of 256 tokens is taken to have the coarse branch of the one for 64");
    }
    let area = u64::from(request.height) * u64::from(request.width);
    if settings.per_token_timesteps && wan.vae.residual && area > TI2V_AREA {
        residency.note(format!(
            "with an image FastVideo takes height and width from it, at most {TI2V_AREA} pixels: these figures are for the size asked for"
        ));
    }
}

/// What the stages of one request share.
struct Video<'a> {
    wan: &'a Wan,
    settings: &'a Settings,
    latent: Latent,
    frames: u64,
    height: u64,
    width: u64,
    with_image: bool,
    /// Bytes of an element of the prompt embeddings.
    text_element: u64,
}

impl Video<'_> {
    /// `channels` channels of the latent's extents.
    fn dims(&self, channels: u64) -> [(&'static str, u64); 4] {
        [("channels", channels), ("frames", self.latent.frames), ("height", self.latent.height), ("width", self.latent.width)]
    }

    fn channels(&self) -> u64 {
        self.wan.vae.latent_channels
    }

    /// Bytes of a value of the latents once denoising has begun: the few-step stage leaves them in the transformer's type.
    fn latent_element(&self) -> u64 {
        if self.settings.guidance == Guidance::None { ACT } else { self.text_element }
    }

    fn alloc(&self, p: &mut Builder, site: &'static Site, channels: u64, element: u64) -> Tensor {
        p.alloc(site, &self.dims(channels), element)
    }

    fn encoder(&self) -> Option<Coder> {
        self.settings.component(Role::Vae).map(|vae| Coder::fastvideo_encoder(self.wan.vae, &vae.precision))
    }

    /// Whether the image is encoded by a stage of its own; Wan 2.2 TI2V does it when denoising begins.
    fn encodes_clip(&self) -> bool {
        self.with_image && !self.wan.vae.residual
    }

    /// Text encoding and image encoding (`text_encoding.py`, `image_encoding.py`). Results stay in `kept`.
    fn encode(&self, p: &mut Builder, residency: &mut Residency<'_>, text: &Encoder, tokens: u64, kept: List) -> Result<(), Vec<Reason>> {
        p.stage(StageName::Encoding);
        residency.enter(p, Role::TextEncoder);
        library_workspace(p, kept);
        let prompts = if self.settings.guidance == Guidance::None { 1 } else { 2 };
        for _ in 0..prompts {
            let states = residency.encode(p, Role::TextEncoder, text, 1, tokens)?;
            let embeddings = fastvideo_text::embeddings(p, text, states, tokens, TEXT_TOKENS, self.text_element);
            p.keep(kept, embeddings);
        }
        residency.leave(p, Role::TextEncoder);
        if let (true, Some(image)) = (self.with_image, self.wan.image.as_ref()) {
            residency.enter(p, Role::ImageEncoder);
            let states = residency.encode(p, Role::ImageEncoder, image, 1, image.tokens)?;
            p.keep(kept, states);
            residency.leave(p, Role::ImageEncoder);
        }
        residency.host_during(StageName::Encoding);
        Ok(())
    }

    /// The first latents, in the type of the prompt embeddings, and the image's (`latent_preparation.py`,
    /// `ImageVAEEncodingStage`).
    fn latents(&self, p: &mut Builder, residency: &mut Residency<'_>, kept: List) -> Tensor {
        p.phase("latents");
        let noise = self.alloc(p, &LATENTS, self.channels(), self.text_element);
        let latents = self.alloc(p, &LATENTS, self.channels(), self.text_element);
        p.release(noise);
        if let (true, Some(coder)) = (self.encodes_clip(), self.encoder()) {
            residency.enter(p, Role::Vae);
            p.phase("encode_input");
            let clip = |frames: u64| [("channels", 3), ("frames", frames), ("height", self.height), ("width", self.width)];
            let image = p.alloc(&PIXELS, &clip(1), FP32);
            let blank = p.alloc(&PIXELS, &clip(self.frames - 1), FP32);
            let video = p.alloc(&PIXELS, &clip(self.frames), FP32);
            p.release(blank);
            let distribution = coder.encode_distribution(p, self.frames, self.height, self.width);
            p.phase("image_condition");
            let noise = self.alloc(p, &CONDITION, self.channels(), FP32);
            let scaled = self.alloc(p, &CONDITION, self.channels(), FP32);
            let sample = self.alloc(p, &CONDITION, self.channels(), FP32);
            p.release(scaled);
            p.release(noise);
            let normalised = self.alloc(p, &CONDITION, self.channels(), FP32);
            p.release(sample);
            // Four channels say which frames are given.
            let mask = self.alloc(p, &MASK, self.wan.vae.temporal, FP32);
            let condition = self.alloc(p, &CONDITION, self.wan.vae.temporal + self.channels(), FP32);
            p.keep(kept, condition);
            for tensor in distribution.into_iter().chain([mask, normalised, video, image]) {
                p.release(tensor);
            }
            // Whatever the offload settings say.
            residency.evict(p, Role::Vae);
        }
        latents
    }

    /// Wan 2.2 TI2V: the image's latent takes the place of the first frame (`DenoisingStage`). What it keeps is in `kept`.
    fn encode_first_frame(&self, p: &mut Builder, residency: &mut Residency<'_>, latents: Tensor, kept: List) {
        let Some(coder) = self.encoder() else { return };
        residency.enter(p, Role::Vae);
        p.phase("encode_input");
        let image = p.alloc(&PIXELS, &[("channels", 3), ("frames", 1), ("height", self.height), ("width", self.width)], FP32);
        p.keep(kept, image);
        let distribution = coder.encode_distribution(p, 1, self.height, self.width);
        p.phase("image_condition");
        let [moments, rest @ ..] = distribution;
        for tensor in rest {
            p.release(tensor);
        }
        residency.leave(p, Role::Vae);
        let first = [("channels", self.channels()), ("height", self.latent.height), ("width", self.latent.width)];
        let scaled = p.alloc(&CONDITION, &first, FP32);
        p.release(moments);
        p.keep(kept, scaled);
        for _ in 0..2 {
            let mask = self.alloc(p, &MASK, self.channels(), ACT);
            p.keep(kept, mask);
        }
        self.mix_first_frame(p, latents);
    }

    /// `(1 - mask) * image + mask * latents`, in place of the latents.
    fn mix_first_frame(&self, p: &mut Builder, latents: Tensor) {
        let rest = self.alloc(p, &MASK, self.channels(), ACT);
        let given = self.alloc(p, &SCHEDULER, self.channels(), FP32);
        p.release(rest);
        let made = self.alloc(p, &SCHEDULER, self.channels(), FP32);
        let sum = self.alloc(p, &LATENTS, self.channels(), FP32);
        p.release(given);
        p.release(made);
        p.replace(latents, sum);
    }

    fn forward(&self, dit: Dit, role: Role) -> Forward {
        let stored = self.settings.component(role).map(|component| component.precision.stored);
        Forward {
            dit,
            latent: self.latent,
            text_tokens: TEXT_TOKENS,
            text_element: self.text_element,
            image_tokens: if self.with_image && dit.image_branch { self.wan.image.as_ref().map_or(0, |image| image.tokens) } else { 0 },
            attention: self.settings.attention,
            per_token_timesteps: self.settings.per_token_timesteps,
            ranks: self.settings.sequence_parallel.max(1).into(),
            fp8: matches!(stored, Some(Storage::Fp8PerTensor | Storage::Fp8PerChannel)),
        }
    }

    /// All steps (`denoising.py`). Latents and what the scheduler keeps go to `kept`.
    fn denoise(&self, p: &mut Builder, residency: &mut Residency<'_>, steps: u64, latents: Tensor, kept: List) {
        p.stage(StageName::Denoising);
        let experts: Vec<(Role, Dit)> = [(Role::Transformer, Some(self.wan.dit)), (Role::Transformer2, self.wan.dit2)]
            .into_iter()
            .filter_map(|(role, dit)| Some((role, dit?)))
            .collect();
        let stage = Stage { throughout: p.list(), input: p.list(), prediction: p.list(), second: p.list(), tiles: p.list() };
        if self.with_image && self.wan.image.is_some() {
            p.phase("model_input");
            let tokens = self.wan.image.as_ref().map_or(0, |image| image.tokens);
            let narrow = p.alloc(&IMAGE, &[("tokens", tokens), ("features", super::geometry::IMAGE_FEATURES)], ACT);
            p.keep(stage.throughout, narrow);
        }
        if self.settings.per_token_timesteps {
            self.encode_first_frame(p, residency, latents, stage.throughout);
        }
        if let Attention::VideoSparse { .. } = self.settings.attention {
            // Found once for a size and kept by the process.
            let indices = p.alloc(&TILE_INDICES, &[("indices", 4), ("tokens", self.latent.tokens(&self.wan.dit))], INT64);
            p.keep(kept, indices);
        }
        p.phase("scheduler");
        if self.settings.guidance != Guidance::None {
            let history = self.alloc(p, &HISTORY, HISTORY_TENSORS * self.channels(), FP32);
            p.keep(kept, history);
        }
        if self.settings.guidance_delta_kept {
            let delta = self.alloc(p, &GUIDED, self.channels(), ACT);
            p.keep(stage.throughout, delta);
        }
        for (i, (role, dit)) in experts.iter().enumerate() {
            // With `dit_cpu_offload` the other expert is moved out first.
            if let Some((other, _)) = experts.get(1 - i.min(1)) {
                residency.leave(p, *other);
            }
            residency.enter(p, *role);
            residency.host_during(StageName::Denoising);
            let share = match (experts.len(), i) {
                (1, _) => steps,
                (_, 0) => steps.div_ceil(2),
                _ => steps / 2,
            };
            let forward = self.forward(*dit, *role);
            let mut streams = residency.streams(p, *role);
            p.phase("weights_in");
            streams.prime(p);
            p.repeat_sampled(share, 2, 0, |p| self.step(p, &forward, &mut streams, latents, &stage));
        }
        for list in [stage.tiles, stage.second, stage.prediction, stage.input, stage.throughout] {
            p.release_list(list);
        }
        p.keep(kept, latents);
        // The rotary tables stay in host memory, in fp64.
        let head = self.wan.dit.hidden / self.wan.dit.heads.max(1);
        residency.host_also(StageName::Denoising, 2 * self.latent.tokens(&self.wan.dit) * head * FP64);
    }

    /// One step: one prediction or two, and the scheduler's. `latents` are the new ones in the end.
    fn step(&self, p: &mut Builder, forward: &Forward, streams: &mut Streams, latents: Tensor, stage: &Stage) {
        p.phase("model_input");
        let distilled = self.settings.guidance == Guidance::None;
        let noisy = distilled.then(|| self.alloc(p, &LATENTS, self.channels(), self.latent_element()));
        let mut input = self.alloc(p, &MODEL_INPUT, self.channels(), ACT);
        p.release_list(stage.input);
        if forward.dit.in_channels > self.channels() {
            // Joined with the image's latent in fp32, and narrowed again.
            let joined = self.alloc(p, &MODEL_INPUT, forward.dit.in_channels, FP32);
            p.release(input);
            input = self.alloc(p, &MODEL_INPUT, forward.dit.in_channels, ACT);
            p.release(joined);
        }
        for tensor in [Some(input), noisy].into_iter().flatten() {
            p.keep(stage.input, tensor);
        }
        // The buffer of tiles belongs to the step.
        p.release_list(stage.tiles);
        let prediction = forward.emit_with(p, streams, Some(stage.tiles));
        // The names of the step before mean its predictions until these are there.
        p.release_list(stage.prediction);
        p.keep(stage.prediction, prediction);
        if !distilled {
            let second = forward.emit_with(p, streams, None);
            p.release_list(stage.second);
            p.keep(stage.second, second);
            p.phase("guidance");
            let difference = self.alloc(p, &GUIDED, forward.dit.out_channels, ACT);
            let scaled = self.alloc(p, &GUIDED, forward.dit.out_channels, ACT);
            p.release(difference);
            let guided = self.alloc(p, &GUIDED, forward.dit.out_channels, ACT);
            p.release(scaled);
            p.keep(stage.prediction, guided);
        }
        p.phase("scheduler");
        // The few-step stage predicts the video in fp64 and adds noise that comes from the host.
        let (tensors, element) = if distilled { (4, FP64) } else { (SCHEDULER_TENSORS, FP32) };
        p.touch(&SCHEDULER, &[("tensors", tensors), ("channels", self.channels()), ("latent values", self.positions())], element);
        let next = self.alloc(p, &LATENTS, self.channels(), self.latent_element());
        p.replace(latents, next);
        if self.settings.per_token_timesteps {
            self.mix_first_frame(p, latents);
        }
    }

    fn positions(&self) -> u64 {
        self.latent.frames * self.latent.height * self.latent.width
    }

    /// Decoding (`decoding.py`). Every rank decodes the whole video.
    fn decode(&self, p: &mut Builder, residency: &mut Residency<'_>) {
        p.stage(StageName::Decoding);
        residency.enter(p, Role::Vae);
        residency.host_during(StageName::Decoding);
        let Some(vae) = self.settings.component(Role::Vae) else { return };
        let coder = Coder::fastvideo_decoder(self.wan.vae, &vae.precision, self.latent_element());
        let latents = coder.denormalise(p, self.latent, self.latent_element());
        let decoded = if self.settings.feature_cache {
            coder.decode_cached(p, self.latent)
        } else {
            coder.decode_uncached(p, self.latent, self.settings.tiling)
        };
        if decoded.visible.frames < self.frames {
            residency.note(format!("temporal tiles lose frames: the video has {} of {}", decoded.visible.frames, self.frames));
        }
        let output = coder.finish(p, latents, decoded);
        residency.leave(p, Role::Vae);
        p.release(output);
    }
}

/// What lives for the denoising stage, and what one step holds until the next replaces it.
struct Stage {
    throughout: List,
    input: List,
    /// The first prediction, and what guidance makes of both.
    prediction: List,
    second: List,
    tiles: List,
}

#[cfg(test)]
mod tests {
    use fv_spec::authored::{Dtype, Runtime};

    use super::super::geometry::Vae;
    use super::super::simulated::assert_recorded;
    use super::super::weights::Halves;
    use super::*;
    use crate::caching;
    use crate::program::{Model, Sampling};
    use crate::settings::{Component, Precision};

    fn dit(hidden: u64, ffn: u64, blocks: u64) -> Dit {
        Dit {
            hidden,
            ffn,
            heads: hidden / 128,
            blocks,
            patch: [1, 2, 2],
            in_channels: 16,
            out_channels: 16,
            text: 4096,
            image_branch: false,
            sparse_gate: false,
        }
    }

    fn wan(dit: Dit, dit2: Option<Dit>) -> Wan {
        let text = Encoder {
            parameters: 5_680_910_336,
            blocks: (24, 192_948_224),
            hidden: 4096,
            ffn: 10_240,
            heads: 64,
            head: 64,
            gated: true,
            tokens: 0,
            geometry: true,
            shared_bias: false,
            masked: true,
        };
        Wan { dit, dit2, vae: Vae::WAN21, halves: Halves::Decoder, text: Some(text), image: None }
    }

    /// FastVideo's defaults for Wan 2.1, all transformers placed as given.
    fn settings(transformer: Placement, vae: Placement) -> Settings {
        let plain =
            |dtype| Precision { stored: Storage::Plain(dtype), computed: dtype, autocast: false, cast_cache: false, keep_fp32: false };
        let components = Role::ALL.map(|role| {
            Some(match role {
                Role::Transformer | Role::Transformer2 => Component { placement: transformer, precision: plain(Dtype::Bf16) },
                Role::TextEncoder => Component { placement: Placement::Gathered, precision: plain(Dtype::Fp32) },
                Role::Vae => {
                    let precision = Precision { computed: Dtype::Bf16, autocast: true, cast_cache: true, ..plain(Dtype::Fp32) };
                    Component { placement: vae, precision }
                }
                _ => return None,
            })
        });
        Settings {
            runtime: Runtime::FastVideo,
            gpu_count: 1,
            tensor_parallel: 1,
            sequence_parallel: 1,
            shard: 1,
            components,
            attention: Attention::Sdpa,
            fused_rope: false,
            compile: false,
            feature_cache: true,
            tiling: None,
            vae_slicing: false,
            guidance: Guidance::Sequential,
            guidance_delta_kept: false,
            per_token_timesteps: false,
            pinned_rounding: true,
            pinned_host: true,
            allocator: caching::Config::default(),
            reported: Vec::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    const LAYERWISE: Placement = Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: true };

    fn request() -> Request {
        Request {
            height: 480,
            width: 832,
            num_frames: 81,
            batch: 1,
            guidance_scale: 3.0,
            num_inference_steps: 2,
            text_tokens: 60,
            references: 0,
        }
    }

    /// The highest sum of a stage, as the allocator counts it.
    fn stage_peak(lowered: &Lowered, model: &Model, stage: StageName) -> u64 {
        let run = lowered.program.run(model, Sampling::Ends);
        let of_stage = lowered.program.phases().iter().zip(&run.phases).filter(|(span, _)| span.stage == stage);
        of_stage.map(|(_, peak)| peak.allocated).max().unwrap_or(0)
    }

    fn host(lowered: &Lowered, stage: StageName) -> u64 {
        let at = StageName::ALL.iter().position(|s| *s == stage).expect("a stage");
        lowered.host[at].pinned_bytes
    }

    #[test]
    fn a_request_is_the_recorded_one() {
        let settings = settings(LAYERWISE, Placement::Resident);
        let lowered = lower(&wan(dit(1536, 8960, 30), None), &settings, &request(), false).expect("covered");
        let model = Model::Caching(settings.allocator.clone());
        // `peak_alloc` of the marks and stages of `a_request` in `tests/data/fastvideo/stages.json`.
        for (stage, recorded) in [
            (StageName::Load, 8_401_207_296),
            (StageName::Encoding, 8_788_438_016),
            (StageName::Denoising, 3_477_787_648),
            (StageName::Decoding, 8_606_618_624),
        ] {
            let found = stage_peak(&lowered, &model, stage);
            assert!(found.abs_diff(recorded) * 200 <= recorded, "{stage:?}: {found}, recorded {recorded}");
        }
        // What the page-locking allocator gave: powers of two.
        let (found, recorded) = (host(&lowered, StageName::Denoising), 35_706_724_352);
        assert!(found.abs_diff(recorded) * 1000 <= recorded, "{found}, recorded {recorded}");
    }

    #[test]
    fn a_forward_pass_with_layerwise_offload_is_the_recorded_one() {
        let (wan, settings) = (wan(dit(1536, 8960, 6), None), settings(LAYERWISE, Placement::Resident));
        let mut p = Builder::new(false);
        let mut residency = Residency::new(wan.weights(&settings), &settings, &mut p).expect("covered");
        let video = Video {
            wan: &wan,
            settings: &settings,
            latent: Latent::of(&wan.vae, 1, 81, 480, 832),
            frames: 81,
            height: 480,
            width: 832,
            with_image: false,
            text_element: FP32,
        };
        let forward = video.forward(wan.dit, Role::Transformer);
        let mut streams = residency.streams(&mut p, Role::Transformer);
        p.phase("weights_in");
        streams.prime(&mut p);
        let before = wan.dit.block_tensors().len().try_into().expect("few");
        forward.emit_with(&mut p, &mut streams, None);
        assert_recorded(&p.finish().expect("in range"), "dit1.3b_layerwise_480x832x81", before);
    }

    #[test]
    fn loading_takes_the_whole_transformer_from_the_allocator_too() {
        let settings = settings(LAYERWISE, Placement::Moved { pinned: false });
        let lowered = lower(&wan(dit(5120, 13_824, 40), None), &settings, &request(), false).expect("covered");
        // More than the loading of the text encoder has left in the cache.
        let run = lowered.program.run(&Model::Caching(settings.allocator.clone()), Sampling::Ends);
        let at = lowered.program.phases().iter().position(|span| span.stage == StageName::Load).expect("a phase");
        let weights = 2 * 14_288_491_584;
        assert!(run.phases[at].allocated >= weights && run.phases[at].allocated < weights + weights / 100, "{}", run.phases[at].allocated);
        assert!(run.phases[at].reserved >= weights, "{}", run.phases[at].reserved);
    }

    #[test]
    fn two_experts_are_swapped_or_leave_a_block_each() {
        let fourteen = dit(5120, 13_824, 40);
        let wan = wan(fourteen, Some(fourteen));
        let weights = 2 * 14_288_491_584;
        let peaks = |placement| {
            let lowered = lower(&wan, &settings(placement, Placement::Moved { pinned: false }), &request(), false).expect("covered");
            let run = lowered.program.run(&Model::TensorsOnly, Sampling::Ends);
            let phase = |name| {
                let at = lowered.program.phases().iter().position(|span| span.stage == StageName::Denoising && span.name == name);
                run.phases[at.expect("a phase")].allocated
            };
            let stage = |stage| stage_peak(&lowered, &Model::TensorsOnly, stage);
            [stage(StageName::Load), stage(StageName::Encoding), phase("self_attention"), stage(StageName::Decoding)]
        };
        // `dit_cpu_offload`: both are loaded onto the device, then one at a time works. The last stays for the decoding.
        let [load, encoding, denoising, decoding] = peaks(Placement::Moved { pinned: false });
        let (activations, gib) = (9_444_512_772, 1 << 30);
        assert!(load >= 2 * weights && encoding >= 2 * weights);
        assert!(denoising.abs_diff(weights + activations) < gib / 8, "{denoising}");
        assert!(decoding.abs_diff(weights + 7 * gib) < gib, "{decoding}");
        // Layerwise: both start whole, one after the other; then the non-block parameters and a block of each stay.
        let (block, others) = (2 * 351_394_304, 2 * 232_719_424);
        let [load, _, denoising, decoding] = peaks(LAYERWISE);
        assert_eq!(load, weights + others);
        assert!(denoising.abs_diff(2 * others + 3 * block + activations) < gib / 8, "{denoising}");
        assert!(decoding.abs_diff(2 * others + 2 * block + 7 * gib) < gib, "{decoding}");
    }

    #[test]
    fn sharded_weights_rest_in_parts_and_are_gathered_by_block() {
        let fourteen = dit(5120, 13_824, 40);
        let wan = wan(fourteen, None);
        let of_four = |placement| {
            let mut settings = settings(placement, Placement::Moved { pinned: false });
            (settings.gpu_count, settings.shard) = (4, 4);
            lower(&wan, &settings, &request(), false).expect("covered")
        };
        let weights = 2 * 14_288_491_584_u64;
        let resident = of_four(Placement::Resident);
        let alone = lower(&wan, &settings(Placement::Resident, Placement::Moved { pinned: false }), &request(), false).expect("covered");
        let peak = |lowered: &Lowered| stage_peak(lowered, &Model::TensorsOnly, StageName::Denoising);
        // A quarter, two blocks while one works, and what is outside the blocks.
        let (block, others) = (2 * 351_394_304, 2 * 232_719_424);
        assert_eq!(peak(&resident) - weights / 4 - 2 * block - others, peak(&alone) - weights);
        let offloaded = of_four(Placement::Gathered);
        assert_eq!(peak(&resident) - peak(&offloaded), weights / 4);
        assert!(host(&offloaded, StageName::Denoising) > host(&resident, StageName::Denoising) + weights / 4);
    }

    #[test]
    fn an_image_is_encoded_by_a_vae_that_then_leaves() {
        let dit = Dit { in_channels: 36, ..dit(5120, 13_824, 40) };
        let wan = Wan { halves: Halves::Both, ..wan(dit, None) };
        let request = Request { references: 1, ..request() };
        let lowered = lower(&wan, &settings(LAYERWISE, Placement::Resident), &request, false).expect("covered");
        let alive = |stage, phase| {
            let run = lowered.program.run(&Model::TensorsOnly, Sampling::Ends);
            let at = lowered.program.phases().iter().position(|span| span.stage == stage && span.name == phase).expect("a phase");
            run.phases[at].allocated
        };
        let vae = 4 * 126_892_531;
        // The VAE is there while text is encoded, and moved in again for the decoding.
        assert!(alive(StageName::Decoding, "move_in") >= vae);
        let outside = alive(StageName::Denoising, "model_input");
        assert!(outside < 3 * (2 * 232_719_424 + 2 * 351_394_304), "{outside}");
    }

    #[test]
    fn what_the_pipelines_cannot_do_is_said() {
        let wan = wan(dit(1536, 8960, 30), None);
        let reasons = |change: &dyn Fn(&mut Settings), request: Request| {
            let mut settings = settings(LAYERWISE, Placement::Resident);
            change(&mut settings);
            lower(&wan, &settings, &request, false).expect_err("not covered").into_iter().map(|reason| reason.code).collect::<Vec<_>>()
        };
        assert_eq!(reasons(&|_| (), Request { batch: 2, ..request() }), ["unsupported-batch"]);
        assert_eq!(reasons(&|s| s.guidance = Guidance::Batched, request()), ["uncovered-guidance"]);
        let parallel = |s: &mut Settings| (s.per_token_timesteps, s.sequence_parallel) = (true, 2);
        assert_eq!(reasons(&parallel, request()), ["unsupported-parallelism"]);
    }

    #[test]
    fn temporal_tiles_lose_three_frames() {
        let mut settings = settings(LAYERWISE, Placement::Resident);
        settings.feature_cache = false;
        settings.tiling = Some(crate::settings::Tiling { tile: [256; 2], stride: [192; 2], temporal: Some([16, 12]) });
        let lowered = lower(&wan(dit(1536, 8960, 30), None), &settings, &request(), false).expect("covered");
        assert!(lowered.notes.iter().any(|note| note.contains("78 of 81")), "{:?}", lowered.notes);
    }
}
