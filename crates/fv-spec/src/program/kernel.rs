//! What an operation computes. Matrices are `[rows x columns]` with rows of pixels or tokens and columns of features; what each
//! kernel reads and writes is listed in order, and what is in brackets is there only where the kernel says so.
//!
//! Video features are rows too: frame by frame, row by row, one matrix row for each pixel, its channels innermost. Latents,
//! predictions and samples are `[channels x (frames * height * width)]`, as checkpoints' pipelines keep them.

use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use schemars::JsonSchema;

words! {
    /// A function of one number.
    Function {
        /// Nothing.
        Identity "identity",
        /// `x * sigmoid(x)`.
        Silu "silu",
        /// The approximation of GELU by a hyperbolic tangent.
        GeluTanh "gelu_tanh",
    }
}

/// Frames, rows and columns of tokens or pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the words are the definition")]
pub struct Grid {
    pub frames: u64,
    pub height: u64,
    pub width: u64,
}

impl Grid {
    /// Positions.
    pub fn len(self) -> u64 {
        self.frames * self.height * self.width
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many tiles of this many positions cover it, in each direction.
    #[must_use]
    pub fn tiles(self, tile: Self) -> Self {
        Self {
            frames: self.frames.div_ceil(tile.frames),
            height: self.height.div_ceil(tile.height),
            width: self.width.div_ceil(tile.width),
        }
    }
}

/// What is computed or moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
pub enum Kernel {
    // ---- movement ----
    /// Bytes of a group, from the file of its checkpoint. Writes: bytes of host memory.
    Read {
        /// Index of the group.
        group: u32,
        /// Where in the group it begins.
        first_byte: u64,
    },
    /// Rows of a table that stays in its file, by number. Reads: ids `[n x 1]`. Writes: host rows `[n x width]`.
    Lookup {
        /// Index of the group.
        group: u32,
        /// Index of the tensor in it.
        tensor: u32,
    },
    /// The same numbers at another place, in another format where the elements differ. Reads: source. Writes: target.
    Copy,
    /// Zeros. Writes: target.
    Zero,
    /// What comes from outside the program: token ids, noise. Writes: target, in host memory.
    Input {
        /// What.
        what: Input,
        /// Which one, where there are several: noise is the first latent, then has one after each step but the last. In a repeated
        /// segment it is that of the first repetition, and each one after it has the next.
        index: u32,
    },
    /// What leaves the program. Reads: host memory.
    Output {
        /// What.
        what: Output,
        /// Which one: the frame at which a piece of video begins.
        index: u32,
    },

    // ---- matrices ----
    /// `f(x w^T + b)`. Reads: x `[m x k]`, w `[n x k]`, [b `[1 x n]`]. Writes: `[m x n]`.
    Product {
        /// Whether there is a bias.
        bias: bool,
        /// Applied to each result.
        function: Function,
    },
    /// Eight-bit weights as numbers. Reads: w `[n x k]`, scales `[1 x n]` in f32, one for each row. Writes: `[n x k]`.
    Dequantise,
    /// `a + b`, rows of b repeated where there are fewer. Reads: a, b. Writes: target, which may be a.
    Add,
    /// `f(a) * b`. Reads: a, b. Writes: target, which may be a or b.
    Multiply {
        /// Applied to a.
        function: Function,
    },
    /// `f(x)`. Reads: x. Writes: target, which may be x.
    Apply {
        /// The function.
        function: Function,
    },
    /// `x + y * g`. Reads: x, y, g `[1 x d]`. Writes: target, which may be x.
    GatedAdd,

    // ---- norms ----
    /// Layer norm over each row, then `* w + b`, then `* (1 + scale) + shift`. Reads: x, [w, b], [shift, scale], each `[1 x d]`.
    /// Writes: target.
    LayerNorm {
        /// Added to the variance.
        epsilon: f64,
        /// Whether there is an affine part.
        affine: bool,
        /// Whether there is a modulation.
        modulated: bool,
    },
    /// `x / sqrt(mean(x^2) + epsilon) * w` over each row. Reads: x, w `[1 x d]`. Writes: target, which may be x.
    RmsNorm {
        /// Added to the mean square.
        epsilon: f64,
    },
    /// `f(x / max(|x|, 1e-12) * sqrt(d) * w)` over each row. Reads: x, w `[1 x d]`. Writes: target, which may be x.
    UnitNorm {
        /// Applied to each result.
        function: Function,
    },

