//! The compiled catalog: versioned JSON, read by the estimator, the browser and the runner.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::authored::{
    Accumulate, Backend, BlockGroup, Component, DeviceKind, Dtype, Geometry, Memory, MemoryType, Pcie, ReferenceRun, Rules, Runtime, Source,
};
use crate::units::{Capacity, Count, Decimal, decimal, decimal_option};
use std::collections::BTreeMap;

#[cfg(feature = "schema")]
use crate::schema;
#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The version of every compiled file.
pub const VERSION: u32 = 1;

/// `index.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Index {
    /// Format version, 1.
    pub version: u32,
    /// Models with capacity facts, by id.
    pub models: Vec<ModelSummary>,
    /// Where the hardware is, relative to this file.
    pub hardware_url: String,
    /// Where the fitted coefficients are, relative to this file.
    pub rules_url: String,
}

/// One model in the index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ModelSummary {
    /// The manifest's key.
    pub id: String,
    /// The manifest's title.
    pub name: String,
    /// The baseline's `generator.model_path`.
    pub model_id: String,
    /// The model's file, relative to the index.
    pub path: String,
}

/// `hardware.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct HardwareFile {
    /// Format version, 1.
    pub version: u32,
    /// Devices by id.
    pub devices: Vec<Device>,
}

/// One device, with capacities normalised to decimal GB (10^9 bytes).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Device {
    /// The canonical id.
    pub id: String,
    /// The name people know it by.
    pub name: String,
    /// Its maker.
    pub vendor: String,
    /// What sort of device it is.
    pub kind: DeviceKind,
    /// Groups exact variants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// The variant within its family.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Board form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form_factor: Option<String>,
    /// GPUs that the record describes; their memory is never added together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
    /// `dedicated` or `unified`.
    pub memory_type: MemoryType,
    /// Nominal memory of one device in decimal GB.
    #[serde(serialize_with = "decimal")]
    pub memory_gb: f64,
    /// Documented usable memory in decimal GB.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    pub usable_memory_gb: Option<f64>,
    /// Host memory that is part of the product in decimal GB.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    pub host_memory_gb: Option<f64>,
    /// The memory section as authored, units included.
    pub memory: Memory,
    /// The software stack that drives it.
    pub backend: Backend,
    /// Whether it can be split into partitions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitionable: Option<bool>,
    /// Partitions with their own capacity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<DevicePartition>,
    /// Storage formats; absent means unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supported_dtypes: Option<Vec<Dtype>>,
    /// CUDA compute capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
    /// Memory bandwidth in decimal gigabytes a second.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    pub memory_bandwidth_gbps: Option<f64>,
    /// Dense matrix rates in TFLOP/s by operand and accumulator type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::DenseTflops>"))]
    pub dense_tflops: Option<BTreeMap<Dtype, BTreeMap<Accumulate, Decimal>>>,
    /// The PCI Express link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// Board power in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tdp_watts: Option<u32>,
    /// Earlier ids and search names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// A sentence for the reader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Where the facts come from.
    pub sources: Vec<Source>,
}

/// A partition of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct DevicePartition {
    /// Unique within the device.
    pub id: String,
    /// The name shown to people.
    pub label: String,
    /// The partition's capacity in decimal GB.
    #[serde(serialize_with = "decimal")]
    pub memory_gb: f64,
    /// The capacity as authored.
    pub memory: Capacity,
}

/// `models/<id>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Model {
    /// Format version, 1.
    pub version: u32,
    /// The manifest's key.
    pub id: String,
    /// The manifest's title.
    pub name: String,
    /// The baseline's `generator.model_path`.
    pub model_id: String,
    /// The family of memory rules.
    pub memory_rules: String,
    /// Expanded components by role.
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, ExpandedComponent>"))]
    pub components: ComponentMap,
    /// Deployments with their configuration.
    pub examples: Vec<Example>,
    /// Sources of facts that belong to this model alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<Source>,
    /// Completed generations.
    pub reference_runs: Vec<ReferenceRun>,
}

/// Components by role, in the order of [`crate::authored::Role::ALL`].
pub type ComponentMap = BTreeMap<crate::authored::Role, ExpandedComponent>;

/// A component with its reference resolved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ExpandedComponent {
    /// The component's id.
    #[serde(rename = "ref")]
    pub component: String,
    /// The name shown to people.
    pub name: String,
    /// Parameters of the module as loaded.
    pub parameter_count: Count,
    /// Like blocks in the module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_count: Option<Count>,
    /// Parameters of one block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_parameter_count: Option<Count>,
    /// Blocks of unlike kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_groups: Option<Vec<BlockGroup>>,
    /// What part is loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_subset: Option<String>,
    /// Allowance for decoder feature and cache buffers; absent stays absent.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "decimal_option")]
    pub decode_feature_multiplier: Option<f64>,
    /// Facts of the architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<schema::AnyGeometry>"))]
    pub geometry: Option<Geometry>,
    /// Where the facts come from.
    pub sources: Vec<Source>,
    /// Documented compatible choices in authored order; never selected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Self>,
}

impl From<&ExpandedComponent> for Component {
    /// The component as authored, without its id and alternatives.
    fn from(expanded: &ExpandedComponent) -> Self {
        let ExpandedComponent {
            component: _,
            name,
            parameter_count,
            block_count,
            block_parameter_count,
            block_groups,
            loaded_subset,
            decode_feature_multiplier,
            geometry,
            sources,
            alternatives: _,
        } = expanded.clone();
        Self {
            name,
            parameter_count,
            block_count,
            block_parameter_count,
            block_groups,
            loaded_subset,
            decode_feature_multiplier,
            geometry,
            sources,
        }
    }
}

/// One deployment of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Example {
    /// The deployment's id.
    pub id: String,
    /// The engine that serves it.
    pub runtime: Runtime,
    /// The baseline with the deployment's defaults merged over it; not resolved by the runtime.
    pub base_config: Map<String, Value>,
    /// The launch environment.
    #[cfg_attr(feature = "schema", schemars(with = "schema::Environment"))]
    pub env: Map<String, Value>,
    /// Roles that this deployment loads differently.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "std::collections::BTreeMap<String, ExpandedComponent>"))]
    pub components: ComponentMap,
}

/// `rules.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RulesFile {
    /// Format version, 1.
    pub version: u32,
    /// Fitted coefficients by id.
    pub coefficients: Rules,
}
