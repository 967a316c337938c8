//! How products and attention are computed.

use fv_spec::plan::{Architecture, AttentionBackend, GemmPath, Precision};

use super::facts::Facts;

/// Whether FP8 has one scale for each tensor: from compute capability 10 on, which every generation without a name here has.
fn per_tensor(architecture: Architecture) -> bool {
    !matches!(architecture, Architecture::Ampere | Architecture::Ada | Architecture::Hopper)
}

/// The path of the stored weights on the card.
pub(super) fn gemm(facts: &Facts) -> GemmPath {
    match facts.precision {
        Precision::Int8 => GemmPath::Int8PerRow,
        _ if facts.ampere_bf16() => GemmPath::Bf16WeightOnly,
        _ if per_tensor(facts.architecture) => GemmPath::Fp8PerTensor,
        _ => GemmPath::Fp8PerChannel,
    }
}

/// Whether the path keeps the wide feed-forward activation until its largest value is known, so that computing it again saves
/// memory.
pub(super) fn keeps_wide_activation(facts: &Facts) -> bool {
    gemm(facts) == GemmPath::Fp8PerTensor
}

/// Attention implementations in the published order of preference.
pub const BACKENDS: [AttentionBackend; 5] =
    [AttentionBackend::Sage2, AttentionBackend::TorchFlash, AttentionBackend::Cudnn, AttentionBackend::Fa2, AttentionBackend::Fa4];
