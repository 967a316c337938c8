//! Sizes and counts: what is asked for, then the deployment's `default_request`, then the family's defaults; and each
//! family's rules for them.

use fv_spec::authored::{Role, Runtime};
use fv_spec::request::{PartialRequest, Request};
use serde_json::Value;

use super::book::found;
use super::{Context, InputError, sections};
use crate::error::readable;

/// Pixels of a side, at most.
pub const MAX_SIDE: u32 = 16_384;
/// Frames of any video, at most.
pub const MAX_FRAMES: u32 = 16_384;
/// Videos generated together, at most.
pub const MAX_BATCH: u32 = 1_024;
const LATENT_FRAMES: u32 = 1_024;
const MAX_STEPS: u32 = 10_000;
const MAX_TEXT: u32 = 65_536;
const MAX_REFERENCES: u32 = 256;

/// A resolved request with remarks on it.
pub(super) struct Resolved {
    pub(super) value: Request,
    pub(super) notes: Vec<String>,
}

/// What a family makes of what is left out.
struct Defaults {
    height: u32,
    width: u32,
    frames: u32,
    fps: f64,
    steps: u32,
    guidance: f64,
    text: u32,
}

impl Defaults {
    const fn new([height, width, frames]: [u32; 3], fps: f64, steps: u32, guidance: f64, text: u32) -> Self {
        Self { height, width, frames, fps, steps, guidance, text }
    }

    /// `None` for a family without any.
    fn of(context: &Context<'_>) -> Option<Self> {
        Some(match context.family() {
            "wan" if context.text_or_image() => Self::new([704, 1280, 121], 24.0, 50, 5.0, 512),
            "wan" if context.example.runtime == Runtime::Diffusers => Self::new([480, 832, 81], 16.0, 50, 5.0, 512),
            "wan" if context.geometry(Role::Transformer, "hidden_size").is_some_and(|d| d >= 5120) => {
                Self::new([720, 1280, 81], 16.0, 50, 5.0, 512)
            }
            "wan" => Self::new([480, 832, 81], 16.0, 50, 3.0, 512),
            // What FreeVideo counts with where nobody says how long the text is.
            "minimax_h3" if context.example.runtime == Runtime::FreeVideo => {
                Self::new([768, 1344, 243], 24.0, 8, 1.0, crate::planner::freevideo::TEXT_TOKENS)
            }
            "minimax_h3" => Self::new([768, 1344, 124], 24.0, 50, 1.0, 1024),
            "hunyuan_video" => Self::new([720, 1280, 125], 24.0, 50, 1.0, 256),
            "hunyuan_video_15" => Self::new([480, 848, 121], 24.0, 50, 6.0, 1000),
            "ltx_video" if context.component(Role::AudioVae).is_some() => Self::new([512, 768, 121], 24.0, 40, 3.0, 1024),
            "ltx_video" => Self::new([512, 704, 161], 25.0, 50, 3.0, 128),
            "cogvideox" if context.patch()[0] == 2 => Self::new([768, 1360, 81], 16.0, 50, 6.0, 226),
            "cogvideox" => Self::new([480, 720, 49], 8.0, 50, 6.0, 226),
            "mochi" => Self::new([480, 848, 19], 30.0, 64, 4.5, 256),
            "cosmos" => Self::new([704, 1280, 93], 16.0, 35, 7.0, 512),
            "kandinsky5" => Self::new([512, 768, 121], 24.0, 50, 5.0, 512),
            _ => return None,
        })
    }
}

/// Frames are `rest` more than a multiple of `step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameRule {
    pub(super) step: u32,
    pub(super) rest: u32,
}

impl FrameRule {
    pub(super) fn of(context: &Context<'_>) -> Self {
        if context.family() == "minimax_h3" {
            return Self { step: 17, rest: 5 };
        }
        let step = context.geometry(Role::Vae, "temporal_compression").unwrap_or(4).max(1);
        Self { step, rest: 1 % step }
    }

    /// The legal counts just below and above; the first may be missing.
    fn around(self, frames: u32) -> (Option<u32>, u32) {
        let below = frames.checked_sub(self.rest).map(|over| self.rest + over / self.step * self.step).filter(|n| *n > 0);
        let above = below.map_or_else(|| if self.rest == 0 { self.step } else { self.rest }, |n| n.saturating_add(self.step));
        (below, above)
    }

