//! One forward pass of `WanTransformer3DModel` as FastVideo 0.2.1 runs it, eagerly and without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `models/dits/wanvideo.py`, `layers/layernorm.py`,
//! `layers/rotary_embedding.py`, `attention/layer.py`, `attention/backends/video_sparse_attn.py`,
//! `distributed/device_communicators/base_device_communicator.py` and `layers/quantization/fp8_config.py`. Run on fake tensors,
//! that code makes the same allocations (`tests/data/simulated`). Attention kernels count as their output and its
//! log-sum-exp; workspaces are apart.
//!
//! Unlike diffusers' class, the rotary embedding is applied to query and key together in fp32 with every product written out:
//! it is the peak, 28 hidden states for dense attention whatever the width of the feed-forward layer.

use super::geometry::{Dit, FREQUENCIES, IMAGE_FEATURES, Latent};
use crate::modules::FP32;
use crate::modules::maps::{CUDNN_HEADER, pad8};
use crate::modules::residency::Streams;
use crate::program::{Builder, Dims, List, Site, Tensor, sites};
use crate::settings::Attention;

/// What a forward pass depends on. One video: the denoising stage takes no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// The latent it predicts for.
    pub latent: Latent,
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Bytes of an element of the prompt embeddings; what is not bf16 is cast by autocast.
    pub text_element: u64,
    /// Image tokens; 0 without an image.
    pub image_tokens: u64,
    /// The attention kernel.
    pub attention: Attention,
    /// Whether each token has its own timestep.
    pub per_token_timesteps: bool,
    /// Ranks that share the sequence outside attention and the heads inside (Ulysses). Every rank runs the same program.
    pub ranks: u64,
    /// Whether the blocks' matrices are multiplied in FP8, as tensors of 8 bits made anew for each product.
    pub fp8: bool,
}

sites! { "wan.dit.embed":
    ROPE "rotary table" Cache;
    ROPE_FP64 "rotary table in fp64" Activation;
    PATCHES "patch embedding" Activation;
    PATCH_WORKSPACE "patch convolution workspace" Workspace;
    HIDDEN "hidden states" Activation;
    TIME "time embedding" Activation;
    TIME_PROJECTION "time projection" Activation;
    TEXT "text embedding" Activation;
    IMAGE "image embedding" Activation;
}
sites! { "wan.dit.modulation":
    MODULATION "modulation" Activation;
}
sites! { "wan.dit.norm":
    NORM_FP32 "norm in fp32" Activation;
    NORM_STATISTICS "norm statistics" Activation;
    NORM_WORKSPACE "states put in order for a norm" Workspace;
    NORM "normed states" Activation;
}
sites! { "wan.dit.attention":
    QUERY "query" Activation;
    KEY "key" Activation;
    VALUE "value" Activation;
    GATE "gate of the coarse branch" Activation;
    JOINED "query, key and value" Activation;
    EXCHANGED "states exchanged between ranks" Activation;
    ROTARY_FP32 "rotary embedding in fp32" Activation;
    ROTATED "rotated states" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
    SCORES "attention scores" Activation;
    PROJECTED "projected attention" Activation;
}
sites! { "wan.dit.sparse_attention":
    TILES "query, key, value and gate in tiles" Cache;
    ORDERED "states in tile order" Activation;
    TILED "tiles by head" Activation;
    POOLED "mean of each tile" Activation;
    COARSE_SCORES "scores of the coarse branch" Activation;
    COARSE "output of the coarse branch" Activation;
    CHOICE "chosen tiles" Activation;
}
sites! { "wan.dit.residual":
    RESIDUAL_FP32 "residual in fp32" Activation;
}
sites! { "wan.dit.feed_forward":
    FFN_HIDDEN "feed-forward hidden" Activation;
    FFN_OUT "feed-forward output" Activation;
}
sites! { "wan.dit.quantised":
    QUANTISED "input cast to FP8" Activation;
}
sites! { "wan.dit.head":
    GATHERED "states of all ranks" Activation;
    PREDICTION "prediction" Activation;
}

/// Bytes of an activation: the stage computes in bf16 whatever the configuration says.
const ACT: u64 = 2;

/// Tiles of video sparse attention in each direction, and tokens of one.
#[derive(Debug, Clone, Copy)]
struct Grid {
    tiles: u64,
    tile: u64,
}

/// Tensors that a block holds until it returns.
#[derive(Debug)]
struct Held(Vec<Tensor>);

impl Held {
    fn release(self, p: &mut Builder) {
        for tensor in self.0 {
            p.release(tensor);
        }
    }
}