    // ---- positions and attention ----
    /// Cosines and sines of three-dimensional rotary embedding. Writes: `[tokens x head_dim]`, for each pair of features its cosine
    /// and its sine next to each other. Of `head_dim` features, `2 * (head_dim / 6)` are for rows, as many for columns, the rest
    /// for frames, which come first; the base is 10,000.
    RotaryTable {
        /// Positions of the tokens.
        grid: Grid,
        /// Features of a head.
        head_dim: u64,
    },
    /// Rotates pairs of neighbouring features. Reads: x `[m x heads * head_dim]`, table `[m x head_dim]`. Writes: target, which
    /// may be x.
    Rotate {
        /// Features of a head.
        head_dim: u64,
    },
    /// Softmax attention. Reads: q `[m x heads * head_dim]`, k and v `[n x heads * head_dim]`, [bias `[heads * m x n]`]. Writes:
    /// `[m x heads * head_dim]`, which may be q.
    Attention {
        /// Features of a head.
        head_dim: u64,
        /// Scores are multiplied by it.
        scale: f64,
        /// Whether a bias is added to the scores.
        bias: bool,
    },
    /// Bias by distance. Reads: table `[buckets x heads]`. Writes: `[heads * n x n]`.
    RelativeBias {
        /// Distances beyond it share the last bucket.
        max_distance: u64,
    },
    /// Means over the tokens of each tile. Reads: x `[tokens x d]`. Writes: `[tiles x d]`.
    TileMeans {
        /// Positions of the tokens.
        grid: Grid,
        /// Positions of a tile; those outside the grid do not count.
        tile: Grid,
    },
    /// Attention between tiles, and which tiles matter most to each. Reads: means of q, k and v `[tiles x heads * head_dim]`.
    /// Writes: outputs `[tiles x heads * head_dim]`, chosen tiles `[heads * tiles x keep]`, the best first.
    TileScores {
        /// Features of a head.
        head_dim: u64,
        /// Scores are multiplied by it.
        scale: f64,
        /// Tiles that are chosen.
        keep: u64,
    },
    /// Attention of each token to the tokens of its tile's chosen tiles. Reads: q, k, v `[tokens x heads * head_dim]`, chosen
    /// tiles. Writes: `[tokens x heads * head_dim]`, which may be q.
    TileAttention {
        /// Positions of the tokens.
        grid: Grid,
        /// Positions of a tile.
        tile: Grid,
        /// Features of a head.
        head_dim: u64,
        /// Scores are multiplied by it.
        scale: f64,
    },
    /// `x + coarse[tile of the row] * gate`. Reads: x, coarse `[tiles x d]`, gate. Writes: target, which may be x.
    TileAdd {
        /// Positions of the tokens.
        grid: Grid,
        /// Positions of a tile.
        tile: Grid,
        /// The token of the first row.
        first_row: u64,
    },

    // ---- latents and sampling ----
    /// Sinusoids of the current step's timestep, cosines first. Writes: `[1 x width]`.
    TimestepFeatures,
    /// Patches of a latent as rows: channel, frame, row, column from the outermost. Reads: latent. Writes: `[rows x c * patch]`.
    Patches {
        /// Extents of the latent.
        latent: Grid,
        /// Extents of a patch.
        patch: Grid,
        /// The token of the first row that is written.
        first_row: u64,
    },
    /// Rows as patches of a latent, channels innermost in a row: frame, row, column, channel. Reads: `[rows x patch * c]`.
    /// Writes: latent.
    Unpatch {
        /// Extents of the latent.
        latent: Grid,
        /// Extents of a patch.
        patch: Grid,
        /// The token of the first row that is read.
        first_row: u64,
    },
    /// `b + scale * (a - b)`. Reads: a with the prompt, b without. Writes: target, which may be a.
    Guide {
        /// The guidance scale.
        scale: f64,
    },
    /// One step of the schedule's sampler. Reads: sample, prediction, then its states in order, [noise]. Writes: sample, states.
    /// `UniPC` has the last two predictions of the clean latent and the last sample as states; distribution matching reads noise
    /// in every step but the last.
    Sample,

