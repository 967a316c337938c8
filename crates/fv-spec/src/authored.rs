//! The authored manifests: hardware, components, models with their deployments and evidence.
//!
//! Unknown fields are errors everywhere except inside serving configurations, which are free-form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    family::ComponentType,
    units::{Capacity, Count, Decimal, ReportedMemory, decimal_option},
};

#[cfg(feature = "schema")]
use crate::schema;
#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// Where a fact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// An HTTP(S) address that anybody can open.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::URL)))]
    pub url: String,
    /// The day, `YYYY-MM-DD`, on which somebody compared the figures with this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date")))]
    pub checked: Option<String>,
    /// `true`, in place of `checked`, for an address whose text could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("const" = true)))]
    pub unread: Option<bool>,
    /// What kind of text it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SourceKind>,
    /// What it establishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub note: Option<String>,
}

/// What kind of text a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// The maker of the device or model.
    Vendor,
    /// A checkpoint's own files.
    Checkpoint,
    /// Code that loads or implements it.
    Implementation,
    /// Somebody else who publishes the figure.
    Secondary,
    /// The defaults of a library's class, not verified against a checkpoint.
    ClassDefault,
}

/// One variant of a device in `hardware.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// The name people know it by.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub name: String,
    /// Its maker, in lower case.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub vendor: String,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// Groups exact variants; comes together with `variant`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub family: Option<String>,
    /// The variant within its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub variant: Option<String>,
    /// Board form, such as `sxm`, `pcie`, `oam`, `laptop` or `module`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub form_factor: Option<String>,
    /// GPUs that the record describes; their memory is never added together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 1024)))]
    pub gpu_count: Option<u32>,
    /// Memory of one device.
    pub memory: Memory,
    /// Host memory that is part of the product, apart from dedicated memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Capacity>,
    /// The software stack that drives it.
    pub backend: Backend,
    /// Whether it can be split into partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitionable: Option<bool>,
    /// Partitions that can be provisioned; each has its own capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub partitions: Option<Vec<Partition>>,
    /// Storage formats that the hardware handles; says nothing about kernels. Left out means unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1, "uniqueItems" = true)))]
    pub supported_dtypes: Option<Vec<Dtype>>,
    /// CUDA compute capability, quoted: `"9.0"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = r"^[1-9][0-9]?\.[0-9]$")))]
    pub compute_capability: Option<String>,
    /// Memory bandwidth in decimal gigabytes a second.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000)))]
    pub memory_bandwidth_gbps: Option<f64>,
    /// Dense matrix rates in TFLOP/s (TOP/s for integers), by operand type, then by accumulator type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::DenseTflops>"))]
    pub dense_tflops: Option<BTreeMap<Dtype, BTreeMap<Accumulate, Decimal>>>,
    /// The PCI Express link of the board.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// Board power in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 100_000)))]
    pub tdp_watts: Option<u32>,
    /// Earlier ids and search names; none equals another id or alias.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("uniqueItems" = true), inner(length(min = 1))))]
    pub aliases: Option<Vec<String>>,
    /// One sentence that a reader of the entry needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub notes: Option<String>,
    /// At least one source of the vendor's own.
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub sources: Vec<Source>,
}

/// What sort of device a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum DeviceKind {
    Gpu,
    Apu,
    Soc,
    Superchip,
    Accelerator,
}

/// The software stack that drives a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum Backend {
    Cuda,
    Rocm,
    Xpu,
    Mps,
    Musa,
    Npu,
}

/// Formats a weight or activation may be stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum Dtype {
    Fp32,
    Fp16,
    Bf16,
    Fp8,
    Int8,
    Nvfp4,
}

/// Types a matrix unit may accumulate in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum Accumulate {
    Fp32,
    Fp16,
    Int32,
}

/// A device's memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// `dedicated` for discrete memory, `unified` for memory shared with the processor.
    #[serde(rename = "type")]
    pub kind: MemoryType,
    /// The vendor's figure in the vendor's unit.
    pub nominal: Capacity,
    /// The total that a driver was seen to report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<ReportedMemory>,
    /// What an application may use, where a documented policy derives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable: Option<Capacity>,
    /// The policy behind `usable`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub policy: Option<String>,
}

