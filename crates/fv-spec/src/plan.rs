//! The execution plan: where each block of each component lives, how it reaches the device, what is computed in which pieces, and
//! why. JSON in `snake_case`, integers only. Sizes are bytes, times nanoseconds; both stay below 2^53.
//!
//! Nothing here assumes one model family, one transformer or one rank: residency and slots stand per component and rank
//! ([`Placement`]), compute settings per pass over the steps ([`Pass`]). What a policy has no figure for is left out.
//!
//! * [`reason`]: the codes that decisions, refusals and checks give as their reason.
//! * [`budget`]: capacities, reserves and budgets with where each number came from.
//! * [`forecast`]: how long it takes. [`refusal`]: why there is no plan, and what there could be one for.
//! * [`arena`]: the packed memory layout of our own runtime. [`answer`]: one plan explained, two plans compared.

pub mod answer;
pub mod arena;
pub mod budget;
pub mod forecast;
pub mod reason;
pub mod refusal;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::authored::{Role, Runtime};
pub use crate::estimate::{StageName, Tier};
pub use crate::program::Sampler;
pub use crate::questions::OutputEffect;
use budget::Budget;
pub use reason::ReasonCode;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The version of the plan format.
pub const VERSION: u32 = 1;

/// Numbers behind a decision, by name; names say the unit, such as `budget_bytes`.
pub type Numbers = BTreeMap<String, i64>;

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Format version: 1.
    pub version: u32,
    /// A digest of everything that decides the run. The forecast, the times of measurements and the revisions are no part of it.
    pub id: String,
    /// Whose rules decided.
    pub policy: PolicyName,
    /// The model's id in the catalog.
    pub model: String,
    /// The engine that the plan is for.
    pub runtime: Runtime,
    /// The machine, as far as it decides.
    pub system: SystemFacts,
    /// What is to be generated.
    pub request: PlanRequest,
    /// What memory may be used, one entry for each pool.
    pub budgets: Vec<Budget>,
    /// Whether the predicted peaks are within what they are held against.
    pub fit: Fit,
    /// Where weights live and how they move, by component and rank.
    pub placements: Vec<Placement>,
    /// Encoders, in the order in which they run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub encoders: Vec<Encoder>,
    /// Passes over the steps, in order: one, or two where a low-resolution pass comes first.
    pub passes: Vec<Pass>,
    /// What comes between two passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub two_pass: Option<TwoPass>,
    /// Decoders, in the order in which they run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub decoders: Vec<Decoder>,
    /// Predicted peaks. What is not known is absent.
    pub peaks: Vec<Peak>,
    /// Where each buffer lies, for runtimes that place buffers themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena: Option<arena::Arena>,
    /// How long it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<forecast::Forecast>,
    /// Why there is no figure for what the forecast lacks, or no forecast at all.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unforecast: Vec<crate::estimate::Reason>,
    /// Why each of the above, what the passes decide for themselves apart.
    pub decisions: Vec<Decision>,
    /// Remarks that decide nothing.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub notes: Vec<String>,
    /// Plans that took this one's place while it ran.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub plan_revisions: Vec<Revision>,
}

words! {
    /// Whose rules decide.
    PolicyName {
        /// The published adaptive rules for MiniMax H3.
        Freevideo "freevideo",
        /// The fastest plan that the simulator finds within the budgets.
        Optimal "optimal",
    }
}

words! {
    /// Where a fact came from.
    Source {
        /// From whoever asked.
        Given "given",
        /// Measured on the machine.
        Probed "probed",
        /// From a rule, since nobody said.
        Assumed "assumed",
        /// From the catalog's entry of the device or model.
        Catalog "catalog",
    }
}

/// A fact with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The fact.
    pub value: T,
    /// Where it came from.
    pub source: Source,
}

impl<T> Sourced<T> {
    /// A fact that whoever asked stated.
    pub fn given(value: T) -> Self {
        Self { value, source: Source::Given }
    }

    /// A fact that a rule supplied.
    pub fn assumed(value: T) -> Self {
        Self { value, source: Source::Assumed }
    }
}

words! {
    /// An operating system, as far as rules about memory differ.
    OperatingSystem {
        /// Linux, under WSL2 too.
        Linux "linux",
        /// Windows.
        Windows "windows",
        /// macOS.
        Macos "macos",
    }
}

