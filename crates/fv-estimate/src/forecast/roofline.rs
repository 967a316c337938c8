//! Seconds of passes counted in operations: what is computed at a share of the device's dense rate, and what is moved through its
//! memory. Shares and numbers of moves are fitted by family to runs with diffusers on one H200.

use fv_spec::authored::{Accumulate, Dtype};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;
use fv_spec::forecast::{TimeBasis, UsedRate};

use super::coefficients::Coefficients;
use super::freevideo::real;
use super::interval::Seconds;
use super::operations::Operations;
use super::rates::{GIGA, Rate, Rates, TERA, used, used_products};

/// How ids that hold for all families begin, and how those of a family do.
pub const PREFIX: &str = "time-diffusers-";

/// How the ids of a family's coefficients begin.
pub fn prefix(family: &str) -> String {
    format!("time-{family}-diffusers-")
}

/// Which of a family's components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A forward pass of a transformer.
    Forward,
    /// Decoding.
    Decode,
}

impl Kind {
    /// Part of the coefficients' ids.
    pub fn infix(self) -> &'static str {
        match self {
            Self::Forward => "",
            Self::Decode => "decode-",
        }
    }
}

/// What the shares are for one family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// Share of the dense rate that products reach.
    pub products: f64,
    /// The same of attention.
    pub attention: f64,
    /// How often what passes through memory does.
    pub passes: f64,
}

/// The law of one kind of pass of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct Law {
    /// The shares.
    pub shares: Shares,
    /// Measured over forecast, lowest and highest.
    pub ends: [f64; 2],
    /// The same assumed outside what was measured, and on other devices.
    pub wide: [[f64; 2]; 2],
    /// Compute capability and memory bandwidth of the device that was measured.
    device: [Option<[f64; 2]>; 2],
    /// Operations that were measured, in TFLOP.
    range: Option<[f64; 2]>,
}

impl Law {
    /// The catalog's.
    ///
    /// # Errors
    /// Which coefficient is missing.
    pub fn of(rules: &RulesFile, family: &str, kind: Kind) -> Result<Self, Reason> {
        let all = Coefficients::new(rules, PREFIX);
        let prefix = prefix(family);
        let own = Coefficients::new(rules, &prefix);
        let name = |what: &str| format!("{}{what}", kind.infix());
        let attention = match kind {
            Kind::Forward => own.positive("attention-efficiency")?,
            // Decoders attend too little for a share of their own; that of the largest one is in its passes.
            Kind::Decode => all.positive("attention-efficiency")?,
        };
        let passes = name("passes");
        let range = |what: &str| own.find(&passes).and_then(|found| found.range.get(what).copied());
        Ok(Self {
            shares: Shares { products: all.positive("product-efficiency")?, attention, passes: own.value(&passes)? },
            ends: [own.positive(&name("low"))?, own.positive(&name("high"))?],
            wide: [
                [all.positive("extrapolated-low")?, all.positive("extrapolated-high")?],
                [all.positive("scaled-low")?, all.positive("scaled-high")?],
            ],
            device: [range("compute_capability"), range("memory_bandwidth_gbps")],
            range: range("tflop"),
        })
    }

    /// What a forecast for a device rests on; `usual` says that the pass runs as those that were measured did.
    pub fn basis(&self, operations: &Operations, rates: &Rates, usual: bool) -> TimeBasis {
        let within =
            |range: Option<[f64; 2]>, value: Option<f64>| range.zip(value).is_some_and(|([low, high], v)| (low..=high).contains(&v));
        let capability = rates.capability.as_deref().and_then(|text| text.parse::<f64>().ok());
        if !within(self.device[0], capability) || !within(self.device[1], rates.memory.map(|rate| rate.value)) {
            return TimeBasis::Scaled;
        }
        let tflop = real(operations.products.saturating_add(operations.attention)) / TERA;
        if usual && within(self.range, Some(tflop)) { TimeBasis::Measured } else { TimeBasis::Extrapolated }
    }

    /// How far a figure may lie off.
    pub fn factors(&self, basis: TimeBasis) -> [f64; 2] {
        let join = |[low, high]: [f64; 2]| [low.min(self.ends[0]), high.max(self.ends[1])];
        match basis {
            TimeBasis::Measured => self.ends,
            TimeBasis::Extrapolated => join(self.wide[0]),
            TimeBasis::Scaled => join(self.wide[1]),
        }
    }
}

/// The rate of products in a type. FP32 convolutions run on tensor cores in TF32, at half the rate of BF16 on every device that has
/// both.
///
/// # Errors
/// That the rate is not known.
pub fn dense(rates: &Rates, dtype: Dtype) -> Result<Rate, Reason> {
    match dtype {
        Dtype::Fp32 => rates.products(Dtype::Bf16, Accumulate::Fp32).map(|rate| Rate { value: rate.value / 2.0, ..rate }),
        Dtype::Int8 => rates.products(dtype, Accumulate::Int32),
        _ => rates.products(dtype, Accumulate::Fp32),
    }
}

/// Seconds of one pass on a device, and the rates that it runs at.
///
/// # Errors
/// Rates that the device lacks.
pub fn seconds(operations: &Operations, rates: &Rates, shares: &Shares) -> Result<(f64, Vec<UsedRate>), Vec<Reason>> {
    let (dense, memory) = match (dense(rates, operations.dtype), rates.memory()) {
        (Ok(dense), Ok(memory)) => (dense, memory),
        (dense, memory) => return Err([dense.err(), memory.err()].into_iter().flatten().collect()),
    };
    let value = parts(operations, [dense.value, memory.value]);
    let seconds = value[0] / shares.products + value[1] / shares.attention + value[2] * shares.passes;
    let dtype = if operations.dtype == Dtype::Fp32 { Dtype::Bf16 } else { operations.dtype };
    let shown = if operations.dtype == Dtype::Fp32 { Rate { value: dense.value * 2.0, ..dense } } else { dense };
    let accumulate = if dtype == Dtype::Int8 { Accumulate::Int32 } else { Accumulate::Fp32 };
    Ok((seconds, vec![used_products(dtype, accumulate, shown), used("memory bandwidth", memory, "GB/s")]))
}

/// Seconds of products, of attention, and of one move, at the full rates.
pub fn parts(operations: &Operations, [dense, memory]: [f64; 2]) -> [f64; 3] {
    [
        real(operations.products) / (dense * TERA),
        real(operations.attention) / (dense * TERA),
        real(operations.moved_bytes) / (memory * GIGA),
    ]
}

/// A pass with its range.
pub fn pass(law: &Law, operations: &Operations, value: f64, rates: &Rates, usual: bool) -> (Seconds, TimeBasis) {
    let basis = law.basis(operations, rates, usual);
    (Seconds::within(value, law.factors(basis)), basis)
}
