//! `CogVideoXTransformer3DModel` (diffusers 0.42.1): its parameters, and one forward pass, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `models/transformers/cogvideox_transformer_3d.py`;
//! recorded allocator traces of the class on an H200 reproduce it (`tests/data/families`). Text and video are two streams that
//! attention and the feed-forward layer see as one sequence. Both begin as views of it.

use fv_spec::authored::Role;
use fv_spec::compiled::ExpandedComponent;

use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::maps::{Map, convolution_workspace};
use crate::modules::parameter::{Group, MAX_BLOCKS, MAX_WIDTH, Parameter, Weights, kept, matrix, plain, within};
use crate::modules::residency::Streams;
use crate::program::{Builder, Dims, Site, Tensor, sites};
use crate::settings::Attention;

sites! { "cogvideox.dit.embed":
    PATCHES "patch embedding" Activation;
    PATCH_WORKSPACE "patch convolution workspace" Workspace;
    TEXT "text embedding" Activation;
    JOINED "text and video together" Activation;
    POSITIONS "position embedding" Activation;
}
sites! { "cogvideox.dit.norm":
    NORM "normed states" Activation;
    STATISTICS "norm statistics" Activation;
    MODULATION "modulation" Activation;
}
sites! { "cogvideox.dit.attention":
    QKV "query, key and value" Activation;
    ROTATED "rotated states" Activation;
    ROTARY_PRODUCT "rotary product" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
}
sites! { "cogvideox.dit.feed_forward":
    FFN "feed-forward hidden" Activation;
    GATED "gated update" Activation;
    HIDDEN "hidden states" Activation;
}
sites! { "cogvideox.dit.head":
    PREDICTION "prediction" Activation;
}

/// Width of the time embedding (`time_embed_dim`).
const TIME: u64 = 512;
/// Width of the text encoder's states (`text_embed_dim`).
const TEXT_WIDTH: u64 = 4096;
/// Text tokens that the position table has room for (`max_text_seq_length`).
const TABLE_TEXT: u64 = 226;
/// Latent rows, columns and frames that the position table is made for (`sample_height`, `sample_width`, `sample_frames`).
const TABLE: [u64; 3] = [60, 90, 13];
/// Width of a head (`attention_head_dim`).
const HEAD: u64 = 64;
/// Channels of a latent.
pub const LATENT_CHANNELS: u64 = 16;
const FP64: u64 = 8;

/// How positions are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// Sines and cosines added to the sequence: 2B.
    Table,
    /// Rotary tables, which the pipeline hands over.
    Rotary,
    /// Both, the table a stored one: 5B image to video.
    RotaryAndTable,
}

/// A transformer of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the residual streams.
    pub hidden: u64,
    /// Blocks.
    pub blocks: u64,
    /// Channels of the input.
    pub in_channels: u64,
    /// Latent frames of a patch: 2 in version 1.5.
    pub patch_frames: u64,
    /// How positions are told.
    pub positions: Positions,
}

/// Latent rows and columns of a patch, together.
const PATCH: u64 = 4;

impl Dit {
    /// Reads a transformer of the catalog. `Err` names what is missing or does not agree.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let hidden = geometry.get("hidden_size").and_then(serde_json::Value::as_u64).ok_or("transformer geometry lacks hidden_size")?;
        let hidden = within("transformer geometry: hidden_size", hidden, MAX_WIDTH)?;
        let blocks = component.block_count.ok_or("the transformer has no block_count")?.get();
        let blocks = within("the transformer: block_count", blocks, MAX_BLOCKS)?;
        let published =
            [(16, 1, Positions::Table), (16, 1, Positions::Rotary), (32, 1, Positions::RotaryAndTable), (16, 2, Positions::Rotary)];
        published
            .into_iter()
            .map(|(in_channels, patch_frames, positions)| Self { hidden, blocks, in_channels, patch_frames, positions })
            .filter(|dit| (dit.positions == Positions::Table) == (hidden < 3072))
            .find(|dit| dit.weights(Role::Transformer).parameters() == component.parameter_count.get())
            .ok_or_else(|| format!("{} is not a transformer of CogVideoX", component.component))
    }

    /// The parameters, in the order of the class, after the table of positions, which is a buffer: in fp64 where it is computed,
    /// each value of which counts as two of fp32.
    pub fn weights(&self, role: Role) -> Weights {
        let d = self.hidden;
        let linear = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| list.extend([plain(inputs * outputs), plain(outputs)]);
        let covered = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| list.extend([matrix(inputs, outputs), plain(outputs)]);
        let mut block = Vec::new();
        linear(&mut block, TIME, 6 * d);
        block.extend([plain(d); 2]);
        block.extend([plain(HEAD); 4]);
        for _ in 0..4 {
            covered(&mut block, d, d);
        }
        linear(&mut block, TIME, 6 * d);
        block.extend([plain(d); 2]);
        covered(&mut block, d, 4 * d);
        covered(&mut block, 4 * d, d);
        let table = (TABLE_TEXT + TABLE.iter().product::<u64>() / PATCH) * d;
        let mut rest: Vec<Parameter> = match self.positions {
            Positions::Table => vec![kept(2 * table)],
            Positions::Rotary => Vec::new(),
            Positions::RotaryAndTable => vec![plain(table)],
        };
        let buffers = rest.len();
        let patch = PATCH * self.patch_frames;
        for (inputs, outputs) in [(self.in_channels * patch, d), (TEXT_WIDTH, d), (d, TIME), (TIME, TIME)] {
            linear(&mut rest, inputs, outputs);
        }
        rest.extend([plain(d); 2]);
        linear(&mut rest, TIME, 2 * d);
        rest.extend([plain(d); 2]);
        linear(&mut rest, d, LATENT_CHANNELS * patch);
        Weights { role, groups: vec![Group { count: self.blocks, block }], rest, buffers }
    }
}

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// Videos, both branches of guidance counted.
    pub batch: u64,
    /// Latent frames, filled up to whole patches, rows and columns.
    pub latent: [u64; 3],
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// The attention kernel.
    pub attention: Attention,
}