    fn legal(self, frames: u32) -> bool {
        self.around(frames).0 == Some(frames)
    }

    /// The legal count nearest to `frames`, the upper of two.
    fn nearest(self, frames: u32) -> u32 {
        match self.around(frames) {
            (Some(below), above) if frames - below < above - frames => below,
            (_, above) if !self.legal(frames) => above,
            _ => frames,
        }
    }
}

/// Resolves `asked` for what the settings say is made of what (`workload`); every problem is added to `errors`.
pub(super) fn resolve(context: &Context<'_>, workload: Option<&str>, asked: &PartialRequest, errors: &mut Vec<InputError>) -> Resolved {
    let mut notes = Vec::new();
    let defaults = Defaults::of(context);
    let d = defaults.as_ref();
    let mut whole = |asked: Option<u32>, name: &'static str, default: Option<u32>| {
        asked.or_else(|| sampling_whole(context, name, errors)).or(default).unwrap_or_else(|| {
            errors.push(InputError::new("missing-value", format!("{name} is not given, and the family has no default for it")));
            0
        })
    };
    let height = whole(asked.height, "height", d.map(|d| d.height));
    let width = whole(asked.width, "width", d.map(|d| d.width));
    let frames_by_default = match asked.seconds {
        Some(_) => Some(1),
        None => d.map(|d| d.frames),
    };
    let frames_asked = asked.num_frames.or(asked.seconds.map(|_| 1));
    let mut num_frames = whole(frames_asked, "num_frames", frames_by_default);
    let batch = whole(asked.batch, "num_videos_per_prompt", Some(1));
    let num_inference_steps = whole(asked.num_inference_steps, "num_inference_steps", d.map(|d| d.steps).or(Some(50)));
    let mut text_tokens = whole(asked.text_tokens, "max_sequence_length", d.map(|d| d.text).or(Some(512)));
    let references =
        asked.references.or_else(|| configured_references(context, errors)).unwrap_or_else(|| default_references(context, workload));
    let guidance_scale =
        asked.guidance_scale.or_else(|| sampling_number(context, "guidance_scale", errors)).or(d.map(|d| d.guidance)).unwrap_or(1.0);

    let rule = FrameRule::of(context);
    if let Some(seconds) = asked.seconds {
        if asked.num_frames.is_some() {
            errors.push(InputError::new("conflict", "seconds and frames are both given: give one of them"));
        }
        let fps = fps(context, errors);
        match fps.and_then(|fps| frames_of(seconds, fps)) {
            Some(frames) => num_frames = rule.nearest(frames),
            None if fps.is_none() => errors.push(InputError::new("missing-value", "seconds: the model has no frame rate; give frames")),
            None => errors.push(InputError::new(
                "invalid-frames",
                format!("seconds: found {}, allowed: a positive number that gives at most {MAX_FRAMES} frames", readable(seconds)),
            )),
        }
    }

    sides(context, height, width, errors);
    frames(rule, num_frames, frame_bounds(context), errors);
    bound("batch", batch, 1, MAX_BATCH, errors);
    bound("steps", num_inference_steps, 1, MAX_STEPS, errors);
    bound("references", references, 0, MAX_REFERENCES, errors);
    if !(guidance_scale.is_finite() && (0.0..=1000.0).contains(&guidance_scale)) {
        errors.push(InputError::new(
            "invalid-value",
            format!("guidance: found {}, allowed: a number from 0 to 1000", readable(guidance_scale)),
        ));
    }
    if context.family() == "minimax_h3" {
        h3(context, references, errors);
    }
    if context.family() == "wan" {
        bound("text tokens", text_tokens, 1, 512, errors);
        if context.example.runtime == Runtime::FastVideo && text_tokens < 512 {
            notes.push(format!("FastVideo pads Wan's text to 512 tokens, whatever is asked for ({text_tokens})"));
            text_tokens = 512;
        }
        wan_references(context, workload, references, errors);
    } else {
        bound("text tokens", text_tokens, 1, MAX_TEXT, errors);
    }
    if context.family() == "cogvideox" {
        cogvideox(context, [height, width], text_tokens, errors);
    }
    if context.example.runtime == Runtime::FastVideo && batch > 1 {
        notes.push("FastVideo's denoising stage takes more than one video at once only where request batching is enabled".to_owned());
    }
    let value = Request { height, width, num_frames, batch, guidance_scale, num_inference_steps, text_tokens, references };
    Resolved { value, notes }
}

