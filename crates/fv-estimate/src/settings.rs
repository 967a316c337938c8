//! Effective settings: what the engine really does, with the provenance of each value.
//!
//! A deployment's configuration, its environment, the runtime's defaults and what the user sets are resolved here, before
//! any memory rule applies. Rules read [`Settings`] alone and never a configuration file.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::estimate::{Reason, Setting};

use crate::caching;
use crate::storage::Storage;

/// Where a component's weights are while a request runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// On the device from load to the end.
    Resident,
    /// On the host, moved to the device as a whole for its stage and back.
    Moved {
        /// Whether the host copy is page-locked.
        pinned: bool,
    },
    /// Block by block: `resident` blocks stay, the others pass through; everything outside the blocks stays.
    Streamed {
        /// Blocks that never leave the device.
        resident: u32,
        /// Blocks fetched ahead of the one at work.
        prefetch: u32,
        /// Blocks handled as one unit.
        group: u32,
        /// Whether the host copy is page-locked.
        pinned: bool,
        /// Whether what is outside the blocks stays on the device between its uses.
        rest_resident: bool,
    },
    /// Module by module (leaf by leaf), nothing stays.
    Leaf {
        /// Whether the host copy is page-locked.
        pinned: bool,
    },
    /// Unit by unit gathered on the device (FSDP with host offload): one unit at a time, the largest twice while gathered.
    Gathered,
    /// Never on the device: computed on the host.
    Host,
}

/// How a component's weights are stored and computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// As stored on the device.
    pub stored: Storage,
    /// As computed with.
    pub computed: Dtype,
    /// Whether autocast chooses the type of each operation: norms are then in fp32.
    pub autocast: bool,
    /// Whether autocast keeps a copy of every weight in `computed` while the module runs.
    pub cast_cache: bool,
    /// Whether the modules that the class keeps in fp32 are kept so.
    pub keep_fp32: bool,
}

/// One component's execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Where its weights are.
    pub placement: Placement,
    /// In what precision.
    pub precision: Precision,
}

/// The attention kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attention {
    /// `scaled_dot_product_attention` as PyTorch chooses: flash or cuDNN, no score matrix.
    Sdpa,
    /// `FlashAttention` kernels.
    Flash,
    /// cuDNN's fused attention.
    Cudnn,
    /// The memory-efficient kernel.
    Efficient,
    /// Materialised scores.
    Math,
    /// Video sparse attention: padded tiles and a coarse branch.
    VideoSparse {
        /// Share of tiles left out, in thousandths: 800 for a sparsity of 0.8.
        sparsity_permille: u32,
        /// Tokens of one tile: 64 or 256.
        tile: u32,
    },
}

/// How the VAE's work is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiling {
    /// Tile height and width in output pixels.
    pub tile: [u32; 2],
    /// Distance between tiles in output pixels.
    pub stride: [u32; 2],
    /// Frames of a temporal tile and their stride, where time is tiled too.
    pub temporal: Option<[u32; 2]>,
}

/// How guidance is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guidance {
    /// One prediction a step.
    None,
    /// Two forwards one after the other.
    Sequential,
    /// One forward at twice the batch.
    Batched,
}

/// What the engine really does. Every public field has its entry in [`reported`](Self::reported).
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one switch of a runtime")]
pub struct Settings {
    /// The engine.
    pub runtime: Runtime,
    /// Devices taking part, one rank each.
    pub gpu_count: u32,
    /// Ranks that share each matrix.
    pub tensor_parallel: u32,
    /// Ranks that share the sequence.
    pub sequence_parallel: u32,
    /// Ranks over which FSDP shards the transformer's weights; 1: not sharded.
    pub shard: u32,
    /// By role, in the order of [`Role::ALL`]; `None` for roles that the model lacks.
    pub components: [Option<Component>; 7],
    /// The attention kernel of the transformer.
    pub attention: Attention,
    /// Whether the rotary embedding is applied by a fused kernel.
    pub fused_rope: bool,
    /// Whether the transformer is compiled.
    pub compile: bool,
    /// Whether the VAE keeps features of earlier frames and decodes frame by frame.
    pub feature_cache: bool,
    /// Tiling that is in effect; a setting that the chosen path ignores is not here.
    pub tiling: Option<Tiling>,
    /// One video of a batch at a time in the VAE.
    pub vae_slicing: bool,
    /// The guidance as the runtime runs it.
    pub guidance: Guidance,
    /// Whether the difference of the two predictions is kept from step to step: one more tensor of the latents' size.
    pub guidance_delta_kept: bool,
    /// Whether a timestep is given for each token (TI2V).
    pub per_token_timesteps: bool,
    /// Whether the host copies of weights are page-locked by the caching host allocator (rounded to powers of two).
    pub pinned_rounding: bool,
    /// Whether host copies that a stage gathers from are page-locked.
    pub pinned_host: bool,
    /// PyTorch's allocator settings.
    pub allocator: caching::Config,
    /// Every setting that was resolved, in order.
    pub reported: Vec<Setting>,
    /// Settings that could matter and are not modelled: each makes the result `unknown`.
    pub unknown: Vec<Reason>,
    /// Remarks for the reader, such as a setting without effect.
    pub notes: Vec<String>,
}

impl Settings {
    /// How the component in `role` is executed.
    pub fn component(&self, role: Role) -> Option<&Component> {
        Role::ALL.iter().position(|r| *r == role).and_then(|i| self.components[i].as_ref())
    }

    /// Whether the allocator's cache is emptied each time a layer's weights come or go: accelerate's sequential offload does.
    pub fn empties_cache(&self) -> bool {
        let sequential = |setting: &Setting| setting.key == "sequential_cpu_offload" && setting.value == serde_json::Value::Bool(true);
        self.runtime == Runtime::Diffusers && self.reported.iter().any(sequential)
    }
}
