use std::collections::BTreeSet;

use fv_spec::compiled::{Device, Example, HardwareFile};
use fv_spec::estimate::{BufferKind, Estimate};
use fv_spec::request::PartialRequest;
use serde_json::json;

use super::*;
use crate::budget::Asked as Offered;
use crate::device::{DeviceSpec, from_flags};
use crate::estimate::Brief;
use crate::question::Question as Asking;
use crate::resolve::{Overrides, fv_run::deployment};

fn data<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn devices() -> Vec<Device> {
    data::<HardwareFile>("hardware.json").devices
}

fn card(id: &str) -> DeviceSpec {
    DeviceSpec::from(devices().iter().find(|device| device.id == id).unwrap())
}

/// A model with its deployment, and what is asked of it.
struct Case {
    model: Model,
    example: Example,
    rules: RulesFile,
    offered: Offered,
    overrides: Overrides,
}

impl Case {
    fn new(id: &str, host_gb: Option<f64>) -> Self {
        let model: Model = data(&format!("models/{id}.json"));
        let example = deployment(&model).unwrap();
        let offered = Offered { host_gb, ..Offered::default() };
        Self { model, example, rules: data("rules.json"), offered, overrides: Overrides::default() }
    }

    fn set(mut self, key: &str, value: serde_json::Value) -> Self {
        self.overrides.set.push((key.to_owned(), value));
        self
    }

    fn asking<'a>(&'a self, device: Option<&'a DeviceSpec>) -> Asking<'a> {
        let Self { model, example, rules, offered, overrides } = self;
        Asking { model, example, rules, device, asked: offered, overrides }
    }

    /// A short clip, so that programs are small.
    fn estimate(&self, device: Option<&DeviceSpec>) -> Estimate {
        self.asking(device).estimate(&short()).unwrap()
    }
}

fn short() -> PartialRequest {
    PartialRequest { height: Some(480), width: Some(832), num_frames: Some(17), ..PartialRequest::default() }
}

fn codes(estimate: &Estimate) -> Vec<&str> {
    estimate.reasons.iter().map(|reason| reason.code.as_str()).collect()
}

/// What stages show adds up: tensors to what is alive, regions to the layout, fixed cost and page tables to the device.
fn sums_up(estimate: &Estimate, planned: bool) {
    for stage in estimate.stages.iter().filter(|stage| stage.name != "load") {
        let alive = stage.phases.iter().map(|phase| phase.allocated_bytes).max().unwrap();
        let on_device = || stage.buffers.iter().filter(|buffer| buffer.tier == Tier::Device);
        assert_eq!(on_device().map(|buffer| buffer.bytes).sum::<u64>(), alive, "{}", stage.name);
        assert!(stage.buffers.iter().all(|buffer| buffer.bytes > 0 && !buffer.formula.is_empty()), "{:?}", stage.buffers);
        assert!(
            stage.buffers.iter().all(|buffer| buffer.rule.starts_with("wan.fv_run.") && !buffer.rule.ends_with('.')),
            "{:?}",
            stage.buffers
        );
        assert_eq!(stage.peak_bytes.is_some(), planned, "{}", stage.name);
        let Some(peaks) = stage.peak_bytes else { continue };
        assert_eq!(peaks.allocated, Interval::exact(alive));
        assert!(peaks.allocated.value <= peaks.reserved.value && peaks.reserved.value < peaks.device.value, "{peaks:?}");
    }
}

#[test]
fn the_reference_is_the_device_of_the_catalog() {
    let device = card("h200-sxm-141gb");
    let (here, there) = (reference(), device.rates);
    assert_eq!((&here.device, &here.capability, here.memory, here.link), (&there.device, &there.capability, there.memory, there.link));
    assert!(here.dense.iter().all(|(format, rate)| there.dense.get(format) == Some(rate)));
}

