//! Text and image encoders of the catalog.

use fv_spec::compiled::ExpandedComponent;
use fv_spec::units::Count;

use super::parameter::{MAX_WIDTH, Parameter, counts, plain, within};

/// A text or image encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

/// Tokens of CLIP ViT-H/14 at 224 pixels: 16 x 16 patches and one for the class.
pub const IMAGE_TOKENS: u64 = 257;

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
        let (blocks, block) = (component.block_count.map_or(0, Count::get), component.block_parameter_count.map_or(0, Count::get));
        if blocks > 0 {
            counts(&component.name, blocks, block, parameters)?;
        }
        let encoder = Self {
            parameters,
            blocks: (blocks, block),
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
        if blocks > 0 && encoder.geometry && largest > block {
            return Err(named(&format!("a block of {block} parameters has no place for a matrix of {largest}")));
        }
        Ok(encoder)
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
    if encoder.geometry && encoder.gated && per_block == 4 * hidden * inner + 3 * hidden * ffn + 32 * encoder.heads + 2 * hidden {
        // UMT5: query, key, value and output, a table of 32 relative positions, the feed-forward layer, two norms.
        let layout = [
            hidden * inner,
            hidden * inner,
            hidden * inner,
            hidden * inner,
            32 * encoder.heads,
            hidden,
            hidden * ffn,
            hidden * ffn,
            hidden * ffn,
            hidden,
        ];
        let outside = [rest.saturating_sub(hidden), hidden];
        return (blocks, layout.map(plain).to_vec(), outside.map(plain).to_vec());
    }
    if encoder.geometry && !encoder.gated && per_block == 4 * (hidden * inner + hidden) + 2 * hidden * ffn + ffn + 5 * hidden {
        // CLIP's vision tower: four projections and the feed-forward layer with biases, two norms with gain and bias.
        let mut layout = Vec::new();
        for _ in 0..4 {
            layout.extend([hidden * inner, hidden]);
        }
        layout.extend([hidden, hidden, hidden * ffn, ffn, hidden * ffn, hidden, hidden, hidden]);
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