/// Whether memory belongs to the device alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MemoryType {
    /// Discrete device memory.
    Dedicated,
    /// One pool for processor and device.
    Unified,
}

/// A MIG, vGPU or compute partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// Unique within the device.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::PARTITION_ID)))]
    pub id: String,
    /// The name shown to people.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub label: String,
    /// The partition's own capacity.
    pub memory: Capacity,
}

/// A PCI Express link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// PCI Express generation.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 8)))]
    pub generation: u8,
    /// Lanes of the link.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = [1, 2, 4, 8, 16, 32])))]
    pub lanes: u8,
}

/// A shared component: one loaded module, without any execution setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// The name shown to people.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub name: String,
    /// Parameters of the module as loaded; shared storage counts once.
    pub parameter_count: Count,
    /// Like blocks in the module; comes together with `block_parameter_count`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_count: Option<Count>,
    /// Parameters of one block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_parameter_count: Option<Count>,
    /// In place of the pair, for modules whose blocks are not alike.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub block_groups: Option<Vec<BlockGroup>>,
    /// What part is loaded, where that is not the whole module.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub loaded_subset: Option<String>,
    /// VAE only: allowance for decoder feature and cache buffers, in decoder-width images. A heuristic.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000)))]
    pub decode_feature_multiplier: Option<f64>,
    /// Facts of the architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::AnyGeometry>"))]
    pub geometry: Option<Geometry>,
    /// Where counts and geometry come from.
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub sources: Vec<Source>,
}

/// Blocks of one kind in a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct BlockGroup {
    /// Unique within the component.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub name: String,
    /// Blocks in the group.
    pub count: Count,
    /// Parameters of one block.
    pub parameter_count: Count,
}

/// Geometry by field name, in authored order; [`crate::family`] lists the fields.
pub type Geometry = Map<String, Value>;

/// A role that a component plays in a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are the definition")]
pub enum Role {
    Transformer,
    #[serde(rename = "transformer_2")]
    Transformer2,
    TextEncoder,
    #[serde(rename = "text_encoder_2")]
    TextEncoder2,
    ImageEncoder,
    Vae,
    AudioVae,
}

impl Role {
    /// All roles, in the order in which people read them.
    pub const ALL: [Self; 7] =
        [Self::Transformer, Self::Transformer2, Self::TextEncoder, Self::TextEncoder2, Self::ImageEncoder, Self::Vae, Self::AudioVae];

    /// The role as written in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Transformer => "transformer",
            Self::Transformer2 => "transformer_2",
            Self::TextEncoder => "text_encoder",
            Self::TextEncoder2 => "text_encoder_2",
            Self::ImageEncoder => "image_encoder",
            Self::Vae => "vae",
            Self::AudioVae => "audio_vae",
        }
    }

    /// The type of component that the role takes.
    pub fn component_type(self) -> ComponentType {
        match self {
            Self::Transformer | Self::Transformer2 => ComponentType::Transformer,
            Self::TextEncoder | Self::TextEncoder2 | Self::ImageEncoder => ComponentType::Encoder,
            Self::Vae | Self::AudioVae => ComponentType::Vae,
        }
    }
}

/// A model manifest, `models/<key>.yaml`. The key is the model's id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The model's name.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub title: String,
    /// A serving configuration; free-form except for `generator.model_path` and the GPU count.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Baseline"))]
    pub baseline: Map<String, Value>,
    /// Named serving configurations; the first is the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployments: Vec<Deployment>,
    /// Capacity facts; a manifest without them is still valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacitySection>,
}

/// A named serving configuration of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    /// Unique within the model.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub id: String,
    /// The engine that serves it.
    pub runtime: Runtime,
    /// Merged over `baseline`: mappings merge, lists and scalars replace.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::FreeForm"))]
    pub defaults: Map<String, Value>,
    /// The launch environment.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Environment"))]
    pub env: Map<String, Value>,
    /// Overrides a role where this runtime loads another subset.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::Components"))]
    pub components: BTreeMap<Role, ComponentUse>,
}

