//! Numbers as bytes, little-endian.

use fv_spec::program::Element;
use half::bf16;

use super::number::Number;

/// The largest finite eight-bit floating-point number.
pub const FP8_MAX: f64 = 448.0;
/// The largest eight-bit integer that is used, so that its negative is one too.
pub const INT8_MAX: f64 = 127.0;

/// Whether it can hold what is no number.
pub fn is_float(element: Element) -> bool {
    matches!(element, Element::F64 | Element::F32 | Element::Bf16 | Element::Fp8)
}

/// The nearest number of single precision, then the nearest one with eight bits of it, as checkpoints are rounded.
pub fn to_bf16(value: f64) -> f64 {
    bf16::from_f32(f32::of(value)).to_f64()
}

/// The nearest number of single precision.
pub fn to_f32(value: f64) -> f64 {
    f64::from(f32::of(value))
}

/// A whole number, exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of what lies in memory are below 2^53")]
pub fn whole(value: u64) -> f64 {
    value as f64
}

/// The whole number that this is, if it is one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and not negative")]
pub fn as_whole(value: f64) -> Option<u64> {
    (value >= 0.0 && value < 2_f64.powi(53) && value.fract() == 0.0).then_some(value as u64)
}

/// Appends the numbers that these bytes are.
pub fn decode<T: Number>(element: Element, bytes: &[u8], into: &mut Vec<T>) {
    match element {
        Element::F64 => into.extend(words(bytes).map(|word| T::of(f64::from_le_bytes(word)))),
        Element::F32 => into.extend(words(bytes).map(|word| T::of(f64::from(f32::from_le_bytes(word))))),
        Element::Bf16 => into.extend(words(bytes).map(|word| T::of(bf16::from_le_bytes(word).to_f64()))),
        Element::I32 => into.extend(words(bytes).map(|word| T::of(f64::from(i32::from_le_bytes(word))))),
        Element::Fp8 => into.extend(bytes.iter().map(|byte| T::of(fp8_to_f64(*byte)))),
        Element::Int8 => into.extend(bytes.iter().map(|byte| T::of(f64::from(byte.cast_signed())))),
        Element::U8 => into.extend(bytes.iter().map(|byte| T::of(f64::from(*byte)))),
    }
}

/// Appends the bytes of the nearest numbers that can be stored, ties to even; eight-bit numbers and integers saturate.
pub fn encode<T: Number>(element: Element, values: &[T], into: &mut Vec<u8>) {
    match element {
        Element::F64 => into.extend(values.iter().flat_map(|x| x.wide().to_le_bytes())),
        Element::F32 => into.extend(values.iter().flat_map(|x| f32::of(x.wide()).to_le_bytes())),
        Element::Bf16 => into.extend(values.iter().flat_map(|x| bf16::from_f64(x.wide()).to_le_bytes())),
        Element::I32 => into.extend(values.iter().flat_map(|x| integer(x.wide(), f64::from(i32::MIN), f64::from(i32::MAX)).to_le_bytes())),
        Element::Fp8 => into.extend(values.iter().map(|x| fp8_from_f64(x.wide()))),
        Element::Int8 => into.extend(values.iter().map(|x| integer(x.wide(), -INT8_MAX, INT8_MAX).to_le_bytes()[0])),
        Element::U8 => into.extend(values.iter().map(|x| integer(x.wide(), 0.0, 255.0).to_le_bytes()[0])),
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

#[expect(clippy::cast_possible_truncation, reason = "the number is whole and within the range that was asked for")]
fn integer(value: f64, least: f64, most: f64) -> i32 {
    value.round_ties_even().clamp(least, most) as i32
}

/// Four exponent bits with a bias of 7, three of mantissa, no infinities; all seven bits set is not a number.
fn fp8_to_f64(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 0xF), f64::from(byte & 7));
    let size = match (exponent, byte & 0x7F) {
        (_, 0x7F) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2_f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2_f64.powi(exponent - 7),
    };
    if byte & 0x80 == 0 { size } else { -size }
}

/// As [`fp8_to_f64`] reads it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 8 * 2^4 steps of the smallest normal number's kind")]
fn fp8_from_f64(value: f64) -> u8 {
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let size = value.abs();
    if size.is_nan() {
        return sign | 0x7F;
    }
    if size >= FP8_MAX {
        return sign | 0x7E;
    }
    // The exponent of the number, at least that of the smallest normal one: below it, steps stay as they are.
    let exponent = (((size.to_bits() >> 52) as i32) - 1023).max(-6);
    let steps = (size / 2_f64.powi(exponent - 3)).round_ties_even();
    // Steps of a normal number are 8 to 16: the carry into the exponent is what the sum does.
    sign | (((exponent + 6) * 8) as u8 + steps as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(element: Element, value: f64) -> f64 {
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        encode(element, &[value], &mut bytes);
        decode(element, &bytes, &mut values);
        values[0]
    }

    #[test]
    fn every_eight_bit_number_comes_back() {
        for byte in 0..=u8::MAX {
            let value = fp8_to_f64(byte);
            assert!(fp8_from_f64(value) == byte || value.is_nan(), "{byte:#x} is {value}");
            assert_eq!(value.is_nan(), byte & 0x7F == 0x7F);
        }
        assert_eq!(fp8_to_f64(0x7E), FP8_MAX);
        assert_eq!(fp8_to_f64(0x01), 2_f64.powi(-9));
    }

    #[test]
    fn eight_bit_numbers_are_the_nearest_ones_ties_to_even() {
        let all: Vec<f64> = (0..0x7F).map(fp8_to_f64).collect();
        for pair in all.windows(2) {
            let middle = f64::midpoint(pair[0], pair[1]);
            let even = if fp8_from_f64(pair[0]).is_multiple_of(2) { pair[0] } else { pair[1] };
            assert_eq!(stored(Element::Fp8, middle), even, "between {} and {}", pair[0], pair[1]);
            assert_eq!(stored(Element::Fp8, middle.next_down()), pair[0]);
            assert_eq!(stored(Element::Fp8, -middle.next_up()), -pair[1]);
        }
        assert_eq!(stored(Element::Fp8, 1e9), FP8_MAX);
    }

    #[test]
    fn wider_numbers_are_the_nearest_ones() {
        assert_eq!(stored(Element::F64, 0.1), 0.1);
        assert_eq!(stored(Element::F32, 0.1), f64::from(0.1_f32));
        assert_eq!(stored(Element::Bf16, 1.0 + 2_f64.powi(-8)), 1.0, "a tie goes to even");
        assert_eq!(stored(Element::Bf16, 1.0 + 3.0 * 2_f64.powi(-8)), 1.0 + 2_f64.powi(-6), "a tie goes to even");
        assert_eq!(stored(Element::I32, -70_000.0), -70_000.0);
    }

    #[test]
    fn integers_saturate() {
        assert_eq!([-200.0, 126.5, 2.5].map(|x| stored(Element::Int8, x)), [-127.0, 126.0, 2.0]);
        assert_eq!([-1.0, 254.6, 300.0].map(|x| stored(Element::U8, x)), [0.0, 255.0, 255.0]);
    }

    #[test]
    fn bytes_of_ones_are_not_numbers() {
        for element in [Element::F64, Element::F32, Element::Bf16, Element::Fp8] {
            let mut values = Vec::new();
            decode::<f64>(element, &[0xFF; 8], &mut values);
            assert!(values.iter().all(|x| x.is_nan()), "{element:?}");
        }
    }
}