#[test]
fn stages_are_those_of_the_plan() {
    let case = Case::new("wan21-t2v-1.3b", Some(32.0));
    let estimate = case.estimate(Some(&card("rtx-4090-24gb")));
    assert_eq!((estimate.status, codes(&estimate)), (Verdict::Fits, vec!["planned"]));
    assert_eq!(estimate.coverage.rules, ["wan x fv-run"]);
    sums_up(&estimate, true);
    let kinds: BTreeSet<BufferKind> = estimate.stages.iter().flat_map(|stage| &stage.buffers).map(|buffer| buffer.kind).collect();
    assert!(
        kinds.contains(&BufferKind::Weights) && kinds.contains(&BufferKind::Activation) && kinds.contains(&BufferKind::Cache),
        "{kinds:?}"
    );
    let planned: Vec<&str> =
        estimate.settings.iter().filter(|setting| setting.provenance == Provenance::Planner).map(|setting| setting.key.as_str()).collect();
    assert!(planned.contains(&"transformer.head_group") && planned.contains(&"transformer.resident_blocks"), "{planned:?}");
    let precision = estimate.settings.iter().find(|setting| setting.key == "precision").unwrap();
    assert_eq!((&precision.value, precision.provenance), (&json!("bf16"), Provenance::RuntimeDefault));
}

#[test]
fn blocks_that_are_away_are_shown_where_they_are() {
    let case = Case::new("wan21-t2v-14b", Some(8.0));
    let estimate = case.estimate(Some(&card("rtx-3060-12gb")));
    assert_eq!(estimate.status, Verdict::Fits, "{:?}", estimate.reasons);
    sums_up(&estimate, true);
    let denoising = estimate.stages.iter().find(|stage| stage.name == "denoising").unwrap();
    assert!(denoising.host.pinned_bytes > 0 && denoising.host.disk_bytes > 0, "{:?}", denoising.host);
    assert!(denoising.buffers.iter().any(|buffer| buffer.name == "slot" && buffer.tier == Tier::Device), "{:?}", denoising.buffers);
    assert!(denoising.buffers.iter().any(|buffer| buffer.tier == Tier::Pinned), "{:?}", denoising.buffers);
    assert_eq!(estimate.host.required_bytes, estimate.stages.iter().map(|stage| stage.host.pinned_bytes).max());
}

#[test]
fn what_is_not_known_gives_no_verdict_and_shows_what_is_alive() {
    let case = Case::new("fastwan21", Some(32.0));
    let nowhere = case.estimate(None);
    assert_eq!((nowhere.status, codes(&nowhere), nowhere.capacity_gib), (Verdict::Unknown, vec!["no-hardware"], None));
    sums_up(&nowhere, false);
    for (id, code) in
        [("gb10-128gb", "uncovered-memory"), ("rtx-2080-ti-11gb", "format-not-listed"), ("rx-7900-xtx-24gb", "uncovered-backend")]
    {
        let estimate = case.estimate(Some(&card(id)));
        assert_eq!((estimate.status, codes(&estimate)[0]), (Verdict::Unknown, code), "{id}");
        sums_up(&estimate, false);
    }
    let mut without = Case::new("fastwan21", Some(32.0));
    without.rules.coefficients.retain(|name, _| !name.starts_with("fixed-cost"));
    let estimate = without.estimate(Some(&card("rtx-4090-24gb")));
    assert_eq!((estimate.status, codes(&estimate)), (Verdict::Unknown, vec!["unknown-fixed-cost"]));
    let long = PartialRequest { num_frames: Some(4093), ..PartialRequest::default() };
    for (case, request, code) in
        [(case, PartialRequest { batch: Some(2), ..short() }, "uncovered-request"), (Case::new("wan21-t2v-14b", None), long, "too-large")]
    {
        let estimate = case.asking(Some(&card("rtx-4090-24gb"))).estimate(&request).unwrap();
        assert_eq!((estimate.status, codes(&estimate)[0]), (Verdict::Unknown, code), "{:?}", estimate.reasons);
    }
}

