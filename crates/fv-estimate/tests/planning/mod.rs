//! Questions for the tests of the policy.
#![allow(dead_code, clippy::allow_attributes, reason = "each test uses a part")]

use std::{fs, path::Path};

use fv_estimate::planner::Outcome;
use fv_estimate::planner::freevideo::{Asked, Machine, Planner, Pool, Question};
use fv_spec::compiled::Model;
use fv_spec::plan::refusal::Refusal;
use fv_spec::plan::{Architecture, OperatingSystem, Placement, Plan, Precision, Role, Sourced};

pub(crate) const GIB: u64 = 1 << 30;

/// A file of the repository.
pub(crate) fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn planner(model: &str) -> Planner {
    let model: Model = serde_json::from_str(&text(&format!("crates/fv-data/data/models/{model}.json"))).expect("a model");
    Planner::new(&model).expect("covered")
}

/// GiB with decimals, rounded down to bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small and positive")]
pub(crate) fn gib(value: f64) -> u64 {
    (value * GIB as f64) as u64
}

/// 1344 x 768, 243 frames, one pass, on a machine with so much free memory.
pub(crate) fn question(os: OperatingSystem, architecture: Architecture, precision: Precision, vram_gib: f64, ram_gib: f64) -> Question {
    let machine = Machine {
        architecture: Some(Sourced::given(architecture)),
        precision: Some(Sourced::given(precision)),
        vram: Some(Pool::given(gib(vram_gib))),
        host: Some(Pool::given(gib(ram_gib))),
        ..Machine::new(Sourced::given(os))
    };
    let request = Asked { width: Some(1344), height: Some(768), frames: Some(243), ..Asked::default() };
    Question { request, machine, capacity_trial: false, demonstrated_host_bytes: None }
}

/// Linux, Hopper, FP8: the machine of the published grid.
pub(crate) fn linux(vram_gib: f64, ram_gib: f64) -> Question {
    question(OperatingSystem::Linux, Architecture::Hopper, Precision::Fp8, vram_gib, ram_gib)
}

pub(crate) fn planned(planner: &Planner, question: &Question) -> Plan {
    match planner.plan(question) {
        Ok(Outcome::Planned(plan)) => *plan,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn refused(planner: &Planner, question: &Question) -> Refusal {
    match planner.plan(question) {
        Ok(Outcome::Refused(refusal)) => *refusal,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn transformer(plan: &Plan) -> &Placement {
    plan.placements.iter().find(|placement| placement.component == Role::Transformer).expect("a transformer")
}

pub(crate) fn vae(plan: &Plan) -> &Placement {
    plan.placements.iter().find(|placement| placement.component == Role::Vae).expect("a VAE")
}
