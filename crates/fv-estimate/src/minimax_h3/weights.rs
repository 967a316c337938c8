//! The tensors of MiniMax H3's components, in the order in which the classes declare them. The sums are the parameter counts
//! of the catalog, which a test holds.

use fv_spec::authored::Role;

use super::geometry::{AUDIO_ROW, Dit, FREQUENCIES, LATENT, MODALITIES, REFINER_BLOCKS, TEXT, TIME, VIDEO_ROW, Vae};
use crate::modules::parameter::{Group, Parameter, Weights, kept, matrix, plain};

/// Weight and bias, both made by `one`.
fn linear(one: fn(u64) -> Parameter, inputs: u64, outputs: u64) -> [Parameter; 2] {
    [one(inputs * outputs), one(outputs)]
}

impl Dit {
    /// Attention and the gated feed-forward layer with the norms before them: what a block and a refiner block share.
    fn layer(&self, refiner: bool) -> Vec<Parameter> {
        let (d, inner) = (self.hidden, self.inner());
        // Quantisation covers the blocks and not the refiner.
        let product = |inputs: u64, outputs: u64| if refiner { plain(inputs * outputs) } else { matrix(inputs, outputs) };
        let mut list = vec![plain(d)];
        list.extend([product(d, inner); 3]);
        list.extend([plain(self.head), plain(self.head), product(inner, d), plain(d)]);
        list.extend([product(d, 2 * self.ffn), product(self.ffn, d)]);
        list
    }

    /// What a projection of the modulation starts from.
    fn modulation_inputs(&self) -> u64 {
        self.rank.unwrap_or(TIME)
    }

    /// The parameters of one block.
    pub fn block_tensors(&self) -> Vec<Parameter> {
        let mut list = self.layer(false);
        list.extend(linear(plain, self.modulation_inputs(), 6 * MODALITIES * self.hidden));
        if self.sparse_gate {
            list.push(plain(self.hidden * self.inner()));
        }
        list
    }

    /// The parameters outside the blocks.
    pub fn other_tensors(&self) -> Vec<Parameter> {
        let d = self.hidden;
        let mut list = Vec::new();
        list.extend(linear(kept, VIDEO_ROW, d));
        list.extend(linear(kept, AUDIO_ROW, d));
        list.extend(linear(plain, TEXT, d));
        list.extend(linear(kept, FREQUENCIES, d));
        list.extend(linear(kept, d, TIME));
        // With a factored modulation the first factor is shared by all blocks.
        list.extend(self.rank.map(|rank| plain(rank * TIME)));
        for _ in 0..REFINER_BLOCKS {
            list.extend(self.layer(true));
        }
        list.extend([plain(d), plain(d)]);
        list.extend(linear(plain, self.modulation_inputs(), 2 * d));
        list.extend(linear(kept, d, VIDEO_ROW));
        list.extend(linear(kept, d, AUDIO_ROW));
        list
    }

    /// The transformer as it is loaded.
    pub fn weights(&self) -> Weights {
        Weights::blocks(Role::Transformer, (self.blocks, self.block_tensors(), self.other_tensors()))
    }
}

/// Channels of the encoder's levels, and whether a level shrinks its input (`AutoencoderKLMiniMaxH3`, class defaults).
pub(super) const LEVELS: [(u64, [u64; 2]); 6] = [(128, [1, 2]), (256, [2, 2]), (256, [2, 2]), (512, [1, 2]), (512, [1, 1]), (1024, [1, 1])];
/// Width of the decoder.
pub(super) const WIDTH: u64 = 2048;
/// Width of its feed-forward layer.
pub(super) const FFN: u64 = 4 * WIDTH;
/// Learned tokens that are appended to those of a clip.
pub(super) const REGISTERS: u64 = 4;
/// Pixels that a token of the decoder becomes: 3 channels of 4 x 16 x 16.
pub(super) const PATCH: u64 = 3 * 4 * 16 * 16;

impl Vae {
    /// The VAE as it is loaded. `kept` is what the class lists in `_keep_in_fp32_modules`: the whole encoder, `quant_conv`
    /// and the decoder's norms and scales.
    pub fn tensors(&self) -> Weights {
        let mut rest = Vec::new();
        let mut add = |inputs: u64, outputs: u64, volume: u64| rest.extend(linear(kept, inputs * volume, outputs));
        // Norms have a gain and a bias, which `add` makes as a convolution of one input and volume 1.
        let norm = |add: &mut dyn FnMut(u64, u64, u64), channels: u64| add(1, channels, 1);
        add(3, LEVELS[0].0, 27);
        let mut inputs = LEVELS[0].0;
        for (channels, [time, space]) in LEVELS {
            for _ in 0..2 {
                norm(&mut add, inputs);
                add(inputs, channels, 27);
                norm(&mut add, channels);
                add(channels, channels, 27);
                if inputs != channels {
                    add(inputs, channels, 1);
                }
                inputs = channels;
            }
            if time * space > 1 {
                add(channels, channels, 27);
            }
        }
        norm(&mut add, inputs);
        add(inputs, 2 * LATENT, 27);
        add(2 * LATENT, 2 * LATENT, 1);
        rest.extend(linear(plain, LATENT, LATENT));
        rest.push(plain(REGISTERS * WIDTH));
        rest.extend(linear(plain, LATENT, WIDTH));
        rest.extend([kept(WIDTH), kept(WIDTH)]);
        rest.extend(linear(plain, WIDTH, PATCH));
        let mut block = vec![kept(WIDTH); 3];
        for _ in 0..4 {
            block.extend(linear(plain, WIDTH, WIDTH));
        }
        block.push(kept(WIDTH));
        block.extend(linear(plain, WIDTH, 2 * FFN));
        block.extend(linear(plain, FFN, WIDTH));
        Weights::blocks(Role::Vae, (self.layers, block, rest))
    }
}