#[test]
fn host_memory_that_nobody_stated_is_a_remark() {
    let estimate = Case::new("fastwan21", None).estimate(Some(&card("rtx-4090-24gb")));
    assert_eq!((estimate.status, estimate.host.status), (Verdict::Fits, Verdict::Unknown));
    assert_eq!(codes(&estimate), ["planned", "host-memory-unknown"]);
    assert!(estimate.host.required_bytes.is_some());
}

#[test]
fn a_refusal_names_what_is_short_and_shows_the_least() {
    let case = Case::new("wan21-t2v-14b", Some(64.0));
    let small = from_flags(1.5, None, None, None).unwrap();
    let estimate = case.estimate(Some(&small));
    assert_eq!((estimate.status, codes(&estimate)), (Verdict::DoesNotFit, vec!["refused-by-planner"]));
    let short = estimate.shortfall.clone().unwrap();
    assert_eq!((short.tier.as_str(), short.bytes > 0, short.buffers.is_empty()), ("device", true, false));
    sums_up(&estimate, true);
    let budget = estimate.memory.budget_bytes.unwrap();
    let most = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.device.value).max().unwrap();
    assert!(most >= budget + short.bytes && most < budget + short.bytes + (1 << 28), "{most} of {budget} and {}", short.bytes);
    // So much is enough.
    let asked = Offered { memory_budget_bytes: Some(most), ..case.offered.clone() };
    let large = from_flags(8.0, None, None, None).unwrap();
    let enough = Asking { asked: &asked, ..case.asking(Some(&large)) }.estimate(&self::short()).unwrap();
    assert_eq!((enough.status, enough.memory.budget_bytes), (Verdict::Fits, Some(most)), "{:?}", enough.reasons);
}

/// With little of both, in small steps: around what is needed layouts decide and not what is reckoned with.
#[test]
fn a_refusal_is_never_without_numbers() {
    let (mut fits, mut device, mut host) = (0, 0, 0);
    for sixteenths in (8..24_u32).chain([128]) {
        for host_gb in [1.1, 1.3, 1.5, 1.7] {
            let case = Case::new("fastwan21", Some(host_gb));
            let card = from_flags(f64::from(sixteenths) / 16.0, None, None, None).unwrap();
            let estimate = case.estimate(Some(&card));
            let found = format!("{sixteenths}/16 GiB and {host_gb} GB: {:?}", estimate.reasons);
            if estimate.status == Verdict::Fits {
                fits += 1;
                continue;
            }
            assert_eq!((estimate.status, codes(&estimate)), (Verdict::DoesNotFit, vec!["refused-by-planner"]), "{found}");
            let short = estimate.shortfall.unwrap_or_else(|| panic!("{found}"));
            assert!(short.bytes > 0 && !found.contains("more memory than there is"), "{found}");
            *if short.tier == "device" { &mut device } else { &mut host } += 1;
        }
    }
    assert!(fits > 0 && device > 0 && host > 0, "{fits} {device} {host}");
}

#[test]
fn what_a_layout_takes_is_what_its_plan_says() {
    for id in ["fastwan21", "wan21-t2v-14b"] {
        let case = Case::new(id, Some(24.0));
        let (card, mut all) = (card("rtx-4090-24gb"), Vec::new());
        let workload = case.asking(Some(&card)).evaluate(&short(), false).unwrap();
        for gib in [1, 2, 4, 8, 16, 22] {
            let asked = Offered { memory_budget_bytes: Some(gib << 30), ..case.offered.clone() };
            let budget = Asking { asked: &asked, ..case.asking(Some(&card)) }.budget(&workload.settings).unwrap();
            let brief = workload.brief(&budget);
            assert_eq!(brief, Brief::from(&workload.summary(&budget)), "{id} within {gib} GiB");
            all.push(brief.status);
        }
        assert!(all.contains(&Verdict::Fits) && all.contains(&Verdict::DoesNotFit), "{all:?}");
    }
}

