//! What a serving configuration may say outside `generator`, and what each key does to memory.
//!
//! The names are those of FastVideo 0.2.1 (`api/schema.py`); the other runtimes keep their settings under the same sections.
//! A key that is neither here nor a setting makes the result unknown under its name.

use serde_json::{Map, Value};

use super::book::Effect;

use Effect::{Applies, Harmless, Unless};

const OFF: Effect = Unless(&["false"]);
const NEVER: Effect = Unless(&[]);

/// Conditioning inputs, each of which counts as a reference.
pub(crate) const MEDIA: &[&str] =
    &["image_path", "image", "images", "pil_image", "last_image", "video_path", "video", "audio_path", "audio"];

/// The sections that hold a request; a key of the second wins over the same one of the first.
pub(crate) const REQUESTS: [&str; 2] = ["default_request", "request"];

/// Keys of a request. Sizes, counts and conditioning inputs are read with the request, see [`super::request`].
const REQUEST: &[(&str, Effect)] = &[
    ("prompt", Harmless),
    ("negative_prompt", Harmless),
    ("references", Applies),
    ("inputs.references", Applies),
    ("inputs.prompt_path", Harmless),
    ("inputs.latents", NEVER),
    ("inputs.audio_latents", NEVER),
    ("inputs.pose", NEVER),
    ("inputs.mouse_cond", NEVER),
    ("inputs.keyboard_cond", NEVER),
    ("inputs.grid_sizes", NEVER),
    ("inputs.c2ws_plucker_emb", NEVER),
    ("inputs.action_path", NEVER),
    ("inputs.refine_from", NEVER),
    ("inputs.stage1_video", NEVER),
    ("sampling.references", Applies),
    ("sampling.height", Applies),
    ("sampling.width", Applies),
    ("sampling.num_frames", Applies),
    ("sampling.fps", Applies),
    ("sampling.num_videos_per_prompt", Applies),
    ("sampling.num_inference_steps", Applies),
    ("sampling.guidance_scale", Applies),
    ("sampling.max_sequence_length", Applies),
    ("sampling.seed", Harmless),
    // How strong guidance is and where noise levels lie: the same tensors.
    ("sampling.guidance_scale_2", Harmless),
    ("sampling.flow_shift", Harmless),
    ("sampling.boundary_ratio", Harmless),
    ("sampling.sigmas", Harmless),
    // A second, larger pass, and guidance that makes tensors of its own.
    ("sampling.height_sr", Unless(&["1072"])),
    ("sampling.width_sr", Unless(&["1920"])),
    ("sampling.num_inference_steps_sr", Unless(&["50"])),
    ("sampling.cfg_normalization", OFF),
    ("sampling.cfg_truncation", Unless(&["1", "1.0"])),
    ("sampling.guidance_rescale", Unless(&["0", "0.0"])),
    ("sampling.true_cfg_scale", NEVER),
    ("sampling.use_embedded_guidance", OFF),
    // Frames have left the device by then.
    ("output.output_path", Harmless),
    ("output.output_video_name", Harmless),
    ("output.save_video", Harmless),
    ("output.return_frames", Harmless),
    ("output.return_state", OFF),
    ("state", NEVER),
    ("plan", NEVER),
];

/// Keys of the other sections.
const SERVING: &[(&str, Effect)] = &[
    ("server.host", Harmless),
    ("server.port", Harmless),
    ("server.output_dir", Harmless),
    ("server.log_level", Harmless),
    ("streaming.session_timeout_seconds", Harmless),
    ("streaming.generation_segment_cap", Harmless),
    ("streaming.stream_mode", Harmless),
    ("streaming.warmup.enabled", Harmless),
    ("streaming.warmup.prompt", Harmless),
    ("streaming.warmup.timeout_seconds", Harmless),
    // Each worker has a device of its own.
    ("streaming.pool.num_workers", Harmless),
    ("streaming.pool.enable_audio_reencode", Harmless),
    ("streaming.pool.conditioning_num_frames", Unless(&["9"])),
    ("streaming.pool.conditioning_end_offset", Unless(&["0"])),
    // Somebody else's model, asked over the network.
    ("streaming.prompt.enabled", Harmless),
    ("streaming.prompt.provider", Harmless),
    ("streaming.prompt.model", Harmless),
    ("streaming.prompt.timeout_ms", Harmless),
    ("streaming.prompt.system_prompt_dir", Harmless),
    ("streaming.safety.enabled", OFF),
    ("streaming.safety.classifier_path", Harmless),
];

/// What a key outside `generator` does; `path` is dotted and, in a request, starts below its section. `None`: it is not known.
pub(super) fn effect(section: &str, path: &str) -> Option<Effect> {
    let of = |table: &[(&str, Effect)], name: &str| table.iter().find(|(known, _)| *known == name).map(|(_, effect)| *effect);
    if !REQUESTS.contains(&section) {
        return of(SERVING, &[section, ".", path].concat());
    }
    let media = || {
        let name = ["inputs.", "sampling."].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
        MEDIA.contains(&name).then_some(Applies)
    };
    of(REQUEST, path).or_else(media)
}

/// The requests of a configuration, the one that wins first.
pub(crate) fn requests(config: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    REQUESTS.iter().rev().filter_map(|section| config.get(*section)?.as_object())
}

/// How many conditioning inputs a request has, one figure for each place that states a number, or their sum. `None` stands for
/// what is no number; an empty list for a request that says nothing of them.
pub(crate) fn references(request: &Map<String, Value>) -> Vec<Option<u32>> {
    let sections: Vec<&Map<String, Value>> =
        ["sampling", "inputs"].iter().filter_map(|name| request.get(*name)?.as_object()).chain([request]).collect();
    let given = |name: &'static str| sections.iter().filter_map(move |section| section.get(name)).filter(|value| !value.is_null());
    let stated: Vec<Option<u32>> =
        given("references").map(|value| value.as_array().map_or_else(|| count(value), |list| length(list))).collect();
    if !stated.is_empty() {
        return stated;
    }
    let counts: Vec<Option<u32>> =
        MEDIA.iter().flat_map(|name| given(name)).map(|value| value.as_array().map_or(Some(1), |list| length(list))).collect();
    if counts.is_empty() { Vec::new() } else { vec![counts.into_iter().try_fold(0, |sum: u32, count| sum.checked_add(count?))] }
}

fn length(list: &[Value]) -> Option<u32> {
    u32::try_from(list.len()).ok()
}

/// A whole number, written with a fraction of zero or without.
fn count(value: &Value) -> Option<u32> {
    super::whole(value).or_else(|| format!("{}", value.as_f64()?).parse().ok())
}