/// What the configuration's request is conditioned on, where it says so.
fn configured_references(context: &Context<'_>, errors: &mut Vec<InputError>) -> Option<u32> {
    let found = sections::requests(&context.example.base_config).map(sections::references).find(|found| !found.is_empty())?;
    let most = found.into_iter().try_fold(0, |most: u32, count| Some(most.max(count?)));
    if most.is_none() {
        let message = "default_request: references: what is given is no number of inputs, allowed: a whole number of at least 0, or lists";
        errors.push(InputError::new("invalid-value", message));
    }
    most
}

/// One image for a model that starts from one, two for first and last frame.
fn default_references(context: &Context<'_>, workload: Option<&str>) -> u32 {
    match workload {
        Some("i2v") if context.named("flf2v") => 2,
        Some("i2v") => 1,
        _ => 0,
    }
}

/// The fewest and the most frames that a pipeline takes, whatever the form of the count.
pub(super) fn frame_bounds(context: &Context<'_>) -> [u32; 2] {
    match (context.family(), context.example.runtime) {
        // From five to fifteen seconds.
        ("minimax_h3", Runtime::Diffusers) => [120, 360],
        // Twelve latent frames at least.
        // Positions in time that rotary embedding knows.
        ("wan", Runtime::FvRun) => [1, (LATENT_FRAMES - 1) * FrameRule::of(context).step + 1],
        ("minimax_h3", Runtime::FreeVideo) => [crate::planner::freevideo::geometry::LEAST_FRAMES, MAX_FRAMES],
        _ => [1, MAX_FRAMES],
    }
}

/// What MiniMax H3's pipelines check beyond the form of the frame count.
fn h3(context: &Context<'_>, references: u32, errors: &mut Vec<InputError>) {
    if context.example.runtime == Runtime::Diffusers {
        // A keyframe at either end: media of the third workflow have sizes of their own.
        bound("references", references, 0, 2, errors);
    }
}

/// The one height and width that a model takes, where there is but one.
pub(super) fn only_size(context: &Context<'_>) -> Option<[u32; 2]> {
    (context.family() == "cogvideox" && context.named("i2v") && context.patch()[0] == 1).then_some([480, 720])
}

/// What a table of positions allows: CogVideoX 2B and the image-to-video model add one of 226 text tokens, and the latter's is
/// stored for one size (`CogVideoXPatchEmbed`).
fn cogvideox(context: &Context<'_>, size: [u32; 2], text_tokens: u32, errors: &mut Vec<InputError>) {
    const TEXT: u32 = 226;
    let small = context.geometry(Role::Transformer, "hidden_size").is_some_and(|width| width < 3072);
    let only = only_size(context);
    if only.is_some() || small {
        bound("text tokens", text_tokens, TEXT, TEXT, errors);
    }
    if let Some([height, width]) = only.filter(|only| *only != size) {
        let text =
            format!("size: found {} x {}, allowed: {height} x {width}, which its table of positions is stored for", size[0], size[1]);
        errors.push(InputError::new("invalid-size", text));
    }
}

/// Wan's image models cannot do without an image, its text models have no place for one.
fn wan_references(context: &Context<'_>, workload: Option<&str>, references: u32, errors: &mut Vec<InputError>) {
    if context.geometry(Role::Transformer, "in_channels").is_none() {
        return;
    }
    let (least, most, what, workloads): (_, _, _, &[&str]) = if context.text_or_image() {
        (0, 1, "text and image to video", &["t2v", "i2v", "ti2v", "t2i"])
    } else if context.image_to_video() {
        (1, 2, "image to video", &["i2v"])
    } else {
        (0, 0, "text to video", &["t2v", "t2i"])
    };
    let wrong = |name: &str, found: &str, allowed: &str| {
        InputError::new("invalid-value", format!("{name}: found {found}, allowed: {allowed}, since {} is {what}", context.model.id))
    };
    if let Some(workload) = workload.filter(|workload| !workloads.contains(workload)) {
        // The number of references follows from it, and is no second mistake.
        errors.push(wrong("workload_type", workload, &workloads.join(", ")));
    } else if !(least..=most).contains(&references) {
        let allowed = if least == most { format!("{least}") } else { format!("{least} to {most}") };
        errors.push(wrong("references", &references.to_string(), &allowed));
    }
}

