//! What diffusers' pipelines have in common.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;

use super::FP32;
use super::maps::Map;
use super::residency::Residency;
use crate::program::{Builder, Dims, Site, Tensor, sites};
use crate::settings::{Attention, Settings};

sites! { "diffusers.pipeline":
    POSTPROCESSED "decoded video in [0, 1]" Output;
}

/// The components of a model that has these and no others, as `example` loads them.
///
/// # Errors
/// Which one is missing, or is not covered.
pub fn components<'a, const N: usize>(
    model: &'a Model,
    example: &'a Example,
    family: &str,
    roles: [Role; N],
) -> Result<[&'a ExpandedComponent; N], Vec<Reason>> {
    if let Some(other) = model.components.keys().chain(example.components.keys()).find(|role| !roles.contains(role)) {
        let text = format!("the rules for {family} do not cover a {}", other.word());
        return Err(vec![Reason::new("uncovered-component", text)]);
    }
    let component = |role: Role| example.components.get(&role).or_else(|| model.components.get(&role));
    let found: Vec<&ExpandedComponent> = roles.iter().filter_map(|role| component(*role)).collect();
    found.try_into().map_err(|_| {
        let missing = roles.iter().find(|role| component(**role).is_none());
        vec![Reason::new("missing-component", format!("the model has no {}", missing.map_or("component", |role| role.word())))]
    })
}

/// What the rules of these pipelines leave out: another number of images than `images`, and attention with materialised scores.
pub fn uncovered(residency: &mut Residency<'_>, settings: &Settings, request: &Request, family: &str, images: u32) {
    if request.references != images {
        let text = format!("no rule covers this model of {family} with {} images instead of {images}", request.references);
        residency.uncovered(Reason::new("uncovered-request", text));
    }
    if settings.attention == Attention::Math {
        let text = format!("no rule covers {family} with attention that keeps its scores");
        residency.uncovered(Reason::new("uncovered-attention", text));
    }
}

/// One of a model's components, as `example` loads it.
///
/// # Errors
/// That it is missing.
pub fn component<'a>(model: &'a Model, example: &'a Example, role: Role) -> Result<&'a ExpandedComponent, Vec<Reason>> {
    let found = example.components.get(&role).or_else(|| model.components.get(&role));
    found.ok_or_else(|| vec![Reason::new("missing-component", format!("the model has no {}", role.word()))])
}

/// A batch decoded one video after the other (`enable_slicing`), all kept until they are put together as `video`.
pub fn in_slices(p: &mut Builder, (site, video): (&'static Site, Map), decode: impl FnOnce(&mut Builder) -> Tensor) -> Tensor {
    let videos = p.list();
    p.repeat(video.batch, |p| {
        let one = decode(p);
        p.keep(videos, one);
    });
    p.phase("decode_output");
    let joined = video.alloc(p, site);
    p.release_list(videos);
    joined
}

/// What guidance takes in a pipeline that predicts both branches at once.
#[derive(Debug, Clone, Copy)]
pub struct Guided<'a> {
    /// The prediction in fp32, and what of it is guided.
    pub sites: [&'static Site; 2],
    /// Extents of a prediction of all branches.
    pub all: Dims<'a>,
    /// Extents of that of one branch.
    pub one: Dims<'a>,
    /// Of the step before: the prediction of all branches, and the guided one where there are two.
    pub before: (Tensor, Option<Tensor>),
}

impl Guided<'_> {
    /// A prediction of `act` bytes a value is widened; of two branches the difference is scaled and added to one. Both take the
    /// places of those of the step before.
    pub fn step(self, p: &mut Builder, predicted: Tensor, act: u64) {
        let Self { sites: [prediction, guided], all, one, before: (last, combined) } = self;
        p.phase("guidance");
        let wide = if act == FP32 {
            predicted
        } else {
            let wide = p.alloc(prediction, all, FP32);
            p.release(predicted);
            wide
        };
        p.replace(last, wide);
        if let Some(combined) = combined {
            let difference = p.alloc(guided, one, FP32);
            let scaled = p.alloc(guided, one, FP32);
            p.release(difference);
            let sum = p.alloc(guided, one, FP32);
            p.release(scaled);
            p.replace(combined, sum);
        }
    }
}