/// Both streams: video, text.
type Both = [Tensor; 2];

impl Forward {
    /// One sequence of video and text: four square layers of attention and the feed-forward pair, four times as wide.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, blocks, .. } = self.dit;
        let rows = self.tokens() + self.text_tokens;
        Blocks {
            count: blocks,
            batch: self.batch,
            rows,
            weights: 12 * hidden * hidden,
            other_rows: 0,
            other_weights: 0,
            keys: rows,
            queries: rows,
            inner: hidden,
            hidden,
        }
        .operations(self.act)
    }

    /// Width of a prompt's embeddings.
    pub const TEXT_WIDTH: u64 = TEXT_WIDTH;

    /// Positions of the video.
    pub fn tokens(&self) -> u64 {
        self.latent.iter().product::<u64>() / (PATCH * self.dit.patch_frames)
    }

    /// Extents of one of both rotary tables, which are in fp32.
    pub fn rotary_table(&self) -> Vec<(&'static str, u64)> {
        vec![("tokens", self.tokens()), ("head", HEAD)]
    }

    fn dims(&self, tokens: u64, width: u64) -> [(&'static str, u64); 3] {
        [("batch", self.batch), ("tokens", tokens), ("width", width)]
    }

    fn states(&self, p: &mut Builder, site: &'static Site, tokens: u64) -> Tensor {
        p.alloc(site, &self.dims(tokens, self.dit.hidden), self.act)
    }

    fn all(&self) -> u64 {
        self.text_tokens + self.tokens()
    }

    /// A linear layer's output, with its weights where they come along.
    fn linear(&self, p: &mut Builder, streams: &Streams, site: &'static Site, dims: Dims<'_>, inputs: u64) -> Tensor {
        let weights = streams.leaf(p, inputs, dims.last().map_or(0, |(_, width)| *width));
        let y = p.alloc(site, dims, self.act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    /// A layer norm of so many tokens, which are copied where they are a part of the sequence of several videos.
    fn norm(&self, p: &mut Builder, tokens: u64, part: bool) -> Tensor {
        let together = (part && self.batch > 1).then(|| self.states(p, &NORM, tokens));
        let y = self.states(p, &NORM, tokens);
        for _ in 0..2 {
            p.touch(&STATISTICS, &[("batch", self.batch), ("tokens", tokens)], FP32);
        }
        if let Some(together) = together {
            p.release(together);
        }
        y
    }

    /// A layer norm, scaled and shifted.
    fn modulated(&self, p: &mut Builder, tokens: u64, part: bool) -> Tensor {
        let normed = self.norm(p, tokens, part);
        let scaled = self.states(p, &NORM, tokens);
        p.release(normed);
        let shifted = self.states(p, &NORM, tokens);
        p.release(scaled);
        shifted
    }

    /// `CogVideoXLayerNormZero`: both streams, and the vectors of the timestep.
    fn norm_zero(&self, p: &mut Builder, part: bool) -> (Both, Tensor) {
        let vectors = p.alloc(&MODULATION, &[("batch", self.batch), ("vectors", 6), ("width", self.dit.hidden)], self.act);
        (self.streams_of(|tokens| self.modulated(p, tokens, part)), vectors)
    }

    /// The same of video and text.
    fn streams_of(&self, mut of: impl FnMut(u64) -> Tensor) -> Both {
        [self.tokens(), self.text_tokens].map(&mut of)
    }

    /// `hidden + gate * update` of both streams, each of which replaces what `named` holds of it.
    fn gated(&self, p: &mut Builder, named: Option<Both>) -> Both {
        let mut named = named.into_iter().flatten();
        self.streams_of(|tokens| {
            let gated = self.states(p, &GATED, tokens);
            let sum = self.states(p, &HIDDEN, tokens);
            p.release(gated);
            if let Some(before) = named.next() {
                p.release(before);
            }
            sum
        })
    }

    /// `apply_rotary_emb` on the video's part of query or key, in fp32; the result is copied back and goes.
    fn rotate(&self, p: &mut Builder) {
        let part = self.dims(self.tokens(), self.dit.hidden);
        let half = p.alloc(&ROTATED, &self.dims(self.tokens(), self.dit.hidden / 2), self.act);
        let turned = p.alloc(&ROTATED, &part, self.act);
        p.release(half);
        let products = [(); 2].map(|()| {
            let wide = (self.act != FP32).then(|| p.alloc(&ROTARY_PRODUCT, &part, FP32));
            let product = p.alloc(&ROTARY_PRODUCT, &part, FP32);
            if let Some(wide) = wide {
                p.release(wide);
            }
            product
        });
        let mut y = p.alloc(&ROTARY_PRODUCT, &part, FP32);
        for product in products {
            p.release(product);
        }
        if self.act != FP32 {
            let narrow = p.alloc(&ROTATED, &part, self.act);
            p.release(y);
            y = narrow;
        }
        p.release(turned);
        p.release(y);
    }

    /// `CogVideoXAttnProcessor2_0`: the projected output of the whole sequence.
    fn attend(&self, p: &mut Builder, streams: &Streams) -> Tensor {
        let d = self.dit.hidden;
        let dims = self.dims(self.all(), d);
        let joined = self.states(p, &JOINED, self.all());
        let mut qkv = [(); 3].map(|()| self.linear(p, streams, &QKV, &dims, d));
        for tensor in &mut qkv[..2] {
            // The norm wants heads before tokens and copies them there.
            let together = p.alloc(&NORM, &dims, self.act);
            let normed = p.alloc(&QKV, &dims, self.act);
            let statistics = [(); 2].map(|()| p.alloc(&STATISTICS, &[dims[0], dims[1], ("heads", d / HEAD)], FP32));
            p.release(together);
            for tensor in statistics {
                p.release(tensor);
            }
            p.release(*tensor);
            *tensor = normed;
        }
        if self.dit.positions != Positions::Table {
            for _ in 0..2 {
                self.rotate(p);
            }
        }
        let y = p.alloc(&ATTENTION, &dims, self.act);
        if matches!(self.attention, Attention::Flash | Attention::Sdpa) {
            p.touch(&LOG_SUM_EXP, &[dims[0], ("heads", d / HEAD), dims[1]], FP32);
        }
        p.release(joined);
        let flat = p.alloc(&ATTENTION, &dims, self.act);
        p.release(y);
        let out = self.linear(p, streams, &ATTENTION, &dims, d);
        p.release(flat);
        for tensor in qkv {
            p.release(tensor);
        }
        out
    }

    /// `CogVideoXBlock`; the inputs stay the caller's.
    fn block(&self, p: &mut Builder, streams: &Streams, first: bool) -> Both {
        let d = self.dit.hidden;
        p.phase("attention");
        let (normed, vectors) = self.norm_zero(p, first);
        let attended = self.attend(p, streams);
        let hidden = self.gated(p, None);
        p.phase("feed_forward");
        let (second, second_vectors) = self.norm_zero(p, false);
        for tensor in normed {
            p.release(tensor);
        }
        let joined = self.states(p, &JOINED, self.all());
        p.release(second[0]);
        let inner = self.linear(p, streams, &FFN, &self.dims(self.all(), 4 * d), d);
        let activated = p.alloc(&FFN, &self.dims(self.all(), 4 * d), self.act);
        p.release(inner);
        let out = self.linear(p, streams, &FFN, &self.dims(self.all(), d), 4 * d);
        p.release(activated);
        let y = self.gated(p, Some(hidden));
        for tensor in [joined, second[1], attended, out, vectors, second_vectors] {
            p.release(tensor);
        }
        y
    }

    /// `CogVideoXPatchEmbed`: text and video in one sequence.
    fn embed(&self, p: &mut Builder, streams: &Streams) -> Tensor {
        let [frames, height, width] = self.latent;
        let d = self.dit.hidden;
        let text = self.linear(p, streams, &TEXT, &self.dims(self.text_tokens, d), TEXT_WIDTH);
        let video = if self.dit.patch_frames == 1 {
            let latent = Map { batch: self.batch, channels: self.dit.in_channels, frames, height, width, element: self.act };
            let embedded = Map { channels: d, ..latent.sized(height / 2, width / 2) };
            let patches = embedded.alloc(p, &PATCHES);
            convolution_workspace(p, &PATCH_WORKSPACE, latent, embedded, PATCH);
            let ordered = self.states(p, &PATCHES, self.tokens());
            p.release(patches);
            ordered
        } else {
            let values = self.dit.in_channels * PATCH * self.dit.patch_frames;
            let folded = p.alloc(&PATCHES, &self.dims(self.tokens(), values), self.act);
            let patches = self.linear(p, streams, &PATCHES, &self.dims(self.tokens(), d), values);
            p.release(folded);
            patches
        };
        let mut joined = self.states(p, &JOINED, self.all());
        let fits = [height, width, frames] == TABLE;
        let table = match self.dit.positions {
            Positions::Rotary => None,
            // The stored table is of the activation's type.
            Positions::RotaryAndTable if fits => Some(None),
            Positions::Table if fits => Some(Some(Self::position(p, self.all(), self.dit.hidden, self.act))),
            Positions::Table | Positions::RotaryAndTable => Some(Some(self.new_table(p))),
        };
        if let Some(table) = table {
            let sum = self.states(p, &JOINED, self.all());
            p.release(joined);
            joined = sum;
            for tensor in [text, video].into_iter().chain(table) {
                p.release(tensor);
            }
        } else {
            p.release(text);
            p.release(video);
        }
        joined
    }

    fn position(p: &mut Builder, tokens: u64, width: u64, element: u64) -> Tensor {
        p.alloc(&POSITIONS, &[("positions", tokens), ("width", width)], element)
    }

    /// The table of positions for other extents than the stored one: computed in fp64, then cast.
    fn new_table(&self, p: &mut Builder) -> Tensor {
        let [frames, height, width] = self.latent;
        let d = self.dit.hidden;
        let table = |p: &mut Builder, tokens: u64, width: u64, element: u64| Self::position(p, tokens, width, element);
        let plane = height * width / PATCH;
        // `get_3d_sincos_pos_embed`: three quarters of the width for rows and columns, one for frames.
        let sides = [(); 2].map(|()| {
            let angles = [(); 3].map(|()| table(p, plane, d * 3 / 16, FP64));
            let side = table(p, plane, d * 3 / 8, FP64);
            for tensor in angles {
                p.release(tensor);
            }
            side
        });
        let spatial = table(p, plane, d * 3 / 4, FP64);
        for side in sides {
            p.release(side);
        }
        let repeated = table(p, frames * plane, d * 3 / 4, FP64);
        p.release(spatial);
        let temporal = table(p, frames * plane, d / 4, FP64);
        let together = table(p, frames * plane, d, FP64);
        p.release(repeated);
        p.release(temporal);
        let joined = table(p, TABLE_TEXT + frames * plane, d, FP64);
        p.release(together);
        let narrow = table(p, TABLE_TEXT + frames * plane, d, self.act);
        p.release(joined);
        narrow
    }

    /// The forward pass; weights come and go as `streams` says, the prediction is the result.
    pub fn emit(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        let d = self.dit.hidden;
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let time = p.alloc(&MODULATION, &[("batch", self.batch), ("width", TIME)], self.act);
        // Both streams are views of the sequence until the first block has made its own.
        let hidden = self.embed(p, streams);
        let text = p.alloc(&TEXT, &self.dims(0, d), self.act);
        streams.run_first(p, self.dit.blocks, |p, streams, first| {
            let [y, text_y] = self.block(p, streams, first);
            p.replace(hidden, y);
            p.replace(text, text_y);
        });
        p.phase("head");
        let normed = self.norm(p, self.tokens(), false);
        p.release(hidden);
        let modulated = self.modulated(p, self.tokens(), false);
        p.release(normed);
        let out = self.dims(self.tokens(), LATENT_CHANNELS * PATCH * self.dit.patch_frames);
        let linear = self.linear(p, streams, &PREDICTION, &out, d);
        p.release(modulated);
        let prediction = p.alloc(&PREDICTION, &out, self.act);
        for tensor in [linear, text, time] {
            p.release(tensor);
        }
        prediction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        for (hidden, blocks, in_channels, patch_frames, positions, count) in [
            (1920, 30, 16, 1, Positions::Table, 1_693_783_872),
            (3072, 42, 16, 1, Positions::Rotary, 5_570_283_072),
            (3072, 42, 32, 1, Positions::RotaryAndTable, 5_570_479_680),
            (3072, 42, 16, 2, Positions::Rotary, 5_570_676_352),
        ] {
            let dit = Dit { hidden, blocks, in_channels, patch_frames, positions };
            assert_eq!(dit.weights(Role::Transformer).parameters(), count);
        }
    }
}