    // ---- video autoencoders ----
    /// Positions of a latent as rows, `latent * deviation + mean` of each channel. Reads: latent `[c x positions]`, means `[1 x c]`,
    /// deviations `[1 x c]`. Writes: `[positions of window x c]`.
    LatentRows {
        /// Extents of the latent.
        latent: Grid,
        /// Frame, row and column at which the window begins.
        first: [u64; 3],
        /// Extents of the window.
        window: Grid,
    },
    /// A convolution whose frames look only back. Reads: x of `input` frames, w `[n x kt * kh * kw * c]` with channels innermost,
    /// b `[1 x n]`, then `cached` frames before x, each `[height * width x c]` and the oldest first, [what is added to the result,
    /// `[frames * height * width x n]`]. Frames before those, and pixels beyond the borders, are zeros: `kt - 1` frames before x,
    /// half a kernel on each side. Writes: `[frames * height * width x n]`, which may be what is added.
    Convolve {
        /// Extents of x.
        input: Grid,
        /// Extents of the kernel.
        kernel: Grid,
        /// Frames before x that are at hand: at most `kt - 1`.
        cached: u64,
        /// Whether something is added to the result.
        residual: bool,
    },
    /// Each pixel four times. Reads: x of `input` frames. Writes: twice the rows and columns.
    Upsample {
        /// Extents of x.
        input: Grid,
    },
    /// Adds the shortcut of residual decoders: x with its channels spread over `time` frames and `space` x `space` pixels, of which
    /// one frame is made. Pixel (i, j) of a square gets, in channel m, channel `(((m * time + part) * space + i) * space + j) / r`
    /// of x, where `r = n * time * space * space / c`. Reads: y `[frames * height * space * width * space x n]`, x of `input`
    /// frames `[.. x c]`. Writes: y plus that; target, which may be y.
    Spread {
        /// Extents of x.
        input: Grid,
        /// Frames from one.
        time: u64,
        /// Which of those.
        part: u64,
        /// Pixels of a side from one.
        space: u64,
    },
    /// Fades from the tiles above and on the left into a tile: of n rows, row y becomes `(1 - y / n) * above + y / n * tile`, then
    /// columns in the same way. Reads: x of `tile` frames, [rows `[frames * above * width x c]` if there are any], [columns
    /// `[frames * height * left x c]` if there are any]. Writes: target, which may be x.
    Blend {
        /// Extents of the tile.
        tile: Grid,
        /// Rows that are blended with the tile above.
        above: u64,
        /// Columns that are blended with the tile on the left, rows being blended already.
        left: u64,
    },
    /// Features as colours, clamped to between -1 and 1, or `255 * (x + 1) / 2` rounded to bytes where the target is of bytes. A row's
    /// features are channel, column, row of a `patch` x `patch` square, rows innermost. Reads: x `[.. x c * patch * patch]`.
    /// Writes: `[frames * height * patch * width * patch x c]`.
    Pixels {
        /// Extents of x.
        input: Grid,
        /// Pixels of a side from one.
        patch: u64,
    },
}

words! {
    /// What comes from outside.
    Input {
        /// Ids of the prompt's tokens.
        Prompt "prompt",
        /// Ids of the negative prompt's tokens.
        NegativePrompt "negative_prompt",
        /// Normal noise.
        Noise "noise",
        /// A latent, where it is all that a program decodes.
        Latent "latent",
        /// Means of the latent's channels.
        LatentMean "latent_mean",
        /// Standard deviations of the latent's channels.
        LatentDeviation "latent_deviation",
    }
}

words! {
    /// What leaves.
    Output {
        /// The latent after the last step.
        Latent "latent",
        /// Pixels.
        Video "video",
    }
}