/// `VideoProcessor.postprocess_video`: one video at a time is halved, moved and cut off, each a new tensor.
pub fn postprocess(p: &mut Builder, video: Map) {
    p.phase("postprocess");
    let one = Map { batch: 1, ..video };
    let halved = one.alloc(p, &POSTPROCESSED);
    let moved = one.alloc(p, &POSTPROCESSED);
    p.release(halved);
    let clamped = one.alloc(p, &POSTPROCESSED);
    p.release(moved);
    p.release(clamped);
}

/// Requests as the recorded pipelines of `tests/data/families` ran them, for tests.
#[cfg(test)]
pub(crate) mod testing {
    use fv_spec::authored::{Dtype, Role, Runtime};
    use fv_spec::request::Request;

    use crate::caching;
    use crate::family::Lowered;
    use crate::modules::encoder::Encoder;
    use crate::program::{Model, Sampling};
    use crate::settings::{Attention, Component, Guidance, Placement, Precision, Settings, Tiling};
    use crate::storage::Storage;

    /// T5-XXL with two of its blocks.
    pub(crate) fn text() -> Encoder {
        Encoder {
            parameters: 517_494_784,
            blocks: (2, 192_946_176),
            hidden: 4096,
            ffn: 10_240,
            heads: 64,
            head: 64,
            gated: true,
            tokens: 0,
            geometry: true,
            shared_bias: true,
            masked: false,
        }
    }

    /// bf16 throughout, everything resident or moved in and out.
    fn settings(moved: bool, tiling: Option<Tiling>) -> Settings {
        let plain = Storage::Plain(Dtype::Bf16);
        let precision = Precision { stored: plain, computed: Dtype::Bf16, autocast: false, cast_cache: false, keep_fp32: false };
        let placement = if moved { Placement::Moved { pinned: false } } else { Placement::Resident };
        Settings {
            runtime: Runtime::Diffusers,
            gpu_count: 1,
            tensor_parallel: 1,
            sequence_parallel: 1,
            shard: 1,
            components: Role::ALL.map(|_| Some(Component { placement, precision })),
            attention: Attention::Cudnn,
            fused_rope: false,
            compile: false,
            feature_cache: true,
            tiling,
            vae_slicing: false,
            guidance: Guidance::Batched,
            guidance_delta_kept: false,
            per_token_timesteps: false,
            pinned_rounding: false,
            pinned_host: false,
            allocator: caching::Config::default(),
            reported: Vec::new(),
            unknown: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Whether the peaks of every stage but loading lie within so many thousandths of the recorded ones: peaks of the first call
    /// from the first mark of a stage to the last.
    pub(crate) fn check(
        [height, width, num_frames]: [u32; 3],
        (text_tokens, references): (u32, u32),
        (moved, tiling): (bool, Option<Tiling>),
        recorded: [u64; 3],
        thousandths: u64,
        lower: impl FnOnce(&Settings, &Request) -> Lowered,
    ) {
        let request = Request { height, width, num_frames, batch: 1, guidance_scale: 5.0, num_inference_steps: 3, text_tokens, references };
        let lowered = lower(&settings(moved, tiling), &request);
        assert!(lowered.uncovered.is_empty(), "{:?}", lowered.uncovered);
        let run = lowered.program.run(&Model::Caching(caching::Config::default()), Sampling::Ends);
        let mut found = [0; 4];
        for (span, peak) in lowered.program.phases().iter().zip(&run.phases) {
            let stage = span.stage as usize;
            found[stage] = peak.allocated.max(found[stage]);
        }
        for (found, recorded) in found[1..].iter().zip(recorded) {
            assert!(found.abs_diff(recorded) * 1000 <= recorded * thousandths, "{found} derived, {recorded} recorded");
        }
    }
}
