//! Published measurements under any engine, each beside our figure or the reason why there is none.

use fv_data::Catalog;
use fv_estimate::estimate::Workload;
use fv_estimate::resolve::Overrides;
use fv_estimate::spread::Work;
use fv_spec::authored::{Role, Runtime};
use fv_spec::estimate::{Interval, PeakBytes, StageName};
use fv_spec::request::PartialRequest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::derive::{Why, derive};
use super::rows::{Measured, Row};
use super::{PUBLISHED, Spreads, published_h3};

#[derive(Deserialize)]
pub(super) struct Line {
    pub(super) source: String,
    pub(super) model: String,
    gpu: String,
    pub(super) height: Option<u32>,
    pub(super) width: Option<u32>,
    pub(super) frames: Option<u32>,
    pub(super) precision_offload: String,
    pub(super) stage: String,
    pub(super) metric: String,
    value: String,
    unit: String,
    note: String,
}

/// One published figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The file, in `tests/data`.
    pub file: &'static str,
    /// Line of it.
    pub line: usize,
    /// Who published it.
    pub source: String,
    /// Model, device and setting in words.
    pub what: String,
    /// Stage and metric.
    pub metric: String,
    /// Whether it is device memory that a model takes; times, host memory and the like are counted and not compared.
    pub memory: bool,
    /// The figure in bytes, where it is one of memory.
    pub bytes: Option<u64>,
    /// The figure as printed.
    pub printed: String,
    /// Ours, low to high.
    pub derived: Option<[u64; 2]>,
    /// The value that errors are counted from.
    pub value: Option<u64>,
    /// Whether the same engine and complete inputs make the two comparable.
    pub comparable: bool,
    /// Why they differ, or why there is nothing to compare.
    pub why: String,
}

/// Every published row.
///
/// # Errors
/// When the recorded file is not what it should be.
pub fn published(catalog: &Catalog, spreads: &Spreads) -> Result<Vec<Published>, String> {
    let mut all = Vec::new();
    for (file, text) in PUBLISHED {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        for (i, line) in reader.deserialize::<Line>().enumerate() {
            let line = line.map_err(|error| format!("{file}: {error}"))?;
            all.push(judge(catalog, spreads, (file, i + 2), &line));
        }
    }
    Ok(all)
}

fn judge(catalog: &Catalog, spreads: &Spreads, (file, number): (&'static str, usize), line: &Line) -> Published {
    let size = match (line.height, line.width, line.frames) {
        (Some(height), Some(width), Some(frames)) => format!(" {height}x{width}x{frames}"),
        _ => String::new(),
    };
    let on = if line.gpu.is_empty() { String::new() } else { format!(" on {}", line.gpu) };
    let setting = if line.precision_offload.is_empty() { String::new() } else { format!(", {}", line.precision_offload) };
    let mut row = Published {
        file,
        line: number,
        source: line.source.clone(),
        what: format!("{}{size}{on}{setting}", line.model),
        metric: format!("{} {}", line.stage, line.metric),
        memory: false,
        bytes: bytes(&line.value, &line.unit),
        printed: format!("{} {}", line.value, line.unit.split(' ').next().unwrap_or_default()),
        derived: None,
        value: None,
        comparable: false,
        why: String::new(),
    };
    if let Some(why) = no_device_memory(line) {
        why.clone_into(&mut row.why);
        return row;
    }
    row.memory = true;
    let compared = match file {
        "published_h3.csv" | "fasth3_rtx4090.csv" => published_h3::compare(catalog, line),
        "published_other.csv" => hunyuan_video(catalog, line),
        _ => compare(catalog, spreads, line),
    };
    match compared {
        Ok((peaks, comparable, why)) => {
            let interval = if line.metric.contains("reserved") { peaks.reserved } else { peaks.allocated };
            row.derived = Some([interval.low, interval.high]);
            row.value = Some(interval.value);
            (row.comparable, row.why) = (comparable, why);
        }
        Err(why) => row.why = why,
    }
    row
}

/// What a row says that is not device memory of a model.
fn no_device_memory(line: &Line) -> Option<&'static str> {
    match line.metric.as_str() {
        metric if metric.starts_with("time") => Some("a time, not memory"),
        metric if metric.starts_with("host_") => Some("host memory of all processes of a pod, interpreter and libraries included"),
        "bandwidth" => Some("a bandwidth, not memory"),
        "outcome" => Some("a request that ran out of memory, without a figure"),
        "usable_memory" => Some("memory of a device, not of a model"),
        _ => None,
    }
}

/// Peaks to compare with, whether the inputs are complete and the engine is ours, and a remark.
fn compare(catalog: &Catalog, spreads: &Spreads, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    if line.metric.starts_with("delta") {
        return Err("a difference between two runs of another engine".to_owned());
    }
    if line.model.contains("MLX") {
        return Err("another engine and allocator (MLX), and no size is given".to_owned());
    }
    if line.model.contains("Q5") {
        return Err("another engine, and weights in a quantised storage whose layout is not stated".to_owned());
    }
    if line.model.starts_with("Qwen-Image VAE") {
        return image_vae(catalog, spreads, line);
    }
    match (line.model.as_str(), line.source.split(' ').next().unwrap_or_default()) {
        ("Wan2.1-T2V-1.3B", "vllm-project/vllm-omni#1901") => resident(catalog, line),
        ("FastWan2.1-T2V-1.3B", "FastVideo") => fastwan(catalog, line),
        _ => Err("the inputs are not complete".to_owned()),
    }
}