impl Forward {
    /// Tokens of the video.
    fn tokens(&self) -> u64 {
        Latent { batch: 1, ..self.latent }.tokens(&self.dit)
    }

    /// Tokens of one rank: the last rank's are filled up.
    fn local(&self) -> u64 {
        self.tokens().div_ceil(self.ranks)
    }

    /// Tokens of all ranks, filled up.
    fn filled(&self) -> u64 {
        self.local() * self.ranks
    }

    /// Heads of one rank within attention.
    fn heads(&self) -> u64 {
        self.dit.heads / self.ranks
    }

    fn head(&self) -> u64 {
        self.dit.hidden / self.dit.heads
    }

    /// A rank's hidden states.
    fn unit(&self, p: &mut Builder, site: &'static Site, element: u64) -> Tensor {
        p.alloc(site, &[("tokens", self.local()), ("hidden", self.dit.hidden)], element)
    }

    /// `count` times the states of so many tokens, those of a rank's heads alone.
    fn shared(&self, p: &mut Builder, site: &'static Site, count: u64, tokens: u64, element: u64) -> Tensor {
        p.alloc(site, &[("states", count), ("tokens", tokens), ("heads", self.heads()), ("head", self.head())], element)
    }

    fn timesteps(&self) -> (&'static str, u64) {
        ("timesteps", if self.per_token_timesteps { self.tokens() } else { 1 })
    }

    /// `count` modulation vectors, of the video or of each token.
    fn modulation(&self, p: &mut Builder, count: u64, element: u64) -> Tensor {
        p.alloc(&MODULATION, &[self.timesteps(), ("vectors", count), ("hidden", self.dit.hidden)], element)
    }

    /// A linear layer. In FP8 its input is cast by way of its magnitudes, a quotient and a clamped copy, and the bias is added to
    /// a second output; the input's reference stays the caller's.
    fn linear(&self, p: &mut Builder, site: &'static Site, (input, output): (Dims<'_>, Dims<'_>)) -> Tensor {
        if !self.fp8 {
            return p.alloc(site, output, ACT);
        }
        p.touch(&QUANTISED, input, ACT);
        let quotient = p.alloc(&QUANTISED, input, ACT);
        let clamped = p.alloc(&QUANTISED, input, ACT);
        p.release(quotient);
        let narrow = p.alloc(&QUANTISED, input, 1);
        p.release(clamped);
        let product = p.alloc(site, output, ACT);
        let biased = p.alloc(site, output, ACT);
        p.release(product);
        p.release(narrow);
        biased
    }

    /// A square linear layer over so many tokens.
    fn square(&self, p: &mut Builder, site: &'static Site, tokens: u64) -> Tensor {
        let states = [("tokens", tokens), ("hidden", self.dit.hidden)];
        self.linear(p, site, (&states, &states))
    }

    /// A layer norm over the hidden width of fp32 states, whose reference stays the caller's. `affine`: with weights, which are
    /// widened for the call.
    fn layer_norm(&self, p: &mut Builder, affine: bool) -> Tensor {
        let weights: Vec<Tensor> =
            (0..if affine { 2 } else { 0 }).map(|_| p.alloc(&NORM_FP32, &[("hidden", self.dit.hidden)], FP32)).collect();
        // The patch embedding leaves tokens behind channels, and every sum of the residual stream keeps that order, which is not
        // the kernel's. A rank's share is cut out in the kernel's order.
        let ordered = (self.ranks == 1).then(|| self.unit(p, &NORM_WORKSPACE, FP32));
        let y = self.unit(p, &NORM_FP32, FP32);
        let statistics = [(); 2].map(|()| p.alloc(&NORM_STATISTICS, &[("tokens", self.local())], FP32));
        for tensor in statistics.into_iter().chain(ordered).chain(weights) {
            p.release(tensor);
        }
        y
    }

    /// `normed * (1 + scale) + shift` in fp32, of normed states whose reference stays the caller's unless it is `temporary`.
    fn modulate(&self, p: &mut Builder, temporary: Option<Tensor>, element: u64) -> Tensor {
        let factor = self.modulation(p, 1, element);
        let scaled = self.unit(p, &NORM_FP32, FP32);
        if let Some(normed) = temporary {
            p.release(normed);
        }
        p.release(factor);
        let shifted = self.unit(p, &NORM_FP32, FP32);
        p.release(scaled);
        shifted
    }

