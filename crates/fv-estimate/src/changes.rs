//! What would make a request fit: the runtime's own settings, fewer frames, a smaller size, another deployment and its
//! settings; and where none of them is enough alone, settings with a smaller clip.
//!
//! Settings are tried one at a time, then two and three together. A combination of which a part fits already is left out.
//! Each that is offered passes a plain estimate. Cheapest first: what leaves the output as it is, then what reorders sums,
//! then what keeps fewer bits, then what gives another output; within a class by forecast time, and where there is none by the bytes
//! that are moved to the device in one request.

use fv_spec::authored::{Role, Runtime};
use fv_spec::estimate::Verdict;
use fv_spec::forecast::TimeInterval;
use fv_spec::questions::{Change, Clip, OutputEffect, SetTo};
use fv_spec::request::{PartialRequest, Request};
use serde_json::{Value, json};

use crate::budget::Budget;
use crate::error::InputError;
use crate::estimate::Workload;
use crate::largest::extents;
use crate::question::{Question, exactly};
use crate::resolve::Overrides;
use crate::resolve::legal::legal;
use crate::settings::{Guidance, Placement, Settings};
use crate::storage::{FromCount, bytes_of_count};

/// Changes that are offered.
const OFFERED: usize = 12;
/// Settings that are changed together, at most.
const TOGETHER: usize = 3;

/// One way to change one thing.
#[derive(Debug, Clone)]
struct Way {
    words: &'static str,
    set: Vec<(&'static str, Value)>,
    env: Vec<(&'static str, String)>,
    effect: OutputEffect,
}

impl Way {
    fn new(words: &'static str, effect: OutputEffect, set: &[(&'static str, Value)]) -> Self {
        Self { words, set: set.to_vec(), env: Vec::new(), effect }
    }
}

/// What makes a request fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offer {
    /// Cheapest first.
    pub changes: Vec<Change>,
    /// Where nothing was found: what was tried, a sentence each.
    pub tried: Vec<String>,
}

/// What makes a request fit that does not. `clips` are the largest that fit as it is, in frames and in size.
///
/// # Errors
/// What is wrong with the request or the figures of the device.
pub fn changes(question: &Question<'_>, asked: &PartialRequest, clips: [Option<Clip>; 2]) -> Result<Offer, Vec<InputError>> {
    let workload = question.evaluate(asked, false)?;
    let plain = Overrides { unified_memory: question.overrides.unified_memory, ..Overrides::default() };
    let others: Vec<Question<'_>> = question
        .model
        .examples
        .iter()
        .filter(|other| other.id != question.example.id)
        .map(|example| Question { example, overrides: &plain, ..*question })
        .collect();
    let own = by_settings(question, asked, &workload);
    let mut tried = vec![own.sentence(question)];
    let mut found = own.found;
    found.extend(by_request(question, &workload.request, clips));
    for other in &others {
        let (change, sentence) = by_deployment(other, asked);
        found.extend(change.map(|change| on_deployment(other, change)));
        tried.extend(sentence);
    }
    // Neither is enough alone: settings and a smaller clip together.
    if found.is_empty() {
        found = by_both(question, &workload.request);
        for other in &others {
            let smaller = other.evaluate(asked, false).map_or_else(|_| Vec::new(), |workload| by_both_known(other, &workload));
            found.extend(smaller.into_iter().map(|change| on_deployment(other, change)));
        }
        let legal = legal(question.model, question.example);
        let [height, width] = legal.sizes(workload.request.height, workload.request.width).first().copied().unwrap_or_default();
        tried.push(format!(
            "each of them with fewer frames, down to {}, and with smaller sizes, down to {width} x {height}",
            legal.frames(0)
        ));
    }
    found.sort_by(|a, b| key(a).cmp(&key(b)));
    found.truncate(OFFERED);
    if !found.is_empty() {
        tried.clear();
    }
    Ok(Offer { changes: found, tried })
}

/// The cheapest change of settings alone with which a request fits.
///
/// # Errors
/// What is wrong with the request or the figures of the device.
pub fn cheapest_settings(question: &Question<'_>, asked: &PartialRequest) -> Result<Option<Change>, Vec<InputError>> {
    let workload = question.evaluate(asked, false)?;
    Ok(by_settings(question, asked, &workload).cheapest())
}

