//! What is asked of the policy, checked and put in the terms of programs.

use fv_program::optimal::Budgets;
use fv_program::wan::geometry::Request;
use fv_program::wan::legal::LONGEST as LATENT_FRAMES;
use fv_program::wan::planned;
use fv_spec::authored::Runtime;
use fv_spec::compiled::RulesFile;
use fv_spec::plan::budget::{Budget, Resource};
use fv_spec::plan::{AttentionBackend, PlanRequest, Precision, Sampler, Sampling, Sourced, SystemFacts};
use fv_spec::program::Formats;

use super::budget;
use super::model::{self, Covered, TEXT_ROWS, thousandths};
use super::rates::{Speed, speed};
use crate::budget::{FixedCosts, fixed_costs};
use crate::device::{DeviceSpec, from_flags};
use crate::error::InputError;
use crate::forecast::rates::Rates;
use crate::planner::freevideo::assemble;
use crate::planner::freevideo::budget::Reserved;
use crate::planner::freevideo::question::{self, Machine, Pool, nanoseconds};
use crate::resolve::legal::MAX_FRAMES;

/// A request as asked for; what is left out is as published pipelines ask for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// Pixel columns.
    pub width: Option<u32>,
    /// Pixel rows.
    pub height: Option<u32>,
    /// Frames.
    pub frames: Option<u32>,
    /// A duration in place of frames.
    pub seconds: Option<f64>,
    /// Steps.
    pub steps: Option<u32>,
    /// Tokens of the prompt.
    pub text_tokens: Option<u64>,
    /// The guidance scale of every transformer; 1 is none.
    pub guidance: Option<f64>,
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The request.
    pub request: Asked,
    /// The machine. What of it another policy asks for has no meaning here.
    pub machine: Machine,
    /// How fast its device is.
    pub rates: Rates,
    /// A device whose rates are known, for comparing ways where those of the device are not.
    pub reference: Rates,
}

/// A question in the terms of programs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    pub(super) system: SystemFacts,
    pub(super) request: PlanRequest,
    pub(super) generated: Request,
    pub(super) formats: Formats,
    pub(super) vram: (Pool, Reserved),
    pub(super) host: (Pool, Reserved),
    pub(super) budgets: [Budget; 2],
    pub(super) fixed: FixedCosts,
    /// Context, modules and libraries.
    pub(super) context_bytes: u64,
    /// What the layout may take.
    pub(super) layout: Budgets,
    pub(super) speed: Speed,
    pub(super) notes: Vec<String>,
}

/// Checks a question.
pub(super) fn resolve(covered: &Covered, question: &Question, rules: &RulesFile) -> Result<Resolved, Vec<InputError>> {
    let mut errors = Vec::new();
    let request = request(covered, &question.request, &mut errors);
    let system = system(&question.machine, &mut errors);
    let pools = question::pools(&question.machine, &mut errors);
    let speed = speed(&question.rates, &question.reference, rules).map_err(|reason| InputError::new("missing-rate", reason.message));
    let speed = speed.map_err(|error| errors.push(error)).ok();
    let (Some(request), Some(system), Some((vram, host)), Some(speed)) = (request, system, pools, speed) else { return Err(errors) };
    let formats = planned::formats(system.precision.value).filter(|_| system.precision.value != Precision::Fp32);
    let Some(formats) = formats else {
        let found = system.precision.value.word();
        return Err(vec![InputError::new("invalid-value", format!("precision: found {found}, allowed: bf16, fp8, int8"))]);
    };
    // Where device and host share one pool, nothing is asked of the device's.
    let vram = vram.unwrap_or_else(|| Pool::given(host.capacity()));
    let vram = (vram.clone(), budget::vram(&vram));
    let host = (host.clone(), budget::host(&host, system.os.value));
    let fixed = fixed(&system, rules);
    let context_bytes = fixed.context.map_or(0, |context| context.value);
    let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let layout = Budgets {
        device_bytes: unsigned(vram.1.budget).saturating_sub(context_bytes),
        host_bytes: unsigned(host.1.budget),
        per_pinned_gib_bytes: fixed.per_pinned_gib,
    };
    let sampling = request.sampling.clone().unwrap_or_else(|| covered.usual.sampling.clone());
    let mut notes = question.machine.notes.clone();
    notes.extend(speed.notes.clone());
    if fixed.extrapolated {
        notes.push(format!("what the process takes of the device beside its layout is not measured here: {}", fixed.source));
    }
    Ok(Resolved {
        generated: model::of(&request, &sampling),
        budgets: [
            Budget { rank: Some(0), ..assemble::budget(Resource::Vram, &vram.0, &vram.1) },
            assemble::budget(Resource::Host, &host.0, &host.1),
        ],
        system,
        request,
        formats,
        vram,
        host,
        fixed,
        context_bytes,
        layout,
        speed,
        notes,
    })
}

/// The machine; the runtime has one way to attend, and computes in BF16 unless eight-bit weights are asked for.
fn system(machine: &Machine, errors: &mut Vec<InputError>) -> Option<SystemFacts> {
    let usual = Machine { precision: Some(Sourced::assumed(Precision::Fp8)), attention_backends: None, ..machine.clone() };
    let found = question::system(&usual, errors)?;
    let precision = machine.precision.unwrap_or(Sourced::assumed(Precision::Bf16));
    Some(SystemFacts { precision, attention_backends: Sourced::assumed(vec![AttentionBackend::FvRun]), ..found })
}