    /// An RMS norm over all heads, which replaces its input. A second name keeps the fp32 copy to the end of the call.
    fn rms_norm(&self, p: &mut Builder, site: &'static Site, x: Tensor, tokens: u64) -> Tensor {
        let states = [("tokens", tokens), ("hidden", self.dit.hidden)];
        let statistic = [("tokens", tokens)];
        let wide = p.alloc(&NORM_FP32, &states, FP32);
        let square = p.alloc(&NORM_FP32, &states, FP32);
        let mean = p.alloc(&NORM_STATISTICS, &statistic, FP32);
        p.release(square);
        let sum = p.alloc(&NORM_STATISTICS, &statistic, FP32);
        let root = p.alloc(&NORM_STATISTICS, &statistic, FP32);
        p.release(sum);
        let product = p.alloc(&NORM_FP32, &states, FP32);
        p.release(root);
        let narrow = p.alloc(&NORM, &states, ACT);
        p.release(product);
        let y = p.alloc(site, &states, ACT);
        for tensor in [narrow, wide, mean, x] {
            p.release(tensor);
        }
        y
    }

    /// The rotary embedding of the first two of the states, written back in place.
    fn rotary(&self, p: &mut Builder) {
        let tokens = self.tokens();
        let wide = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        let negated = p.alloc(&ROTARY_FP32, &[("states", 2), ("tokens", tokens), ("half of hidden", self.heads() * self.head() / 2)], FP32);
        let swapped = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        p.release(negated);
        let again = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        let cosines = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        p.release(again);
        let sines = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        let sum = self.shared(p, &ROTARY_FP32, 2, tokens, FP32);
        p.release(cosines);
        p.release(sines);
        let narrow = self.shared(p, &ROTATED, 2, tokens, ACT);
        for tensor in [sum, wide, swapped, narrow] {
            p.release(tensor);
        }
    }

    /// Between ranks: from all heads of a part of the sequence to a part of the heads of all of it. Drops `x`.
    fn scatter_heads(&self, p: &mut Builder, x: Tensor, count: u64) -> Tensor {
        if self.ranks == 1 {
            return x;
        }
        let states = |p: &mut Builder| self.shared(p, &EXCHANGED, count, self.filled(), ACT);
        let sent = states(p);
        let received = states(p);
        let joined = states(p);
        p.release(received);
        let ordered = states(p);
        for tensor in [joined, sent, x] {
            p.release(tensor);
        }
        ordered
    }

    /// The way back. Drops `x`.
    fn gather_heads(&self, p: &mut Builder, x: Tensor) -> Tensor {
        if self.ranks == 1 {
            return x;
        }
        let states = |p: &mut Builder| self.shared(p, &EXCHANGED, 1, self.filled(), ACT);
        let by_head = states(p);
        let sent = states(p);
        p.release(by_head);
        let received = states(p);
        let ordered = states(p);
        for tensor in [received, sent, x] {
            p.release(tensor);
        }
        ordered
    }

    /// An attention kernel's output for `tokens` queries of `heads` heads, and what lives beside it during the call.
    fn kernel(&self, p: &mut Builder, heads: u64, tokens: u64, keys: u64) -> Tensor {
        let output = [("heads", heads), ("tokens", tokens), ("head", self.head())];
        if self.attention == Attention::Math {
            let scores = [("heads", heads), ("tokens", tokens), ("keys", keys)];
            let raw = p.alloc(&SCORES, &scores, FP32);
            let soft = p.alloc(&SCORES, &scores, FP32);
            p.release(raw);
            let narrow = p.alloc(&SCORES, &scores, ACT);
            p.release(soft);
            let y = p.alloc(&ATTENTION, &output, ACT);
            p.release(narrow);
            return y;
        }
        let y = p.alloc(&ATTENTION, &output, ACT);
        p.touch(&LOG_SUM_EXP, &[("heads", heads), ("tokens", tokens)], FP32);
        y
    }

    /// The tiles of video sparse attention.
    fn grid(&self) -> Option<Grid> {
        let Attention::VideoSparse { tile, .. } = self.attention else { return None };
        let [t, h, w] = self.dit.patch;
        // Tiles are 4 x 4 x 4 tokens, or 4 x 8 x 8.
        let side = if tile == 256 { 8 } else { 4 };
        let tiles = (self.latent.frames / t).div_ceil(4) * (self.latent.height / h).div_ceil(side) * (self.latent.width / w).div_ceil(side);
        Some(Grid { tiles, tile: 4 * side * side })
    }

