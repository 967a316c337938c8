//! The answer of our own runtime's planner: estimates show the plan that the policy `optimal` makes, and no figures beside it.
//!
//! The budget is [`place::offer`](crate::place::offer)'s, which keeps back what the planner does. Where host memory is not known, as much
//! is taken to be there as is asked for. What no device is known for is shown as it is with everything on the device.
//!
//! * [`stages`](mod@stages): what a plan's program says of each stage.

mod stages;

use std::sync::{Mutex, OnceLock, PoisonError};

use fv_spec::authored::Runtime;
use fv_spec::compiled::{Model, RulesFile};
use fv_spec::estimate::{Interval, PeakBytes, Provenance, Reason, Setting, StageName, Tier, Verdict};
use fv_spec::plan::budget::Resource;
use fv_spec::plan::refusal::Refusal;
use fv_spec::plan::{OperatingSystem, Plan, Precision, Role, Source, Sourced};
use fv_spec::program::Program;
use fv_spec::request::Request;

use crate::budget::Budget;
use crate::device::MAX_CAPACITY;
use crate::error::{InputError, gib};
use crate::family::{ByPlan, Fitted, Planned, PlannedStage};
use crate::planner::Outcome;
use crate::planner::freevideo::{Machine, Pool};
use crate::planner::optimal::rates::reference;
use crate::planner::optimal::{Answer, Asked, Depth, Known, Planner, Question, host_for, model, reserve_of};
use crate::settings::Settings;
use crate::verdict::{Short, ShortTier};

/// Parts that are decided one after another: text encoder, transformers, decoder with and without tiles.
const PARTS: usize = 4;
/// More memory than any request takes.
const ENDLESS: u64 = 1 << 40;
/// What is added to the least that is needed, a part of it, until there is a layout: nothing, then a little.
const MORE: [u64; 3] = [u64::MAX, 64, 8];

/// The planner with a request.
#[derive(Debug)]
struct Policy {
    planner: Planner,
    request: Asked,
    precision: Precision,
    rules: RulesFile,
    /// Why nothing is decided, whatever the device.
    unknown: Vec<Reason>,
    /// What each stage takes with everything on the device.
    endless: OnceLock<Vec<PlannedStage>>,
    /// What was found out about this request before.
    known: Mutex<Known>,
}

/// The planner of a model. `None` for other runtimes, and for models without a program.
pub(super) fn by_plan(model: &Model, settings: &Settings, request: &Request, rules: &RulesFile) -> Option<Box<dyn ByPlan>> {
    if settings.runtime != Runtime::FvRun {
        return None;
    }
    let planner = Planner::new(model::covered(model).ok()?);
    let request = asked(&planner, request);
    let precision = settings.reported.iter().find(|setting| setting.key == "precision");
    let precision = precision.and_then(|setting| Precision::parse(setting.value.as_str()?)).unwrap_or(Precision::Bf16);
    let (rules, unknown) = (rules.clone(), settings.unknown.clone());
    Some(Box::new(Policy { planner, request, precision, rules, unknown, endless: OnceLock::new(), known: Mutex::default() }))
}

/// A request in the terms of the planner. The usual scale of guidance stands for the published scales of all transformers.
pub(crate) fn asked(planner: &Planner, request: &Request) -> Asked {
    let usual = planner.covered().usual.sampling.guidance_thousandths.first();
    let scale = request.guidance_scale.max(1.0);
    Asked {
        width: Some(request.width),
        height: Some(request.height),
        frames: Some(request.num_frames),
        seconds: None,
        steps: Some(request.num_inference_steps),
        text_tokens: Some(request.text_tokens.into()),
        guidance: (usual != Some(&model::thousandths(scale))).then_some(scale),
    }
}

impl ByPlan for Policy {
    fn planned(&self, budget: &Budget) -> Option<Planned> {
        let unknown = unplannable(budget);
        let Some(device_bytes) = budget.budget_bytes.filter(|_| unknown.is_empty()) else {
            return Some(self.undecided(self.unknown.iter().cloned().chain(unknown).collect()));
        };
        Some(match self.answer(&self.question(budget, device_bytes), Depth::Whole) {
            Ok(Answer { outcome: Outcome::Planned(plan), program, .. }) => self.planned_as(budget, plan, program),
            Ok(Answer { outcome: Outcome::Refused(refusal), short, .. }) => self.refused(budget, &refusal, short),
            Ok(Answer { outcome: Outcome::Unplanned(unplanned), .. }) => self.undecided(unplanned.reasons),
            Err(errors) => self.undecided(errors.into_iter().map(|error| Reason::new(error.code, error.message)).collect()),
        })
    }

