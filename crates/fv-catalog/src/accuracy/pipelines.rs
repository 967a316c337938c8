//! Whole pipelines, stage by stage, against what an estimate says of the same arrangement.

use std::fmt::Write as _;

use fv_data::Catalog;
use fv_estimate::estimate::Workload;
use fv_estimate::resolve::{Overrides, resolve};
use fv_estimate::settings::{Placement, Settings};
use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{ExpandedComponent, Model};
use fv_spec::estimate::{PeakBytes, StageName};
use fv_spec::request::PartialRequest;
use fv_spec::units::Count;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{FASTVIDEO, PIPELINES};

#[derive(Deserialize)]
struct Spec {
    pipe: String,
    dit: String,
    vae_dtype: String,
    geo: [u32; 3],
    place: String,
    #[serde(default)]
    group: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    layers: Option<u64>,
    #[serde(default)]
    umt5_layers: Option<u64>,
    #[serde(default)]
    two: bool,
    #[serde(default)]
    steps: Option<u32>,
}

#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "mark")]
    name: String,
    peak_alloc: u64,
    peak_reserved: u64,
}

#[derive(Deserialize)]
struct Case {
    spec: Spec,
    marks: Vec<Mark>,
}

/// One stage of one pipeline.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRow {
    /// The case of `pipelines.json`.
    pub case: String,
    /// What was run, in words.
    pub what: String,
    /// The stage.
    pub stage: &'static str,
    /// Measured allocated and reserved peaks.
    pub measured: [u64; 2],
    /// What the rules say; `None` where the arrangement is not covered.
    pub derived: Option<PeakBytes>,
    /// Settings that make an estimate `unknown`.
    pub unknown: Option<String>,
}

/// Every stage of every recorded pipeline.
///
/// # Errors
/// When the recorded file is not what it should be.
pub fn pipelines(catalog: &Catalog) -> Result<Vec<StageRow>, String> {
    let cases: serde_json::Map<String, Value> = serde_json::from_str(PIPELINES).map_err(|error| format!("pipelines.json: {error}"))?;
    let cases: Vec<(String, Case)> = cases
        .into_iter()
        .map(|(name, case)| Ok((name.clone(), serde_json::from_value(case).map_err(|error| format!("pipelines.json: {name}: {error}"))?)))
        .collect::<Result<_, String>>()?;
    let mut rows: Vec<StageRow> =
        cases.par_iter().map(|(name, case)| stages(catalog, name, case)).collect::<Vec<_>>().into_iter().flatten().collect();
    rows.extend(fastvideo(catalog));
    Ok(rows)
}

/// The first of two requests through FastVideo's own stages: every setting its default but a resident VAE and two steps.
fn fastvideo(catalog: &Catalog) -> Vec<StageRow> {
    let request = PartialRequest {
        height: Some(480),
        width: Some(832),
        num_frames: Some(81),
        num_inference_steps: Some(2),
        ..PartialRequest::default()
    };
    let overrides = Overrides { set: vec![("vae_cpu_offload".to_owned(), json!(false))], ..Overrides::default() };
    let evaluated = catalog.models.get("wan21-t2v-1.3b").and_then(|model| {
        let example = model.examples.iter().find(|example| example.runtime == Runtime::FastVideo)?;
        Workload::evaluate(model, example, &request, &overrides, &catalog.rules, false).ok()
    });
    let mut rows = Vec::new();
    for line in FASTVIDEO.lines().filter(|line| line.contains(" request,") && line.contains("request 1\"")) {
        // Component, stage, a quoted case, then the figures.
        let (Some(stage), Some(figures)) = (line.split(',').nth(1), line.rsplit('"').next()) else { continue };
        let stage = match stage {
            "TextEncodingStage" => StageName::Encoding,
            "DenoisingStage" => StageName::Denoising,
            "DecodingStage" => StageName::Decoding,
            _ => continue,
        };
        let figures: Vec<u64> = figures.split(',').filter_map(|figure| figure.parse().ok()).collect();
        let Some([_, allocated, reserved]) = figures.get(..3).and_then(|head| <[u64; 3]>::try_from(head).ok()) else { continue };
        let at = StageName::ALL.iter().position(|name| *name == stage).unwrap_or(0);
        rows.push(StageRow {
            case: "fastvideo_request".to_owned(),
            what: "fastvideo, 1.3B, 480x832x81, blocks streamed, text encoder gathered, VAE resident under autocast".to_owned(),
            stage: stage.word(),
            measured: [allocated, reserved],
            derived: evaluated.as_ref().and_then(|workload| workload.peaks().map(|peaks| peaks[at])),
            unknown: evaluated.as_ref().and_then(|workload| workload.unknown.first().map(|reason| reason.message.clone())),
        });
    }
    rows
}