    /// Video sparse attention of the states `x` (query, key, value and gate), which it drops. The padded buffer of tiles is
    /// made by the first layer of a step and kept in `buffer` for the others.
    fn sparse_attention(&self, p: &mut Builder, x: Tensor, grid: Grid, buffer: Option<List>) -> Tensor {
        let padded = grid.tiles * grid.tile;
        if let Some(buffer) = buffer {
            let tiles = self.shared(p, &TILES, 4, padded, ACT);
            p.keep(buffer, tiles);
        }
        let ordered = self.shared(p, &ORDERED, 4, self.tokens(), ACT);
        p.release(ordered);
        p.release(x);
        // The kernel for tiles of 256 tokens reads the buffer as it is.
        let by_head: Vec<Tensor> = (0..if grid.tile == 256 { 0 } else { 4 }).map(|_| self.shared(p, &TILED, 1, padded, ACT)).collect();

        let heads = ("heads", self.heads());
        let scores = [heads, ("tiles", grid.tiles), ("key tiles", grid.tiles)];
        let pooled = [heads, ("tiles", grid.tiles), ("head", self.head())];
        let means = [(); 3].map(|()| p.alloc(&POOLED, &pooled, ACT));
        let raw = p.alloc(&COARSE_SCORES, &scores, ACT);
        let scaled = p.alloc(&COARSE_SCORES, &scores, ACT);
        p.release(raw);
        let wide = p.alloc(&COARSE_SCORES, &scores, FP32);
        let soft = p.alloc(&COARSE_SCORES, &scores, FP32);
        p.release(wide);
        let narrow = p.alloc(&COARSE_SCORES, &scores, ACT);
        let mixed = p.alloc(&COARSE, &pooled, ACT);
        p.release(narrow);
        let coarse = self.shared(p, &COARSE, 1, padded, ACT);
        p.release(mixed);
        let mask = p.alloc(&CHOICE, &scores, 1);
        let indices = p.alloc(&CHOICE, &scores, FP32);
        let counts = p.alloc(&CHOICE, &scores[..2], FP32);
        let fine = self.shared(p, &ATTENTION, 1, padded, ACT);
        let sums = p.alloc(&LOG_SUM_EXP, &[heads, ("tokens", padded)], FP32);
        for tensor in [indices, counts, sums] {
            p.release(tensor);
        }
        let gated = self.shared(p, &COARSE, 1, padded, ACT);
        let sum = self.shared(p, &ATTENTION, 1, padded, ACT);
        p.release(gated);
        for tensor in means.into_iter().chain([scaled, soft, coarse, mask, fine]).chain(by_head) {
            p.release(tensor);
        }
        let y = self.shared(p, &ATTENTION, 1, self.tokens(), ACT);
        p.release(sum);
        y
    }

    /// Self-attention: query, key and value (and the gate) that the block holds, and the output of the kernel.
    fn self_attention(&self, p: &mut Builder, buffer: Option<List>) -> (Held, Tensor) {
        let grid = self.grid();
        let query = self.square(p, &QUERY, self.local());
        let key = self.square(p, &KEY, self.local());
        let value = self.square(p, &VALUE, self.local());
        let states = [("tokens", self.local()), ("hidden", self.dit.hidden)];
        // Quantisation leaves the gate's matrix alone.
        let gate = grid.map(|_| p.alloc(&GATE, &states, ACT));
        let query = self.rms_norm(p, &QUERY, query, self.local());
        let key = self.rms_norm(p, &KEY, key, self.local());

        let count = if gate.is_some() { 4 } else { 3 };
        let joined = p.alloc(&JOINED, &[("states", count), states[0], states[1]], ACT);
        let joined = self.scatter_heads(p, joined, count);
        self.rotary(p);
        let (attended, joined) = match grid {
            Some(grid) => (self.sparse_attention(p, joined, grid, buffer), None),
            None => (self.kernel(p, self.heads(), self.tokens(), self.tokens()), Some(joined)),
        };
        // Padding copies even where nothing is added.
        let padded = self.shared(p, &ATTENTION, 1, self.filled(), ACT);
        p.release(attended);
        let gathered = self.gather_heads(p, padded);
        if let Some(joined) = joined {
            p.release(joined);
        }
        (Held([query, key, value].into_iter().chain(gate).collect()), gathered)
    }