/// The engine whose behaviour is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// FastVideo.
    #[serde(rename = "fastvideo")]
    FastVideo,
    /// Hugging Face diffusers.
    Diffusers,
    /// FreeVideo.
    #[serde(rename = "freevideo")]
    FreeVideo,
    /// This project's own runner.
    FvRun,
}

impl Runtime {
    /// The runtime as written in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::FastVideo => "fastvideo",
            Self::Diffusers => "diffusers",
            Self::FreeVideo => "freevideo",
            Self::FvRun => "fv-run",
        }
    }
}

/// The `capacity` section of a model manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CapacitySection {
    /// The family of memory rules; it does not by itself say that a rule covers the model.
    #[cfg_attr(feature = "schema", schemars(with = "schema::FamilyId"))]
    pub memory_rules: String,
    /// Shared components by role.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Components", extend("minProperties" = 1)))]
    pub components: BTreeMap<Role, ComponentUse>,
    /// Sources of facts that belong to this model alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Completed generations.
    #[serde(default)]
    pub reference_runs: Vec<ReferenceRun>,
}

/// The component that plays a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ComponentUse {
    /// A component of the role's type.
    #[serde(rename = "ref")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub component: String,
    /// Documented compatible choices; never selected, exported in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("uniqueItems" = true)))]
    pub alternatives: Vec<String>,
}

/// One completed generation with its full context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReferenceRun {
    /// Unique within the model.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub id: String,
    /// The day of the run, `YYYY-MM-DD`.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date")))]
    pub date: String,
    /// A hardware id of the catalog.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub hardware: String,
    /// Devices that took part.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 4096)))]
    pub gpu_count: u32,
    /// A partition of that hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub hardware_partition: Option<String>,
    /// The provisioned allocation in decimal GB.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000)))]
    pub hardware_allocation_gb: Option<f64>,
    /// Only completed generations are evidence.
    pub outcome: Outcome,
    /// Whether anything had run before in the process.
    pub execution: Execution,
    /// Logs or a benchmark that anybody can open.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::URL)))]
    pub evidence_url: Option<String>,
    /// In place of `evidence_url`: a file of this repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub evidence_path: Option<String>,
    /// The SHA-256 of `evidence_path`, in lower-case hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^[0-9a-f]{64}$")))]
    pub evidence_sha256: Option<String>,
    /// Everything that decided what ran.
    pub context: RunContext,
    /// Measured peaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<RunMemory>,
    /// `fv-run` only: peaks of the planned arena, never compared with `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_peaks: Option<PlanPeaks>,
}

/// A file for `fv-catalog add-run`: a reference run and the model it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunFile {
    /// The key of the manifest.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = schema::ID)))]
    pub model: String,
    /// The run, as it will stand in `capacity.reference_runs`.
    pub run: ReferenceRun,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The generation finished and its output was kept.
    Completed,
}

/// Whether the request was the first of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// The first request after start-up.
    FirstRequest,
    /// A later request.
    WarmRequest,
}

/// The context of a reference run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunContext {
    /// The serving runtime.
    pub runtime: Runtime,
    /// The deployment of this model that was used.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub deployment: String,
    /// Immutable revisions of code and weights.
    pub revisions: Revisions,
    /// The complete effective serving configuration.
    #[cfg_attr(feature = "schema", schemars(with = "schema::FreeForm"))]
    pub config: Map<String, Value>,
    /// The normalised request.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Request"))]
    pub request: Map<String, Value>,
    /// The complete launch environment; `{}` when none was set.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Environment"))]
    pub env: Map<String, Value>,
    /// `checkpoint`, or `synthetic:SEED` for random weights. Required for `fv-run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = "^(checkpoint|synthetic:[0-9]+)$")))]
    pub weights: Option<String>,
}

/// Revisions of what ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Revisions {
    /// The FastVideo revision, for that runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub fastvideo: Option<String>,
    /// The runtime's revision, for every other runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub runtime: Option<String>,
    /// The checkpoint's revision.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub model: String,
    /// Revisions of components that were replaced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::RoleRevisions"))]
    pub components: BTreeMap<Role, String>,
}

