//! One forward pass of `MiniMaxH3Transformer3DModel` (diffusers 0.42.1), run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow
//! `diffusers/models/transformers/transformer_minimax_h3.py`; the class run on fake tensors reproduces it allocation for
//! allocation (`tests/data/simulated`). Text, audio and video are rows of one sequence, whose attention has no mask. What a row
//! is modulated with is looked up in a table of its timestep and modality.
//!
//! FastVideo's class (`fastvideo/models/dits/minimax_h3.py`, commit 99cd355a) runs the same operations in the same order, and
//! besides has video sparse attention in tiles of 64 rows with a gate (`attention/backends/video_sparse_attn_h3.py`).

use super::geometry::{AUDIO_ROW, Dit, REFINER_BLOCKS, ROTARY, ROTARY_FREQUENCIES, ROW, Rows, TEXT, VIDEO_ROW, latent_frames};
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::residency::Streams;
use crate::program::{Builder, Site, Tensor, sites};
use crate::settings::Attention;

sites! { "minimax_h3.dit.embed":
    POSITIONS "rotary positions" Activation;
    ROTARY_TABLE "rotary table" Cache;
    VIDEO "video embedding" Activation;
    AUDIO "audio embedding" Activation;
    TEXT_ROWS "text embedding" Activation;
    PACKED "packed sequence" Activation;
}
sites! { "minimax_h3.dit.modulation":
    LOOKED_UP "modulation of each row" Activation;
    MODULATED "modulated states" Activation;
}
sites! { "minimax_h3.dit.norm":
    NORMED "normed states" Activation;
    STATISTICS "norm statistics" Activation;
}
sites! { "minimax_h3.dit.attention":
    QUERY "query" Activation;
    KEY "key" Activation;
    VALUE "value" Activation;
    ROTATED "rotated states" Activation;
    TABLE "rotary table in the computed type" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
    SCORES "attention scores" Activation;
    PROJECTED "projected attention" Activation;
}
sites! { "minimax_h3.dit.sparse_attention":
    GATE "gate of the coarse branch" Activation;
    TILES "query, key, value and gate in tiles" Activation;
    ORDERED "query, key and value in tiles by head" Activation;
    SELECTED "mask and places of chosen tiles" Activation;
    FINE "attention output in tiles" Activation;
    COARSE "coarse attention at full length" Activation;
    GATED_COARSE "gated coarse attention" Activation;
    SUM "attention of both branches" Activation;
}
sites! { "minimax_h3.dit.feed_forward":
    FFN_HIDDEN "feed-forward hidden" Activation;
    FFN_OUT "feed-forward output" Activation;
}
sites! { "minimax_h3.dit.residual":
    GATED "gated update" Activation;
    HIDDEN "hidden states" Activation;
}
sites! { "minimax_h3.dit.head":
    OUTPUT "head output" Activation;
    VIDEO_PREDICTION "video prediction" Activation;
    AUDIO_PREDICTION "audio prediction" Activation;
}

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// Rows of the packed sequence.
    pub rows: Rows,
    /// Sequences.
    pub batch: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether input projections, the time embedding and both heads are kept in fp32.
    pub keep_fp32: bool,
    /// Bytes of an element of the latents that are given.
    pub latents: u64,
    /// Bytes of an element of the positions that are given: 8 in the pipeline.
    pub positions: u64,
    /// The attention kernel.
    pub attention: Attention,
    /// Tiles of sparse attention; 0 without it.
    pub tiles: u64,
}

/// Rows of a tile of sparse attention, and its extent in latent frames, rows and columns of the packed grid.
pub const TILE: u64 = 64;
const SIDE: u64 = 4;

/// Tiles of a clip's video rows, and before them those of its text and sound.
pub fn tiles(height: u64, width: u64, frames: u64, rows: &Rows) -> u64 {
    let grid = [latent_frames(frames), height / ROW, width / ROW];
    (rows.text + rows.audio).div_ceil(TILE) + grid.into_iter().map(|extent| extent.div_ceil(SIDE)).product::<u64>()
}