    /// Cross-attention of a rank's tokens to text and image. Ends with the projected output alone.
    fn cross_attention(&self, p: &mut Builder) -> Tensor {
        let query = self.square(p, &QUERY, self.local());
        let query = self.rms_norm(p, &QUERY, query, self.local());
        let pair = |p: &mut Builder, tokens: u64, quantised: bool| {
            let states = [("tokens", tokens), ("hidden", self.dit.hidden)];
            let linear = |p: &mut Builder, site| if quantised { self.square(p, site, tokens) } else { p.alloc(site, &states, ACT) };
            let key = linear(p, &KEY);
            let key = self.rms_norm(p, &KEY, key, tokens);
            [key, linear(p, &VALUE)]
        };
        let text = pair(p, self.text_tokens, true);
        let image = (self.image_tokens > 0).then(|| {
            let pair = pair(p, self.image_tokens, false);
            (pair, self.kernel(p, self.dit.heads, self.local(), self.image_tokens))
        });
        let mut attended = self.kernel(p, self.dit.heads, self.local(), self.text_tokens);
        if image.is_some() {
            let sum = self.unit(p, &ATTENTION, ACT);
            p.release(attended);
            attended = sum;
        }
        let projected = self.square(p, &PROJECTED, self.local());
        p.release(attended);
        let image = image.into_iter().flat_map(|(pair, attended)| pair.into_iter().chain([attended]));
        for tensor in [query].into_iter().chain(text).chain(image) {
            p.release(tensor);
        }
        projected
    }

    /// One block. The caller's reference to `x` is dropped when the block has returned.
    fn block(&self, p: &mut Builder, x: Tensor, buffer: Option<List>) -> Tensor {
        p.phase("modulation");
        let wide = self.modulation(p, 6, FP32);
        let modulation = self.modulation(p, 6, FP32);
        p.release(wide);
        let wide = self.unit(p, &NORM_FP32, FP32);
        let normed = self.layer_norm(p, false);
        p.release(wide);
        let modulated = self.modulate(p, Some(normed), FP32);
        let first_normed = self.unit(p, &NORM, ACT);
        p.release(modulated);

        p.phase("self_attention");
        let (held, attended) = self.self_attention(p, buffer);
        let projected = self.square(p, &PROJECTED, self.local());
        p.release(attended);

        p.phase("residual");
        let gated = self.unit(p, &RESIDUAL_FP32, FP32);
        let residual = self.unit(p, &RESIDUAL_FP32, FP32);
        p.release(gated);
        let normed = self.layer_norm(p, true);
        // Scale and shift are zeros here, and are applied nevertheless.
        let scaled = self.unit(p, &NORM_FP32, FP32);
        let shifted = self.unit(p, &NORM_FP32, FP32);
        for tensor in [scaled, normed, first_normed] {
            p.release(tensor);
        }
        let second_normed = self.unit(p, &NORM, ACT);
        let hidden = self.unit(p, &HIDDEN, ACT);
        p.release(residual);
        p.release(shifted);

        p.phase("cross_attention");
        let crossed = self.cross_attention(p);
        p.release(projected);

        p.phase("feed_forward");
        let sum = self.unit(p, &HIDDEN, ACT);
        let wide = self.unit(p, &NORM_FP32, FP32);
        let normed = self.layer_norm(p, false);
        p.release(wide);
        let narrow = self.unit(p, &NORM, ACT);
        p.release(normed);
        let modulated = self.modulate(p, None, FP32);
        for tensor in [narrow, second_normed, hidden] {
            p.release(tensor);
        }
        let third_normed = self.unit(p, &NORM, ACT);
        p.release(modulated);
        let states = [("tokens", self.local()), ("hidden", self.dit.hidden)];
        let ffn = [("tokens", self.local()), ("ffn", self.dit.ffn)];
        let linear = self.linear(p, &FFN_HIDDEN, (&states, &ffn));
        let activated = p.alloc(&FFN_HIDDEN, &ffn, ACT);
        p.release(linear);
        let out = self.linear(p, &FFN_OUT, (&ffn, &states));
        p.release(activated);

        p.phase("feed_forward_residual");
        let gated = self.unit(p, &RESIDUAL_FP32, FP32);
        let residual = self.unit(p, &RESIDUAL_FP32, FP32);
        p.release(gated);
        p.release(sum);
        let y = self.unit(p, &HIDDEN, ACT);
        for tensor in [residual, modulation, third_normed] {
            p.release(tensor);
        }
        // Query, key, value and both attention outputs are locals of the block.
        held.release(p);
        for tensor in [crossed, out, x] {
            p.release(tensor);
        }
        y
    }

    /// The forward pass of a resident transformer; the prediction is the result. `tiles` is where the first layer of a step
    /// leaves the buffer of tiles that video sparse attention keeps; `None` when it is there already.
    pub fn emit(&self, p: &mut Builder, tiles: Option<List>) -> Tensor {
        self.emit_with(p, &mut Streams::whole(), tiles)
    }

