//! How fast a device is: dense rates by format, memory, link and disk, each with where it came from.

use std::collections::BTreeMap;

use fv_spec::authored::{Accumulate, Dtype, Pcie};
use fv_spec::compiled::Device;
use fv_spec::estimate::Reason;
use fv_spec::forecast::UsedRate;
use fv_spec::plan::Source;

use crate::device::dtype_word;

/// Operations of a TFLOP, and bytes of a GB.
pub const TERA: f64 = 1e12;
/// Bytes of a GB.
pub const GIGA: f64 = 1e9;

/// A rate with its source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// TFLOP/s or GB/s.
    pub value: f64,
    /// Where it came from.
    pub source: Source,
}

impl Rate {
    /// A rate that can be divided by: above nothing and finite.
    pub fn new(value: f64, source: Source) -> Option<Self> {
        (value.is_finite() && value > 0.0).then_some(Self { value, source })
    }
}

/// What is known of a device's rates. Absent means unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rates {
    /// The device, for messages.
    pub device: String,
    /// CUDA compute capability, such as `9.0`.
    pub capability: Option<String>,
    /// Dense matrix products in TFLOP/s.
    pub dense: BTreeMap<(Dtype, Accumulate), Rate>,
    /// Device memory in GB/s.
    pub memory: Option<Rate>,
    /// From page-locked host memory to the device in GB/s, the link's own figure: what transfers reach of it is a coefficient.
    pub link: Option<Rate>,
    /// The same as transfers were measured to reach, where a probe did.
    pub copies: Option<Rate>,
    /// Reading weights from disk in GB/s.
    pub disk: Option<Rate>,
}

impl Rates {
    /// Those of a device of the catalog.
    pub fn of(device: &Device) -> Self {
        let known = |value: f64| Rate::new(value, Source::Catalog);
        let dense = device
            .dense_tflops
            .iter()
            .flatten()
            .flat_map(|(dtype, by)| by.iter().filter_map(move |(accumulate, rate)| Some(((*dtype, *accumulate), known(rate.0)?))));
        Self {
            device: device.id.clone(),
            capability: device.compute_capability.clone(),
            dense: dense.collect(),
            memory: device.memory_bandwidth_gbps.and_then(known),
            link: device.pcie.and_then(|pcie| known(link(pcie)?)),
            ..Self::default()
        }
    }

    /// Products of `dtype` with results gathered in `accumulate`.
    ///
    /// # Errors
    /// Which rate the device lacks.
    pub fn products(&self, dtype: Dtype, accumulate: Accumulate) -> Result<Rate, Reason> {
        let found = self.dense.get(&(dtype, accumulate)).copied();
        found.ok_or_else(|| self.missing(&format!("dense rate of {} with {} accumulation", dtype_word(dtype), accumulate_word(accumulate))))
    }

    /// Device memory.
    ///
    /// # Errors
    /// That it is not known.
    pub fn memory(&self) -> Result<Rate, Reason> {
        self.memory.ok_or_else(|| self.missing("memory bandwidth"))
    }

    /// Copies from page-locked memory, of which transfers reach `efficiency` of the link's own figure.
    ///
    /// # Errors
    /// That neither a measurement nor the link is known.
    pub fn copies(&self, efficiency: f64) -> Result<Rate, Reason> {
        let of_link = self.link.and_then(|link| Rate::new(link.value * efficiency, link.source));
        self.copies.or(of_link).ok_or_else(|| self.missing("rate of the PCI Express link"))
    }

    fn missing(&self, what: &str) -> Reason {
        let device = if self.device.is_empty() { "the device" } else { &self.device };
        Reason::new("missing-rate", format!("the {what} of {device} is not known"))
    }
}

/// GB/s of a PCI Express link in one direction, after its line code.
pub(crate) fn link(pcie: Pcie) -> Option<f64> {
    // Gigabytes a second of a lane: 2.5, 5 GT/s of which 8 in 10 bits count; 8, 16, 32 GT/s of which 128 in 130 do; 64 and 128 GT/s.
    let lane = match pcie.generation {
        1 => 0.25,
        2 => 0.5,
        3 => 0.985,
        4 => 1.969,
        5 => 3.938,
        6 => 7.563,
        7 => 15.125,
        _ => return None,
    };
    Some(lane * f64::from(pcie.lanes))
}

fn accumulate_word(accumulate: Accumulate) -> &'static str {
    match accumulate {
        Accumulate::Fp32 => "fp32",
        Accumulate::Fp16 => "fp16",
        Accumulate::Int32 => "int32",
    }
}

/// A rate for the reader.
pub fn used(name: &str, rate: Rate, unit: &str) -> UsedRate {
    UsedRate { name: name.to_owned(), value: rate.value, unit: unit.to_owned(), source: rate.source.word().to_owned() }
}

/// A rate of products for the reader.
pub fn used_products(dtype: Dtype, accumulate: Accumulate, rate: Rate) -> UsedRate {
    used(&format!("dense {} / {}", dtype_word(dtype), accumulate_word(accumulate)), rate, "TFLOP/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_rates_of_nothing_are_missing() {
        let rates = Rates { device: "a-card".to_owned(), ..Rates::default() };
        let message = rates.products(Dtype::Int8, Accumulate::Int32).expect_err("missing").message;
        assert_eq!(message, "the dense rate of int8 with int32 accumulation of a-card is not known");
        assert!(rates.memory().expect_err("missing").message.contains("memory bandwidth"));
        assert!(rates.copies(0.9).expect_err("missing").message.contains("PCI Express"));
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::new(nothing, Source::Given), None);
        }
    }

    #[test]
    fn a_link_by_generation_and_lanes() {
        let of = |generation, lanes| link(Pcie { generation, lanes });
        assert_eq!(of(3, 16), Some(15.76));
        assert_eq!(of(4, 8), Some(15.752));
        assert!(of(5, 16).is_some_and(|rate| (rate - 63.0).abs() < 0.1));
        assert_eq!(of(8, 16), None);
    }
}