/// The text encoder, Qwen3-VL 32B: layers of the language model that are loaded, and whether its final norm and head are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Qwen {
    /// Layers.
    pub layers: u64,
    /// Whether the final norm and the language head are there.
    pub whole: bool,
}

/// Extents of Qwen3-VL 32B (`Qwen3VLTextConfig` of the checkpoint): width, feed-forward width, query and key heads, width of a
/// head, vocabulary.
pub(super) const QWEN: u64 = TEXT;
pub(super) const QWEN_FFN: u64 = 25_600;
pub(super) const QWEN_HEADS: [u64; 2] = [64, 8];
pub(super) const QWEN_HEAD: u64 = 128;
const VOCABULARY: u64 = 151_936;
/// Its vision tower: width, feed-forward width, blocks, positions, values of a patch, merged tokens and levels that feed
/// the language model's first layers.
const VISION: u64 = 1152;
const VISION_FFN: u64 = 4304;
const VISION_BLOCKS: u64 = 27;
const VISION_POSITIONS: u64 = 2304;
const VISION_PATCH: u64 = 3 * 2 * 16 * 16;
const DEEP: u64 = 3;

impl Qwen {
    /// The encoder whose count of parameters is `count`.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(layers: Option<u64>, count: u64) -> Result<Self, String> {
        let layers = layers.filter(|n| *n <= 1 << 10).ok_or("the text encoder has no block_count")?;
        [true, false]
            .map(|whole| Self { layers, whole })
            .into_iter()
            .find(|qwen| qwen.tensors().parameters() == count)
            .ok_or_else(|| format!("a text encoder of {count} parameters is not Qwen3-VL 32B with {layers} layers"))
    }

    /// The encoder as it is loaded: the vision tower first, then the language model.
    pub fn tensors(&self) -> Weights {
        let mut rest: Vec<Parameter> = Vec::new();
        let pair = |inputs: u64, outputs: u64| linear(plain, inputs, outputs);
        rest.extend(pair(VISION_PATCH, VISION));
        rest.push(plain(VISION_POSITIONS * VISION));
        for _ in 0..VISION_BLOCKS {
            rest.extend([plain(VISION); 4]);
            rest.extend(
                [(VISION, 3 * VISION), (VISION, VISION), (VISION, VISION_FFN), (VISION_FFN, VISION)].map(|(i, o)| pair(i, o)).concat(),
            );
        }
        let merged = 4 * VISION;
        for norm in std::iter::once(VISION).chain((0..DEEP).map(|_| merged)) {
            rest.extend([plain(norm); 2]);
            rest.extend([(merged, merged), (merged, QWEN)].map(|(i, o)| pair(i, o)).concat());
        }
        rest.push(plain(VOCABULARY * QWEN));
        if self.whole {
            rest.extend([plain(QWEN), plain(VOCABULARY * QWEN)]);
        }
        let [queries, keys] = QWEN_HEADS.map(|heads| heads * QWEN_HEAD);
        let mut block = vec![matrix(QWEN, queries), matrix(QWEN, keys), matrix(QWEN, keys), matrix(queries, QWEN)];
        block.extend([plain(QWEN_HEAD); 2]);
        block.extend([matrix(QWEN, QWEN_FFN), matrix(QWEN, QWEN_FFN), matrix(QWEN_FFN, QWEN), plain(QWEN), plain(QWEN)]);
        Weights { role: Role::TextEncoder, groups: vec![Group { count: self.layers, block }], rest, buffers: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        let plain = Dit { hidden: 5376, ffn: 14_336, heads: 56, head: 128, blocks: 50, rank: None, sparse_gate: false };
        for (name, dit, count) in [
            ("H3", plain, 33_122_992_896),
            ("rank 16", Dit { rank: Some(16), ..plain }, 20_166_101_760),
            ("FastH3", Dit { sparse_gate: true, ..plain }, 35_049_751_296),
            ("Trim", Dit { sparse_gate: true, rank: Some(16), blocks: 42, ..plain }, 18_688_516_864),
        ] {
            assert_eq!(dit.weights().parameters(), count, "{name}");
        }
        for (layers, count) in [(36, 2_603_868_984), (26, 1_932_432_184)] {
            assert_eq!(Vae { layers }.tensors().parameters(), count);
        }
        for (layers, whole, count) in [(64, true, 33_357_390_064), (50, false, 25_753_095_920)] {
            assert_eq!(Qwen { layers, whole }.tensors().parameters(), count);
        }
    }
}
