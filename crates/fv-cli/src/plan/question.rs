//! From arguments to the planner's question.

use fv_estimate::{
    error::InputError,
    forecast::rates::Rates,
    planner::freevideo::{self, Planner, Question, TwoPassAsked},
};
use fv_spec::plan::Adapter;

use super::{
    Session,
    arguments::{PlanArguments, RequestArguments},
    machine::{Described, Memory, bytes, machine},
    planner,
};
use crate::stop::Stop;

/// A question, who answers it, and what people call model and device.
pub(super) struct Asked {
    pub(super) planner: Planner,
    pub(super) model: String,
    pub(super) question: Question,
    pub(super) name: Option<String>,
    pub(super) rates: Rates,
}

/// The question that arguments ask.
pub(super) fn asked(session: &mut Session<'_>, arguments: &PlanArguments) -> Result<Asked, Stop> {
    let (planner, model) = planner(session.store, &arguments.model.model)?;
    let mut errors = meaningless(&arguments.request);
    let memory = Memory::read(&arguments.memory, &mut errors)?;
    let demonstrated_host_bytes = bytes("`--demonstrated-ram-gib`", arguments.memory.demonstrated_ram_gib, &mut errors);
    let Described { machine, name, rates } = machine(session, &arguments.machine, memory, errors)?;
    let request = request(&arguments.request);
    let question = Question { request, machine, capacity_trial: arguments.machine.capacity_trial, demonstrated_host_bytes };
    Ok(Asked { planner, model, question, name, rates })
}

/// What was said that only the policy `optimal` asks for, or no policy.
pub(super) fn meaningless(request: &RequestArguments) -> Vec<InputError> {
    let message = "--guidance is a setting of the policy optimal, not of freevideo";
    let guidance = request.guidance.map(|_| InputError::new("no-such-setting", message));
    guidance.into_iter().chain(one_video(request)).collect()
}

/// Plans are for one video.
pub(super) fn one_video(request: &RequestArguments) -> Option<InputError> {
    let message = format!("batch: found {}, allowed: 1; a plan is for one video", request.batch);
    (request.batch != 1).then(|| InputError::new("invalid-value", message))
}

/// The request that is meant. Two passes are usual.
pub(super) fn request(arguments: &RequestArguments) -> freevideo::Asked {
    let passes = &arguments.passes;
    let adapter = arguments.lora_max_block_bytes.or(arguments.lora_root_bytes).is_some().then(|| Adapter {
        max_block_bytes: arguments.lora_max_block_bytes.unwrap_or(0),
        root_bytes: arguments.lora_root_bytes.unwrap_or(0),
    });
    freevideo::Asked {
        width: arguments.width,
        height: arguments.height,
        frames: arguments.frames,
        seconds: arguments.seconds,
        steps: arguments.steps,
        two_pass: (!passes.no_two_pass).then_some(TwoPassAsked { base_steps: passes.base_steps, refine_steps: passes.refine_steps }),
        task: arguments.task,
        reference_video_tokens: arguments.reference_video_tokens,
        reference_audio_tokens: arguments.reference_audio_tokens,
        text_tokens: arguments.text_tokens,
        adapter,
        table_bytes: arguments.table_bytes,
        conditioning_at_hand: arguments.conditioning_at_hand,
    }
}