/// What the user set, with a change after it.
pub fn with(overrides: &Overrides, change: &Change) -> Overrides {
    let mut overrides = overrides.clone();
    for SetTo { key, value } in &change.settings {
        put(&mut overrides.set, key, value);
    }
    overrides.env.extend(change.environment.iter().filter_map(|set| Some((set.key.clone(), set.value.as_str()?.to_owned()))));
    overrides
}

/// Sets a setting in place of what the user set.
fn put(set: &mut Vec<(String, Value)>, key: &str, value: &Value) {
    set.retain(|(known, _)| known != key);
    set.push((key.to_owned(), value.clone()));
}

/// What cheaper changes have less of. What no forecast or count exists for comes after what has one.
fn key(change: &Change) -> (OutputEffect, u64, u64, usize, &[String]) {
    let time = change.time.map_or(u64::MAX, |time| time.value_ns);
    (change.output_effect, time, change.moved_bytes.unwrap_or(u64::MAX), change.changes.len(), &change.changes)
}

/// How long a workload takes on the device, apart from what no law covers.
fn time(question: &Question<'_>, workload: &Workload, budget: &Budget) -> Option<TimeInterval> {
    workload.forecast(budget, question.model, question.example, question.rules).request
}

/// A question with other overrides, if that fits.
fn tried(question: &Question<'_>, request: &PartialRequest) -> Option<(Workload, Change)> {
    // A conflict or a value that is not allowed is no way to go.
    let workload = question.evaluate(request, false).ok()?;
    let budget = question.budget(&workload.settings).ok()?;
    let brief = workload.brief(&budget);
    if brief.status != Verdict::Fits {
        return None;
    }
    let change = Change {
        changes: Vec::new(),
        arguments: String::new(),
        deployment: question.example.id.clone(),
        settings: Vec::new(),
        environment: Vec::new(),
        request: None,
        output_effect: OutputEffect::None,
        time: time(question, &workload, &budget),
        moved_bytes: moved_bytes(question, &workload.settings, &workload.request),
        status: brief.status,
        device_peak: brief.device_peak,
        margin_bytes: brief.margin_bytes,
    };
    Some((workload, change))
}

/// Combinations of a deployment's settings, and which of them are enough.
struct Trials {
    found: Vec<Change>,
    /// How many were tried.
    count: usize,
    words: Vec<&'static str>,
}

impl Trials {
    fn cheapest(self) -> Option<Change> {
        self.found.into_iter().min_by(|a, b| key(a).cmp(&key(b)))
    }

    /// What was tried of a deployment.
    fn sentence(&self, question: &Question<'_>) -> String {
        let name = named(question);
        if self.words.is_empty() {
            return format!("{name} as it is: of its settings none is known that would take less");
        }
        format!("{name}: {} combinations of up to {TOGETHER} of its settings: {}", self.count, self.words.join("; "))
    }
}

fn named(question: &Question<'_>) -> String {
    format!("deployment {} ({})", question.example.id, question.example.runtime.word())
}

fn by_settings(question: &Question<'_>, asked: &PartialRequest, workload: &Workload) -> Trials {
    let things = things(question, workload);
    let words = things.iter().flatten().map(|way| way.words).collect();
    let mut count = 0;
    let mut found: Vec<(Vec<[usize; 2]>, Change)> = Vec::new();
    let mut open: Vec<Vec<[usize; 2]>> = vec![Vec::new()];
    for _ in 0..TOGETHER {
        let mut longer = Vec::new();
        for combination in &open {
            let next = combination.last().map_or(0, |[thing, _]| thing + 1);
            for (thing, ways) in things.iter().enumerate().skip(next) {
                for way in 0..ways.len() {
                    let combination: Vec<[usize; 2]> = combination.iter().copied().chain([[thing, way]]).collect();
                    let contains = |part: &[[usize; 2]]| part.iter().all(|change| combination.contains(change));
                    if found.iter().any(|(part, _)| contains(part)) {
                        continue;
                    }
                    count += 1;
                    let ways: Vec<&Way> = combination.iter().map(|[thing, way]| &things[*thing][*way]).collect();
                    match together(question, asked, &ways) {
                        Some(change) => found.push((combination, change)),
                        None => longer.push(combination),
                    }
                }
            }
        }
        open = longer;
    }
    Trials { found: found.into_iter().map(|(_, change)| change).collect(), count, words }
}