impl Forward {
    /// One packed sequence, of which every row meets the same layers.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, ffn, blocks, .. } = self.dit;
        let (rows, inner) = (self.rows.all(), self.dit.inner());
        Blocks {
            count: blocks,
            batch: self.batch,
            rows,
            weights: 4 * hidden * inner + 3 * hidden * ffn,
            other_rows: 0,
            other_weights: 0,
            keys: rows,
            queries: rows,
            inner,
            hidden,
        }
        .operations(self.act)
    }

    /// Type of what is projected from latents and to predictions.
    fn ends(&self) -> u64 {
        if self.keep_fp32 { FP32 } else { self.act }
    }

    fn make(&self, p: &mut Builder, site: &'static Site, rows: u64, width: u64, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.batch), ("rows", rows), ("width", width)], element)
    }

    /// A row of values for each row of the sequence, the same for every sequence.
    fn lookup(&self, p: &mut Builder, rows: u64) -> Tensor {
        p.alloc(&LOOKED_UP, &[("rows", rows), ("hidden", self.dit.hidden)], self.act)
    }

    /// An RMS norm; its input stays.
    fn norm(&self, p: &mut Builder, site: &'static Site, rows: u64) -> Tensor {
        let y = self.make(p, site, rows, self.dit.hidden, self.act);
        p.touch(&STATISTICS, &[("batch", self.batch), ("rows", rows)], FP32);
        y
    }

    /// A norm of each head, which replaces its input.
    fn head_norm(&self, p: &mut Builder, site: &'static Site, x: Tensor, rows: u64) -> Tensor {
        let y = self.make(p, site, rows, self.dit.inner(), self.act);
        p.touch(&STATISTICS, &[("batch", self.batch), ("rows", rows), ("heads", self.dit.heads)], FP32);
        p.release(x);
        y
    }

    /// `normed * (1 + scale) + shift`, looked up for each row; drops `normed`.
    fn modulate(&self, p: &mut Builder, normed: Tensor) -> Tensor {
        let rows = self.rows.all();
        let scale = self.lookup(p, rows);
        let factor = self.lookup(p, rows);
        p.release(scale);
        let scaled = self.make(p, &MODULATED, rows, self.dit.hidden, self.act);
        p.release(factor);
        let shift = self.lookup(p, rows);
        let y = self.make(p, &MODULATED, rows, self.dit.hidden, self.act);
        p.release(scaled);
        p.release(shift);
        p.release(normed);
        y
    }

    /// The rotary embedding of `x`, which it drops (`_apply_rotary_emb`).
    fn rotary(&self, p: &mut Builder, x: Tensor) -> Tensor {
        let rows = self.rows.all();
        let part = |p: &mut Builder, width: u64| {
            p.alloc(&ROTATED, &[("batch", self.batch), ("rows", rows), ("heads", self.dit.heads), ("rotated", width)], self.act)
        };
        let narrow: Vec<Tensor> = if self.act == FP32 {
            Vec::new()
        } else {
            (0..2).map(|_| p.alloc(&TABLE, &[("rows", rows), ("rotated", ROTARY)], self.act)).collect()
        };
        let negated = part(p, ROTARY / 2);
        let turned = part(p, ROTARY);
        p.release(negated);
        let products = [(); 2].map(|()| part(p, ROTARY));
        let sum = part(p, ROTARY);
        for product in products {
            p.release(product);
        }
        let y = self.make(p, &ROTATED, rows, self.dit.inner(), self.act);
        for tensor in narrow.into_iter().chain([sum, turned, x]) {
            p.release(tensor);
        }
        y
    }

    /// The attention kernel: output and what lives beside it during the call.
    fn attend(&self, p: &mut Builder, rows: u64) -> Tensor {
        let (batch, heads, queries) = (("batch", self.batch), ("heads", self.dit.heads), ("rows", rows));
        let inner = self.dit.inner();
        if self.attention != Attention::Math {
            let y = self.make(p, &ATTENTION, rows, inner, self.act);
            if matches!(self.attention, Attention::Flash | Attention::Sdpa) {
                p.touch(&LOG_SUM_EXP, &[batch, heads, queries], FP32);
            }
            return y;
        }
        let scores = [batch, heads, queries, ("keys", rows)];
        let wide = |p: &mut Builder| self.make(p, &QUERY, rows, inner, FP32);
        let mut copies: Vec<Tensor> = if self.act == FP32 { Vec::new() } else { (0..3).map(|_| wide(p)).collect() };
        copies.push(wide(p));
        let key = wide(p);
        let raw = p.alloc(&SCORES, &scores, FP32);
        p.release(key);
        let soft = p.alloc(&SCORES, &scores, FP32);
        p.touch(&SCORES, &scores, 1);
        p.release(raw);
        let narrow = (self.act != FP32).then(|| p.alloc(&SCORES, &scores, self.act));
        let mut y = self.make(p, &ATTENTION, rows, inner, FP32);
        if self.act != FP32 {
            let cast = self.make(p, &ATTENTION, rows, inner, self.act);
            p.release(y);
            y = cast;
        }
        p.release(soft);
        for tensor in copies.into_iter().rev().chain(narrow) {
            p.release(tensor);
        }
        let flat = self.make(p, &ATTENTION, rows, inner, self.act);
        p.release(y);
        flat
    }

    /// Video sparse attention: everything in tiles, which are padded, the kernel's own order, each head's choice of tiles, and the
    /// coarse branch at full length, gated where the transformer has a gate.
    fn attend_sparsely(&self, p: &mut Builder) -> Tensor {
        let inner = self.dit.inner();
        let padded = self.tiles * TILE;
        let gated = self.dit.sparse_gate;
        let gate = gated.then(|| self.make(p, &GATE, self.rows.all(), inner, self.act));
        let all = 3 + u64::from(gated);
        let tiled = p.alloc(&TILES, &[("tensors", all), ("rows in tiles", padded), ("inner width", inner)], self.act);
        let one = |p: &mut Builder, site: &'static Site| self.make(p, site, padded, inner, self.act);
        let ordered = [(); 3].map(|()| one(p, &ORDERED));
        let pairs = [("heads", self.dit.heads), ("tiles", self.tiles), ("chosen from", self.tiles), ("mask and place", 5)];
        let selected = p.alloc(&SELECTED, &pairs, 1);
        let mut out = one(p, &FINE);
        if gated {
            let coarse = one(p, &COARSE);
            let product = one(p, &GATED_COARSE);
            let sum = one(p, &SUM);
            for tensor in [product, coarse, out] {
                p.release(tensor);
            }
            out = sum;
        }
        p.release(selected);
        for tensor in ordered {
            p.release(tensor);
        }
        let rows = self.make(p, &ATTENTION, self.rows.all(), inner, self.act);
        for tensor in [out, tiled].into_iter().chain(gate) {
            p.release(tensor);
        }
        rows
    }

    /// One attention layer over `rows` rows, whose input stays; ends with the projected output.
    fn attention(&self, p: &mut Builder, rows: u64, rotary: bool) -> Tensor {
        let inner = self.dit.inner();
        let [query, key, value] = [&QUERY, &KEY, &VALUE].map(|site| self.make(p, site, rows, inner, self.act));
        let mut query = self.head_norm(p, &QUERY, query, rows);
        let mut key = self.head_norm(p, &KEY, key, rows);
        if rotary {
            query = self.rotary(p, query);
            key = self.rotary(p, key);
        }
        let attended = if rotary && self.tiles > 0 { self.attend_sparsely(p) } else { self.attend(p, rows) };
        let projected = self.make(p, &PROJECTED, rows, self.dit.hidden, self.act);
        for tensor in [attended, query, key, value] {
            p.release(tensor);
        }
        projected
    }

    /// The gated feed-forward layer, whose input stays (`FeedForward` with `SwiGLU`).
    fn feed_forward(&self, p: &mut Builder, rows: u64) -> Tensor {
        let both = self.make(p, &FFN_HIDDEN, rows, 2 * self.dit.ffn, self.act);
        let [gate, product] = [(); 2].map(|()| self.make(p, &FFN_HIDDEN, rows, self.dit.ffn, self.act));
        p.release(gate);
        p.release(both);
        let out = self.make(p, &FFN_OUT, rows, self.dit.hidden, self.act);
        p.release(product);
        out
    }

    /// `residual + gate * update`, the gate looked up; both stay.
    fn gated_residual(&self, p: &mut Builder) -> Tensor {
        let rows = self.rows.all();
        let gate = self.lookup(p, rows);
        let gated = self.make(p, &GATED, rows, self.dit.hidden, self.act);
        p.release(gate);
        let sum = self.make(p, &HIDDEN, rows, self.dit.hidden, self.act);
        p.release(gated);
        sum
    }

    /// One block of the token refiner; its input stays the caller's.
    fn refine(&self, p: &mut Builder) -> Tensor {
        let rows = self.rows.text;
        let normed = self.norm(p, &NORMED, rows);
        let attended = self.attention(p, rows, false);
        p.release(normed);
        let hidden = self.make(p, &TEXT_ROWS, rows, self.dit.hidden, self.act);
        p.release(attended);
        let normed = self.norm(p, &NORMED, rows);
        let out = self.feed_forward(p, rows);
        p.release(normed);
        let sum = self.make(p, &TEXT_ROWS, rows, self.dit.hidden, self.act);
        for tensor in [out, hidden] {
            p.release(tensor);
        }
        sum
    }

    /// One block. The caller's reference to the input is dropped when the block has returned.
    fn block(&self, p: &mut Builder) -> Tensor {
        let rows = self.rows.all();
        p.phase("self_attention");
        let normed = self.norm(p, &NORMED, rows);
        let modulated = self.modulate(p, normed);
        let attended = self.attention(p, rows, true);
        p.phase("residual");
        let hidden = self.gated_residual(p);
        p.phase("feed_forward");
        let normed = self.norm(p, &NORMED, rows);
        p.release(modulated);
        let modulated = self.modulate(p, normed);
        let out = self.feed_forward(p, rows);
        p.phase("feed_forward_residual");
        let sum = self.gated_residual(p);
        for tensor in [hidden, modulated, attended, out] {
            p.release(tensor);
        }
        sum
    }

    /// Cosines and sines of every row (`MiniMaxH3RotaryPosEmbed`).
    fn rotary_table(&self, p: &mut Builder) -> [Tensor; 2] {
        let rows = ("rows", self.rows.all());
        let wide = (self.positions != FP32).then(|| p.alloc(&POSITIONS, &[rows, ("axes", 3)], FP32));
        let axes = p.alloc(&POSITIONS, &[rows, ("axes", 3), ("frequencies", ROTARY_FREQUENCIES)], FP32);
        let joined = p.alloc(&POSITIONS, &[rows, ("rotated", ROTARY / 2)], FP32);
        let angles = p.alloc(&POSITIONS, &[rows, ("rotated", ROTARY)], FP32);
        p.release(joined);
        // In the pipeline the table is in fp32 whatever the model computes in, unless all of it was cast.
        let table = [(); 2].map(|()| p.alloc(&ROTARY_TABLE, &[rows, ("rotated", ROTARY)], FP32));
        for tensor in wide.into_iter().chain([axes, angles]) {
            p.release(tensor);
        }
        table
    }

    /// A copy of latents in the type of their projection, for its duration, and the projection.
    fn project_in(&self, p: &mut Builder, site: &'static Site, rows: u64, width: u64) -> Tensor {
        let copy = (self.latents != self.ends()).then(|| self.make(p, site, rows, width, self.ends()));
        let y = self.make(p, site, rows, self.dit.hidden, self.ends());
        if let Some(copy) = copy {
            p.release(copy);
        }
        y
    }

    /// The text rows, refined.
    fn text(&self, p: &mut Builder) -> Tensor {
        let rows = self.rows.text;
        let embedded = self.make(p, &TEXT_ROWS, rows, self.dit.hidden, self.act);
        let mut hidden = p.retain(embedded);
        for _ in 0..REFINER_BLOCKS {
            let next = self.refine(p);
            p.release(hidden);
            hidden = next;
        }
        let y = self.norm(p, &TEXT_ROWS, rows);
        p.release(hidden);
        p.release(embedded);
        y
    }

    /// The forward pass; weights come and go as `streams` says. The results are the predictions of video and audio.
    pub fn emit(&self, p: &mut Builder, streams: &mut Streams) -> [Tensor; 2] {
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let (rows, hidden) = (self.rows.all(), self.dit.hidden);
        let table = self.rotary_table(p);
        let video = self.project_in(p, &VIDEO, self.rows.visual(), VIDEO_ROW);
        let audio = self.project_in(p, &AUDIO, self.rows.audio, AUDIO_ROW);
        let text = self.text(p);
        // Each modality's rows are put into a copy of the sequence.
        let mut packed = self.make(p, &PACKED, rows, hidden, self.act);
        for modality in [self.rows.text, self.rows.visual(), self.rows.audio] {
            let narrow = self.ends() != self.act && modality != self.rows.text;
            let narrow = narrow.then(|| self.make(p, &PACKED, modality, hidden, self.act));
            let next = self.make(p, &PACKED, rows, hidden, self.act);
            p.release(packed);
            packed = next;
            if let Some(narrow) = narrow {
                p.release(narrow);
            }
        }
        let x = packed;
        // The caller's name is bound to the block's result once the old one is gone.
        let block = |p: &mut Builder| {
            let y = self.block(p);
            p.replace(x, y);
        };
        let resident = streams.resident().min(self.dit.blocks);
        p.repeat_sampled(resident, 2, 0, block);
        p.repeat_sampled((self.dit.blocks - resident).div_ceil(streams.group()), 2, 0, |p| {
            p.phase("weights_in");
            streams.begin_group(p);
            p.repeat_sampled(streams.group(), 2, 0, block);
            streams.end_group(p);
        });
        streams.end(p);
        p.phase("head");
        let normed = self.norm(p, &NORMED, rows);
        let mut last = self.modulate(p, normed);
        if self.ends() != self.act {
            let wide = self.make(p, &HIDDEN, rows, hidden, self.ends());
            p.release(last);
            last = wide;
        }
        p.release(x);
        // Both heads run over every row; those of their modality are picked afterwards.
        let heads = [(self.rows.visual(), VIDEO_ROW, &VIDEO_PREDICTION), (self.rows.audio, AUDIO_ROW, &AUDIO_PREDICTION)];
        let predictions = heads.map(|(own, width, site)| {
            let all = self.make(p, &OUTPUT, rows, width, self.ends());
            let prediction = self.make(p, site, own, width, self.ends());
            p.release(all);
            prediction
        });
        for tensor in [last, text, audio, video, table[1], table[0]] {
            p.release(tensor);
        }
        predictions
    }

    /// Extents of the inputs that a benchmark or the pipeline makes: latents of video and audio, text, and what describes the rows.
    pub fn inputs(&self) -> Vec<(Vec<(&'static str, u64)>, u64)> {
        let (batch, rows) = (("batch", self.batch), ("rows", self.rows.all()));
        let mut inputs = vec![
            (vec![batch, ("rows", self.rows.visual()), ("channels", VIDEO_ROW)], self.latents),
            (vec![batch, ("rows", self.rows.audio), ("channels", AUDIO_ROW)], self.latents),
            (vec![batch, ("rows", self.rows.text), ("width", TEXT)], self.act),
            (vec![rows, ("axes", 3)], self.positions),
        ];
        // Timestep, modality and place of each row.
        inputs.extend((0..3).map(|_| (vec![rows], 8)));
        inputs
    }
}