    /// [`emit`](Self::emit); weights come and go as `streams` says.
    pub fn emit_with(&self, p: &mut Builder, streams: &mut Streams, tiles: Option<List>) -> Tensor {
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let rope = [(); 2].map(|()| {
            // The tables are made on the host in fp64, and come to the device so.
            let table = [("tokens", self.tokens()), ("head", self.head())];
            let wide = p.alloc(&ROPE_FP64, &table, 8);
            let narrow = p.alloc(&ROPE, &table, FP32);
            p.release(wide);
            narrow
        });
        let x = self.patches(p);
        let (time, projection) = self.time(p);
        let (context, image) = self.context(p);

        self.blocks(p, streams, x, tiles.filter(|_| self.grid().is_some()));
        streams.end(p);

        p.phase("head");
        let modulation = self.modulation(p, 2, ACT);
        let wide = self.unit(p, &NORM_FP32, FP32);
        let normed = self.layer_norm(p, false);
        p.release(wide);
        let narrow = self.unit(p, &NORM, ACT);
        p.release(normed);
        let wide = self.unit(p, &NORM_FP32, FP32);
        p.release(narrow);
        let modulated = self.modulate(p, None, ACT);
        let mut y = self.unit(p, &NORM, ACT);
        for tensor in [modulated, wide, x] {
            p.release(tensor);
        }
        if self.ranks > 1 {
            let gathered = p.alloc(&GATHERED, &[("tokens", self.filled()), ("hidden", self.dit.hidden)], ACT);
            p.release(y);
            y = gathered;
        }
        let out = [("tokens", self.tokens()), ("patch", self.dit.patch.iter().product()), ("channels", self.dit.out_channels)];
        let linear = p.alloc(&PREDICTION, &out, ACT);
        p.release(y);
        let prediction = p.alloc(&PREDICTION, &out, ACT);
        for tensor in [linear, context].into_iter().chain(image).chain(rope).chain([time, projection, modulation]) {
            p.release(tensor);
        }
        prediction
    }

    /// The patch embedding: a rank's share of it.
    fn patches(&self, p: &mut Builder) -> Tensor {
        let (hidden, tokens) = (("hidden", self.dit.hidden), self.tokens());
        let patch: u64 = self.dit.patch.iter().product();
        let whole = p.alloc(&PATCHES, &[("tokens", tokens), hidden], ACT);
        // cuDNN's copies of input, output and weights, as in diffusers' class.
        let input = self.latent.frames * self.latent.height * self.latent.width * pad8(self.dit.in_channels);
        let weights = pad8(self.dit.in_channels) * patch * self.dit.hidden;
        let copies = input + tokens * self.dit.hidden + weights + CUDNN_HEADER / ACT;
        p.touch(&PATCH_WORKSPACE, &[("input, output and weights", copies)], ACT);
        if self.ranks == 1 {
            return whole;
        }
        let share = if self.filled() > tokens {
            // Filled up, the states are in the order of tokens, and a rank's share is a view that keeps all of them.
            let padding = p.alloc(&PATCHES, &[("tokens", self.filled() - tokens), hidden], ACT);
            let filled = p.alloc(&PATCHES, &[("tokens", self.filled()), hidden], ACT);
            p.release(padding);
            filled
        } else {
            self.unit(p, &HIDDEN, ACT)
        };
        p.release(whole);
        share
    }

    /// The time embedding and its projection to six vectors, of the video or of each token.
    fn time(&self, p: &mut Builder) -> (Tensor, Tensor) {
        let timesteps = self.timesteps();
        let half = [timesteps, ("half of frequencies", FREQUENCIES / 2)];
        let frequencies = [timesteps, ("frequencies", FREQUENCIES)];
        let angles = p.alloc(&TIME, &half, FP32);
        let waves = [(); 2].map(|()| p.alloc(&TIME, &half, FP32));
        let sinusoids = p.alloc(&TIME, &frequencies, FP32);
        for tensor in [waves[1], waves[0], angles] {
            p.release(tensor);
        }
        let narrow = p.alloc(&TIME, &frequencies, ACT);
        p.release(sinusoids);
        let hidden = [timesteps, ("hidden", self.dit.hidden)];
        let first = p.alloc(&TIME, &hidden, ACT);
        let activated = p.alloc(&TIME, &hidden, ACT);
        p.release(first);
        let time = p.alloc(&TIME, &hidden, ACT);
        p.release(activated);
        p.release(narrow);
        let activated = p.alloc(&TIME, &hidden, ACT);
        let projection = p.alloc(&TIME_PROJECTION, &[timesteps, ("vectors", 6), ("hidden", self.dit.hidden)], ACT);
        p.release(activated);
        (time, projection)
    }

