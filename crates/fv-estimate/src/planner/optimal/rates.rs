//! How fast operations are taken to be.
//!
//! The kernels of `fv-run` are not measured. So products and attention are taken to reach the share of a device's dense rate that
//! diffusers' reached on one H200, bytes of memory its bandwidth, and copies the share of the link that was measured there. A device
//! of which one of these rates is not known is decided for with the rates of an H200, and gets no forecast.

use fv_program::rates::{MatrixRates, Rates as Speeds};
use fv_spec::authored::{Accumulate, Dtype, Pcie};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;
use fv_spec::plan::Source;

use crate::forecast::coefficients::Coefficients;
use crate::forecast::rates::{GIGA, Rate, Rates, TERA, link};
use crate::forecast::roofline::{Kind, Law, PREFIX};

/// Starting a kernel, and starting a copy: an assumption of the size that drivers take.
const LAUNCH_NS: u64 = 5_000;
const COPY_NS: u64 = 10_000;
/// Bytes a second of the host's memory, for what the host does there: an assumption, of little consequence.
const HOST_MEMORY: u64 = 20_000_000_000;

/// How fast operations are, and what that rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// For simulation.
    pub rates: Speeds,
    /// How far a time may lie off: lowest and highest; absent where the device's own rates are not known.
    pub factors: Option<[f64; 2]>,
    /// Why there are none.
    pub missing: Option<Reason>,
    /// Assumptions.
    pub notes: Vec<String>,
}

/// The device that shares of rates were measured on, as the catalog has it (`h200-sxm-141gb`): the rates that the policy reads, for
/// those who have no catalog at hand. A test compares them.
pub fn reference() -> Rates {
    let known = |value| Rate::new(value, Source::Catalog);
    Rates {
        device: "h200-sxm-141gb".to_owned(),
        capability: Some("9.0".to_owned()),
        dense: known(989.0).map(|rate| ((Dtype::Bf16, Accumulate::Fp32), rate)).into_iter().collect(),
        memory: known(4800.0),
        link: link(Pcie { generation: 5, lanes: 16 }).and_then(known),
        ..Rates::default()
    }
}

/// How fast operations are on a device; with the rates of `reference` where its own are not known.
///
/// # Errors
/// Which coefficient or rate of the reference is missing.
pub fn speed(device: &Rates, reference: &Rates, rules: &RulesFile) -> Result<Speed, Reason> {
    let law = Law::of(rules, "wan", Kind::Forward)?;
    let all = Coefficients::new(rules, PREFIX);
    let link = all.positive("link-efficiency")?;
    let disk = Coefficients::new(rules, crate::forecast::freevideo::PREFIX).positive("disk-rate")?;
    let mut notes = Vec::new();
    let (rates, factors, missing) = match speeds(device, &law, link, device.disk.map_or(disk, |rate| rate.value)) {
        Ok(rates) => (rates, Some(law.wide[1]), None),
        Err(reason) => {
            notes.push(format!("{}: ways were compared with the rates of {}, and no time is forecast", reason.message, reference.device));
            (speeds(reference, &law, link, device.disk.map_or(disk, |rate| rate.value))?, None, Some(reason))
        }
    };
    if device.disk.is_none() {
        notes.push(format!("how fast weights are read is not known: {disk} GB/s are assumed, as on a measured host"));
    }
    Ok(Speed { rates, factors, missing, notes })
}

fn speeds(device: &Rates, law: &Law, link: f64, disk: f64) -> Result<Speeds, Reason> {
    let dense = device.products(Dtype::Bf16, Accumulate::Fp32)?.value * TERA;
    let memory = device.memory()?.value * GIGA;
    let copies = device.copies(link)?.value * GIGA;
    let products = whole(dense * law.shares.products);
    // Products in FP32 run in TF32, at half the rate of BF16 on every device that has both; those that programs have are small.
    let matrix = MatrixRates { f64: products, f32: products / 2, bf16: products, fp8: products, int8: products };
    Ok(Speeds {
        matrix,
        attention: whole(dense * law.shares.attention),
        memory: whole(memory),
        pinned_to_device: whole(copies),
        pageable_to_device: whole(copies),
        device_to_pinned: whole(copies),
        device_to_pageable: whole(copies),
        disk: whole(disk * GIGA),
        host_memory: HOST_MEMORY,
        launch_ns: LAUNCH_NS,
        copy_ns: COPY_NS,
    })
}

/// A positive rate in whole operations or bytes a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates, and rates are positive")]
fn whole(rate: f64) -> u64 {
    (rate as u64).max(1)
}