#[test]
fn what_only_the_planner_does_not_know_has_its_code() {
    let case = Case::new("wan21-t2v-14b", None);
    let card = card("rtx-4090-24gb");
    let request = PartialRequest { num_frames: Some(4093), ..PartialRequest::default() };
    let workload = case.asking(Some(&card)).evaluate(&request, false).unwrap();
    let budget = case.asking(Some(&card)).budget(&workload.settings).unwrap();
    assert_eq!(workload.summary(&budget).status, Verdict::Unknown);
    assert_eq!(workload.why_unknown(&budget).as_deref(), Some("too-large"));
}

#[test]
fn a_budget_is_what_the_plan_keeps_within() {
    let case = Case::new("wan21-t2v-14b", Some(64.0));
    let device = card("rtx-4090-24gb");
    for (budget, reserve) in [(None, None), (Some(6 << 30), None), (None, Some(0)), (None, Some(3 << 30)), (Some(20 << 30), Some(1 << 30))]
    {
        let asked = Offered { memory_budget_bytes: budget, reserve_bytes: reserve, ..case.offered.clone() };
        let estimate = Asking { asked: &asked, ..case.asking(Some(&device)) }.estimate(&short()).unwrap();
        let most = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.device.value).max().unwrap();
        let allowed = estimate.memory.budget_bytes.unwrap();
        assert!(
            estimate.status == Verdict::Fits && most <= allowed && budget.is_none_or(|budget| allowed <= budget),
            "{budget:?} {reserve:?}"
        );
        assert_eq!(estimate.memory.reserve_bytes, reserve.unwrap_or(reserve_of(device.reported.unwrap())), "{budget:?} {reserve:?}");
    }
}

#[test]
fn settings_are_the_format_of_weights_and_no_others() {
    let device = card("rtx-4090-24gb");
    let weights = |case: Case| {
        let estimate = case.estimate(Some(&device));
        let denoising = estimate.stages.into_iter().find(|stage| stage.name == "denoising").unwrap();
        denoising.buffers.iter().filter(|buffer| buffer.name == "blocks").map(|buffer| buffer.bytes).sum::<u64>()
    };
    let case = || Case::new("wan21-t2v-1.3b", Some(32.0));
    let (wide, narrow) = (weights(case()), weights(case().set("precision", json!("fp8"))));
    assert!(narrow > wide / 2 && narrow < wide * 6 / 10, "{narrow} of {wide}");
    let wrong = |case: Case, request: PartialRequest| case.asking(Some(&device)).estimate(&request).unwrap_err().remove(0).message;
    assert!(wrong(case().set("precison", json!("fp8")), short()).contains("did you mean"));
    assert!(wrong(case().set("precision", json!("fp16")), short()).contains("bf16, fp8, int8"));
    let distilled = || Case::new("fastwan21", Some(32.0));
    assert!(wrong(distilled(), PartialRequest { num_inference_steps: Some(9), ..short() }).contains("distilled"));
    assert!(wrong(distilled(), PartialRequest { guidance_scale: Some(5.0), ..short() }).contains("distilled"));
    assert!(wrong(distilled(), PartialRequest { num_frames: Some(4097), ..short() }).contains("4093"));
    let several = case().set("num_gpus", json!(2)).estimate(Some(&device));
    assert_eq!((several.status, codes(&several)[0]), (Verdict::Unknown, "unknown-setting"));
}

#[test]
fn models_without_a_program_are_unknown_by_name() {
    for id in ["wan21-i2v-14b", "hunyuanvideo", "minimax-h3"] {
        let case = Case::new(id, Some(64.0));
        let estimate = case.asking(Some(&card("rtx-4090-24gb"))).estimate(&PartialRequest::default()).unwrap();
        assert_eq!((estimate.status, codes(&estimate)[0]), (Verdict::Unknown, "uncovered-model"), "{id}");
        assert!(estimate.reasons[0].message.contains(id), "{}", estimate.reasons[0].message);
    }
}