fn stages(catalog: &Catalog, name: &str, case: &Case) -> Vec<StageRow> {
    let measured = measured(&case.marks);
    let what = words(&case.spec);
    let evaluated = evaluate(catalog, &case.spec);
    let row = |(i, stage): (usize, StageName)| {
        let (derived, unknown) = match &evaluated {
            Ok(workload) => {
                let unknown = workload.unknown.first().map(|reason| reason.message.clone());
                (workload.peaks().map(|peaks| peaks[i]), unknown)
            }
            Err(why) => (None, Some(why.clone())),
        };
        StageRow { case: name.to_owned(), what: what.clone(), stage: stage.word(), measured: measured[i], derived, unknown }
    };
    // Loading is empty where everything waits on the host.
    StageName::ALL.into_iter().enumerate().map(row).filter(|row| row.measured != [0, 0]).collect()
}

/// Peaks of the first call by stage. A stage begins with what the one before leaves, so it counts from its first mark on; a model
/// is moved in and out inside the call that the marks surround.
fn measured(marks: &[Mark]) -> [[u64; 2]; 4] {
    let mut peaks = [[0; 2]; 4];
    let mut stage = 0;
    for mark in marks {
        let name = mark.name.as_str();
        if name.starts_with("pt:end") {
            break;
        }
        if name == "pt:start" {
            stage = 1;
            continue;
        }
        peaks[stage] = [peaks[stage][0].max(mark.peak_alloc), peaks[stage][1].max(mark.peak_reserved)];
        // What happens up to the mark before a model belongs to the stage before.
        match name {
            "transformer0<" => stage = 2,
            "vae.decode0<" => stage = 3,
            _ => {}
        }
    }
    peaks
}

fn words(spec: &Spec) -> String {
    let [height, width, frames] = spec.geo;
    let place = match (spec.place.as_str(), &spec.group) {
        ("group", Some(group)) => {
            let flag = |name: &str| group.get(name).and_then(Value::as_bool).unwrap_or(false);
            let kind = group.get("offload_type").and_then(Value::as_str).unwrap_or_default();
            let mut text = format!("group offload of the transformer, {}", kind.replace('_', " "));
            for (name, words) in
                [("use_stream", ", stream"), ("record_stream", ", record_stream"), ("low_cpu_mem_usage", ", low_cpu_mem_usage")]
            {
                if flag(name) {
                    text.push_str(words);
                }
            }
            if let Some(blocks) = group.get("num_blocks_per_group").and_then(Value::as_u64).filter(|blocks| *blocks > 1) {
                let _ = write!(text, ", {blocks} blocks a group");
            }
            text
        }
        ("model", _) => "model offload".to_owned(),
        ("sequential", _) => "sequential offload".to_owned(),
        (other, _) => other.to_owned(),
    };
    let layers = spec.layers.map_or_else(String::new, |layers| format!(", {layers} blocks"));
    let text = spec.umt5_layers.map_or_else(String::new, |layers| format!(", text encoder of {layers} layers"));
    let experts = if spec.two { " twice" } else { "" };
    format!("{} {}{experts}{layers}{text}, {height}x{width}x{frames}, VAE {}, {place}", spec.pipe, spec.dit, spec.vae_dtype)
}

