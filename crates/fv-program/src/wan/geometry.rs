//! Extents of the components, and what is asked of them.

use fv_spec::authored::Role;
use fv_spec::program::Schedule;
use fv_spec::program::kernel::Grid;

use super::schedule::Table;

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Its id in the catalog.
    pub id: String,
    /// Text encoder.
    pub text: Umt5,
    /// Transformer; with two experts both have the same extents.
    pub transformer: Dit,
    /// With two experts: the first one denoises while the timestep, of 1,000, is at least this.
    pub boundary: Option<f64>,
    /// Video decoder.
    pub vae: Vae,
}

/// A Wan transformer. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dit {
    /// Width of the residual stream: heads times features of a head.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Width of the feed-forward layer.
    pub ffn: u64,
    /// Blocks.
    pub blocks: u64,
    /// Latent frames, rows and columns of a patch.
    pub patch: [u64; 3],
    /// Channels of the latent that goes in.
    pub in_channels: u64,
    /// Channels of the prediction.
    pub out_channels: u64,
    /// Width of the text embedding.
    pub text: u64,
    /// Width of the timestep's sinusoids.
    pub frequencies: u64,
    /// Video sparse attention, where the checkpoint has its gate.
    pub sparse: Option<Sparse>,
}

/// Video sparse attention over tiles of 4 x 4 x 4 tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparse {
    /// The part of tiles that each tile does not attend to.
    pub sparsity: f64,
}

impl Sparse {
    /// Tiles that each tile attends to, out of so many: `max(1, ceil((1 - sparsity) * tiles))`.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count of tiles")]
    pub fn keep(self, tiles: u64) -> u64 {
        (((1.0 - self.sparsity) * tiles as f64).ceil() as u64).clamp(1, tiles.max(1))
    }
}

/// A UMT5 encoder. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Umt5 {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Features of a head.
    pub head_dim: u64,
    /// Width of the feed-forward layer.
    pub ffn: u64,
    /// Layers, each with a table of distances of its own.
    pub layers: u64,
    /// Entries of the vocabulary.
    pub vocabulary: u64,
    /// Buckets of distances.
    pub buckets: u64,
    /// Distances beyond it share a bucket.
    pub max_distance: u64,
}

/// A Wan video decoder. Counts are channels unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vae {
    /// Channels of the latent.
    pub latent: u64,
    /// Base width of the decoder; levels have 4, 4, 2 and 1 times as many.
    pub width: u64,
    /// Residual blocks of a level beside the first.
    pub residual_blocks: u64,
    /// Colours that leave the last convolution, all pixels of a patch.
    pub output: u64,
    /// Pixels of a patch's side: 1, and 2 for Wan 2.2.
    pub patch: u64,
    /// Whether levels have the shortcut of Wan 2.2.
    pub residual: bool,
}

impl Vae {
    /// Pixels of a side to one latent position.
    pub fn spatial(&self) -> u64 {
        8 * self.patch
    }

    /// Frames to one latent frame after the first.
    pub fn temporal(&self) -> u64 {
        4
    }
}

/// What is to be generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Pixel rows.
    pub height: u64,
    /// Pixel columns.
    pub width: u64,
    /// Frames.
    pub frames: u64,
    /// The noise schedule.
    pub schedule: Schedule,
    /// How far predictions are moved away from those without a prompt; 1 is not at all, and then they are not computed. The
    /// second number is that of the second expert.
    pub guidance: [f64; 2],
    /// Tokens of the prompt, its end included.
    pub prompt_tokens: u64,
    /// Tokens of the negative prompt, its end included.
    pub negative_tokens: u64,
    /// Rows of text that the transformer sees; those beyond the tokens are zeros.
    pub text_rows: u64,
}

impl Request {
    /// Whether a guidance scale asks for predictions without the prompt.
    pub fn guides(scale: f64) -> bool {
        (scale - 1.0).abs() > 0.0
    }

    /// Whether some expert is guided.
    pub fn guided(&self) -> bool {
        self.guidance.into_iter().any(Self::guides)
    }
}

impl Model {
    /// Its transformers, in the order in which they run.
    pub fn transformers(&self) -> &'static [Role] {
        if self.boundary.is_some() { &[Role::Transformer, Role::Transformer2] } else { &[Role::Transformer] }
    }

    /// Extents of the latent of a request whose size is legal.
    pub fn latent(&self, request: &Request) -> Grid {
        let (space, time) = (self.vae.spatial(), self.vae.temporal());
        Grid { frames: (request.frames - 1) / time + 1, height: request.height / space, width: request.width / space }
    }

    /// Tokens of a request whose size is legal.
    pub fn tokens(&self, request: &Request) -> u64 {
        let (latent, [frames, height, width]) = (self.latent(request), self.transformer.patch);
        (latent.frames / frames) * (latent.height / height) * (latent.width / width)
    }

    /// Steps of the first expert; all where there is one.
    pub fn steps_of_first(&self, schedule: &Schedule) -> u32 {
        self.boundary.map_or(schedule.steps, |boundary| Table::new(schedule).steps_of_first(boundary))
    }
}
