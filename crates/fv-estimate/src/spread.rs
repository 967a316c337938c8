//! How far measured peaks lie from derived ones, by family and runtime: from `catalog/rules`, fitted and dated there.

use fv_spec::authored::{Coefficient, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::request::Request;

/// Measured over derived, in millionths, and the range that the measurements cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    allocated_high: u64,
    reserved_low: u64,
    reserved_high: u64,
    range: Vec<(String, [f64; 2])>,
    note: Option<String>,
}

const ONE: u64 = 1_000_000;

impl Spread {
    /// The spread of a rule: `spread-<family>-<runtime>-<metric>-<end>`. Without measurements of the runtime itself those of the
    /// same family under another runtime stand in, and everything is extrapolated.
    pub fn of(rules: &RulesFile, family: &str, runtime: Runtime) -> Self {
        let find = |runtime: Runtime, name: &str| rules.coefficients.get(&format!("spread-{family}-{}-{name}", runtime.word()));
        let own = find(runtime, "reserved-high").is_some();
        let from = if own { runtime } else { Runtime::Diffusers };
        let ratio = |name: &str| find(from, name).map_or(ONE, millionths);
        let range =
            find(from, "reserved-high").map_or_else(Vec::new, |c| c.range.iter().map(|(name, ends)| (name.clone(), *ends)).collect());
        let note = if own {
            None
        } else if find(from, "reserved-high").is_some() {
            Some(format!("no run under {} was measured: the spread of {} stands in", runtime.word(), from.word()))
        } else {
            Some("no run was measured: the range of peaks is not known".to_owned())
        };
        Self {
            allocated_high: ratio("allocated-high").max(ONE),
            reserved_low: ratio("reserved-low").min(ONE),
            reserved_high: ratio("reserved-high").max(ONE),
            range,
            note,
        }
    }

    /// A remark where the spread is not the rule's own.
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    /// The highest allocated peak to expect.
    pub fn allocated_high(&self, value: u64) -> u64 {
        scale(value, self.allocated_high)
    }

    /// The lowest reserved peak to expect.
    pub fn reserved_low(&self, value: u64) -> u64 {
        scale(value, self.reserved_low)
    }

    /// The highest reserved peak to expect.
    pub fn reserved_high(&self, value: u64) -> u64 {
        scale(value, self.reserved_high)
    }

    /// Fields of the request outside the measured range.
    pub fn outside(&self, request: &Request) -> Vec<String> {
        let value = |name: &str| match name {
            "pixels" => Some(f64::from(request.height) * f64::from(request.width)),
            "num_frames" => Some(f64::from(request.num_frames)),
            "batch" => Some(f64::from(request.batch)),
            _ => None,
        };
        self.range
            .iter()
            .filter_map(|(name, [low, high])| {
                let found = value(name)?;
                (found < *low || found > *high).then(|| format!("{name} {found} (measured {low} to {high})"))
            })
            .collect()
    }
}

/// A ratio of the rules as millionths.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small positive range")]
fn millionths(coefficient: &Coefficient) -> u64 {
    (coefficient.value.clamp(0.01, 100.0) * 1e6).round() as u64
}

fn scale(value: u64, ratio: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(ratio) / u128::from(ONE)).unwrap_or(u64::MAX)
}
