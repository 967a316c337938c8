//! What the Wan rules read of a model and a request: extents of the transformer, the VAE and the latent.

use fv_spec::compiled::ExpandedComponent;

use crate::forecast::operations::Decoder;
use crate::modules::parameter::{MAX_WIDTH, counts, within};

/// A Wan transformer. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Blocks.
    pub blocks: u64,
    /// Latent frames, rows and columns of a patch.
    pub patch: [u64; 3],
    /// Channels of the input, conditioning channels included.
    pub in_channels: u64,
    /// Channels of the prediction.
    pub out_channels: u64,
    /// Width of the text embedding.
    pub text: u64,
    /// Whether cross-attention has a branch for image tokens.
    pub image_branch: bool,
    /// Whether each block has the gate of video sparse attention.
    pub sparse_gate: bool,
}

/// Width of the sinusoidal timestep features (`freq_dim`, Wan configuration).
pub const FREQUENCIES: u64 = 256;
/// Width of CLIP ViT-H/14 features (`image_dim`, Wan image-to-video configuration).
pub const IMAGE_FEATURES: u64 = 1280;

const MAX_PATCH: u64 = 16;
const MAX_CHANNELS: u64 = 1 << 16;

/// Parameters of one block without options: closed form over the layer list of the published model code.
///
/// Eight square projections with bias, two affine pairs of q/k norms, the affine norm before cross-attention, the
/// feed-forward pair and the modulation table.
pub fn block_parameters(hidden: u64, ffn: u64) -> Option<u64> {
    let square = hidden.checked_mul(hidden)?.checked_add(hidden)?.checked_mul(8)?;
    let pair = hidden.checked_mul(ffn)?.checked_mul(2)?.checked_add(hidden)?.checked_add(ffn)?;
    square.checked_add(pair)?.checked_add(hidden.checked_mul(12)?)
}

/// What the gate of video sparse attention adds to a block: one square projection with bias.
pub fn gate_parameters(hidden: u64) -> Option<u64> {
    hidden.checked_mul(hidden)?.checked_add(hidden)
}

/// What the image branch adds to a block: k and v projections with bias, and the norm of k.
pub fn image_parameters(hidden: u64) -> Option<u64> {
    gate_parameters(hidden)?.checked_mul(2)?.checked_add(hidden)
}

impl Dit {
    /// Reads a transformer of the catalog. `Err` names what is missing, out of range or does not agree. Within these ranges no
    /// product of a transformer's own extents overflows.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let number = |name: &str, most: u64| {
            let value = geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("transformer geometry lacks {name}"))?;
            within(&format!("transformer geometry: {name}"), value, most)
        };
        let patch: Vec<u64> = geometry
            .get("patch_size")
            .and_then(serde_json::Value::as_array)
            .map(|list| list.iter().filter_map(serde_json::Value::as_u64).collect())
            .unwrap_or_default();
        let patch: [u64; 3] = patch.try_into().map_err(|_| "transformer geometry lacks patch_size")?;
        for side in patch {
            within("transformer geometry: patch_size", side, MAX_PATCH)?;
        }
        let (hidden, ffn) = (number("hidden_size", MAX_WIDTH)?, number("ffn_size", MAX_WIDTH)?);
        let blocks = component.block_count.ok_or("the transformer has no block_count")?.get();
        let block = component.block_parameter_count.ok_or("the transformer has no block_parameter_count")?.get();
        counts("the transformer", blocks, block, component.parameter_count.get())?;
        let plain = block_parameters(hidden, ffn).ok_or("transformer geometry is too large")?;
        let gate = gate_parameters(hidden).unwrap_or(0);
        let image = image_parameters(hidden).unwrap_or(0);
        let (sparse_gate, image_branch) = match block.checked_sub(plain) {
            Some(0) => (false, false),
            Some(extra) if extra == gate => (true, false),
            Some(extra) if extra == image => (false, true),
            Some(extra) if extra == gate + image => (true, true),
            _ => {
                return Err(format!(
                    "a block of {block} parameters is not a Wan block of width {hidden} and feed-forward width {ffn} ({plain})"
                ));
            }
        };
        Ok(Self {
            hidden,
            ffn,
            heads: number("num_attention_heads", hidden)?,
            blocks,
            patch,
            in_channels: number("in_channels", MAX_CHANNELS)?,
            out_channels: number("out_channels", MAX_CHANNELS)?,
            text: number("text_dim", MAX_WIDTH)?,
            image_branch,
            sparse_gate,
        })
    }
}

/// A Wan VAE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vae {
    /// Base width of the encoder.
    pub encoder_channels: u64,
    /// Base width of the decoder.
    pub decoder_channels: u64,
    /// Latent channels.
    pub latent_channels: u64,
    /// Channels of a frame as the last convolution leaves it.
    pub output_channels: u64,
    /// Output pixels on a side that one value of the last convolution stands for (1 for Wan 2.1, 2 for Wan 2.2).
    pub pixel_patch: u64,
    /// Pixels of a side to one latent position.
    pub spatial: u64,
    /// Frames to one latent frame after the first.
    pub temporal: u64,
    /// Whether levels have the averaging shortcut of Wan 2.2.
    pub residual: bool,
}

impl Vae {
    /// Wan 2.1: base width 96 (class defaults of diffusers 0.42.1).
    pub const WAN21: Self = Self {
        encoder_channels: 96,
        decoder_channels: 96,
        latent_channels: 16,
        output_channels: 3,
        pixel_patch: 1,
        spatial: 8,
        temporal: 4,
        residual: false,
    };
    /// Wan 2.2: base widths 160 and 256, patches of 2 x 2 pixels.
    pub const WAN22: Self = Self {
        encoder_channels: 160,
        decoder_channels: 256,
        latent_channels: 48,
        output_channels: 12,
        pixel_patch: 2,
        spatial: 16,
        temporal: 4,
        residual: true,
    };

    /// Operations of decoding, counted by running diffusers' class on the meta device at several sizes.
    pub fn decoder(&self) -> Decoder {
        if self.residual { Decoder { first: 22_800_000, each: 18_400_000 } } else { Decoder { first: 10_900_000, each: 8_482_000 } }
    }

    /// Reads a VAE of the catalog.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the VAE has no geometry")?;
        let number = |name: &str| geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("VAE geometry lacks {name}"));
        let found = (number("vae_decoder_channels")?, number("spatial_compression")?, number("temporal_compression")?);
        [Self::WAN21, Self::WAN22].into_iter().find(|vae| (vae.decoder_channels, vae.spatial, vae.temporal) == found).ok_or(format!(
            "no Wan VAE has decoder width {}, spatial compression {} and temporal compression {}",
            found.0, found.1, found.2
        ))
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
    /// The latent of a video of `frames` x `height` x `width` pixels: the first frame alone, then `temporal` at a time.
    pub fn of(vae: &Vae, batch: u64, frames: u64, height: u64, width: u64) -> Self {
        Self { batch, frames: frames.saturating_sub(1) / vae.temporal + 1, height: height / vae.spatial, width: width / vae.spatial }
    }

    /// Tokens of one video: patches of the latent. Tiling of the VAE never changes it.
    pub fn tokens(&self, dit: &Dit) -> u64 {
        let [t, h, w] = dit.patch;
        (self.frames / t) * (self.height / h) * (self.width / w)
    }
}
