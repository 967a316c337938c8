//! The answer of `FreeVideo`'s own planner on a device whose memory and host memory are known.
//!
//! An estimate says nothing of the operating system, on which the planner's rules depend. So both that it has rules for are asked: where
//! they agree that is the verdict, and where they do not it stays unknown, with what each says. The figures that are shown are those of
//! Linux, as the planner assumes where nobody says; the ends of peaks are those of both.

use fv_spec::authored::Runtime;
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Buffer, BufferKind, HostBytes, Interval, PeakBytes, Phase, Provenance, Reason, StageName, Tier, Verdict};
use fv_spec::plan::budget::Resource;
use fv_spec::plan::refusal::Refusal;
use fv_spec::plan::{Fit, OperatingSystem, Plan, Precision, Role, Source, Sourced};
use fv_spec::request::Request;

use crate::budget::Budget;
use crate::error::gib;
use crate::family::{ByPlan, Planned, PlannedStage};
use crate::planner::Outcome;
use crate::planner::freevideo::{Asked, Machine, Planner, Pool, Question, ROWS};
use crate::settings::Settings;
use crate::verdict::{Short, ShortTier};

/// The planner with a request.
#[derive(Debug)]
struct Policy {
    planner: Planner,
    request: Asked,
    /// The format of the cached weights, where the deployment says; else the card decides.
    precision: Option<Precision>,
}

/// The planner of a deployment. `None` for other runtimes, where settings stand for a plan's choices, and for what the estimate knows too
/// little of: several videos at once, and references, whose rows depend on their sizes.
pub fn by_plan(model: &Model, example: &Example, settings: &Settings, request: &Request) -> Option<Box<dyn ByPlan>> {
    let chosen = settings.reported.iter().any(|setting| setting.provenance == Provenance::User);
    if settings.runtime != Runtime::FreeVideo || chosen || request.batch != 1 || request.references != 0 {
        return None;
    }
    let pipeline = example.base_config.get("generator")?.get("pipeline")?;
    let precision = match pipeline.get("precision") {
        Some(precision) => Some(Precision::parse(precision.as_str()?)?),
        None => None,
    };
    if pipeline.get("two_pass")?.as_bool()? {
        return None;
    }
    let asked = Asked {
        width: Some(request.width),
        height: Some(request.height),
        frames: Some(request.num_frames),
        steps: Some(request.num_inference_steps),
        text_tokens: Some(request.text_tokens.into()),
        ..Asked::default()
    };
    Some(Box::new(Policy { planner: Planner::new(model).ok()?, request: asked, precision }))
}

/// What one system's rules say.
enum Answer {
    Plan(Box<Plan>),
    Refusal(Box<Refusal>),
}

impl ByPlan for Policy {
    fn planned(&self, budget: &Budget) -> Option<Planned> {
        let capability = budget.compute_capability.as_ref()?;
        let (vram, host) = (budget.budget_bytes?, budget.host_bytes?);
        if budget.unified || !budget.reasons.is_empty() {
            return None;
        }
        let answer = |os| {
            let machine = Machine {
                compute_capability: Some(Sourced { value: capability.clone(), source: Source::Catalog }),
                geforce: budget.geforce.map(|value| Sourced { value, source: Source::Catalog }),
                precision: self.precision.map(Sourced::given),
                vram: Some(Pool::given(vram)),
                host: Some(Pool::given(host)),
                ..Machine::new(Sourced::assumed(os))
            };
            let question = Question { request: self.request.clone(), machine, capacity_trial: false, demonstrated_host_bytes: None };
            match self.planner.plan(&question).ok()? {
                Outcome::Planned(plan) => Some(Answer::Plan(plan)),
                Outcome::Refused(refusal) => Some(Answer::Refusal(refusal)),
                Outcome::Unplanned(_) => None,
            }
        };
        Some(together(answer(OperatingSystem::Linux)?, &answer(OperatingSystem::Windows)?))
    }
}