/// What a process takes of the device beside its layout.
fn fixed(system: &SystemFacts, rules: &RulesFile) -> FixedCosts {
    let capability = system.compute_capability.as_ref().map(|capability| capability.value.clone());
    // A card that is only known by its generation is of the one capability that this has, where it has one.
    let capability = capability.or_else(|| (system.architecture.value == fv_spec::plan::Architecture::Hopper).then(|| "9.0".to_owned()));
    let spec = from_flags(1.0, None, Some("cuda"), None).map(|spec| DeviceSpec { compute_capability: capability, ..spec });
    spec.map_or_else(|_| FixedCosts::exact(0, "none"), |spec| fixed_costs(rules, &spec, Runtime::FvRun))
}

pub(super) fn request(covered: &Covered, asked: &Asked, errors: &mut Vec<InputError>) -> Option<PlanRequest> {
    let (usual, legal, before) = (&covered.usual, &covered.legal, errors.len());
    let mut wrong = |message: String| errors.push(InputError::new("invalid-value", message));
    let (width, height) = (asked.width.unwrap_or(usual.width), asked.height.unwrap_or(usual.height));
    if !legal.takes_size(height, width) {
        wrong(format!("size: found {width}x{height}, {}", legal.sizes_in_words()));
    }
    let fps = legal.fps.unwrap_or(16.0);
    let requested = match (asked.frames, asked.seconds) {
        (Some(frames), None) => frames,
        (None, Some(seconds)) if seconds.is_finite() && (0.0..=f64::from(MAX_FRAMES)).contains(&(seconds * fps)) => {
            frames_of(seconds * fps)
        }
        (None, Some(seconds)) => {
            wrong(format!("seconds: found {seconds}, allowed: up to {}", f64::from(MAX_FRAMES) / fps));
            usual.frames
        }
        (None, None) => usual.frames,
        (Some(frames), Some(_)) => {
            wrong("seconds and frames are both given: give one of them".to_owned());
            frames
        }
    };
    let place = legal.place_of_frames(requested);
    let frames =
        if legal.takes_frames(requested) { requested } else { legal.frames(if requested < legal.frames(0) { 0 } else { place + 1 }) };
    if !legal.takes_frames(frames) {
        wrong(format!("frames: found {requested}, {}", legal.frames_in_words()));
    }
    // Positions in time that rotary embedding knows.
    let most = LATENT_FRAMES.saturating_sub(1) * covered.model.vae.temporal() + 1;
    if u64::from(frames) > most {
        wrong(format!("frames: found {requested}, allowed: at most {most}, as far as the transformer knows positions"));
    }
    let steps = asked.steps.unwrap_or(usual.steps);
    let distilled = usual.sampling.sampler == Sampler::Dmd;
    if distilled && steps != usual.steps {
        wrong(format!("steps: found {steps}, allowed: {}, for which the model was distilled", usual.steps));
    } else if !(1..=1_000).contains(&steps) {
        wrong(format!("steps: found {steps}, allowed: from 1 to 1000"));
    }
    let text = asked.text_tokens.unwrap_or(TEXT_ROWS);
    if !(1..=TEXT_ROWS).contains(&text) {
        wrong(format!("text tokens: found {text}, allowed: from 1 to {TEXT_ROWS}"));
    }
    if let Some(guidance) = asked.guidance.filter(|scale| !(1.0..=1e3).contains(scale) || distilled && *scale > 1.0) {
        let allowed = if distilled { "1: the model was distilled with its guidance" } else { "from 1, which is none, to 1000" };
        wrong(format!("guidance: found {guidance}, allowed: {allowed}"));
    }
    if errors.len() > before {
        return None;
    }
    let sampling = sampling(&usual.sampling, asked, text);
    let sizes = Request { height: height.into(), width: width.into(), frames: frames.into(), ..model::of_usual(covered) };
    let latent = covered.model.latent(&sizes);
    Some(PlanRequest {
        width,
        height,
        fps: Some(frames_of(fps)),
        requested_frames: requested,
        requested_ns: asked.seconds.map(nanoseconds),
        frames,
        latent_frames: u32::try_from(latent.frames).unwrap_or(u32::MAX),
        video_tokens: covered.model.tokens(&sizes),
        steps,
        task: "t2v".to_owned(),
        reference_video_tokens: 0,
        reference_audio_tokens: 0,
        text_tokens: asked.text_tokens.map_or(Sourced::assumed(TEXT_ROWS), Sourced::given),
        adapter: None,
        sampling: Some(sampling),
    })
}

fn sampling(usual: &Sampling, asked: &Asked, text: u64) -> Sampling {
    let guidance = match asked.guidance {
        Some(scale) => vec![thousandths(scale); usual.guidance_thousandths.len()],
        None => usual.guidance_thousandths.clone(),
    };
    let guided = guidance.iter().any(|scale| *scale != 1_000);
    Sampling { negative_tokens: guided.then_some(text), guidance_thousandths: guidance, ..usual.clone() }
}

/// Whole frames, to the nearest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
fn frames_of(frames: f64) -> u32 {
    (frames + 0.5) as u32
}