    fn may_fit(&self, budget: &Budget) -> Option<bool> {
        let question = self.question(budget, self.plannable(budget)?);
        let Ok(answer) = self.answer(&question, Depth::Outline) else { return None };
        Some(matches!(answer.outcome, Outcome::Planned(_)))
    }

    fn fitted(&self, budget: &Budget) -> Option<Fitted> {
        let answer = self.answer(&self.question(budget, self.plannable(budget)?), Depth::Layout).ok()?;
        let Outcome::Planned(plan) = answer.outcome else { return None };
        let most = |tier| plan.peaks.iter().filter(|peak| peak.tier == tier).map(|peak| peak.bytes).max();
        let (device_bytes, host_bytes) = (most(Tier::Device)?, most(Tier::Pinned)?);
        Some(Fitted { device_bytes, host_bytes })
    }

    fn least(&self, budget: &Budget, pool: ShortTier) -> Option<u64> {
        let device_bytes = self.plannable(budget)?;
        let mut found = 1;
        // Each refusal names what one part needs at least.
        for _ in 0..=PARTS {
            let question = match pool {
                ShortTier::Device => self.question(budget, found),
                ShortTier::Host => self.question(&Budget { host_bytes: Some(host_for(found)), ..budget.clone() }, device_bytes),
            };
            let answer = self.answer(&question, Depth::Outline).ok()?;
            let Outcome::Refused(refusal) = answer.outcome else {
                return matches!(answer.outcome, Outcome::Planned(_)).then_some(found);
            };
            let host = pool == ShortTier::Host;
            let short = refusal.shortfalls.iter().find(|short| (short.resource == Resource::Host) == host);
            let Some(bytes) = short.map(|short| short.minimum_bytes).filter(|bytes| *bytes > found) else {
                // What is short is the other pool, or nothing by itself: more than this may be needed, and no less.
                return Some(found);
            };
            found = bytes;
        }
        Some(found)
    }

    fn host_for(&self, bytes: u64) -> u64 {
        host_for(bytes)
    }

    fn smallest(&self, budget: &Budget) -> Vec<PlannedStage> {
        let Some(device_bytes) = budget.budget_bytes else { return Vec::new() };
        let question = self.question(budget, device_bytes);
        let Ok(Answer { outcome: Outcome::Refused(refusal), .. }) = self.answer(&question, Depth::Layout) else { return Vec::new() };
        if refusal.shortfalls.is_empty() {
            return Vec::new();
        }
        // What is needed at least is reckoned; a layout may take a little more.
        let enough = MORE.into_iter().find_map(|part| {
            let mut other = question.clone();
            for short in &refusal.shortfalls {
                let pool = if short.resource == Resource::Host { &mut other.machine.host } else { &mut other.machine.vram };
                let reserve_bytes = Some(short.reserve_bytes);
                let bytes = short.minimum_bytes + short.minimum_bytes / part + short.reserve_bytes;
                *pool = Some(Pool { reserve_bytes, ..Pool::given(bytes) });
            }
            match self.answer(&other, Depth::Whole).ok()? {
                Answer { outcome: Outcome::Planned(plan), program: Some(program), .. } => Some(stages::stages(&plan, &program)),
                _ => None,
            }
        });
        enough.unwrap_or_default()
    }
}