/// The image VAE of Qwen is the video VAE of Wan 2.1 with one frame.
fn image_vae(catalog: &Catalog, spreads: &Spreads, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    let (Some(height), Some(width), Some(frames)) = (line.height, line.width, line.frames) else {
        return Err("no size is given".to_owned());
    };
    let row = Row {
        file: "published_wan.csv".to_owned(),
        line: 0,
        component: "wan2.1-vae".to_owned(),
        stage: line.stage.strip_prefix("vae_").unwrap_or(&line.stage).to_owned(),
        case: format!("({height}, {width}, {frames}):float16:tile=False"),
        runtime: Runtime::Diffusers,
        cast: true,
        measured: Measured { base: 0, allocated: 0, reserved: 0, device: 0 },
    };
    let derived = derive(catalog, &row).map_err(|why| match why {
        Why::NotCovered(why) | Why::Malformed(why) => why,
    })?;
    let peaks = spreads.ends(Work::Vae).peaks(derived.peaks.tensors, derived.peaks.allocated, derived.peaks.reserved);
    let remark = if line.note.contains("exclude") { "; this column may leave out the weights" } else { "" };
    Ok((peaks, false, format!("another engine on another card: cuDNN chooses other kernels and workspaces there{remark}")))
}

/// HunyuanVideo: what its transformer takes when it is loaded, and about what its VAE takes.
fn hunyuan_video(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    if line.model.starts_with("HunyuanVideo VAE") {
        let frames = if line.precision_offload.contains("64") { "; tiles of 64 frames were an earlier default" } else { "" };
        return Err(format!("about, in whole GB, and neither precision nor frames are given{frames}"));
    }
    let model = catalog.model("hunyuanvideo").ok_or("the catalog has no hunyuanvideo")?;
    let transformer = model.components.get(&Role::Transformer).ok_or("the model has no transformer")?;
    let peaks = weights(2 * transformer.parameter_count.get());
    Ok((peaks, false, "weights in bf16: parameters of the catalog times bytes of a value".to_owned()))
}

/// Bytes of weights as peaks.
pub(super) fn weights(bytes: u64) -> PeakBytes {
    let interval = Interval { low: bytes, value: bytes, high: bytes };
    PeakBytes { allocated: interval, reserved: interval, device: interval }
}

/// All components resident, before anything runs.
fn resident(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    let set = vec![
        ("torch_dtype".to_owned(), json!("bf16")),
        ("vae_dtype".to_owned(), json!("fp32")),
        ("model_cpu_offload".to_owned(), json!(false)),
    ];
    let workload = evaluate(catalog, "wan21-t2v-1.3b", Runtime::Diffusers, line, set)?;
    let peaks = workload.peaks().ok_or("not covered")?;
    let why = "another engine; BF16 with the VAE in FP32 assumed, as nothing is said of precision";
    Ok(if line.metric.contains("reserved") {
        (
            peaks.iter().max_by_key(|peak| peak.reserved.value).copied().unwrap_or_default(),
            false,
            format!("{why}; after a warm-up, so the highest stage"),
        )
    } else {
        (peaks[StageName::Load as usize], false, format!("{why}; what is resident between stages"))
    })
}

fn fastwan(catalog: &Catalog, line: &Line) -> Result<(PeakBytes, bool, String), String> {
    let workload = evaluate(catalog, "fastwan21", Runtime::FastVideo, line, Vec::new())?;
    if let Some(reason) = workload.unknown.first() {
        return Err(format!("not covered: {}", reason.message));
    }
    let peaks = workload.peaks().ok_or("not covered")?;
    let highest = peaks.iter().max_by_key(|peak| peak.allocated.value).copied().unwrap_or_default();
    // The row offloads the text encoder on GB10; the version that the rules follow turns offloading off there.
    let ours = line.gpu != "GB10";
    let remark =
        if ours { "" } else { "; with offloading as the row states it, which FastVideo 0.2.1 turns off on this device: another version" };
    Ok((highest, ours, format!("the highest of all stages, loading included{remark}")))
}

fn evaluate(catalog: &Catalog, id: &str, runtime: Runtime, line: &Line, set: Vec<(String, Value)>) -> Result<Workload, String> {
    let model = catalog.model(id).ok_or_else(|| format!("the catalog has no {id}"))?;
    let example = model.examples.iter().find(|example| example.runtime == runtime);
    let example = example.ok_or_else(|| format!("{id} has no deployment with {}", runtime.word()))?;
    let request = PartialRequest { height: line.height, width: line.width, num_frames: line.frames, ..PartialRequest::default() };
    let overrides = Overrides { set, ..Overrides::default() };
    Workload::evaluate(model, example, &request, &overrides, &catalog.rules, false)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// A figure of memory in bytes. GB are 10^9 bytes: the weights among the rows that say GB agree with that.
fn bytes(value: &str, unit: &str) -> Option<u64> {
    let scale: f64 = match unit {
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GB" => 1e9,
        unit if unit.starts_with("GB (unit as printed, MiB/1024") => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let value: f64 = value.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive and far below 2^63")]
    (value.is_finite() && value > 0.0 && value < 1e6).then(|| (value * scale).round() as u64)
}
