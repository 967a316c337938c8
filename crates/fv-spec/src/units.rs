//! Units: parameter counts, and capacities in `GB` (10^9 bytes) or `GiB` (2^30 bytes).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The largest integer that every JSON reader keeps exactly: 2^53 - 1.
pub const MAX_JSON_INTEGER: u64 = (1 << 53) - 1;

/// A number of parameters, tensors or elements: a positive integer below 2^53.
///
/// Authored either as an integer or as digits grouped by thousands, `1_489_821_760`. Grouping in any other
/// way is refused, because a group of two or four digits is how a lost digit looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Count(u64);

impl Count {
    /// A count, when `value` is positive and below 2^53.
    pub fn new(value: u64) -> Option<Self> {
        (1..=MAX_JSON_INTEGER).contains(&value).then_some(Self(value))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Reads the authored text form: digits, grouped by thousands with `_` or not at all.
    pub fn parse(text: &str) -> Option<Self> {
        let mut groups = text.split('_');
        let first = groups.next()?;
        let rest: Vec<&str> = groups.collect();
        let digits = |group: &str| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit());
        let grouped = rest.is_empty() || (first.len() <= 3 && rest.iter().all(|group| group.len() == 3));
        if !digits(first) || first.starts_with('0') || !grouped || !rest.iter().all(|group| digits(group)) {
            return None;
        }
        text.replace('_', "").parse().ok().and_then(Self::new)
    }
}

/// The authored form, grouped by thousands.
impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                f.write_str("_")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a positive count below 2^53, such as 1_489_821_760")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Count, E> {
                Count::new(value).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Count, E> {
                Count::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// The unit of an authored capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum CapacityUnit {
    /// 10^9 bytes.
    #[serde(rename = "GB")]
    Gb,
    /// 2^30 bytes.
    #[serde(rename = "GiB")]
    Gib,
}

/// A memory capacity in the unit that its source prints.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// The number as printed by the source.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 0.001, "maximum" = 1_000_000)))]
    #[serde(serialize_with = "decimal")]
    pub value: f64,
    /// `GB` is 10^9 bytes, `GiB` is 2^30 bytes.
    pub unit: CapacityUnit,
}

impl Capacity {
    /// Bytes, rounded to the nearest byte.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "validated to lie between 0 and 10^15 bytes")]
    pub fn bytes(self) -> u64 {
        let unit = match self.unit {
            CapacityUnit::Gb => 1e9,
            CapacityUnit::Gib => 1_073_741_824.0,
        };
        (self.value * unit).round() as u64
    }

    /// Decimal gigabytes, 10^9 bytes: the unit of the compiled catalog.
    pub fn gb(self) -> f64 {
        bytes_to_gb(self.bytes())
    }
}

/// Decimal gigabytes (10^9 bytes) of a byte count below 2^53: the double nearest to the exact quotient.
#[expect(clippy::cast_precision_loss, reason = "byte counts stay below 2^53")]
pub fn bytes_to_gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Writes a decimal quantity; whole ones as integers, so that an authored `80` stays `80`.
///
/// # Errors
/// When the serializer fails.
pub fn decimal<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    #[expect(clippy::cast_precision_loss, reason = "2^53 is exact")]
    let whole = value.fract() == 0.0 && (0.0..MAX_JSON_INTEGER as f64).contains(value);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, positive and below 2^53")]
    if whole { serializer.serialize_u64(*value as u64) } else { serializer.serialize_f64(*value) }
}

/// [`decimal`] for fields that may be left out.
///
/// # Errors
/// When the serializer fails.
pub fn decimal_option<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => decimal(value, serializer),
        None => serializer.serialize_none(),
    }
}

/// A decimal quantity, such as a rate in TFLOP/s; whole ones are written as integers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Decimal(#[serde(serialize_with = "decimal")] pub f64);

/// The total that a driver was seen to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportedMemory {
    /// Whole binary mebibytes, as drivers print them.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 1_000_000_000_u64)))]
    pub value: u64,
    /// Always `MiB`, 2^20 bytes.
    pub unit: ReportedUnit,
}

/// The unit of a reported total.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ReportedUnit {
    /// 2^20 bytes.
    #[serde(rename = "MiB")]
    Mib,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands_or_not_at_all() {
        for (text, value) in [("1", 1), ("1_489_821_760", 1_489_821_760), ("1489821760", 1_489_821_760), ("12_345", 12_345)] {
            assert_eq!(Count::parse(text).map(Count::get), Some(value), "{text}");
        }
        for text in ["", "0", "01", "_1", "1_", "1__000", "7_32", "1000_000", "1_0000", "-1", "+1", "1.5", "9007199254740992", "1 000"] {
            assert_eq!(Count::parse(text), None, "{text}");
        }
    }

    #[test]
    fn gib_becomes_decimal_gb() {
        let gib = Capacity { value: 24.0, unit: CapacityUnit::Gib };
        assert_eq!((gib.bytes(), gib.gb()), (25_769_803_776, 25.769_803_776));
        assert!((Capacity { value: 80.0, unit: CapacityUnit::Gb }.gb() - 80.0).abs() < f64::EPSILON);
    }
}