words! {
    /// A generation of GPUs, as far as rules differ.
    Architecture {
        /// Compute capability 8.0 to 8.8.
        Ampere "ampere",
        /// 8.9.
        Ada "ada",
        /// 9.x.
        Hopper "hopper",
        /// 10.0 and 10.3.
        BlackwellDatacenter "blackwell-datacenter",
        /// 11.0.
        BlackwellTegra "blackwell-tegra",
        /// 12.1.
        BlackwellUnified "blackwell-unified",
        /// 12.x otherwise.
        BlackwellRtx "blackwell-rtx",
        /// Apple's own GPUs.
        Apple "apple",
        /// Any other that is not known to be too old.
        Other "other",
    }
}

words! {
    /// The format of the transformer's stored weights.
    Precision {
        /// Eight-bit integers.
        Int8 "int8",
        /// Eight-bit floating point.
        Fp8 "fp8",
        /// IEEE half precision.
        Fp16 "fp16",
        /// Brain floating point.
        Bf16 "bf16",
        /// IEEE single precision.
        Fp32 "fp32",
    }
}

words! {
    /// An attention implementation; the first five in the published order of preference.
    AttentionBackend {
        /// `SageAttention` 2.
        Sage2 "sage2",
        /// Flash attention as built into PyTorch.
        TorchFlash "torch-flash",
        /// cuDNN's.
        Cudnn "cudnn",
        /// `FlashAttention` 2.
        Fa2 "fa2",
        /// `FlashAttention` 4.
        Fa4 "fa4",
        /// Metal Performance Shaders.
        Mps "mps",
        /// Our own kernels.
        FvRun "fv-run",
    }
}

/// The machine, as far as it decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SystemFacts {
    /// Its operating system.
    pub os: Sourced<OperatingSystem>,
    /// The device's id in the catalog, or the name that its driver reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Devices that work on the request together.
    pub devices: u32,
    /// The GPU's generation.
    pub architecture: Sourced<Architecture>,
    /// CUDA compute capability, such as `9.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<Sourced<String>>,
    /// Whether it is a `GeForce` card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geforce: Option<Sourced<bool>>,
    /// The format of the transformer's weights.
    pub precision: Sourced<Precision>,
    /// Attention implementations that work, in the order of preference.
    pub attention_backends: Sourced<Vec<AttentionBackend>>,
}

/// What is to be generated. Sizes are pixels and counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// Pixel columns.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Frames a second, where the model has a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
    /// Frames that were asked for.
    pub requested_frames: u32,
    /// The duration that was asked for, where it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_ns: Option<u64>,
    /// Frames that are generated: the next legal number.
    pub frames: u32,
    /// Their latent frames.
    pub latent_frames: u32,
    /// Rows of the packed sequence that the video takes.
    pub video_tokens: u64,
    /// Steps of all passes.
    pub steps: u32,
    /// What is generated from what, in the runtime's own word, such as `t2va`.
    pub task: String,
    /// Rows of references' pictures and videos.
    pub reference_video_tokens: u64,
    /// Rows of references' sound.
    pub reference_audio_tokens: u64,
    /// Rows of text.
    pub text_tokens: Sourced<u64>,
    /// Adapters, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<Adapter>,
    /// How steps are taken, where the runtime is told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sampling: Option<Sampling>,
}

/// How steps are taken. Numbers that are no integers are in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// The sampler.
    pub sampler: Sampler,
    /// The flow's shift.
    pub shift_thousandths: u32,
    /// Timesteps, where the sampler does not derive them from the number of steps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timesteps: Vec<u32>,
    /// The guidance scale of each transformer; 1,000 is none.
    pub guidance_thousandths: Vec<u32>,
    /// Rows of the negative prompt, where there is guidance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negative_tokens: Option<u64>,
}

/// Low-rank adapters that are applied while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    /// The most that they add to one block.
    pub max_block_bytes: u64,
    /// What they have outside blocks.
    pub root_bytes: u64,
}

words! {
    /// Whether the predicted peaks are within what they are held against. What does not fit is refused, and gets no plan.
    Fit {
        /// They are.
        Fits "fits",
        /// The policy admits the request although a predicted peak is above its limit, or without a figure for it.
        Uncertain "uncertain",
    }
}

