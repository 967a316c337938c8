//! Rules of thumb for a decoder's memory, as the catalog's documentation describes them.
//!
//! They are shown beside an estimate, so that somebody who knows them can compare, and no part of it: what is derived knows
//! which buffers are alive together, where they live and in what format, and a rule of thumb does not.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Heuristic;
use fv_spec::request::Request;
use fv_spec::units::MAX_JSON_INTEGER;

use crate::settings::Settings;

/// The name of the allowance for features and caches inside a decoder.
pub const FEATURE_CACHE: &str = "feature_cache";
/// The name of the rule for decoded frames.
pub const OUTPUT_BUFFERS: &str = "output_buffers";

/// What both need to know.
#[derive(Debug, Clone, Copy)]
struct Decoder<'a> {
    vae: &'a ExpandedComponent,
    /// Bytes of an activation.
    element: u64,
    request: &'a Request,
}

/// The heuristics for a request, with the format that the decoder really computes in.
pub fn heuristics(model: &Model, example: &Example, settings: &Settings, request: &Request) -> Vec<Heuristic> {
    let vae = example.components.get(&Role::Vae).or_else(|| model.components.get(&Role::Vae));
    let computed = settings.component(Role::Vae).map(|component| component.precision.computed);
    let (Some(vae), Some(dtype)) = (vae, computed) else {
        return [FEATURE_CACHE, OUTPUT_BUFFERS].map(|name| missing(name, "the model has no VAE")).into();
    };
    let element = match dtype {
        Dtype::Fp32 => 4,
        Dtype::Fp16 | Dtype::Bf16 => 2,
        Dtype::Fp8 | Dtype::Int8 | Dtype::Nvfp4 => 1,
    };
    let decoder = Decoder { vae, element, request };
    vec![feature_cache(decoder), output_buffers(decoder)]
}

/// An allowance for everything inside the decoder, in multiples of a full-size feature map of its narrowest width. The
/// catalog has the multiple for some decoders; for the others there is no such rule.
fn feature_cache(decoder: Decoder<'_>) -> Heuristic {
    let Decoder { vae, element, request } = decoder;
    let Some(multiplier) = vae.decode_feature_multiplier else {
        return missing(FEATURE_CACHE, &format!("the catalog has no decode_feature_multiplier for {}", vae.component));
    };
    let Some(width) = dimension(vae, "vae_decoder_channels") else {
        return missing(FEATURE_CACHE, &format!("the catalog has no vae_decoder_channels for {}", vae.component));
    };
    let Request { batch, height, width: columns, .. } = *request;
    let formula =
        format!("multiplier {multiplier} x batch {batch} x decoder channels {width} x height {height} x width {columns} x {element} B");
    // The multiplier is authored with a few decimals; millionths keep the product in whole numbers.
    let millionths = millionths(multiplier);
    let bytes = [u64::from(batch), width, u64::from(height), u64::from(columns), element]
        .into_iter()
        .try_fold(millionths, |product, factor| product.checked_mul(u128::from(factor)))
        .map(|product| product / 1_000_000);
    sized(FEATURE_CACHE, bytes, formula)
}

/// Decoded frames twice in the decoder's format and once in fp32.
fn output_buffers(decoder: Decoder<'_>) -> Heuristic {
    let Decoder { vae, element, request } = decoder;
    let Some(channels) = dimension(vae, "output_channels") else {
        return missing(OUTPUT_BUFFERS, &format!("the catalog has no output_channels for {}", vae.component));
    };
    let Request { batch, height, width, num_frames, .. } = *request;
    let formula =
        format!("batch {batch} x frames {num_frames} x channels {channels} x height {height} x width {width} x (2 x {element} + 4) B");
    let bytes = [u64::from(num_frames), channels, u64::from(height), u64::from(width), 2 * element + 4]
        .into_iter()
        .try_fold(u128::from(batch), |product, factor| product.checked_mul(u128::from(factor)));
    sized(OUTPUT_BUFFERS, bytes, formula)
}

fn dimension(vae: &ExpandedComponent, field: &str) -> Option<u64> {
    vae.geometry.as_ref()?.get(field)?.as_u64()
}

