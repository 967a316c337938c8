//! What the rules read of a Mochi model, and its stored tensors in the order in which the classes declare them.
//!
//! Widths that every model of the family shares are the class defaults of diffusers 0.42.1 (`transformer_mochi.py`,
//! `autoencoder_kl_mochi.py`). A component whose parameters add up to another count is none of the family.

use fv_spec::authored::Role;
use fv_spec::compiled::ExpandedComponent;

use crate::modules::parameter::{Group, Parameter, Weights, plain};

/// Channels of the latent, of the transformer's input and of its prediction.
pub const LATENT_CHANNELS: u64 = 12;
/// Width of the prompt embeddings (`text_embed_dim`).
pub const TEXT: u64 = 4096;
/// Width of the text stream (`pooled_projection_dim`).
pub const TEXT_HIDDEN: u64 = 1536;
/// Width of the text stream's feed-forward layer: two thirds of four times its own, as the class rounds it.
pub const TEXT_FFN: u64 = 4 * TEXT_HIDDEN * 2 / 3;
/// Width of the sinusoidal features of the timestep.
pub const FREQUENCIES: u64 = 256;
/// Pixels of a side to one latent position.
pub const SPATIAL: u64 = 8;
/// Frames to one latent frame after the first.
pub const TEMPORAL: u64 = 6;

/// A Mochi transformer. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the video stream.
    pub hidden: u64,
    /// Width of its feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Rows and columns of a patch.
    pub patch: u64,
    /// Blocks, the last of which drops the text.
    pub blocks: u64,
}

fn linear(inputs: u64, outputs: u64) -> [Parameter; 2] {
    [plain(inputs * outputs), plain(outputs)]
}

impl Dit {
    /// Reads a transformer of the catalog. `Err` names what is missing or does not agree.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let number =
            |name: &str| geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("transformer geometry lacks {name}"));
        let patch = geometry.get("patch_size").and_then(serde_json::Value::as_array);
        let patch = patch.and_then(|sides| sides.last()?.as_u64()).ok_or("transformer geometry lacks patch_size")?;
        let groups = component.block_groups.as_deref().ok_or("the transformer has no groups of blocks")?;
        let dit = Self {
            hidden: number("hidden_size")?,
            ffn: number("ffn_size")?,
            heads: number("num_attention_heads")?.max(1),
            patch: patch.max(1),
            blocks: groups.iter().map(|group| group.count.get()).sum(),
        };
        let (sum, counted) = (dit.weights().parameters(), component.parameter_count.get());
        if sum != counted {
            return Err(format!("a transformer of {counted} parameters is not Mochi's, which has {sum}"));
        }
        Ok(dit)
    }

    /// The transformer as it is loaded.
    pub fn weights(&self) -> Weights {
        let groups = vec![
            Group { count: self.blocks.saturating_sub(1), block: self.block_tensors(false) },
            Group { count: 1, block: self.block_tensors(true) },
        ];
        Weights { role: Role::Transformer, groups, rest: self.other_tensors(), buffers: 0 }
    }

    /// The parameters of a block; the last has no output for the text.
    fn block_tensors(&self, drops_text: bool) -> Vec<Parameter> {
        let d = self.hidden;
        let mut list = linear(d, 4 * d).to_vec();
        list.extend(linear(d, if drops_text { TEXT_HIDDEN } else { 4 * TEXT_HIDDEN }));
        list.extend([plain(d / self.heads); 4]);
        list.extend([plain(d * d); 3]);
        list.extend([plain(TEXT_HIDDEN * d); 3]);
        list.extend(linear(d, d));
        if !drops_text {
            list.extend(linear(d, TEXT_HIDDEN));
        }
        list.extend([plain(2 * d * self.ffn), plain(self.ffn * d)]);
        if !drops_text {
            list.extend([plain(2 * TEXT_HIDDEN * TEXT_FFN), plain(TEXT_FFN * TEXT_HIDDEN)]);
        }
        list
    }

    /// The parameters outside the blocks.
    fn other_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let patch = LATENT_CHANNELS * self.patch * self.patch;
        let mut list = vec![plain(3 * d / 2)];
        let layers =
            [(patch, d), (FREQUENCIES, d), (d, d), (TEXT, 2 * TEXT), (TEXT, TEXT), (TEXT, d), (TEXT, TEXT_HIDDEN), (d, 2 * d), (d, patch)];
        for (inputs, outputs) in layers {
            list.extend(linear(inputs, outputs));
        }
        list
    }
}

/// A compressed video: extents of the latent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Videos.
    pub batch: u64,
    /// Latent frames.
    pub frames: u64,
    /// Latent rows.
    pub height: u64,
    /// Latent columns.
    pub width: u64,
}

impl Latent {
    /// The latent of a video of `frames` x `height` x `width` pixels.
    pub fn of(batch: u64, [height, width, frames]: [u64; 3]) -> Self {
        Self { batch, frames: frames.saturating_sub(1) / TEMPORAL + 1, height: height / SPATIAL, width: width / SPATIAL }
    }

    /// Named extents of its channels.
    pub fn dims(&self) -> [(&'static str, u64); 5] {
        let Self { batch, frames, height, width } = *self;
        [("batch", batch), ("channels", LATENT_CHANNELS), ("frames", frames), ("height", height), ("width", width)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mochi::vae::tensors;

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        let dit = Dit { hidden: 3072, ffn: 8192, heads: 24, patch: 2, blocks: 48 };
        let sum = |list: &[Parameter]| list.iter().map(|p| p.elements).sum::<u64>();
        let weights = dit.weights();
        assert_eq!(weights.parameters(), 10_027_677_744);
        assert_eq!(weights.groups.iter().map(|group| sum(&group.block)).collect::<Vec<_>>(), [207_641_600, 169_886_720]);
        assert_eq!(sum(&tensors()), 459_748_611);
    }
}