/// Where the weights of one component live, and how those that are not on the device get there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The component.
    pub component: Role,
    /// The rank that holds it.
    pub rank: u32,
    /// Its blocks.
    pub block_count: u32,
    /// Bytes of one, adapters included.
    pub block_bytes: u64,
    /// Where they live, run by run in the order in which they are computed; the counts add up to `block_count`.
    pub runs: Vec<BlockRun>,
    /// Places on the device that blocks are copied into: one to copy and compute in turn, two to copy ahead, none where nothing
    /// is copied.
    pub slots: u32,
    /// Page-locked bytes for blocks; whole blocks of it are used.
    pub pin_bytes: u64,
    /// Whether blocks that are neither on the device nor page-locked are read from disk each time.
    pub disk_streaming: bool,
    /// Page-locked places, each for one block, through which blocks on disk pass, where the runtime has such.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ring: Option<u32>,
}

/// Blocks next to each other that live in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockRun {
    /// Where.
    pub tier: Tier,
    /// How many.
    pub count: u32,
}

impl Placement {
    /// Where block `index` lives; nothing beyond the last one.
    pub fn tier_of(&self, index: u32) -> Option<Tier> {
        let mut end = 0_u64;
        self.runs.iter().find_map(|run| {
            end += u64::from(run.count);
            (u64::from(index) < end).then_some(run.tier)
        })
    }

    /// How many blocks live in `tier`.
    pub fn count(&self, tier: Tier) -> u64 {
        self.runs.iter().filter(|run| run.tier == tier).map(|run| u64::from(run.count)).sum()
    }
}

/// How an encoder runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// The component.
    pub component: Role,
    /// What it does.
    pub process: EncoderProcess,
    /// Host memory without which it is not started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_minimum_bytes: Option<u64>,
}

words! {
    /// Where an encoder runs.
    EncoderProcess {
        /// In a process of its own, which ends before the next component is loaded.
        Separate "separate",
        /// In the process that runs everything.
        Same "same",
        /// Not at all: its output is at hand.
        Skipped "skipped",
    }
}

/// One pass over sampling steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// `only`, `first` or `second`.
    pub name: String,
    /// Pixel columns of its canvas.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Rows of the packed sequence that the video takes.
    pub video_tokens: u64,
    /// Its steps.
    pub steps: u32,
    /// How it computes, by component: one entry for each transformer that it runs.
    pub compute: Vec<Compute>,
    /// Blocks that stay on the device once copied, in memory that this pass leaves free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_cache: Option<BlockCache>,
    /// What the pass decides for itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub decisions: Vec<Decision>,
}

/// Two passes: a first one on a smaller canvas, whose result is scaled up and refined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TwoPass {
    /// Steps of the first pass.
    pub base_steps: u32,
    /// Steps of the second.
    pub refine_steps: u32,
    /// The noise of the second pass has the seed of the first and this.
    pub restart_seed_offset: u32,
    /// How the first result gets its size; absent where both canvases are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upscale: Option<Upscale>,
}

/// A latent scaled up and cropped. Sizes are pixels of the video.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Upscale {
    /// Pixel columns after scaling.
    pub width: u32,
    /// Pixel rows.
    pub height: u32,
    /// Columns that are cut off on the left.
    pub crop_left: u32,
    /// Rows that are cut off at the top.
    pub crop_top: u32,
    /// Bytes of the checkpoint that scales.
    pub checkpoint_bytes: u64,
    /// Device memory that it is estimated to take, weights included.
    pub workspace_bytes: u64,
}

/// How one transformer computes in a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// The component.
    pub component: Role,
    /// How its matrix products are computed.
    pub gemm: GemmPath,
    /// Attention.
    pub attention: Attention,
    /// Attention heads that are computed together.
    pub head_group: u32,
    /// Groups of heads in flight at once.
    pub head_parallelism: u32,
    /// Whether attention outputs are collected in host memory.
    pub outputs_on_host: bool,
    /// Whether the residual stream is kept in host memory between layers.
    pub residual_on_host: bool,
    /// Whether the wide feed-forward activation is computed again in place of being kept.
    pub feed_forward_recompute: bool,
    /// Rows of the feed-forward layer at a time.
    pub feed_forward_chunk: u32,
    /// Rows of the attention projections at a time.
    pub projection_chunk: u32,
    /// Attention windows of equal shape that are computed together, where the model has windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_batch: Option<u32>,
    /// Slots of the component's placement that the pass uses.
    pub slots: u32,
    /// Keys and values of the text, where the model attends to it apart.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text_keys: Option<TextKeys>,
    /// Whether both predictions of guidance go through each block together, so that its weights are moved once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paired_guidance: Option<bool>,
}

