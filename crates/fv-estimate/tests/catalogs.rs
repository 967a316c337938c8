//! Compiled catalogs of somebody else: whatever their numbers, a model is evaluated or refused with the name of what is wrong,
//! at once and without overflow.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fv_estimate::estimate::Workload;
use fv_estimate::resolve::Overrides;
use fv_spec::compiled::{Model, RulesFile};
use fv_spec::request::PartialRequest;
use serde_json::{Value, json};

fn data(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Why a model under a deployment is unknown, `None` where it is evaluated. Refusing the input counts as a reason.
fn reasons(model: &Value, deployment: &str, asked: &PartialRequest, overrides: &Overrides) -> Option<String> {
    let rules: RulesFile = serde_json::from_value(data("rules.json")).unwrap();
    let model: Model = serde_json::from_value(model.clone()).unwrap();
    let example = model.examples.iter().find(|example| example.id == deployment).unwrap();
    let begun = Instant::now();
    let found = match Workload::evaluate(&model, example, asked, overrides, &rules, true) {
        Ok(workload) => {
            // Of what no rule covers, the weights are shown all the same.
            let peaks = workload.peaks();
            assert!(peaks.into_iter().flatten().all(|peak| peak.reserved.high >= peak.allocated.low && peak.reserved.high < 1 << 62));
            let why = workload.unknown.iter().map(|reason| reason.message.as_str()).collect::<Vec<_>>().join("; ");
            (!workload.unknown.is_empty() || peaks.is_none()).then_some(why)
        }
        Err(errors) => Some(errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; ")),
    };
    // Without optimisation; hours, where something is executed as often as it is counted.
    assert!(begun.elapsed() < Duration::from_secs(20), "{deployment}: {:?}", begun.elapsed());
    found
}

/// A model with another value at `path` of the component in `role`, whichever of its deployments loads it.
fn changed(model: &Value, role: &str, path: &[&str], value: &Value) -> Value {
    let mut model = model.clone();
    let set = |components: &mut Value| {
        let mut at = components.get_mut(role);
        for part in path {
            at = at.and_then(|at| at.get_mut(*part));
        }
        if let Some(at) = at {
            *at = value.clone();
        }
    };
    set(&mut model["components"]);
    for example in model["examples"].as_array_mut().unwrap() {
        if let Some(components) = example.get_mut("components") {
            set(components);
        }
    }
    model
}

const MODELS: [(&str, &str); 4] =
    [("fastwan21", "default"), ("wan21-i2v-14b", "fastvideo"), ("wan21-i2v-14b", "diffusers"), ("wan22-ti2v-5b", "diffusers")];

fn small() -> PartialRequest {
    PartialRequest { num_frames: Some(9), num_inference_steps: Some(2), ..PartialRequest::default() }
}

#[test]
fn every_extent_of_a_component_is_in_range_or_named() {
    const EXTENTS: [u64; 8] = [0, 1, (1 << 20) + 1, 1 << 32, 1 << 40, (1 << 53) - 1, 1 << 63, u64::MAX];
    for (id, deployment) in MODELS {
        let model = data(&format!("models/{id}.json"));
        for role in ["transformer", "text_encoder", "image_encoder"] {
            let Some(geometry) = model["components"][role]["geometry"].as_object() else { continue };
            for field in geometry.keys().filter(|field| *field != "gated_ffn") {
                for extent in EXTENTS {
                    let value = if field == "patch_size" { json!([1, extent, 2]) } else { json!(extent) };
                    let changed = changed(&model, role, &["geometry", field], &value);
                    let found = reasons(&changed, deployment, &small(), &Overrides::default());
                    // Beyond every range, and what the transformer's rules do not read.
                    let bad = (extent == 0 || extent > 1 << 20) && !(role == "transformer" && field == "attention_head_dim");
                    let name = format!("{id} {deployment} {role} {field} {extent}: {found:?}");
                    assert!(!bad || found.is_some(), "{name}");
                    let plain = |text: &str| {
                        text.contains(field.as_str())
                            || text.contains("block of")
                            || text.contains("width of all heads")
                            || text.contains("allowed")
                    };
                    assert!(found.as_deref().is_none_or(plain), "{name}");
                }
            }
        }
    }
}

#[test]
fn every_count_of_a_component_is_in_range_or_named() {
    for (id, deployment) in MODELS {
        let model = data(&format!("models/{id}.json"));
        for role in ["transformer", "text_encoder", "image_encoder"] {
            if model["components"][role].is_null() {
                continue;
            }
            for field in ["parameter_count", "block_count", "block_parameter_count"] {
                for count in [1, 1_025, 30_000, 1_000_000, 1 << 40, (1_u64 << 53) - 1] {
                    let changed = changed(&model, role, &[field], &json!(count));
                    let found = reasons(&changed, deployment, &small(), &Overrides::default());
                    let name = format!("{id} {deployment} {role} {field} {count}: {found:?}");
                    if field == "block_count" && count > 1 {
                        assert!(
                            found.as_ref().is_some_and(|text| text.contains("block_count: found") && text.contains("1 to 1024")),
                            "{name}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn the_largest_that_is_read_does_not_overflow() {
    let most = (1_u64 << 53) - 1;
    for (id, deployment) in MODELS {
        for width in [1_u64 << 10, 1 << 17, 1 << 20] {
            let mut model = data(&format!("models/{id}.json"));
            let transformer = &mut model["components"]["transformer"];
            let gate = if id == "fastwan21" { width * width + width } else { 0 };
            let image = if id == "wan21-i2v-14b" { 2 * (width * width + width) + width } else { 0 };
            let block = 8 * (width * width + width) + 2 * width * width + 2 * width + 12 * width + gate + image;
            transformer["block_parameter_count"] = json!(block);
            transformer["block_count"] = json!((most / block).min(1_024));
            transformer["parameter_count"] = json!(most);
            for (field, extent) in
                [("hidden_size", width), ("ffn_size", width), ("num_attention_heads", width / 128), ("text_dim", 1 << 20)]
            {
                transformer["geometry"][field] = json!(extent);
            }
            if width == 1 << 10 {
                // The most blocks that are read, of a size that can be run.
                assert_eq!(reasons(&model, deployment, &small(), &Overrides::default()), None, "{id} {deployment}");
            } else {
                reasons(&model, deployment, &small(), &Overrides::default());
            }
        }
    }
}

#[test]
fn tiles_are_evaluated_or_refused_however_many_there_are() {
    let large = PartialRequest { height: Some(16_384), width: Some(16_384), ..small() };
    let set = |names: [&str; 4], tile: u32, stride: u32| {
        names.map(|name| (name.to_owned(), json!(if name.contains("stride") { stride } else { tile }))).to_vec()
    };
    let names = ["tile_sample_min_height", "tile_sample_min_width", "tile_sample_stride_height", "tile_sample_stride_width"];
    for (tile, stride, refused) in
        [(8, 8, false), (16, 8, false), (32, 8, false), (64, 8, false), (256, 192, false), (256, 8, true), (8_192, 8, true)]
    {
        let mut of_diffusers = set(names, tile, stride);
        of_diffusers.push(("vae_tiling".to_owned(), json!(true)));
        let mut of_fastvideo: Vec<(String, Value)> =
            set(names, tile, stride).into_iter().map(|(name, value)| (format!("vae_config.{name}"), value)).collect();
        of_fastvideo.extend([("vae_config.use_feature_cache".to_owned(), json!(false)), ("vae_tiling".to_owned(), json!(true))]);
        for (id, deployment, set) in [
            ("wan21-t2v-1.3b", "diffusers", &of_diffusers),
            ("wan21-i2v-14b", "diffusers", &of_diffusers),
            ("wan21-t2v-1.3b", "fastvideo", &of_fastvideo),
        ] {
            let overrides = Overrides { set: set.clone(), ..Overrides::default() };
            let found = reasons(&data(&format!("models/{id}.json")), deployment, &large, &overrides);
            assert_eq!(found.as_ref().is_some_and(|text| text.contains("tiles")), refused, "{id} {deployment} {tile} {stride}: {found:?}");
        }
    }
}

/// The same in every family: tiles of so many positions of the latent, so many apart.
#[test]
fn tiles_of_every_family_are_evaluated_or_refused() {
    let names = ["tile_sample_min_height", "tile_sample_min_width", "tile_sample_stride_height", "tile_sample_stride_width"];
    for (id, position, frames) in
        [("ltx-video-2b", 32, 9), ("cogvideox-5b", 8, 9), ("hunyuanvideo", 8, 9), ("mochi-1", 8, 7), ("minimax-h3", 16, 124)]
    {
        let model = data(&format!("models/{id}.json"));
        let request = PartialRequest { height: Some(16_384), width: Some(16_384), num_frames: Some(frames), ..small() };
        for (tile, stride, different) in [(1, 1, 1), (2, 1, 4), (16, 12, 4), (32, 1, 1024), (256, 1, 65_536)] {
            let size = |name: &str| json!(position * if name.contains("stride") { stride } else { tile });
            let mut set: Vec<(String, Value)> = names.iter().map(|name| ((*name).to_owned(), size(name))).collect();
            set.push(("vae_tiling".to_owned(), json!(true)));
            let found = reasons(&model, "diffusers", &request, &Overrides { set, ..Overrides::default() });
            // MiniMax H3 moves its tiles so that all are of one size; there their number counts.
            let refused = if id == "minimax-h3" { stride == 1 } else { different > 256 };
            assert_eq!(found.as_ref().is_some_and(|text| text.contains("are evaluated")), refused, "{id} {tile} {stride}: {found:?}");
            assert!(refused || found.is_none(), "{id} {tile} {stride}: {found:?}");
        }
    }
}

/// diffusers cuts convolutions over many values into parts in time, and fails where a part is shorter than the kernel.
#[test]
fn a_convolution_that_cannot_be_cut_is_refused_by_name() {
    for (id, frames, side, refused) in
        [("cogvideox-5b", 9, 1024, false), ("cogvideox-5b", 9, 4096, true), ("mochi-1", 7, 512, false), ("mochi-1", 7, 4096, true)]
    {
        let request = PartialRequest { height: Some(side), width: Some(side), num_frames: Some(frames), ..small() };
        let whole = Overrides { set: vec![("vae_tiling".to_owned(), json!(false))], ..Overrides::default() };
        let found = reasons(&data(&format!("models/{id}.json")), "diffusers", &request, &whole);
        assert_eq!(found.as_ref().is_some_and(|text| text.contains("its kernel")), refused, "{id} {side}: {found:?}");
        let tiled = Overrides { set: vec![("vae_tiling".to_owned(), json!(true))], ..Overrides::default() };
        assert_eq!(reasons(&data(&format!("models/{id}.json")), "diffusers", &request, &tiled), None, "{id} {side}");
    }
}
