//! What the rules read of a HunyuanVideo model, and its stored tensors in the order in which the classes declare them.
//!
//! Widths that every model of the family shares are the class defaults of diffusers 0.42.1 (`transformer_hunyuan_video.py`,
//! `autoencoder_kl_hunyuan_video.py`). A component whose parameters add up to another count is none of the family.

use fv_spec::authored::Role;
use fv_spec::compiled::ExpandedComponent;

use crate::modules::parameter::{Group, Parameter, Weights, plain};

/// Channels of the latent, of the transformer's input and of its prediction.
pub const LATENT_CHANNELS: u64 = 16;
/// Width of the prompt embeddings (`text_embed_dim`).
pub const TEXT: u64 = 4096;
/// Width of the pooled prompt embedding (`pooled_projection_dim`).
pub const POOLED: u64 = 768;
/// Width of the sinusoidal features of timestep and guidance.
pub const FREQUENCIES: u64 = 256;
/// Blocks of the text refiner (`num_refiner_layers`).
pub const REFINERS: u64 = 2;
/// Pixels of a side to one latent position.
pub const SPATIAL: u64 = 8;
/// Frames to one latent frame after the first.
pub const TEMPORAL: u64 = 4;

/// A HunyuanVideo transformer. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the residual streams.
    pub hidden: u64,
    /// Width of the feed-forward layers.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Rows and columns of a patch.
    pub patch: u64,
    /// Blocks with a stream each for video and text.
    pub dual: u64,
    /// Blocks over both together.
    pub single: u64,
}

/// Weight and bias of a linear layer.
fn linear(inputs: u64, outputs: u64) -> [Parameter; 2] {
    [plain(inputs * outputs), plain(outputs)]
}

/// A linear layer, an activation and another.
fn two(inputs: u64, middle: u64, outputs: u64) -> [Parameter; 4] {
    let ([a, b], [c, d]) = (linear(inputs, middle), linear(middle, outputs));
    [a, b, c, d]
}

impl Dit {
    /// Reads a transformer of the catalog. `Err` names what is missing or does not agree.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let number =
            |name: &str| geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("transformer geometry lacks {name}"));
        let group = |name: &str| {
            let found = component.block_groups.iter().flatten().find(|group| group.name == name);
            found.map(|group| group.count.get()).ok_or(format!("the transformer has no blocks called {name}"))
        };
        let patch = geometry.get("patch_size").and_then(serde_json::Value::as_array);
        let patch = patch.and_then(|sides| sides.last()?.as_u64()).ok_or("transformer geometry lacks patch_size")?;
        let dit = Self {
            hidden: number("hidden_size")?,
            ffn: number("ffn_size")?,
            heads: number("num_attention_heads")?.max(1),
            patch: patch.max(1),
            dual: group("double")?,
            single: group("single")?,
        };
        let (sum, counted) = (dit.weights().parameters(), component.parameter_count.get());
        if sum != counted {
            return Err(format!("a transformer of {counted} parameters is not HunyuanVideo's for text to video, which has {sum}"));
        }
        Ok(dit)
    }

    fn head(&self) -> u64 {
        self.hidden / self.heads
    }

    /// The transformer as it is loaded.
    pub fn weights(&self) -> Weights {
        let groups =
            vec![Group { count: self.dual, block: self.dual_tensors() }, Group { count: self.single, block: self.single_tensors() }];
        Weights { role: Role::Transformer, groups, rest: self.other_tensors(), buffers: 0 }
    }

    /// The parameters of a block with two streams.
    fn dual_tensors(&self) -> Vec<Parameter> {
        let (d, head) = (self.hidden, self.head());
        let mut list = Vec::new();
        list.extend([linear(d, 6 * d); 2].concat());
        list.extend([plain(head); 2]);
        // Query, key and value, the same of the text, both outputs.
        list.extend([linear(d, d); 8].concat());
        list.extend([plain(head); 2]);
        list.extend([two(d, self.ffn, d); 2].concat());
        list
    }

    /// The parameters of a block over both streams.
    fn single_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let mut list = vec![plain(self.head()); 2];
        list.extend([linear(d, d); 3].concat());
        list.extend([linear(d, 3 * d), linear(d, self.ffn), linear(d + self.ffn, d)].concat());
        list
    }

    /// The parameters outside the blocks.
    fn other_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let patch = LATENT_CHANNELS * self.patch * self.patch;
        let mut list = linear(patch, d).to_vec();
        list.extend([two(FREQUENCIES, d, d), two(TEXT, d, d)].concat());
        list.extend(linear(TEXT, d));
        for _ in 0..REFINERS {
            list.extend([plain(d); 2]);
            list.extend([linear(d, d); 4].concat());
            list.extend([plain(d); 2]);
            list.extend(two(d, 4 * d, d));
            list.extend(linear(d, 2 * d));
        }
        list.extend([two(FREQUENCIES, d, d), two(POOLED, d, d), two(FREQUENCIES, d, d)].concat());
        list.extend([linear(d, 2 * d), linear(d, patch)].concat());
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

    /// Named extents, with so many channels.
    pub fn dims(&self, channels: u64) -> [(&'static str, u64); 5] {
        [("batch", self.batch), ("channels", channels), ("frames", self.frames), ("height", self.height), ("width", self.width)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hunyuan_video::vae::{Halves, tensors};

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        let dit = Dit { hidden: 3072, ffn: 12_288, heads: 24, patch: 2, dual: 20, single: 40 };
        let sum = |list: &[Parameter]| list.iter().map(|p| p.elements).sum::<u64>();
        let weights = dit.weights();
        assert_eq!(weights.parameters(), 12_821_012_544);
        assert_eq!(weights.groups.iter().map(|group| sum(&group.block)).collect::<Vec<_>>(), [339_831_296, 141_591_808]);
        assert_eq!(sum(&tensors(Halves::Both)), 246_478_803);
        assert_eq!(sum(&tensors(Halves::Decoder)), 146_136_339);
    }
}