words! {
    /// Keys and values of the text, which are the same in every step.
    TextKeys {
        /// Computed once, for all blocks.
        Kept "kept",
        /// Computed in each block of each step.
        Recomputed "recomputed",
    }
}

words! {
    /// How matrix products are computed.
    GemmPath {
        /// In int8: rotated activations with one scale for each row, weights with one for each channel.
        Int8PerRow "int8_per_row",
        /// In FP8 with one scale for each tensor.
        Fp8PerTensor "fp8_per_tensor",
        /// In FP8 with one scale for each channel.
        Fp8PerChannel "fp8_per_channel",
        /// In BF16, from stored eight-bit weights.
        Bf16WeightOnly "bf16_weight_only",
        /// In BF16.
        Bf16 "bf16",
    }
}

/// The attention implementations of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Attention {
    /// For attention over everything.
    pub global: AttentionBackend,
    /// For attention within windows, where the model has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<AttentionBackend>,
}

/// Blocks that stay on the device during one pass, on top of those that always do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockCache {
    /// The component.
    pub component: Role,
    /// Blocks on the device at most, those that always are included; absent where only measured memory limits them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_blocks: Option<u32>,
    /// Bytes for cached blocks that the plan's own figures leave after the pass's predicted peak and the margin. A run measures
    /// again after its first step.
    pub allowance_bytes: u64,
    /// Blocks on the device that this makes, those that always are included.
    pub predicted_blocks: u32,
    /// The part of free memory that is never used for the cache.
    pub margin_bytes: u64,
}

/// How a decoder runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub struct Decoder {
    /// The component.
    pub component: Role,
    /// Whether some blocks are copied to the device while it runs.
    pub offload: bool,
    /// Whether each block is copied once for all tiles of a clip, tiles being the inner loop.
    pub tile_group: bool,
    /// Whether weights are read before sampling ends.
    pub preload: bool,
    /// Whether blocks in host memory are page-locked.
    pub pin_weights: bool,
    /// Whether each decoded clip is written out at once, so that the whole video is never in memory.
    pub stream_output: bool,
    /// Whether linear weights are kept in FP16 beside FP32.
    pub half_precision_cache: bool,
    /// Clips along time that are decoded one after another.
    pub clips: u32,
    /// Latent frames that each clip sees.
    pub clip_latent_frames: u32,
    /// Tiles of one clip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tiles: Option<Tiles>,
    /// Frames of a level that go on to the next one together, where the runtime has levels.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub level_frames: Option<u32>,
}

/// Tiles that cover a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tiles {
    /// Tiles next to each other.
    pub columns: u32,
    /// Tiles below each other.
    pub rows: u32,
    /// Pixels of a tile's side.
    pub tile_pixels: u32,
    /// Pixels that neighbours share at least.
    pub overlap_pixels: u32,
}

/// A predicted peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// The stage.
    pub stage: StageName,
    /// The pass, where the stage has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pass: Option<String>,
    /// The memory.
    pub tier: Tier,
    /// The rank, where the memory is a device's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// What is counted.
    pub metric: PeakMetric,
    /// How much.
    pub bytes: u64,
    /// What the policy holds it against: the pool's budget, or its capacity.
    pub limit_bytes: u64,
    /// What the figure rests on.
    pub basis: ReasonCode,
}

words! {
    /// What a peak counts. Metrics are never compared with each other.
    PeakMetric {
        /// Tensors alive.
        Allocated "allocated",
        /// What the process holds, its allocator's unused part included.
        Reserved "reserved",
        /// What the whole device shows.
        Device "device",
        /// What the policy sets aside in host memory.
        Held "held",
    }
}

/// Why a setting has its value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// What was decided, such as `transformer.resident_blocks`.
    pub key: String,
    /// Its value: a whole number, a word, or true or false.
    pub value: Value,
    /// Why.
    pub reason: ReasonCode,
    /// The numbers that the reason compares.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub numbers: Numbers,
    /// What else was considered.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub alternatives: Vec<Alternative>,
    /// What the choice does to the output, compared with the reference way to compute it.
    pub output_effect: OutputEffect,
}

/// A value that lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The value.
    pub value: Value,
    /// Why it lost.
    pub reason: ReasonCode,
    /// The numbers that the reason compares.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub numbers: Numbers,
}

/// A plan that took the place of this one while it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Revision {
    /// The plan's id.
    pub id: String,
    /// The stage in which it took over.
    pub stage: StageName,
    /// Why.
    pub reason: ReasonCode,
}
