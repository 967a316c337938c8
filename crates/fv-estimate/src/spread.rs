//! How far measured peaks lie from derived ones, by family and runtime: from `catalog/rules`, fitted and dated there.

use fv_spec::authored::{Coefficient, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::{Interval, PeakBytes};
use fv_spec::request::Request;

/// What a stage's memory comes from. Reserved peaks of convolutions depend on how their many sizes happen to fit into segments
/// that were used before; those of transformers and encoders hardly do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Transformers and encoders.
    Plain,
    /// A VAE.
    Vae,
}

impl Work {
    /// Part of the coefficients' ids.
    pub fn infix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Vae => "vae-",
        }
    }
}

/// Measured over derived, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Highest allocated peak.
    pub allocated_high: u64,
    /// Lowest reserved peak.
    pub reserved_low: u64,
    /// Highest reserved peak.
    pub reserved_high: u64,
}

/// A ratio of 1.
pub const ONE: u64 = 1_000_000;

impl Ends {
    /// Peaks are as derived.
    pub const EXACT: Self = Self { allocated_high: ONE, reserved_low: ONE, reserved_high: ONE };

    /// The peaks of a stage: `tensors` are alive without an allocator, `allocated` and `reserved` under it.
    pub fn peaks(&self, tensors: u64, allocated: u64, reserved: u64) -> PeakBytes {
        let low = tensors.min(allocated);
        PeakBytes {
            allocated: Interval { low, value: allocated, high: scale(allocated, self.allocated_high.max(ONE)) },
            reserved: Interval {
                low: scale(reserved, self.reserved_low.min(ONE)).max(low).min(reserved),
                value: reserved,
                high: scale(reserved, self.reserved_high.max(ONE)),
            },
            device: Interval::default(),
        }
    }
}

/// The spread of one family under one runtime, and the range that the measurements cover.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    plain: Ends,
    vae: Ends,
    range: Vec<(String, [f64; 2])>,
    note: Option<String>,
    measured: bool,
}

impl Spread {
    /// The spread of a rule: `spread-<family>-<runtime>-<metric>-<end>`, and with `vae-` before the metric that of stages in which
    /// a VAE has run; without the latter the former serves both. Without measurements of the runtime itself those of the same
    /// family under another runtime stand in, and everything is extrapolated.
    pub fn of(rules: &RulesFile, family: &str, runtime: Runtime) -> Self {
        let find = |runtime: Runtime, name: &str| rules.coefficients.get(&format!("spread-{family}-{}-{name}", runtime.word()));
        // The end that decides whether anything is known to fit.
        let bounded = |runtime: Runtime| find(runtime, "reserved-high").is_some();
        let own = bounded(runtime);
        let from = if own { runtime } else { Runtime::Diffusers };
        let ratio =
            |work: Work, name: &str| find(from, &format!("{}{name}", work.infix())).or_else(|| find(from, name)).map_or(ONE, millionths);
        let ends = |work: Work| Ends {
            allocated_high: ratio(work, "allocated-high").max(ONE),
            reserved_low: ratio(work, "reserved-low").min(ONE),
            reserved_high: ratio(work, "reserved-high").max(ONE),
        };
        let mut range: Vec<(String, [f64; 2])> = Vec::new();
        for work in [Work::Plain, Work::Vae] {
            let Some(found) = find(from, &format!("{}reserved-high", work.infix())) else { continue };
            for (name, ends) in &found.range {
                // Both parts run in a request, so the narrower range of the two counts.
                match range.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => *known = [known[0].max(ends[0]), known[1].min(ends[1])],
                    None => range.push((name.clone(), *ends)),
                }
            }
        }
        let measured = bounded(from);
        let note =
            (measured && !own).then(|| format!("no run under {} was measured: the spread of {} stands in", runtime.word(), from.word()));
        Self { plain: ends(Work::Plain), vae: ends(Work::Vae), range, note, measured }
    }

    /// A remark where the spread is not the rule's own.
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }

    /// Whether any measurement says how far peaks lie from what is derived. Without one [`ends`](Self::ends) are
    /// [`Ends::EXACT`], and their upper end is no bound.
    pub fn measured(&self) -> bool {
        self.measured
    }

    /// The ends for one kind of work.
    pub fn ends(&self, work: Work) -> Ends {
        match work {
            Work::Plain => self.plain,
            Work::Vae => self.vae,
        }
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
