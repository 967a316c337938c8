//! Plans for our own runtime: from arguments to the question of the policy `optimal`, and programs from plans.

use std::path::Path;

use fv_estimate::{
    error::InputError,
    forecast::rates::Rates,
    planner::optimal::{Asked, Covered, Depth, Planner, Question, model},
    render::Names,
};
use fv_program::{
    arena::{self, Effort, Packed},
    wan::{self, planned},
};
use fv_spec::{
    compiled::Model,
    plan::{Plan, PolicyName, Runtime},
    program::Program,
};

use super::{
    Session,
    arguments::{MachineArguments, ModelArguments, PlanArguments, RequestArguments},
    files,
    machine::{Described, Memory, machine},
    question::one_video,
    say,
};
use crate::{lookup, stop::Stop};

/// The device whose rates ways are compared by where those of the device are not known.
const REFERENCE: &str = "h200-sxm-141gb";

/// Whether a model is planned by this policy: where it is asked for, and where the model has a program and nothing is asked for.
pub(super) fn meant(model: &Model, arguments: &ModelArguments) -> bool {
    arguments.policy.unwrap_or(if model.memory_rules == "wan" { PolicyName::Optimal } else { PolicyName::Freevideo }) == PolicyName::Optimal
}

/// The planner of a model that there is a program for.
pub(super) fn planner(session: &mut Session<'_>, model: &Model) -> Result<Planner, Stop> {
    match model::covered(model) {
        Ok(covered) => Ok(Planner::new(covered)),
        Err(reasons) => {
            for reason in reasons {
                writeln!(session.err, "unknown: {}", reason.message)?;
            }
            Err(Stop::No)
        }
    }
}

/// Plans one request.
pub(super) fn one(session: &mut Session<'_>, arguments: &PlanArguments, model: &Model) -> Result<(), Stop> {
    let planner = planner(session, model)?;
    let mut errors = meaningless(&arguments.machine, &arguments.request);
    if arguments.memory.demonstrated_ram_gib.is_some() {
        errors.push(not_ours("--demonstrated-ram-gib"));
    }
    let memory = Memory::read(&arguments.memory, &mut errors)?;
    let Described { machine, name, rates } = machine(session, &arguments.machine, memory, errors)?;
    let question = Question { request: request(&arguments.request), machine, rates, reference: reference(session)? };
    let rules = session.store.rules()?;
    let names = Names { model: &model.name, device: name.as_deref() };
    let outcome = planner.plan(&question, &rules, Depth::Whole).map_err(Stop::wrong)?;
    say(session, arguments, outcome, &names, |refusal| planner.advise(&question, &rules, refusal))
}

/// The request that is meant.
pub(super) fn request(asked: &RequestArguments) -> Asked {
    Asked {
        width: asked.width,
        height: asked.height,
        frames: asked.frames,
        seconds: asked.seconds,
        steps: asked.steps,
        text_tokens: asked.text_tokens,
        guidance: asked.guidance,
    }
}

/// How fast the device is that rates were measured on.
///
/// # Errors
/// When the catalog cannot be read.
pub fn reference(session: &Session<'_>) -> Result<Rates, Stop> {
    let device = session.store.device(REFERENCE)?;
    Ok(device.as_ref().map_or_else(Rates::default, Rates::of))
}

/// What was said that only the published policy asks for, or no policy.
pub(super) fn meaningless(machine: &MachineArguments, request: &RequestArguments) -> Vec<InputError> {
    let passes = &request.passes;
    let said = [
        ("--attention-backends", !machine.attention_backends.is_empty()),
        ("--attention", !machine.attention.is_empty()),
        ("--capacity-trial", machine.capacity_trial),
        ("--task", request.task != fv_estimate::planner::freevideo::Task::default()),
        ("--reference-video-tokens", request.reference_video_tokens > 0),
        ("--reference-audio-tokens", request.reference_audio_tokens > 0),
        ("--lora-max-block-bytes", request.lora_max_block_bytes.is_some()),
        ("--lora-root-bytes", request.lora_root_bytes.is_some()),
        ("--table-bytes", request.table_bytes.is_some()),
        ("--conditioning-at-hand", request.conditioning_at_hand),
        ("--two-pass", passes.two_pass),
        ("--no-two-pass", passes.no_two_pass),
        ("--base-steps", passes.base_steps.is_some()),
        ("--refine-steps", passes.refine_steps.is_some()),
    ];
    said.into_iter().filter(|(_, said)| *said).map(|(flag, _)| not_ours(flag)).chain(one_video(request)).collect()
}

fn not_ours(flag: &str) -> InputError {
    InputError::new("no-such-setting", format!("{flag} is a setting of the policy freevideo, not of optimal"))
}

/// A plan's program with its buffers in their places.
#[derive(Debug)]
pub struct Lowered {
    /// The plan.
    pub plan: Plan,
    /// The model as programs have it.
    pub covered: Covered,
    /// The program; it has the plan's id.
    pub program: Program,
    /// How well each region is packed.
    pub packed: Vec<Packed>,
    /// How fast the plan's device is, as far as the catalog says.
    pub rates: Rates,
    /// Of the device that stands in where that is not known.
    pub reference: Rates,
}

/// Lowers a plan in a file. One whose layout is not that of its program is refused.
///
/// # Errors
/// Everything that is wrong with the plan.
pub fn lowered(session: &Session<'_>, path: &Path) -> Result<Lowered, Stop> {
    let plan = files::read(path)?;
    let at = |message: String| format!("{}: {message}", path.display());
    let refuse = |messages: Vec<String>| Stop::Usage(messages.into_iter().map(at).collect::<Vec<_>>().join("\nerror: "));
    if plan.runtime != Runtime::FvRun {
        return Err(refuse(vec![format!(
            "runtime: found {}, allowed: fv-run; other engines execute their plans themselves",
            plan.runtime.word()
        )]));
    }
    let compiled = lookup::model(session.store, &plan.model)?;
    let covered = model::covered(&compiled).map_err(|reasons| refuse(reasons.into_iter().map(|reason| reason.message).collect()))?;
    let request = model::request(&plan).map_err(|reason| refuse(vec![reason.message]))?;
    let all = |refused: Vec<fv_program::refused::Refused>| refuse(refused.iter().map(ToString::to_string).collect());
    let choices = planned::choices(&covered.model, &plan).map_err(all)?;
    let mut program = wan::lower(&covered.model, &request, &choices).map_err(all)?;
    program.plan.clone_from(&plan.id);
    let packed = arena::pack(&mut program, Effort::default());
    let Some(layout) = &plan.arena else {
        return Err(refuse(vec!["arena: the plan has no layout, so that nothing says where its buffers lie".to_owned()]));
    };
    let differences = planned::differences(layout, &program);
    if !differences.is_empty() {
        return Err(all(differences));
    }
    let device = plan.system.device.as_deref().map(|id| session.store.device(id)).transpose()?.flatten();
    let rates = device.as_ref().map_or_else(Rates::default, Rates::of);
    Ok(Lowered { plan, covered, program, packed, rates, reference: reference(session)? })
}