/// Several changes of settings at once, if they fit.
fn together(question: &Question<'_>, asked: &PartialRequest, ways: &[&Way]) -> Option<Change> {
    let mut overrides = question.overrides.clone();
    let (mut settings, mut environment, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
    for way in ways {
        for (key, value) in &way.set {
            put(&mut overrides.set, key, value);
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            arguments.push(format!("--set {key}={text}"));
            settings.push(SetTo { key: (*key).to_owned(), value: value.clone() });
        }
        for (key, value) in &way.env {
            overrides.env.insert((*key).to_owned(), value.clone());
            arguments.push(format!("--env {key}={value}"));
            environment.push(SetTo { key: (*key).to_owned(), value: json!(value) });
        }
    }
    let (_, change) = tried(&Question { overrides: &overrides, ..*question }, asked)?;
    Some(Change {
        changes: ways.iter().map(|way| way.words.to_owned()).collect(),
        arguments: arguments.join(" "),
        settings,
        environment,
        output_effect: ways.iter().map(|way| way.effect).max().unwrap_or(OutputEffect::None),
        ..change
    })
}

/// Fewer frames, a smaller size, one video at a time.
fn by_request(question: &Question<'_>, request: &Request, [frames, size]: [Option<Clip>; 2]) -> Vec<Change> {
    let fewer = frames.map(|clip| {
        let words = format!("{} frames instead of {}", clip.num_frames, request.num_frames);
        (words, format!("--frames {}", clip.num_frames), Request { num_frames: clip.num_frames, ..*request })
    });
    let smaller = size.map(|Clip { height, width, .. }| {
        let words = format!("{width} x {height} instead of {} x {}", request.width, request.height);
        (words, format!("--height {height} --width {width}"), Request { height, width, ..*request })
    });
    let single = (request.batch > 1).then(|| {
        let words = format!("one video at a time instead of {}", request.batch);
        (words, "--batch 1".to_owned(), Request { batch: 1, ..*request })
    });
    let all = fewer.into_iter().chain(smaller).chain(single);
    let offered = all.filter_map(|(words, arguments, request)| {
        let (_, change) = tried(question, &exactly(&request))?;
        let output_effect = OutputEffect::Different;
        Some(Change { changes: vec![words], arguments, request: Some(request), output_effect, ..change })
    });
    offered.collect()
}

/// Another deployment: as it is, or with the cheapest change of its settings; otherwise what was tried.
fn by_deployment(question: &Question<'_>, asked: &PartialRequest) -> (Option<Change>, Option<String>) {
    if let Some((_, change)) = tried(question, asked) {
        return (Some(change), None);
    }
    match question.evaluate(asked, false) {
        Err(errors) => (None, errors.first().map(|error| format!("{}: does not take the request: {error}", named(question)))),
        Ok(workload) => {
            if let Some(reason) = workload.unknown.first() {
                return (None, Some(format!("{}: unknown: {}", named(question), reason.message)));
            }
            let trials = by_settings(question, asked, &workload);
            let sentence = trials.sentence(question);
            (trials.cheapest(), Some(sentence))
        }
    }
}

/// A change of another deployment than the one that was asked about.
fn on_deployment(question: &Question<'_>, change: Change) -> Change {
    let example = question.example;
    let devices = match question.evaluate(&change.request.as_ref().map_or_else(PartialRequest::default, exactly), false) {
        Ok(workload) if workload.settings.gpu_count > 1 => format!(" on {} devices", workload.settings.gpu_count),
        _ => String::new(),
    };
    let changes = std::iter::once(named(question) + &devices).chain(change.changes).collect();
    let arguments = format!("--deployment {} {}", example.id, change.arguments).trim_end().to_owned();
    // Other kernels, other defaults: nothing says that the output is the same.
    Change { changes, arguments, output_effect: OutputEffect::Different, ..change }
}

/// [`by_both`] of a deployment whose memory is known.
fn by_both_known(question: &Question<'_>, workload: &Workload) -> Vec<Change> {
    if workload.unknown.is_empty() { by_both(question, &workload.request) } else { Vec::new() }
}

/// Settings together with fewer frames, and with a smaller size: the cheapest with which at least half as much fits, or a
/// quarter, and so on; then the largest clip with them.
fn by_both(question: &Question<'_>, request: &Request) -> Vec<Change> {
    let legal = legal(question.model, question.example);
    let sizes = legal.sizes(request.height, request.width);
    let of_size = |place: u32| {
        let [height, width] = usize::try_from(place).ok().and_then(|place| sizes.get(place)).copied().unwrap_or_default();
        Request { height, width, ..*request }
    };
    let of_frames = |place: u32| Request { num_frames: legal.frames(place), ..*request };
    let size = sizes.iter().position(|size| *size == [request.height, request.width]).and_then(|place| u32::try_from(place).ok());
    let longest = halved(question, legal.place_of_frames(request.num_frames), of_frames).and_then(|change| {
        let question = Question { overrides: &with(question.overrides, &change), ..*question };
        let [frames, _] = extents(&question, request, false).ok()?;
        Some(joined(change, by_request(&question, request, [Some(frames.largest?), None]).into_iter().next()?))
    });
    let widest = halved(question, size.unwrap_or(0), of_size).and_then(|change| {
        let question = Question { overrides: &with(question.overrides, &change), ..*question };
        let [_, size] = extents(&question, request, false).ok()?;
        Some(joined(change, by_request(&question, request, [None, Some(size.largest?)]).into_iter().next()?))
    });
    longest.into_iter().chain(widest).collect()
}

/// A change of settings, and then one of the request.
fn joined(settings: Change, request: Change) -> Change {
    Change {
        changes: settings.changes.into_iter().chain(request.changes).collect(),
        arguments: format!("{} {}", settings.arguments, request.arguments),
        settings: settings.settings,
        environment: settings.environment,
        ..request
    }
}

/// The cheapest settings with which a request at half of a place fits, or at a quarter, down to the first place.
fn halved(question: &Question<'_>, place: u32, at: impl Fn(u32) -> Request) -> Option<Change> {
    let settings = |place: u32| cheapest_settings(question, &exactly(&at(place))).ok().flatten();
    // Where nothing lets the smallest fit, nothing lets a larger one; the request itself was tried before.
    let smallest = if place == 0 { None } else { settings(0) }?;
    let mut place = place / 2;
    while place > 0 {
        if let Some(found) = settings(place) {
            return Some(found);
        }
        place /= 2;
    }
    Some(smallest)
}

/// What of the runtime can be changed: for each thing the ways that differ from how it is.
fn things(question: &Question<'_>, workload: &Workload) -> Vec<Vec<Way>> {
    let settings = &workload.settings;
    let things = match settings.runtime {
        Runtime::Diffusers => diffusers(settings, &workload.request),
        Runtime::FastVideo => fastvideo(question, settings),
        Runtime::FvRun => vec![fv_run(settings)],
        Runtime::FreeVideo => Vec::new(),
    };
    let mut things: Vec<Vec<Way>> = things.into_iter().filter(|ways| !ways.is_empty()).collect();
    let pytorch = matches!(settings.runtime, Runtime::Diffusers | Runtime::FastVideo);
    if pytorch && !things.is_empty() && !settings.allocator.expandable {
        let variable = "PYTORCH_CUDA_ALLOC_CONF";
        // What else the variable says stays.
        let now = question.overrides.env.get(variable).map(String::as_str).or_else(|| question.example.env.get(variable)?.as_str());
        let value = now.map_or_else(String::new, |now| format!("{now},")) + "expandable_segments:True";
        things
            .push(vec![Way { env: vec![(variable, value)], ..Way::new("an allocator with expandable segments", OutputEffect::None, &[]) }]);
    }
    things
}

fn reported<'a>(settings: &'a Settings, key: &str) -> Option<&'a Value> {
    settings.reported.iter().find(|setting| setting.key == key).map(|setting| &setting.value)
}