/// A positive number in millionths. A multiplier that cannot be one, such as not a number, gives nothing.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what a multiplier can be")]
fn millionths(multiplier: f64) -> u128 {
    (multiplier.clamp(0.0, 1e9) * 1e6).round() as u128
}

fn missing(name: &str, why: &str) -> Heuristic {
    Heuristic { name: name.to_owned(), bytes: None, formula: why.to_owned() }
}

fn sized(name: &str, bytes: Option<u128>, formula: String) -> Heuristic {
    let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes <= MAX_JSON_INTEGER);
    Heuristic { name: name.to_owned(), bytes, formula }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn vae(multiplier: Option<f64>, channels: bool) -> ExpandedComponent {
        let mut geometry = json!({ "vae_decoder_channels": 96, "output_channels": 3 });
        if !channels {
            geometry = json!({});
        }
        let mut component = json!({ "ref": "a-vae", "name": "A VAE", "parameter_count": 1, "geometry": geometry, "sources": [] });
        if let Some(multiplier) = multiplier {
            component["decode_feature_multiplier"] = json!(multiplier);
        }
        serde_json::from_value(component).expect("a component")
    }

    fn request(batch: u32, num_frames: u32) -> Request {
        Request { height: 480, width: 832, num_frames, batch, guidance_scale: 1.0, num_inference_steps: 1, text_tokens: 1, references: 0 }
    }

    #[test]
    fn the_documented_example_comes_out() {
        // Multiplier 48, batch 1, width 96, 480 x 832 in BF16: about 3.43 GiB.
        let (vae, request) = (vae(Some(48.0), true), request(1, 81));
        let found = feature_cache(Decoder { vae: &vae, element: 2, request: &request });
        assert_eq!(found.bytes, Some(48 * 96 * 480 * 832 * 2));
        assert_eq!(crate::error::gib(found.bytes.map_or(0, u128::from)), "3.43 GiB");
        // Frames do not enter; batch and format do.
        let more = self::request(2, 5);
        assert_eq!(feature_cache(Decoder { vae: &vae, element: 4, request: &more }).bytes, Some(4 * 48 * 96 * 480 * 832 * 2));
        let half = self::vae(Some(0.5), true);
        assert_eq!(feature_cache(Decoder { vae: &half, element: 2, request: &request }).bytes, Some(96 * 480 * 832));
    }

    #[test]
    fn frames_are_kept_twice_as_decoded_and_once_in_fp32() {
        let (vae, request) = (vae(None, true), request(1, 81));
        for (element, each) in [(2, 8), (4, 12)] {
            let found = output_buffers(Decoder { vae: &vae, element, request: &request });
            assert_eq!(found.bytes, Some(81 * 3 * 480 * 832 * each));
        }
    }

    #[test]
    fn what_the_catalog_does_not_say_has_no_number() {
        let request = request(1, 81);
        for (vae, feature, output) in
            [(vae(None, true), "decode_feature_multiplier", ""), (vae(Some(48.0), false), "vae_decoder_channels", "output_channels")]
        {
            let decoder = Decoder { vae: &vae, element: 2, request: &request };
            for (found, missing) in [(feature_cache(decoder), feature), (output_buffers(decoder), output)] {
                assert_eq!(found.bytes.is_none(), !missing.is_empty(), "{found:?}");
                assert!(found.formula.contains(missing), "{found:?}");
            }
        }
    }

    #[test]
    fn no_size_is_made_up_where_numbers_grow_too_large() {
        let request = Request { height: u32::MAX, width: u32::MAX, num_frames: u32::MAX, ..request(u32::MAX, 1) };
        for multiplier in [f64::MAX, f64::NAN, -1.0] {
            let mut vae = vae(None, true);
            vae.decode_feature_multiplier = Some(multiplier);
            let decoder = Decoder { vae: &vae, element: 4, request: &request };
            assert!(feature_cache(decoder).bytes.is_none_or(|bytes| bytes == 0));
            assert_eq!(output_buffers(decoder).bytes, None);
        }
    }
}