/// Measured memory of a reference run, in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunMemory {
    /// What was measured.
    pub metric: Metric,
    /// What the metric covers; must match it.
    pub scope: Scope,
    /// Always `GiB`.
    pub unit: GibUnit,
    /// One entry for each rank from 0 to `gpu_count` - 1.
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub per_gpu: Vec<RankPeaks>,
}

/// A metric of memory; different metrics are never compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Tensors that the PyTorch caching allocator handed out.
    TorchPeakAllocated,
    /// Bytes that the PyTorch caching allocator held.
    TorchPeakReserved,
    /// What the whole device showed.
    DeviceUsed,
}

impl Metric {
    /// The metric as written in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::TorchPeakAllocated => "torch_peak_allocated",
            Self::TorchPeakReserved => "torch_peak_reserved",
            Self::DeviceUsed => "device_used",
        }
    }

    /// The only scope that the metric can have.
    pub fn scope(self) -> Scope {
        match self {
            Self::TorchPeakAllocated | Self::TorchPeakReserved => Scope::Allocator,
            Self::DeviceUsed => Scope::Device,
        }
    }
}

/// What a metric covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The allocator of one process; contexts and other processes are outside.
    Allocator,
    /// The whole device.
    Device,
}

impl Scope {
    /// The scope as written in files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allocator => "allocator",
            Self::Device => "device",
        }
    }
}

/// The unit of measured memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub enum GibUnit {
    /// 2^30 bytes.
    #[serde(rename = "GiB")]
    Gib,
}

/// Peaks of one rank in GiB.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RankPeaks {
    /// The rank, from 0.
    #[cfg_attr(feature = "schema", schemars(extend("maximum" = 4095)))]
    pub rank: u32,
    /// The peak of the whole request.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000)))]
    pub request_peak: f64,
    /// The peak of start-up and loading, measured apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000_000)))]
    pub startup_peak: Option<f64>,
    /// Peaks by stage; none exceeds `request_peak`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "schema::StagePeaks"))]
    pub stages: BTreeMap<String, f64>,
}

/// Peaks of the planned arena of `fv-run`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PlanPeaks {
    /// Always `GiB`.
    pub unit: GibUnit,
    /// One entry for each rank.
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub per_gpu: Vec<RankPeaks>,
}

/// A file of fitted coefficients, `rules/<name>.yaml`, by coefficient id.
pub type Rules = BTreeMap<String, Coefficient>;

/// One fitted coefficient of a memory or time rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Coefficient {
    /// The fitted value.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = -1e18, "maximum" = 1e18)))]
    pub value: f64,
    /// The unit of the value.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub unit: String,
    /// The rule that uses it.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub rule: String,
    /// The runtime it was fitted for.
    pub runtime: Runtime,
    /// The metric it was fitted to.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub metric: String,
    /// The range of each input that the data covers: lowest and highest value.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Ranges"))]
    pub range: BTreeMap<String, [f64; 2]>,
    /// Identifiers of the measured rows it was fitted to.
    #[cfg_attr(feature = "schema", schemars(extend("minItems" = 1)))]
    pub source_rows: Vec<String>,
    /// The day of the fit, `YYYY-MM-DD`.
    #[cfg_attr(feature = "schema", schemars(extend("format" = "date")))]
    pub date: String,
    /// Largest relative error when each row in turn is left out; absent when it could not be computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0, "maximum" = 1e6)))]
    pub leave_one_out_error: Option<f64>,
}

/// `coverage.yaml`: what is next and what is deliberately left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// Devices.
    pub hardware: CoverageList,
    /// Models.
    pub models: CoverageList,
}

/// One half of the coverage checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CoverageList {
    /// Wanted, with what is missing.
    pub next: Vec<CoverageItem>,
    /// Left out on purpose, with the reason.
    pub excluded: Vec<CoverageItem>,
}

/// Something that the catalog does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CoverageItem {
    /// What it is.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub name: String,
    /// Why it is not there.
    #[cfg_attr(feature = "schema", schemars(extend("minLength" = 1)))]
    pub reason: String,
}