impl Policy {
    fn answer(&self, question: &Question, depth: Depth) -> Result<Answer, Vec<InputError>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.planner.answer(question, &self.rules, depth, &mut known)
    }

    /// Device memory that may be planned with, where nothing that decides is unknown.
    fn plannable(&self, budget: &Budget) -> Option<u64> {
        let known = self.unknown.is_empty() && unplannable(budget).is_empty();
        budget.budget_bytes.filter(|_| known)
    }

    /// The question that `plan` asks of the same device.
    fn question(&self, budget: &Budget, device_bytes: u64) -> Question {
        // The planner keeps back something at least; it comes on top, so that the budget is what counts.
        let reserve = budget.reserve_bytes.max(reserve_of(0));
        let vram = Pool { reserve_bytes: Some(reserve), ..Pool::given(device_bytes.saturating_add(reserve).min(MAX_CAPACITY)) };
        let host = budget.host_bytes.map_or_else(|| Pool { reserve_bytes: Some(0), ..Pool::given(ENDLESS) }, Pool::given);
        let machine = Machine {
            device: budget.device.clone(),
            compute_capability: budget.compute_capability.clone().map(|value| Sourced { value, source: Source::Catalog }),
            geforce: budget.geforce.map(|value| Sourced { value, source: Source::Catalog }),
            precision: Some(Sourced::given(self.precision)),
            vram: Some(vram),
            host: Some(host),
            ..Machine::new(Sourced::assumed(OperatingSystem::Linux))
        };
        Question { request: self.request.clone(), machine, rates: budget.rates.clone(), reference: reference() }
    }

    fn planned_as(&self, budget: &Budget, plan: Box<Plan>, program: Option<Program>) -> Planned {
        let stages = program.map_or_else(Vec::new, |program| stages::stages(&plan, &program));
        let most = stages.iter().filter_map(|stage| Some(stage.peaks?.device.high)).max();
        let left = |most: u64| i64::try_from(i128::from(budget.budget_bytes.unwrap_or(0)) - i128::from(most)).ok();
        let mut reasons = self.unknown.clone();
        reasons.push(Reason::new("planned", format!("fv-run's planner: planned with {}", in_words(&plan))));
        let host = if budget.host_bytes.is_some() {
            Verdict::Fits
        } else {
            let needed = stages.iter().map(|stage| stage.host.pinned_bytes).max().unwrap_or(0);
            let message = format!("{} of host memory are needed by this plan, and how much there is was not stated", gib(needed.into()));
            reasons.push(Reason::new("host-memory-unknown", message));
            Verdict::Unknown
        };
        let mut notes = plan.notes.clone();
        notes.push("peaks, times and settings that are planned are those of `plan --policy optimal` for Linux".to_owned());
        Planned {
            status: if self.unknown.is_empty() { Verdict::Fits } else { Verdict::Unknown },
            host,
            reasons,
            short: None,
            margin_bytes: most.and_then(left),
            stages,
            settings: settings(&plan),
            extrapolated: extrapolated(budget),
            notes,
            plan: Some(plan),
        }
    }

    fn refused(&self, budget: &Budget, refusal: &Refusal, short: Option<Role>) -> Planned {
        let stage = short.map_or(StageName::Denoising, stages::stage_of);
        let words = |short: &fv_spec::plan::refusal::Shortfall| {
            let pool = if short.resource == Resource::Host { "host" } else { "device" };
            let [needed, usable] = [short.minimum_bytes, short.usable_bytes].map(|bytes| gib(bytes.into()));
            format!("at least {needed} of {pool} memory, of which {usable} may be used")
        };
        let needs = refusal.shortfalls.iter().map(words).collect::<Vec<_>>().join(" and ");
        let part = short.map_or_else(|| "request".to_owned(), words_of);
        let needs = if needs.is_empty() { "more memory than there is".to_owned() } else { needs };
        let mut reasons = self.unknown.clone();
        reasons.push(Reason::new("refused-by-planner", format!("fv-run's planner: refused, the {part} needs {needs}")));
        let of = |host: bool| refusal.shortfalls.iter().find(|short| (short.resource == Resource::Host) == host);
        let device = of(false).map(|short| Short { tier: ShortTier::Device, stage, bytes: short.shortfall_bytes });
        let host = of(true).map(|short| Short { tier: ShortTier::Host, stage, bytes: short.shortfall_bytes });
        let known = self.unknown.is_empty();
        Planned {
            status: if known { Verdict::DoesNotFit } else { Verdict::Unknown },
            host: if known && host.is_some() { Verdict::DoesNotFit } else { Verdict::Unknown },
            margin_bytes: device.map(|short| -i64::try_from(short.bytes).unwrap_or(i64::MAX)),
            short: device.or(host).filter(|_| known),
            reasons,
            extrapolated: extrapolated(budget),
            notes: refusal.notes.clone(),
            ..undecided()
        }
    }

    /// Nothing is decided; what each stage takes is shown without a peak of the device.
    fn undecided(&self, reasons: Vec<Reason>) -> Planned {
        let note = "what is alive is that of a plan with everything on the device";
        Planned { reasons, stages: self.endless().to_vec(), notes: vec![note.to_owned()], ..undecided() }
    }

    fn endless(&self) -> &[PlannedStage] {
        self.endless.get_or_init(|| {
            let pool = || Some(Pool::given(ENDLESS));
            let machine = Machine {
                compute_capability: Some(Sourced::assumed("9.0".to_owned())),
                precision: Some(Sourced::given(self.precision)),
                vram: pool(),
                host: pool(),
                ..Machine::new(Sourced::assumed(OperatingSystem::Linux))
            };
            let question = Question { request: self.request.clone(), machine, rates: reference(), reference: reference() };
            let Ok(Answer { outcome: Outcome::Planned(plan), program: Some(program), .. }) = self.answer(&question, Depth::Whole) else {
                return Vec::new();
            };
            let stages = stages::stages(&plan, &program).into_iter();
            stages.map(|stage| PlannedStage { peaks: None, ..stage }).collect()
        })
    }
}