/// What both systems say together.
fn together(linux: Answer, windows: &Answer) -> Planned {
    let message = format!("FreeVideo's planner: {} on Linux, {} on Windows", words(&linux), words(windows));
    let (status, code) = match (&linux, windows) {
        (Answer::Plan(a), Answer::Plan(b)) if a.fit == Fit::Fits && b.fit == Fit::Fits => (Verdict::Fits, "planned"),
        (Answer::Plan(_), Answer::Plan(_)) => (Verdict::Uncertain, "planned"),
        (Answer::Refusal(_), Answer::Refusal(_)) => (Verdict::DoesNotFit, "refused-by-planner"),
        _ => (Verdict::Unknown, "planned-on-one-system"),
    };
    let short = match (&linux, windows) {
        (Answer::Refusal(a), Answer::Refusal(b)) => least(a, b),
        _ => None,
    };
    let other = if let Answer::Plan(plan) = windows { Some(&**plan) } else { None };
    let answer = Planned {
        status,
        host: status,
        reasons: vec![Reason::new(code, message)],
        short,
        margin_bytes: None,
        plan: None,
        stages: Vec::new(),
        settings: Vec::new(),
        extrapolated: Vec::new(),
        notes: Vec::new(),
    };
    let Answer::Plan(plan) = linux else { return answer };
    let (stages, extrapolated, notes) = (stages(&plan, other), extrapolated(&plan), note(&plan).into_iter().collect());
    Planned { plan: Some(plan), stages, extrapolated, notes, ..answer }
}

/// Whether working sets were measured at so many rows.
fn extrapolated(plan: &Plan) -> Vec<String> {
    let [least, _, most] = ROWS.map(i64::unsigned_abs);
    let beyond = plan.passes.iter().filter(|pass| !(least..=most).contains(&pass.video_tokens));
    beyond.map(|pass| format!("rows {} (FreeVideo's table: {least} to {most})", pass.video_tokens)).collect()
}

/// Which plan it is that is shown.
fn note(plan: &Plan) -> Option<String> {
    let placement = plan.placements.first()?;
    let compute = plan.passes.first()?.compute.first()?;
    let staged = if compute.residual_on_host { ", activations on the host" } else { "" };
    Some(format!(
        "peaks and times are those of FreeVideo's plan for Linux, in one pass: {} of {} blocks on the device, groups of {} heads{staged}; \
         `plan` says why",
        placement.count(Tier::Device),
        placement.block_count,
        compute.head_group
    ))
}

/// What a plan says of the stages that it has a peak for; `other` is the plan for the other system.
fn stages(plan: &Plan, other: Option<&Plan>) -> Vec<PlannedStage> {
    let of = |name: StageName, component: Role| {
        let largest = plan.peaks.iter().filter(|peak| peak.stage == name && peak.tier == Tier::Device).max_by_key(|peak| peak.bytes)?;
        let value = largest.bytes;
        let there = other.and_then(|other| peak(other, name, Tier::Device)).unwrap_or(value);
        let placement = plan.placements.iter().find(|placement| placement.component == component);
        let resident = placement.map_or(0, |placement| placement.count(Tier::Device));
        let block_bytes = placement.map_or(0, |placement| placement.block_bytes);
        let weights = (resident * block_bytes).min(value);
        let rule = |code: &str| format!("minimax_h3.freevideo.{code}");
        let buffer = |name: &str, kind, bytes, count: u64, formula, rule| Buffer {
            name: name.to_owned(),
            kind,
            tier: Tier::Device,
            bytes,
            count: u32::try_from(count).unwrap_or(u32::MAX),
            formula,
            rule,
        };
        let mut buffers = vec![
            buffer("resident blocks", BufferKind::Weights, weights, resident, format!("{block_bytes} B a block"), rule("placement")),
            buffer(
                "working set",
                BufferKind::Activation,
                value - weights,
                1,
                format!("the peak less these blocks; {}", largest.basis.meaning()),
                rule(largest.basis.word()),
            ),
        ];
        buffers.retain(|buffer| buffer.bytes > 0);
        buffers.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
        let held = |tier| peak(plan, name, tier).unwrap_or(0);
        let disk_bytes = placement.map_or(0, |placement| placement.count(Tier::Disk) * block_bytes);
        let host = HostBytes { pinned_bytes: held(Tier::Pinned), pageable_bytes: held(Tier::Pageable), disk_bytes };
        // Whole-device bytes, of which the planner tells no part apart.
        let device = Interval { low: value.min(there), value, high: value.max(there) };
        let phases = vec![Phase { name: name.word().to_owned(), repeat: 1, allocated_bytes: value }];
        let peaks = Some(PeakBytes { allocated: device, reserved: device, device });
        Some(PlannedStage { name, phases, peaks, host, buffers })
    };
    [of(StageName::Denoising, Role::Transformer), of(StageName::Decoding, Role::Vae)].into_iter().flatten().collect()
}

