//! Text and image encoders of the catalog.

use fv_spec::compiled::ExpandedComponent;
use fv_spec::units::Count;

use super::parameter::{MAX_WIDTH, Parameter, counts, kept, plain, within};

/// A text or image encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one property of the class")]
pub struct Encoder {
    /// Parameters of the loaded part.
    pub parameters: u64,
    /// Like blocks and the parameters of one.
    pub blocks: (u64, u64),
    /// Width of its states.
    pub hidden: u64,
    /// Width of its feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Whether the feed-forward layer is gated.
    pub gated: bool,
    /// Tokens of its output, where that does not depend on the request: 257 for the image encoder.
    pub tokens: u64,
    /// Whether the catalog gives the geometry; without it only the weights are known.
    pub geometry: bool,
    /// Whether only the first block has a table of relative positions, whose bias all share: T5, not UMT5.
    pub shared_bias: bool,
    /// Whether it is given a mask of the prompt's padding.
    pub masked: bool,
}

/// Which class an encoder is, told by what its blocks are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// T5 and UMT5.
    T5,
    /// Llama: rotary positions, and keys and values of so many features, which fewer heads share.
    Llama(u64),
    /// CLIP's text encoder.
    ClipText,
    /// CLIP's vision tower.
    Vision,
}

/// Relative positions that a block's table tells apart (`relative_attention_num_buckets` of T5 and UMT5).
const BUCKETS: u64 = 32;

/// Tokens of CLIP ViT-H/14 at 224 pixels: 16 x 16 patches and one for the class.
pub const IMAGE_TOKENS: u64 = 257;

/// Positions of CLIP's text encoder, which a prompt is padded or cut to.
pub const CLIP_TOKENS: u64 = 77;

impl Encoder {
    /// Reads an encoder; `tokens` of its output where that does not depend on the request. `Err` names what is out of range or
    /// does not agree. Within these ranges no product of an encoder's own extents overflows.
    pub fn read(component: &ExpandedComponent, tokens: u64) -> Result<Self, String> {
        let named = |what: &str| format!("{}: {what}", component.name);
        let number = |name: &str| {
            let value = component.geometry.as_ref().and_then(|g| g.get(name)).and_then(serde_json::Value::as_u64);
            value.map(|value| within(&named(name), value, MAX_WIDTH)).transpose()
        };
        let (hidden, ffn, heads, head) =
            (number("hidden_size")?, number("ffn_size")?, number("num_attention_heads")?, number("attention_head_dim")?);
        let parameters = component.parameter_count.get();
        let mut blocks = (component.block_count.map_or(0, Count::get), component.block_parameter_count.map_or(0, Count::get));
        let mut shared_bias = false;
        if let Some([first, rest]) = component.block_groups.as_deref()
            && first.count.get() == 1
            && Some(first.parameter_count.get()) == heads.and_then(|heads| rest.parameter_count.get().checked_add(BUCKETS * heads))
        {
            (blocks, shared_bias) = ((rest.count.get().saturating_add(1), rest.parameter_count.get()), true);
        }
        if blocks.0 > 0 {
            counts(&component.name, blocks.0, blocks.1, parameters)?;
        }
        let mut encoder = Self {
            parameters,
            blocks,
            shared_bias,
            // The pipelines with T5 leave its mask out, but for those that say otherwise.
            masked: tokens == 0 && !shared_bias,
            geometry: hidden.is_some() && ffn.is_some() && heads.is_some() && head.is_some(),
            hidden: hidden.unwrap_or(0),
            ffn: ffn.unwrap_or(0),
            heads: heads.unwrap_or(0),
            head: head.unwrap_or(0),
            gated: component.geometry.as_ref().and_then(|g| g.get("gated_ffn")).and_then(serde_json::Value::as_bool).unwrap_or(false),
            tokens,
        };
        // The matrices that every block has.
        let inner = within(&named("width of all heads"), (encoder.heads * encoder.head).max(1), MAX_WIDTH)?;
        let largest = encoder.hidden * inner.max(encoder.ffn);
        if encoder.blocks.0 > 0 && encoder.geometry && largest > encoder.blocks.1 {
            return Err(named(&format!("a block of {} parameters has no place for a matrix of {largest}", encoder.blocks.1)));
        }
        encoder.masked &= encoder.class() == Class::T5;
        Ok(encoder)
    }

    /// Which class it is. One without geometry or of unknown blocks counts as T5.
    pub fn class(&self) -> Class {
        if self.tokens > 0 {
            return Class::Vision;
        }
        let inner = self.heads * self.head;
        let clip = 4 * (self.hidden * inner + self.hidden) + 2 * self.hidden * self.ffn + self.ffn + 5 * self.hidden;
        if self.geometry && !self.gated && self.blocks.1 == clip {
            return Class::ClipText;
        }
        // Two projections of all heads, two of keys and values, the gated feed-forward layer and two norms.
        let pair = 2 * self.hidden.max(1);
        let shared = self.blocks.1.checked_sub(2 * self.hidden * inner + 3 * self.hidden * self.ffn + 2 * self.hidden);
        match shared {
            Some(rest) if self.geometry && self.gated && rest > 0 && rest.is_multiple_of(pair) && rest / pair < inner => {
                Class::Llama(rest / pair)
            }
            _ => Class::T5,
        }
    }