/// What height and width are multiples of.
pub(super) fn multiples(context: &Context<'_>) -> [u32; 2] {
    let compression = context.geometry(Role::Vae, "spatial_compression").unwrap_or(1).max(1);
    let [_, rows, columns] = context.patch();
    [compression.saturating_mul(rows), compression.saturating_mul(columns)]
}

/// Frames a second.
pub(super) fn fps(context: &Context<'_>, errors: &mut Vec<InputError>) -> Option<f64> {
    sampling_number(context, "fps", errors).or(Defaults::of(context).map(|d| d.fps))
}

fn sides(context: &Context<'_>, height: u32, width: u32, errors: &mut Vec<InputError>) {
    let multiples = multiples(context);
    for (name, side, multiple) in [("height", height, multiples[0]), ("width", width, multiples[1])] {
        if side == 0 || side > MAX_SIDE {
            errors.push(InputError::new("invalid-size", format!("{name}: found {side}, allowed: from {multiple} to {MAX_SIDE} pixels")));
        } else if !side.is_multiple_of(multiple) {
            let below = side / multiple * multiple;
            let above = below + multiple;
            let near = if below == 0 { format!("{above}") } else { format!("{below} or {above}") };
            errors.push(InputError::new(
                "invalid-size",
                format!("{name}: found {side}, allowed: multiples of {multiple} pixels; nearest: {near}"),
            ));
        }
    }
}

fn frames(rule: FrameRule, frames: u32, [fewest, most]: [u32; 2], errors: &mut Vec<InputError>) {
    let FrameRule { step, rest } = rule;
    let within = |frames: &u32| (fewest..=most).contains(frames);
    if within(&frames) && rule.legal(frames) {
        return;
    }
    let range = match fewest {
        1 if within(&frames) => String::new(),
        1 => format!(", at most {most}"),
        _ => format!(", from {fewest} to {most}"),
    };
    // What is nearest has to be in the range as well.
    let inside = frames.clamp(fewest, most);
    let (below, above) = if rule.legal(inside) { (Some(inside), inside) } else { rule.around(inside) };
    let mut near: Vec<String> = below.into_iter().chain([above]).filter(within).map(|frames| frames.to_string()).collect();
    near.dedup();
    let text = format!("frames: found {frames}, allowed: {step}k+{rest}{range}; nearest: {}", near.join(" or "));
    errors.push(InputError::new("invalid-frames", text));
}

fn bound(name: &str, value: u32, least: u32, most: u32, errors: &mut Vec<InputError>) {
    if !(least..=most).contains(&value) {
        errors.push(InputError::new("invalid-value", format!("{name}: found {value}, allowed: from {least} to {most}")));
    }
}

/// Whole frames of a duration: through text, since there is no checked conversion from floating point.
fn frames_of(seconds: f64, fps: f64) -> Option<u32> {
    let frames = seconds * fps;
    if !(frames.is_finite() && frames > 0.0 && frames <= f64::from(MAX_FRAMES)) {
        return None;
    }
    format!("{frames:.0}").parse().ok()
}

fn sampling_whole(context: &Context<'_>, name: &'static str, errors: &mut Vec<InputError>) -> Option<u32> {
    let value = context.default_request("sampling", name)?;
    let read = super::whole(value);
    if read.is_none() {
        errors.push(wrong(name, value, "a whole number of at least 0"));
    }
    read
}

fn sampling_number(context: &Context<'_>, name: &'static str, errors: &mut Vec<InputError>) -> Option<f64> {
    let value = context.default_request("sampling", name)?;
    let read = value.as_f64();
    if read.is_none() {
        errors.push(wrong(name, value, "a number"));
    }
    read
}

fn wrong(name: &str, value: &Value, allowed: &str) -> InputError {
    InputError::new("invalid-value", format!("default_request.sampling.{name}: found {}, allowed: {allowed}", found(value)))
}
