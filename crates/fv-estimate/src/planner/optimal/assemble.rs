//! A plan made of what was chosen.

use fv_program::simulate::Simulated;
use fv_program::wan::options::Taken;
use fv_program::wan::planned;
use fv_spec::plan::forecast::{Coverage, Forecast, Interval, PassTime, StageTime};
use fv_spec::plan::{
    Encoder, EncoderProcess, Fit, Pass, Peak, PeakMetric, Plan, PolicyName, ReasonCode, Role, Runtime, StageName, Tier, VERSION,
};

use super::decisions;
use super::model::Covered;
use super::question::Resolved;
use super::solve::Solved;
use crate::forecast::interval::Seconds;
use crate::planner::sealed;

/// The name of the one pass.
pub(super) const PASS: &str = "only";

/// The plan.
pub(super) fn plan(covered: &Covered, resolved: &Resolved, solved: &Solved<'_>) -> Plan {
    let request = &resolved.request;
    let pass = Pass {
        name: PASS.to_owned(),
        width: request.width,
        height: request.height,
        video_tokens: request.video_tokens,
        steps: request.steps,
        compute: planned::compute(&covered.model, &resolved.generated, &solved.choices),
        block_cache: None,
        decisions: Vec::new(),
    };
    let mut plan = Plan {
        version: VERSION,
        id: String::new(),
        policy: PolicyName::Optimal,
        model: covered.model.id.clone(),
        runtime: Runtime::FvRun,
        system: resolved.system.clone(),
        request: request.clone(),
        budgets: resolved.budgets.to_vec(),
        fit: Fit::Fits,
        placements: planned::placements(&covered.model, &solved.choices),
        encoders: vec![Encoder { component: Role::TextEncoder, process: EncoderProcess::Same, host_minimum_bytes: None }],
        passes: vec![pass],
        two_pass: None,
        // Tiles that the solver tries are squares.
        decoders: planned::decoder(&covered.model, &resolved.generated, &solved.choices).into_iter().collect(),
        peaks: peaks(resolved, &solved.taken),
        arena: solved.played.as_ref().map(|(program, _)| planned::arena(program)),
        forecast: forecast(resolved, solved),
        unforecast: resolved.speed.missing.iter().cloned().collect(),
        decisions: Vec::new(),
        notes: resolved.notes.clone(),
        plan_revisions: Vec::new(),
    };
    if solved.played.is_some() {
        decisions::explain(&mut plan, resolved, solved);
    }
    sealed(plan)
}

fn stage(role: Role) -> StageName {
    match role {
        Role::TextEncoder => StageName::Encoding,
        Role::Vae => StageName::Decoding,
        _ => StageName::Denoising,
    }
}

/// What each stage takes at most: of the device everything that the process shows there, of the host what is page-locked.
fn peaks(resolved: &Resolved, taken: &[Taken]) -> Vec<Peak> {
    let mut peaks: Vec<Peak> = Vec::with_capacity(6);
    for taken in taken {
        let device = taken.device_bytes + resolved.layout.registered(taken.host_bytes) + resolved.context_bytes;
        let figures = [
            (Tier::Device, Some(0), PeakMetric::Device, device, &resolved.budgets[0], ReasonCode::PackedLayout),
            (Tier::Pinned, None, PeakMetric::Held, taken.host_bytes, &resolved.budgets[1], ReasonCode::PackedHost),
        ];
        for (tier, rank, metric, bytes, budget, basis) in figures {
            let stage = stage(taken.role);
            // Both experts are of one stage.
            if let Some(known) = peaks.iter_mut().find(|peak| peak.stage == stage && peak.tier == tier) {
                known.bytes = known.bytes.max(bytes);
                continue;
            }
            let pass = (stage == StageName::Denoising).then(|| PASS.to_owned());
            peaks.push(Peak { stage, pass, tier, rank, metric, bytes, limit_bytes: budget.budget_bytes, basis });
        }
    }
    peaks
}

/// How long the simulated program takes; of an outline what the solver reckons with.
fn forecast(resolved: &Resolved, solved: &Solved<'_>) -> Option<Forecast> {
    let factors = resolved.speed.factors?;
    let interval = |ns: u64| {
        let time = Seconds::within(seconds(ns), factors).nanoseconds();
        Interval { low_ns: time.low_ns.min(ns), value_ns: ns, high_ns: time.high_ns.max(ns) }
    };
    let steps = resolved.request.steps;
    let stages = match &solved.played {
        Some((_, simulated)) => {
            let names = [StageName::Load, StageName::Encoding, StageName::Denoising, StageName::Decoding];
            names.map(|name| (name, simulated.stage_ns(name))).to_vec()
        }
        None => vec![(StageName::Denoising, solved.chosen.transformer.ns), (StageName::Decoding, solved.chosen.decode.ns)],
    };
    let step = solved.played.as_ref().map_or_else(|| solved.chosen.transformer.ns / u64::from(steps.max(1)), |(_, played)| step(played));
    Some(Forecast {
        basis: "a simulation of the op program at this device's rates; fv-run's kernels are not measured".to_owned(),
        coverage: Coverage::Derived,
        passes: vec![PassTime { name: PASS.to_owned(), steps, step: interval(step) }],
        stages: stages.into_iter().map(|(name, ns)| StageTime { name, time: interval(ns) }).collect(),
        request: solved.played.as_ref().map(|(_, simulated)| interval(simulated.total_ns)),
        notes: vec![
            "products and attention are taken to reach the share of the dense rate that diffusers' reach on an H200".to_owned(),
            "loading is a part of the request's time; weights of blocks on the device and in host memory are loaded once".to_owned(),
        ],
    })
}

/// A step with everything warm; with two experts one of those of which there are more.
fn step(simulated: &Simulated) -> u64 {
    let steps = simulated.segments.iter().filter(|segment| segment.stage == StageName::Denoising && segment.name.ends_with("step"));
    let most = steps.max_by_key(|segment| segment.repeat);
    most.map_or(0, |segment| segment.steady_ns.unwrap_or(segment.last_ns))
}

#[expect(clippy::cast_precision_loss, reason = "times are below 2^53")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