    /// Whether its projections have biases.
    pub fn biases(&self) -> bool {
        matches!(self.class(), Class::ClipText | Class::Vision)
    }
}

/// Blocks, the tensors of one, and the tensors outside, the embedding first. Sums are the catalog's counts; where the layout is
/// not known the remainder is one tensor.
pub fn tensors(encoder: &Encoder) -> (u64, Vec<Parameter>, Vec<Parameter>) {
    let (blocks, per_block) = encoder.blocks;
    let inner = encoder.heads * encoder.head;
    let mut block: Vec<Parameter> = Vec::new();
    if encoder.geometry {
        block.extend([plain(encoder.hidden * inner); 4]);
        block.extend(vec![plain(encoder.hidden * encoder.ffn); if encoder.gated { 3 } else { 2 }]);
    }
    let (hidden, ffn) = (encoder.hidden, encoder.ffn);
    let rest = encoder.parameters.saturating_sub(per_block.saturating_mul(blocks));
    let table = BUCKETS * encoder.heads;
    let ups = if encoder.gated { 2 } else { 1 };
    let bias = if encoder.shared_bias { 0 } else { table };
    if encoder.geometry && per_block == 4 * hidden * inner + (ups + 1) * hidden * ffn + bias + 2 * hidden {
        // UMT5 and T5: query, key, value and output, the table of relative positions, a norm, the feed-forward layer, whose last
        // matrix stays fp32 beside fp16 (`_keep_in_fp32_modules`), and another norm.
        let mut layout = vec![plain(hidden * inner); 4];
        layout.extend((!encoder.shared_bias).then_some(plain(table)));
        layout.push(plain(hidden));
        layout.extend((0..ups).map(|_| plain(hidden * ffn)));
        layout.extend([kept(hidden * ffn), plain(hidden)]);
        // The one table of T5 is the first block's.
        let mut outside = vec![plain(rest.saturating_sub(hidden + (table - bias)))];
        outside.extend(encoder.shared_bias.then_some(plain(table)));
        outside.push(plain(hidden));
        return (blocks, layout, outside);
    }
    if let Class::Llama(shared) = encoder.class() {
        let attention = [hidden * inner, hidden * shared, hidden * shared, hidden * inner];
        let layout = attention.into_iter().chain([hidden * ffn; 3]).chain([hidden; 2]);
        return (blocks, layout.map(plain).collect(), [rest.saturating_sub(hidden), hidden].map(plain).to_vec());
    }
    if encoder.geometry && !encoder.gated && per_block == 4 * (hidden * inner + hidden) + 2 * hidden * ffn + ffn + 5 * hidden {
        // CLIP: four projections and the feed-forward layer with biases, two norms with gain and bias.
        let mut layout = Vec::new();
        for _ in 0..4 {
            layout.extend([hidden * inner, hidden]);
        }
        layout.extend([hidden, hidden, hidden * ffn, ffn, hidden * ffn, hidden, hidden, hidden]);
        if encoder.class() == Class::ClipText {
            let position = CLIP_TOKENS * hidden;
            let outside = [rest.saturating_sub(position + 2 * hidden), position, hidden, hidden];
            return (blocks, layout.into_iter().map(plain).collect(), outside.map(plain).to_vec());
        }
        let position = encoder.tokens * hidden;
        let outside = [hidden, rest.saturating_sub(position + 5 * hidden), position, hidden, hidden, hidden, hidden];
        return (blocks, layout.into_iter().map(plain).collect(), outside.map(plain).to_vec());
    }
    let sum: u64 = block.iter().map(|p| p.elements).sum();
    match per_block.checked_sub(sum) {
        Some(0) => {}
        // Norms, biases and position tables are small.
        Some(rest) => block.push(plain(rest)),
        None => block = vec![plain(per_block)],
    }
    (blocks, block, if rest > 0 { vec![plain(rest)] } else { Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        for (name, parameters, blocks, [hidden, ffn, heads, head], gated, shared_bias, count) in [
            ("UMT5-XXL", 5_680_910_336, (24, 192_948_224), [4096, 10_240, 64, 64], true, false, 10),
            ("T5 v1.1 XXL", 4_762_310_656, (24, 192_946_176), [4096, 10_240, 64, 64], true, true, 9),
            ("T5 11B", 4_864_791_552, (24, 201_328_640), [1024, 65_536, 128, 128], false, true, 8),
            ("Llama 3 8B", 7_505_186_816, (32, 218_112_000), [4096, 14_336, 32, 128], true, false, 9),
            ("CLIP-L text", 123_060_480, (12, 7_087_872), [768, 3072, 12, 64], false, false, 16),
            ("ByT5 small", 219_314_944, (12, 18_090_880), [1472, 3584, 6, 64], true, true, 9),
        ] {
            let encoder =
                Encoder { parameters, blocks, hidden, ffn, heads, head, gated, tokens: 0, geometry: true, shared_bias, masked: false };
            let (blocks, block, rest) = tensors(&encoder);
            let sum = |list: &[Parameter]| list.iter().map(|p| p.elements).sum::<u64>();
            assert_eq!(sum(&block) * blocks + sum(&rest), parameters, "{name}");
            assert_eq!(block.len(), count, "{name}");
        }
    }
}