fn evaluate(catalog: &Catalog, spec: &Spec) -> Result<Workload, String> {
    let id = match (spec.dit.as_str(), spec.two) {
        ("dit1.3b", false) => "wan21-t2v-1.3b",
        ("dit14b", true) => "wan22-t2v-a14b",
        ("dit14b", false) => "wan21-t2v-14b",
        ("i2v14b", false) => "wan21-i2v-14b",
        ("ti2v5b", false) => "wan22-ti2v-5b",
        (other, _) => return Err(format!("no model of the catalog is a {other}")),
    };
    let model = catalog.model(id).ok_or_else(|| format!("the catalog has no {id}"))?;
    let model = shortened(model, spec).ok_or_else(|| format!("the blocks of {id} cannot be counted"))?;
    let example = model.examples.iter().find(|example| example.runtime == Runtime::Diffusers);
    let example = example.ok_or_else(|| format!("{id} has no deployment with diffusers"))?;
    let mut set: Vec<(String, Value)> = vec![
        ("torch_dtype".to_owned(), json!("bf16")),
        ("vae_dtype".to_owned(), json!(spec.vae_dtype)),
        ("vae_tiling".to_owned(), json!(false)),
        ("model_cpu_offload".to_owned(), json!(spec.place == "model")),
        ("sequential_cpu_offload".to_owned(), json!(spec.place == "sequential")),
    ];
    if let Some(group) = &spec.group {
        set.extend(group.iter().map(|(key, value)| (if key == "offload_type" { "group_offload" } else { key }.to_owned(), value.clone())));
    }
    let [height, width, frames] = spec.geo;
    let request = PartialRequest {
        height: Some(height),
        width: Some(width),
        num_frames: Some(frames),
        batch: Some(1),
        guidance_scale: Some(5.0),
        num_inference_steps: Some(spec.steps.unwrap_or(2)),
        text_tokens: Some(512),
        references: Some(u32::from(spec.pipe == "i2v")),
        seconds: None,
    };
    let overrides = Overrides { set, ..Overrides::default() };
    let (mut settings, request) = resolve(&model, example, &request, &overrides)
        .map_err(|errors| errors.iter().map(|error| error.message.clone()).collect::<Vec<_>>().join("; "))?;
    if spec.place == "group" {
        others_resident(&mut settings);
    }
    Ok(Workload::with_settings(&model, example, request, settings, &catalog.rules, false))
}

/// In the measured pipelines only the transformer was offloaded in groups.
fn others_resident(settings: &mut Settings) {
    for (component, role) in settings.components.iter_mut().zip(Role::ALL) {
        if let (Some(component), false) = (component, matches!(role, Role::Transformer | Role::Transformer2)) {
            component.placement = Placement::Resident;
        }
    }
}

/// The model with as many blocks as were measured.
fn shortened(model: &Model, spec: &Spec) -> Option<Model> {
    let mut model = model.clone();
    let cut = |component: &mut ExpandedComponent, blocks: Option<u64>| -> Option<()> {
        let Some(blocks) = blocks else { return Some(()) };
        let (all, each) = (component.block_count?.get(), component.block_parameter_count?.get());
        let left = component.parameter_count.get().checked_sub(all.checked_sub(blocks)?.checked_mul(each)?)?;
        component.parameter_count = Count::new(left)?;
        component.block_count = Some(Count::new(blocks)?);
        Some(())
    };
    let Model { components, examples, .. } = &mut model;
    for components in std::iter::once(components).chain(examples.iter_mut().map(|example| &mut example.components)) {
        for (role, component) in components.iter_mut() {
            match role {
                Role::Transformer | Role::Transformer2 => cut(component, spec.layers)?,
                Role::TextEncoder => cut(component, spec.umt5_layers)?,
                _ => {}
            }
        }
    }
    Some(model)
}
