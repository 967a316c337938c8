//! Extents of MiniMax H3: its transformer, its video VAE, and the rows of the packed sequence.

use fv_spec::compiled::ExpandedComponent;

/// Timestep features (`freq_dim`), the width of the timestep's hidden layer and of its embedding (class defaults of
/// `MiniMaxH3Transformer3DModel`).
pub const FREQUENCIES: u64 = 256;
/// Width of the timestep embedding, which every modulation is projected from (`time_embed_dim`).
pub const TIME: u64 = 2688;
/// Modalities that have modulation vectors of their own: video, text, audio.
pub const MODALITIES: u64 = 3;
/// Width of the text states (`text_dim`).
pub const TEXT: u64 = 5120;
/// Channels of a video row: 24 latent channels of a patch of 2 x 2.
pub const VIDEO_ROW: u64 = 96;
/// Channels of an audio row.
pub const AUDIO_ROW: u64 = 32;
/// Frequencies of each of the three rotary axes (`rope_freq_dim`).
pub const ROTARY_FREQUENCIES: u64 = 16;
/// Channels of a head that are rotated.
pub const ROTARY: u64 = 2 * 3 * ROTARY_FREQUENCIES;
/// Blocks of the token refiner.
pub const REFINER_BLOCKS: u64 = 2;
/// Rank of the factored modulation of the small checkpoints.
const RANK: u64 = 16;
/// Frames of a clip of the VAE, and the latent frames that one keeps.
const CLIP: [u64; 2] = [17, 5];

/// A transformer. Counts are features unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the gated feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Blocks.
    pub blocks: u64,
    /// Rank of the modulation's projection where it is factored.
    pub rank: Option<u64>,
    /// Whether each block has the gate of video sparse attention.
    pub sparse_gate: bool,
}

impl Dit {
    /// Width of the heads together.
    pub fn inner(&self) -> u64 {
        self.heads * self.head
    }

    /// Reads a transformer of the catalog; the layout is the one whose count of parameters is the catalog's.
    ///
    /// # Errors
    /// What is missing or does not agree.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let number =
            |name: &str| geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("transformer geometry lacks {name}"));
        let blocks = component.block_count.ok_or("the transformer has no block_count")?.get();
        let block = component.block_parameter_count.ok_or("the transformer has no block_parameter_count")?.get();
        let plain = Self {
            hidden: number("hidden_size")?,
            ffn: number("ffn_size")?,
            heads: number("num_attention_heads")?,
            head: number("attention_head_dim")?,
            blocks,
            rank: None,
            sparse_gate: false,
        };
        if [plain.hidden, plain.ffn, plain.heads, plain.head].into_iter().any(|extent| extent > 1 << 20) {
            return Err("transformer geometry is too large".to_owned());
        }
        let layouts = [None, Some(RANK)].into_iter().flat_map(|rank| [false, true].map(|sparse_gate| Self { rank, sparse_gate, ..plain }));
        let mut layouts = layouts.filter(|dit| dit.block_tensors().iter().map(|p| p.elements).sum::<u64>() == block);
        layouts.next().ok_or_else(|| format!("a block of {block} parameters is not a block of MiniMax H3 of width {}", plain.hidden))
    }
}

/// A video VAE: a convolutional encoder, which is the same in every checkpoint, and a decoder of so many transformer blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vae {
    /// Blocks of the decoder.
    pub layers: u64,
}

impl Vae {
    /// Reads a VAE of the catalog.
    ///
    /// # Errors
    /// When its count of parameters is another's.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let layers = component.block_count.ok_or("the VAE has no block_count")?.get();
        if layers > 1 << 10 {
            return Err("the VAE has too many blocks".to_owned());
        }
        let vae = Self { layers };
        let sum: u64 = vae.tensors().parameters();
        if sum == component.parameter_count.get() {
            return Ok(vae);
        }
        Err(format!("a VAE of {} parameters is not MiniMax H3's with {layers} decoder blocks ({sum})", component.parameter_count))
    }
}

/// Pixels of a side to one latent position.
pub const SPATIAL: u64 = 16;
/// Pixels of a side to one row of the packed sequence.
pub const ROW: u64 = 2 * SPATIAL;
/// Latent channels of the VAE.
pub const LATENT: u64 = 24;

/// The latent of a clip.
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
    /// The latent of `frames` frames, 5 more than a multiple of 17, or a single one.
    pub fn of(batch: u64, frames: u64, height: u64, width: u64) -> Self {
        let frames = if frames == 1 { 1 } else { latent_frames(frames) };
        Self { batch, frames, height: height / SPATIAL, width: width / SPATIAL }
    }
}

/// Latent frames of a video (`video_latent_num_frames`).
pub fn latent_frames(frames: u64) -> u64 {
    frames.saturating_sub(CLIP[1]) / CLIP[0] * CLIP[1] + 2
}

/// Audio latents of a channel: 40 a second at 24 frames a second, rounded (`audio_latent_num_frames`).
pub fn audio_latents(frames: u64) -> u64 {
    (5 * frames + 1) / 3
}

/// Rows of one packed sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Text, vision tokens of references included.
    pub text: u64,
    /// Video rows of references.
    pub condition: u64,
    /// Audio rows, of both channels.
    pub audio: u64,
    /// Video rows to be generated.
    pub video: u64,
}

/// Tokens around the vision tokens of a picture: its label and the marks of its start and end.
const LABEL: u64 = 8;

impl Rows {
    /// Rows of a request with `keyframes` pictures on the canvas.
    pub fn of(height: u64, width: u64, frames: u64, text: u64, keyframes: u64) -> Self {
        let frame = (height / ROW) * (width / ROW);
        Self {
            text: text + keyframes * (frame + LABEL),
            condition: keyframes * frame,
            audio: 2 * audio_latents(frames),
            video: latent_frames(frames) * frame,
        }
    }

    /// Rows that go through the video projection.
    pub fn visual(&self) -> u64 {
        self.condition + self.video
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.text + self.condition + self.audio + self.video
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_published_geometries() {
        for ([height, width, frames], video, audio) in [
            ([480, 832, 243], 28_080, 810),
            ([768, 1344, 243], 72_576, 810),
            ([768, 1344, 124], 37_296, 414),
            ([480, 832, 124], 14_430, 414),
            ([768, 1344, 345], 102_816, 1150),
        ] {
            let rows = Rows::of(height, width, frames, 300, 0);
            assert_eq!((rows.video, rows.audio, rows.all()), (video, audio, video + audio + 300));
        }
        assert!(Rows::of(768, 1344, 124, 300, 1).all() > Rows::of(768, 1344, 124, 300, 0).all() + 2 * 1008);
    }
}