    /// A linear layer, an activation and another linear layer over embeddings; the input's reference stays the caller's.
    fn embed(p: &mut Builder, site: &'static Site, tokens: u64, widths: [u64; 2]) -> Tensor {
        let dims = |width: u64| [("tokens", tokens), ("width", width)];
        let first = p.alloc(site, &dims(widths[0]), ACT);
        let activated = p.alloc(site, &dims(widths[0]), ACT);
        p.release(first);
        let second = p.alloc(site, &dims(widths[1]), ACT);
        p.release(activated);
        second
    }

    /// A layer norm of embeddings by way of fp32; the input's reference stays the caller's.
    fn embedding_norm(p: &mut Builder, tokens: u64, width: u64) -> Tensor {
        let dims = [("tokens", tokens), ("width", width)];
        let wide = p.alloc(&NORM_FP32, &dims, FP32);
        let normed = p.alloc(&NORM_FP32, &dims, FP32);
        p.release(wide);
        let narrow = p.alloc(&IMAGE, &dims, ACT);
        p.release(normed);
        narrow
    }

    /// The text's embedding, with the image's before it, and the image's own, which keeps its name.
    fn context(&self, p: &mut Builder) -> (Tensor, Option<Tensor>) {
        let hidden = self.dit.hidden;
        let cast = (self.text_element != ACT).then(|| p.alloc(&TEXT, &[("tokens", self.text_tokens), ("width", self.dit.text)], ACT));
        let first = p.alloc(&TEXT, &[("tokens", self.text_tokens), ("hidden", hidden)], ACT);
        if let Some(cast) = cast {
            p.release(cast);
        }
        let activated = p.alloc(&TEXT, &[("tokens", self.text_tokens), ("hidden", hidden)], ACT);
        p.release(first);
        let text = p.alloc(&TEXT, &[("tokens", self.text_tokens), ("hidden", hidden)], ACT);
        p.release(activated);
        if self.image_tokens == 0 {
            return (text, None);
        }
        let normed = Self::embedding_norm(p, self.image_tokens, IMAGE_FEATURES);
        let projected = Self::embed(p, &IMAGE, self.image_tokens, [IMAGE_FEATURES, hidden]);
        p.release(normed);
        let image = Self::embedding_norm(p, self.image_tokens, hidden);
        p.release(projected);
        let joined = p.alloc(&TEXT, &[("tokens", self.text_tokens + self.image_tokens), ("hidden", hidden)], ACT);
        p.release(text);
        (joined, Some(image))
    }

    /// All blocks over `x`, a name that means the last result in the end.
    fn blocks(&self, p: &mut Builder, streams: &mut Streams, x: Tensor, tiles: Option<List>) {
        let block = |p: &mut Builder, buffer: Option<List>| {
            let y = self.block(p, x, buffer);
            p.rebind(x, y);
        };
        let resident = streams.resident().min(self.dit.blocks);
        // The block that makes the buffer of tiles is told apart from the others.
        let first = u64::from(tiles.is_some()).min(self.dit.blocks);
        let first_resident = first.min(resident);
        if first_resident > 0 {
            block(p, tiles);
        }
        p.repeat_sampled(resident - first_resident, 2, 0, |p| block(p, None));
        let streamed = |p: &mut Builder, buffer: Option<List>| {
            p.phase("weights_in");
            streams.begin_group(p);
            block(p, buffer);
            streams.end_group(p);
        };
        let first_streamed = first - first_resident;
        if first_streamed > 0 {
            streamed(p, tiles);
        }
        p.repeat_sampled(self.dit.blocks - resident - first_streamed, 2, 0, |p| streamed(p, None));
    }
}

#[cfg(test)]
mod tests {
    use fv_spec::estimate::BufferKind;

    use super::super::geometry::Vae;
    use super::super::simulated::{assert_equal, assert_peak, assert_recorded, program, table};
    use super::*;
    use crate::program::Program;

    static INPUT: Site = Site { name: "input", kind: BufferKind::Activation, rule: "test" };

    fn dit(model: &str, sparse_gate: bool, blocks: u64) -> Dit {
        let (hidden, ffn, input, output) = match model {
            "1.3b" => (1536, 8960, 16, 16),
            "14b" => (5120, 13824, 16, 16),
            "14b-i2v" => (5120, 13824, 36, 16),
            _ => (3072, 14336, 48, 48),
        };
        Dit {
            hidden,
            ffn,
            heads: hidden / 128,
            blocks,
            patch: [1, 2, 2],
            in_channels: input,
            out_channels: output,
            text: 4096,
            image_branch: model == "14b-i2v",
            sparse_gate,
        }
    }