fn is(settings: &Settings, key: &str, value: &Value) -> bool {
    reported(settings, key) == Some(value)
}

/// All that the planner does not decide by itself.
fn fv_run(settings: &Settings) -> Vec<Way> {
    let narrower =
        [("fp8", "weights of blocks in FP8, with a scale for each row"), ("int8", "weights of blocks in INT8, with a scale for each row")];
    let wide = is(settings, "precision", &json!("bf16"));
    let way = |(format, words)| Way::new(words, OutputEffect::Quantised, &[("precision", json!(format))]);
    narrower.into_iter().filter(|_| wide).map(way).collect()
}

fn diffusers(settings: &Settings, request: &Request) -> Vec<Vec<Way>> {
    use OutputEffect::{Different, None, Quantised, Reordered};
    const MODES: [&str; 2] = ["model_cpu_offload", "sequential_cpu_offload"];
    let on = |key: &str| is(settings, key, &json!(true));
    let grouped = !is(settings, "group_offload", &json!("off"));
    // The modes exclude each other: what is on is turned off.
    let mode = |words: &'static str, chosen: &'static str, value: Value, more: &[(&'static str, Value)]| {
        let mut set: Vec<(&str, Value)> =
            MODES.into_iter().filter(|key| *key != chosen && on(key)).map(|key| (key, json!(false))).collect();
        if chosen != "group_offload" && grouped {
            set.push(("group_offload", json!("off")));
        }
        set.push((chosen, value));
        set.extend_from_slice(more);
        Way::new(words, None, &set)
    };
    let stream = ("use_stream", json!(true));
    let mut offload = Vec::new();
    if !on("model_cpu_offload") {
        offload.push(mode("models moved to the device one at a time", "model_cpu_offload", json!(true), &[]));
    }
    if !is(settings, "group_offload", &json!("block_level")) {
        let blocks = ("num_blocks_per_group", json!(1));
        offload.push(mode("transformer blocks streamed", "group_offload", json!("block_level"), &[blocks, stream.clone()]));
    }
    if !is(settings, "group_offload", &json!("leaf_level")) {
        offload.push(mode("layers streamed", "group_offload", json!("leaf_level"), &[stream]));
    }
    if !on("sequential_cpu_offload") {
        offload.push(mode("layers moved one at a time", "sequential_cpu_offload", json!(true), &[]));
    }
    let way = |wanted: bool, words, effect, key, value| if wanted { vec![Way::new(words, effect, &[(key, value)])] } else { Vec::new() };
    let bf16 = json!("bf16");
    let math = settings.attention == crate::settings::Attention::Math;
    vec![
        offload,
        way(math, "attention without a score matrix", Reordered, "attention_backend", json!("native")),
        way(request.batch > 1 && !on("vae_slicing"), "one video at a time in the VAE", Reordered, "vae_slicing", json!(true)),
        way(is(settings, "vae_dtype", &json!("fp32")), "VAE in bf16", Quantised, "vae_dtype", bf16.clone()),
        way(is(settings, "torch_dtype", &json!("fp32")), "weights in bf16", Quantised, "torch_dtype", bf16),
        way(!on("vae_tiling"), "VAE in tiles", Different, "vae_tiling", json!(true)),
    ]
}

fn fastvideo(question: &Question<'_>, settings: &Settings) -> Vec<Vec<Way>> {
    use OutputEffect::{Different, None, Quantised, Reordered};
    const RESIDENT: &str = "FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS";
    let on = |key: &str| is(settings, key, &json!(true));
    let off = |key: &str| is(settings, key, &json!(false));
    let has = |role: Role| settings.component(role).is_some();
    let way =
        |wanted: bool, words, effect, set: &[(&'static str, Value)]| if wanted { vec![Way::new(words, effect, set)] } else { Vec::new() };
    let mut dit = Vec::new();
    // On a device that shares its memory with the host the runtime turns every offload off again.
    let offloads = !question.unified();
    if offloads && !on("dit_layerwise_offload") {
        dit.push(Way::new("transformer blocks streamed", None, &[("dit_layerwise_offload", json!(true))]));
        if !on("dit_cpu_offload") {
            dit.push(Way::new("transformer moved to the device for its stage", None, &[("dit_cpu_offload", json!(true))]));
        }
    }
    let resident = settings.component(Role::Transformer).map(|transformer| transformer.placement);
    if let Some(Placement::Streamed { resident, .. }) = resident {
        // Half of them, and none.
        for (words, fewer) in [("half as many resident blocks", resident / 2), ("no resident blocks", 0)] {
            if resident > 0 && (fewer > 0 || words == "no resident blocks") {
                dit.push(Way { env: vec![(RESIDENT, fewer.to_string())], ..Way::new(words, None, &[]) });
            }
        }
    }
    let text = "text_encoder_cpu_offload";
    let image = "image_encoder_cpu_offload";
    let vae = "vae_cpu_offload";
    let cached = on("vae_config.use_feature_cache");
    let tiled: Vec<(&str, Value)> =
        cached.then_some(("vae_config.use_feature_cache", json!(false))).into_iter().chain([("vae_tiling", json!(true))]).collect();
    let fp32_text =
        reported(settings, "text_encoder_precisions").and_then(Value::as_array).is_some_and(|list| list.contains(&json!("fp32")));
    let bf16_text: Vec<&str> = [Role::TextEncoder, Role::TextEncoder2].into_iter().filter(|role| has(*role)).map(|_| "bf16").collect();
    let half_vae = [("vae_precision", json!("bf16")), ("vae_decode_precision", json!("bf16"))];
    vec![
        dit,
        way(offloads && off(text), "text encoder on the host between its uses", None, &[(text, json!(true))]),
        way(offloads && has(Role::ImageEncoder) && off(image), "image encoder on the host between its uses", None, &[(image, json!(true))]),
        way(offloads && off(vae), "VAE on the host between its uses", None, &[(vae, json!(true))]),
        way(
            settings.guidance == Guidance::Batched,
            "predictions one after the other",
            Reordered,
            &[("use_batched_cfg", json!(false)), ("batch_cfg", json!(false))],
        ),
        way(on("enable_torch_compile"), "nothing compiled", Reordered, &[("enable_torch_compile", json!(false))]),
        way(is(settings, "vae_precision", &json!("fp32")), "VAE in bf16", Quantised, &half_vae),
        way(fp32_text, "text encoder in bf16", Quantised, &[("text_encoder_precisions", json!(bf16_text))]),
        way(settings.tiling.is_none(), "VAE in tiles", Different, &tiled),
    ]
}

/// Bytes of weights that go to the device in one request: once for a component that is moved as a whole, once for each of its
/// forwards where it is streamed. Two transformers share the steps. `None` where a component's bytes are not known from its
/// count, and where a plan decides what is moved.
fn moved_bytes(question: &Question<'_>, settings: &Settings, request: &Request) -> Option<u64> {
    if settings.runtime == Runtime::FvRun {
        return None;
    }
    let experts = u64::from(settings.component(Role::Transformer2).is_some()) + 1;
    let predictions = if settings.guidance == Guidance::Sequential { 2 } else { 1 };
    let steps = u64::from(request.num_inference_steps);
    let mut sum = 0_u64;
    for role in Role::ALL {
        let Some(executed) = settings.component(role) else { continue };
        let component = question.example.components.get(&role).or_else(|| question.model.components.get(&role))?;
        let bytes = |count: u64| match bytes_of_count(executed.precision.stored, count)? {
            FromCount::Exact(bytes) | FromCount::AtLeast(bytes) => Some(bytes),
        };
        let all = bytes(component.parameter_count.get())?;
        let forwards = match role {
            Role::Transformer | Role::Transformer2 => steps.checked_mul(predictions)?.div_ceil(experts),
            Role::TextEncoder | Role::TextEncoder2 => predictions,
            Role::ImageEncoder | Role::Vae | Role::AudioVae => 1,
        };
        let moved = match executed.placement {
            Placement::Resident | Placement::Host => 0,
            Placement::Moved { .. } => all,
            Placement::Leaf { .. } | Placement::Gathered => all.checked_mul(forwards)?,
            Placement::Streamed { resident, rest_resident, .. } => {
                let (block, blocks) = (bytes(component.block_parameter_count?.get())?, component.block_count?.get());
                let rest = if rest_resident { 0 } else { all.saturating_sub(block.checked_mul(blocks)?) };
                blocks.saturating_sub(resident.into()).checked_mul(block)?.checked_add(rest)?.checked_mul(forwards)?
            }
        };
        sum = sum.checked_add(moved)?;
    }
    Some(sum)
}