/// An answer without any figures.
fn undecided() -> Planned {
    Planned {
        status: Verdict::Unknown,
        host: Verdict::Unknown,
        reasons: Vec::new(),
        short: None,
        margin_bytes: None,
        plan: None,
        stages: Vec::new(),
        settings: Vec::new(),
        extrapolated: Vec::new(),
        notes: Vec::new(),
    }
}

/// Why no plan is made for a device.
fn unplannable(budget: &Budget) -> Vec<Reason> {
    let mut reasons = budget.reasons.clone();
    if reasons.is_empty() && budget.unified {
        let message = "fv-run's planner has no rule for memory that device and host share";
        reasons.push(Reason::new("uncovered-memory", message));
    }
    if reasons.is_empty() && budget.fixed.context.is_none() {
        let message = format!("what a process takes beside its layout is unknown: {}", budget.fixed.source);
        reasons.push(Reason::new("unknown-fixed-cost", message));
    }
    reasons
}

/// What the figures rest on that was not measured here.
fn extrapolated(budget: &Budget) -> Vec<String> {
    let fixed = &budget.fixed;
    fixed.extrapolated.then(|| format!("fixed cost of {}: {}", fixed.class, fixed.source)).into_iter().collect()
}

/// A component, for people.
fn words_of(role: Role) -> String {
    if role == Role::Vae { "VAE".to_owned() } else { role.word().replace('_', " ") }
}

/// Where the blocks of each component live.
fn in_words(plan: &Plan) -> String {
    let words = plan.placements.iter().map(|placement| {
        let away: Vec<String> = [(Tier::Pinned, "page-locked"), (Tier::Disk, "on disk")]
            .into_iter()
            .filter(|(tier, _)| placement.count(*tier) > 0)
            .map(|(tier, word)| format!("{} {word}", placement.count(tier)))
            .collect();
        let away = if away.is_empty() { String::new() } else { format!(" ({})", away.join(", ")) };
        let part = words_of(placement.component);
        format!("{} of {} blocks of the {part}{away}", placement.count(Tier::Device), placement.block_count)
    });
    format!("{} on the device", words.collect::<Vec<_>>().join(", "))
}

/// What was decided, as settings; what a pass decides goes by the names of its decisions.
fn settings(plan: &Plan) -> Vec<Setting> {
    let all = plan.decisions.iter().chain(plan.passes.iter().flat_map(|pass| &pass.decisions));
    all.map(|made| Setting { key: made.key.clone(), value: made.value.clone(), provenance: Provenance::Planner }).collect()
}

/// Peaks of an arena of so many bytes, of which so many are alive at once, with what the process shows in all.
fn peaks(allocated: u64, reserved: u64, device: u64) -> PeakBytes {
    let [allocated, reserved, device] = [allocated, reserved, device].map(Interval::exact);
    PeakBytes { allocated, reserved, device }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