    fn forward(dit: Dit, [height, width, frames]: [u64; 3]) -> Forward {
        let vae = if dit.out_channels == 48 { Vae::WAN22 } else { Vae::WAN21 };
        Forward {
            dit,
            latent: Latent::of(&vae, 1, frames, height, width),
            text_tokens: 512,
            text_element: FP32,
            image_tokens: if dit.image_branch { 257 } else { 0 },
            attention: if dit.sparse_gate { Attention::VideoSparse { sparsity_permille: 800, tile: 64 } } else { Attention::Flash },
            per_token_timesteps: false,
            ranks: 1,
            fp8: false,
        }
    }

    /// A forward pass as it was simulated: inputs, and the pass.
    fn simulated(f: Forward) -> Program {
        program(|p| pass(p, f))
    }

    fn pass(p: &mut Builder, f: Forward) {
        let latent = [("channels", f.dit.in_channels), ("frames", f.latent.frames), ("height", f.latent.height), ("width", f.latent.width)];
        p.alloc(&INPUT, &latent, ACT);
        p.alloc(&INPUT, &[("tokens", f.text_tokens), ("width", f.dit.text)], f.text_element);
        if f.image_tokens > 0 {
            p.alloc(&INPUT, &[("tokens", f.image_tokens), ("features", IMAGE_FEATURES)], ACT);
        }
        p.alloc(&INPUT, &[f.timesteps()], FP32);
        let tiles = p.list();
        f.emit(p, Some(tiles));
    }

    /// The same as the table has it, with the index tensors of the sparse attention's metadata.
    fn tabulated(f: Forward) -> Program {
        program(|p| {
            if let Some(grid) = f.grid() {
                p.alloc(&INPUT, &[("indices", 4), ("tokens", f.tokens())], 8);
                p.alloc(&INPUT, &[("tiles", grid.tiles)], FP32);
            }
            pass(p, f);
        })
    }

    #[test]
    fn a_forward_pass_is_the_simulated_one() {
        let three = |model: &str, vsa| dit(model, vsa, 3);
        let small = [480, 832, 81];
        for (name, forward) in [
            ("dit_1.3b_480x832x81", forward(three("1.3b", false), small)),
            ("dit_1.3b_vsa_480x832x81", forward(three("1.3b", true), small)),
            ("dit_14b_i2v_480x832x81", forward(three("14b-i2v", false), small)),
            ("dit_5b_per_token_704x1280x121", Forward { per_token_timesteps: true, ..forward(three("5b", false), [704, 1280, 121]) }),
            ("dit_14b_i2v_fp8_480x832x81", Forward { fp8: true, ..forward(three("14b-i2v", false), small) }),
            ("dit_14b_8_ranks_496x832x81", Forward { ranks: 8, ..forward(three("14b", false), [496, 832, 81]) }),
            ("dit_14b_vsa_4_ranks_480x832x81", Forward { ranks: 4, ..forward(three("14b", true), small) }),
        ] {
            assert_equal(&simulated(forward), name);
        }
    }

    #[test]
    fn peaks_are_the_simulated_ones() {
        for row in table("wan_dit_sim.csv") {
            let number = |column: &str| row[column].parse().expect("a number");
            let forward = Forward {
                per_token_timesteps: row["per_token_timesteps"] == "1",
                ..forward(
                    dit(&row["model"], row["attention"].starts_with("vsa"), 30),
                    [number("height"), number("width"), number("frames")],
                )
            };
            assert_eq!(forward.tokens(), number("tokens"));
            let name = format!(
                "{} {} {} x {} x {} {}",
                row["model"], row["attention"], row["height"], row["width"], row["frames"], row["per_token_timesteps"]
            );
            assert_peak(&tabulated(forward), &row["activation_peak_GiB"], &name);
        }
    }

    #[test]
    fn a_forward_pass_is_the_recorded_one() {
        for (name, forward) in [
            ("dit1.3b_480x832x81", forward(dit("1.3b", false, 3), [480, 832, 81])),
            ("dit1.3b_vsa_480x832x81", forward(dit("1.3b", true, 3), [480, 832, 81])),
            ("dit5b_pertoken_480x832x81", Forward { per_token_timesteps: true, ..forward(dit("5b", false, 3), [480, 832, 81]) }),
            ("i2v14b_480x832x33", forward(dit("14b-i2v", false, 3), [480, 832, 33])),
        ] {
            let recorded = program(|p| {
                let tiles = p.list();
                forward.emit(p, Some(tiles));
                p.release_list(tiles);
            });
            assert_recorded(&recorded, name, 0);
        }
    }
}