/// The largest predicted peak of a stage in one tier.
fn peak(plan: &Plan, stage: StageName, tier: Tier) -> Option<u64> {
    plan.peaks.iter().filter(|peak| peak.stage == stage && peak.tier == tier).map(|peak| peak.bytes).max()
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Plan(plan) => {
            let resident = plan.placements.first().map_or(0, |placement| placement.count(Tier::Device));
            let fit = if plan.fit == Fit::Fits { "planned" } else { "admitted above its own figures" };
            format!("{fit} with {resident} blocks on the device")
        }
        Answer::Refusal(refusal) => {
            let short = |short: &fv_spec::plan::refusal::Shortfall| {
                let pool = if short.resource == Resource::Host { "host" } else { "device" };
                format!("{} of {pool} memory", gib(short.shortfall_bytes.into()))
            };
            format!("refused for want of {}", refusal.shortfalls.iter().map(short).collect::<Vec<_>>().join(" and "))
        }
    }
}

/// What is missing at least, whichever system it is: of device memory where that is short.
fn least(a: &Refusal, b: &Refusal) -> Option<Short> {
    let of = |refusal: &Refusal, host: bool| {
        let found = refusal.shortfalls.iter().find(|short| (short.resource == Resource::Host) == host);
        found.map(|short| short.shortfall_bytes)
    };
    let short = |host: bool, tier| {
        let bytes = of(a, host)?.min(of(b, host)?);
        Some(Short { tier, stage: StageName::Denoising, bytes })
    };
    short(false, ShortTier::Device).or_else(|| short(true, ShortTier::Host))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use fv_spec::request::PartialRequest;
    use serde_json::json;

    use super::*;
    use crate::budget::Asked as Offered;
    use crate::device::from_flags;
    use crate::question;
    use crate::resolve::Overrides;

    fn data<T: serde::de::DeserializeOwned>(name: &str) -> T {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data").join(name);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// The estimate's verdict and the code of its first reason, on a card like an RTX 4090.
    fn estimate(vram_gib: f64, host_gb: Option<f64>, overrides: &Overrides, frames: u32) -> (Verdict, String, Option<u64>) {
        let model: Model = data("models/minimax-h3.json");
        let rules = data("rules.json");
        let example = model.examples.iter().find(|example| example.runtime == Runtime::FreeVideo).unwrap();
        let mut device = from_flags(vram_gib, None, None, None).unwrap();
        device.compute_capability = Some("8.9".to_owned());
        let asked = Offered { host_gb, ..Offered::default() };
        let question = question::Question { model: &model, example, rules: &rules, device: Some(&device), asked: &asked, overrides };
        let found = question.estimate(&PartialRequest { num_frames: Some(frames), ..PartialRequest::default() }).unwrap();
        (found.status, found.reasons[0].code.clone(), found.shortfall.map(|short| short.bytes))
    }

    #[test]
    fn the_planner_decides_where_both_systems_agree() {
        let plain = Overrides::default();
        let of = |vram, host, frames| {
            let (status, code, short) = estimate(vram, host, &plain, frames);
            (status, code, short.is_some())
        };
        assert_eq!(of(24.0, Some(64.0), 243), (Verdict::Fits, "planned".to_owned(), false));
        assert_eq!(of(6.0, Some(64.0), 243), (Verdict::DoesNotFit, "refused-by-planner".to_owned(), true));
        // 6.25 GiB and 0.2 GiB are enough on Linux, 6.4 GiB and 0.25 GiB are needed on Windows.
        assert_eq!(of(6.55, Some(64.0), 243), (Verdict::Unknown, "planned-on-one-system".to_owned(), false));
        // Linux admits more than its own table, Windows keeps activations on the host.
        assert_eq!(of(11.8, Some(64.0), 481), (Verdict::Uncertain, "planned".to_owned(), false));
        assert_eq!(of(24.0, Some(4.0), 243), (Verdict::DoesNotFit, "refused-by-planner".to_owned(), true));
    }

    #[test]
    fn it_stays_unknown_where_too_little_is_known_or_choices_are_given() {
        let plain = Overrides::default();
        assert_eq!(estimate(24.0, None, &plain, 243).0, Verdict::Unknown);
        let set = vec![("resident_blocks".to_owned(), json!(8))];
        let chosen = Overrides { set: set.into_iter().collect(), ..Overrides::default() };
        assert_eq!(estimate(24.0, Some(64.0), &chosen, 243).0, Verdict::Unknown);
    }
}
