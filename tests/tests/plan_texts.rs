//! Plans, refusals and grids as people read them. The values are made by hand, so that every part of a text is seen.

use fv_estimate::{
    grid::{Axes, Cell, Grid, MilliGib, Span},
    render::{self, Names},
};
use fv_spec::plan::{
    Plan,
    answer::{PlanDiff, PlanExplanation},
    refusal::Refusal,
};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;
const NAMES: Names<'static> = Names { model: "MiniMax H3", device: Some("Example Card 16 GB") };

fn system() -> Value {
    json!({
        "os": { "value": "linux", "source": "given" },
        "device": "card",
        "devices": 1,
        "architecture": { "value": "ada", "source": "catalog" },
        "compute_capability": { "value": "8.9", "source": "catalog" },
        "geforce": { "value": true, "source": "catalog" },
        "precision": { "value": "int8", "source": "assumed" },
        "attention_backends": { "value": ["sage2", "torch-flash"], "source": "given" }
    })
}

fn request() -> Value {
    json!({
        "width": 1344, "height": 768, "fps": 24, "requested_frames": 240, "frames": 243, "latent_frames": 72, "video_tokens": 72576,
        "steps": 11, "task": "t2va", "reference_video_tokens": 0, "reference_audio_tokens": 0,
        "text_tokens": { "value": 367, "source": "assumed" }
    })
}

fn budgets() -> Value {
    json!([
        {
            "resource": "vram", "rank": 0,
            "total": { "bytes": 17_175_674_880_u64, "source": "catalog", "by": "card" },
            "free": { "bytes": 16 * GIB - (GIB / 4), "source": "probed", "by": "NVML", "at": "2026-11-30T09:00:00Z" },
            "capacity_bytes": 16 * GIB - (GIB / 4), "limited_by": "free",
            "reserve_bytes": GIB / 2, "reserve_reason": "reserve-floor", "budget_bytes": 15 * GIB + (GIB / 4),
            "workspace_bytes": GIB / 8
        },
        {
            "resource": "host",
            "free": { "bytes": 32 * GIB, "source": "given" },
            "capacity_bytes": 32 * GIB, "limited_by": "free",
            "reserve_bytes": 2 * GIB, "reserve_reason": "reserve-share", "budget_bytes": 30 * GIB
        }
    ])
}

fn compute(heads: u32) -> Value {
    json!([{
        "component": "transformer", "gemm": "int8_per_row", "attention": { "global": "sage2", "window": "torch-flash" },
        "head_group": heads, "head_parallelism": 1, "outputs_on_host": false, "residual_on_host": false, "feed_forward_recompute": false,
        "feed_forward_chunk": 2048, "projection_chunk": 1024, "window_batch": 4, "slots": 2
    }])
}

fn peak(stage: &str, pass: Option<&str>, tier: &str, bytes: u64, limit: u64, basis: &str) -> Value {
    let metric = if tier == "device" { "device" } else { "held" };
    let rank = (tier == "device").then_some(0);
    let mut peak = json!({ "stage": stage, "tier": tier, "metric": metric, "bytes": bytes, "limit_bytes": limit, "basis": basis });
    for (key, value) in [("pass", pass.map(Value::from)), ("rank", rank.map(Value::from))] {
        if let Some(value) = value {
            peak[key] = value;
        }
    }
    peak
}

/// A plan in two passes with a forecast and blocks in every place.
fn two_passes() -> Value {
    let decision = json!({
        "key": "transformer.resident_blocks", "value": 8, "reason": "resident-target",
        "numbers": { "budget_bytes": 15 * GIB, "wanted": 8 },
        "alternatives": [{ "value": 12, "reason": "vram-limit", "numbers": { "working_set_bytes": 10 * GIB } }],
        "output_effect": "none"
    });
    let gemm = json!({ "key": "transformer.gemm", "value": "int8_per_row", "reason": "gemm-by-precision", "output_effect": "quantised" });
    let fixed = |key: &str, value: u32| json!({ "key": key, "value": value, "reason": "published-constant", "output_effect": "none" });
    let heads = json!({
        "key": "transformer.head_group", "value": 16, "reason": "widest-head-group", "numbers": { "need_bytes": 5 * GIB },
        "output_effect": "reordered"
    });
    let interval =
        |low: u64, value: u64, high: u64| json!({ "low_ns": low * 1_000_000, "value_ns": value * 1_000_000, "high_ns": high * 1_000_000 });
    json!({
        "version": 1, "id": "0123abcd", "policy": "freevideo", "model": "minimax-h3", "runtime": "freevideo",
        "system": system(), "request": request(), "budgets": budgets(), "fit": "fits",
        "placements": [
            {
                "component": "transformer", "rank": 0, "block_count": 50, "block_bytes": 432_500_000,
                "runs": [
                    { "tier": "device", "count": 8 }, { "tier": "pinned", "count": 36 }, { "tier": "pageable", "count": 2 },
                    { "tier": "disk", "count": 4 }
                ],
                "slots": 2, "pin_bytes": 15_570_000_000_u64, "disk_streaming": true
            },
            {
                "component": "vae", "rank": 0, "block_count": 36, "block_bytes": 268_574_720,
                "runs": [{ "tier": "device", "count": 36 }], "slots": 0, "pin_bytes": 0, "disk_streaming": false
            }
        ],
        "encoders": [{ "component": "text_encoder", "process": "separate", "host_minimum_bytes": 3_865_470_566_u64 }],
        "passes": [
            {
                "name": "first", "width": 672, "height": 384, "video_tokens": 18144, "steps": 8, "compute": compute(16),
                "block_cache": {
                    "component": "transformer", "most_blocks": 20, "allowance_bytes": 5 * GIB, "predicted_blocks": 12,
                    "margin_bytes": GIB / 2
                },
                "decisions": [heads]
            },
            { "name": "second", "width": 1344, "height": 768, "video_tokens": 72576, "steps": 3, "compute": compute(8) }
        ],
        "two_pass": {
            "base_steps": 8, "refine_steps": 3, "restart_seed_offset": 1,
            "upscale": {
                "width": 1344, "height": 768, "crop_left": 0, "crop_top": 0, "checkpoint_bytes": 690_592_672, "workspace_bytes": 6 * GIB
            }
        },
        "decoders": [{
            "component": "vae", "offload": true, "tile_group": true, "preload": false, "pin_weights": true, "stream_output": true,
            "half_precision_cache": false, "clips": 14, "clip_latent_frames": 7,
            "tiles": { "columns": 7, "rows": 4, "tile_pixels": 256, "overlap_pixels": 64 }
        }],
        "peaks": [
            peak("encoding", None, "pageable", 3_865_470_566, 30 * GIB, "host-account"),
            peak("denoising", Some("first"), "device", 9 * GIB, 15 * GIB + (GIB / 4), "measured-table"),
            peak("denoising", Some("first"), "pinned", 15_570_000_000, 30 * GIB, "host-account"),
            peak("denoising", Some("second"), "device", 12 * GIB, 15 * GIB + (GIB / 4), "measured-table"),
            peak("denoising", Some("second"), "pageable", 4 * GIB, 30 * GIB, "host-account"),
            peak("decoding", None, "device", 14 * GIB, 15 * GIB + (GIB / 4), "decoder-workspace")
        ],
        "forecast": {
            "basis": "a measured grid of H200", "coverage": "extrapolated",
            "passes": [
                { "name": "first", "steps": 8, "step": interval(3_000, 3_210, 3_500) },
                { "name": "second", "steps": 3, "step": interval(9_000, 9_020, 9_900) }
            ],
            "stages": [{ "name": "denoising", "time": interval(50_000, 52_740, 60_000) }, { "name": "decoding", "time": interval(15_000, 18_100, 25_000) }],
            "request": interval(65_000, 122_000, 140_000),
            "notes": ["the disk is assumed to read 5 GB/s"]
        },
        "decisions": [decision, gemm, fixed("transformer.feed_forward_chunk", 2048), fixed("transformer.projection_chunk", 1024)],
        "notes": ["the text encoder's host memory is free again before the transformer is loaded"]
    })
}

/// One pass whose peak is above its limit, without a forecast.
fn uncertain() -> Value {
    let mut plan = two_passes();
    let object = plan.as_object_mut().expect("an object");
    object.remove("forecast");
    object.remove("two_pass");
    plan["fit"] = "uncertain".into();
    let mut pass = plan["passes"][1].clone();
    pass["name"] = "only".into();
    plan["passes"] = json!([pass]);
    plan["peaks"] = json!([peak("denoising", None, "device", 16 * GIB, 15 * GIB + (GIB / 4), "over-own-figure")]);
    plan["plan_revisions"] = json!([{ "id": "4567ef", "stage": "denoising", "reason": "out-of-memory" }]);
    plan
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the value has the format of today")
}

#[test]
fn a_plan_in_two_passes() {
    let plan: Plan = read(two_passes());
    insta::assert_snapshot!(render::plan(&plan, &NAMES, 100).plain());
}

#[test]
fn a_plan_in_two_passes_with_its_tones() {
    let plan: Plan = read(two_passes());
    let toned = render::plan(&plan, &NAMES, 100).painted(|tone, text| format!("<{tone:?}:{text}>"));
    insta::assert_snapshot!(toned.lines().take(30).collect::<Vec<_>>().join("\n"));
}

#[test]
fn a_plan_above_its_own_figures_without_a_forecast() {
    let plan: Plan = read(uncertain());
    insta::assert_snapshot!(render::plan(&plan, &NAMES, 80).plain());
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [64, 80, 100, 140] {
        for value in [two_passes(), uncertain()] {
            let plan: Plan = read(value);
            let text = render::plan(&plan, &NAMES, width);
            // The first line is one, however long.
            for line in text.plain().lines().skip(1) {
                assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
            }
        }
    }
}

fn refused() -> Value {
    json!({
        "version": 1, "policy": "freevideo", "model": "minimax-h3", "runtime": "freevideo", "system": system(), "request": request(),
        "budgets": budgets(),
        "shortfalls": [
            {
                "resource": "vram", "rank": 0, "available_bytes": 5 * GIB, "reserve_bytes": GIB / 2, "usable_bytes": 9 * GIB / 2,
                "minimum_bytes": 5 * GIB, "shortfall_bytes": GIB / 2, "reason": "below-minimum"
            },
            {
                "resource": "host", "available_bytes": 4 * GIB, "reserve_bytes": GIB, "usable_bytes": 3 * GIB, "minimum_bytes": 4 * GIB,
                "shortfall_bytes": GIB, "reason": "below-minimum"
            }
        ],
        "smallest": {
            "both": { "vram_bytes": 5_905_580_033_u64, "host_bytes": 5 * GIB, "fit": "uncertain" },
            "both_fits": { "vram_bytes": 7 * GIB, "host_bytes": 5 * GIB, "fit": "fits" }
        },
        "nearest": [
            { "direction": "fewer_frames", "width": 1344, "height": 768, "frames": 124, "fit": "fits" },
            { "direction": "smaller_size", "width": 704, "height": 416, "frames": 243, "fit": "uncertain" },
            { "direction": "smaller_size", "width": 672, "height": 384, "frames": 243, "fit": "fits" }
        ],
        "changes": [
            { "reason": "free-vram", "message": "end other uses of the device's memory", "free_bytes": GIB / 2, "fit": "fits", "output_effect": "none" },
            { "reason": "without-adapter", "message": "run without adapters", "arguments": "--lora-max-block-bytes 0", "fit": "uncertain", "output_effect": "different" }
        ],
        "notes": ["more memory may again be too little"]
    })
}

#[test]
fn a_refusal() {
    let refusal: Refusal = read(refused());
    insta::assert_snapshot!(render::refusal(&refusal, &NAMES, 100).plain());
}

/// The first line names the least that would do, in every way in which there may be such a thing.
#[test]
fn the_first_line_of_a_refusal() {
    let first = |smallest: Value| {
        let mut value = refused();
        value["smallest"] = smallest;
        let refusal: Refusal = read(value);
        render::refusal(&refusal, &NAMES, 100).plain().lines().next().expect("a line").to_owned()
    };
    let least = |gib: u64, fit: &str| json!({ "bytes": gib * GIB, "fit": fit });
    let lines = [
        json!({ "vram": least(20, "fits") }),
        json!({ "vram": least(12, "uncertain") }),
        json!({ "vram": least(20, "uncertain"), "host": least(33, "fits") }),
        json!({ "vram": least(20, "fits"), "host": least(33, "fits") }),
        json!({ "both": { "vram_bytes": 20 * GIB, "host_bytes": 40 * GIB, "fit": "fits" } }),
        json!({}),
        Value::Null,
    ];
    insta::assert_snapshot!(lines.map(first).join("\n"));
}

#[test]
fn an_explanation() {
    let plan = two_passes();
    let explained = |pass: Option<&str>, decision: &Value| {
        let mut one = json!({ "decision": decision, "meaning": "why it is so", "alternatives": ["why the other lost"] });
        if let Some(pass) = pass {
            one["pass"] = pass.into();
        }
        one
    };
    let decisions: Vec<Value> = plan["decisions"].as_array().expect("a list").iter().map(|decision| explained(None, decision)).collect();
    let last = explained(Some("first"), &plan["passes"][0]["decisions"][0]);
    let margin = |limit: u64, bytes: i64| {
        json!({
            "resource": "vram", "rank": 0, "stage": "denoising", "pass": "first", "budget_bytes": 15 * GIB, "limit_bytes": limit,
            "peak_bytes": 14 * GIB, "margin_bytes": bytes
        })
    };
    let value = json!({
        "version": 1, "id": "0123abcd", "margins": [margin(15 * GIB, 1 << 30), margin(27 * GIB / 2, -(1 << 29))],
        "decisions": decisions.into_iter().chain([last]).collect::<Vec<_>>()
    });
    let explanation: PlanExplanation = read(value);
    insta::assert_snapshot!(render::plan_explanation(&explanation, 100).plain());
}

#[test]
fn a_comparison() {
    let value = json!({
        "version": 1, "a": "0123abcd", "b": "4567ef", "same": false,
        "fields": [
            { "path": "budgets.host.capacity_bytes", "a": 32 * GIB, "b": 16 * GIB, "change": -(16_i64 << 30) },
            { "path": "placements.transformer.0.slots", "a": 2, "b": 1, "change": -1 },
            { "path": "two_pass.upscale", "a": { "width": 1344 } }
        ],
        "decisions": [{
            "key": "transformer.resident_blocks",
            "a": { "value": 8, "reason": "resident-target" }, "b": { "value": 10, "reason": "host-cannot-keep-more" }
        }, { "pass": "first", "key": "transformer.head_group", "a": { "value": 16, "reason": "widest-head-group" } }]
    });
    let diff: PlanDiff = read(value);
    insta::assert_snapshot!(render::plan_diff(&diff, ["a.json", "b.json"], 100).plain());
    let same = PlanDiff { same: true, fields: Vec::new(), decisions: Vec::new(), ..diff };
    insta::assert_snapshot!("plans_that_are_the_same", render::plan_diff(&same, ["a.json", "b.json"], 100).plain());
}

fn grid(timed: bool) -> Grid {
    let axes =
        Axes::new(Span::read("6..12").expect("a range"), Span::read("8..9.5").expect("a range"), MilliGib::read("0.5").expect("a number"));
    let cell = |vram: u64, ram: u64| -> Result<Cell, std::convert::Infallible> {
        if vram < 7 * GIB {
            return Ok(Cell::Refused);
        }
        let step_ns = timed.then_some(20_000_000_000 - (vram >> 30) * 1_000_000_000);
        Ok(Cell::Planned { resident_blocks: (vram - 7 * GIB) >> 29, disk_streaming: ram < 9 * GIB, step_ns, way: None })
    };
    Grid::new(axes.expect("few cells"), cell).expect("no cell fails")
}

const ABOUT: &str = "1344 x 768, 243 frames, 8 steps & one pass, on linux";

#[test]
fn a_grid_as_tables() {
    insta::assert_snapshot!(render::grid(&grid(true), &NAMES, ABOUT, 100).plain());
}

#[test]
fn a_grid_without_times_in_a_narrow_terminal() {
    insta::assert_snapshot!(render::grid(&grid(false), &NAMES, ABOUT, 64).plain());
}

#[test]
fn a_grid_as_a_file() {
    insta::assert_snapshot!(render::grid_csv(&grid(true)));
}

#[test]
fn a_grid_as_a_picture() {
    insta::assert_snapshot!(render::grid_svg(&grid(true), &NAMES, ABOUT));
}

/// A picture that stands alone: well-formed, named and described, each cell in words, nothing fetched and nothing run.
#[test]
fn a_picture_is_sound() {
    for timed in [true, false] {
        let grid = grid(timed);
        let names = Names { model: "<H3> & \"friends\" \u{1b}[31m", device: None };
        let svg = render::grid_svg(&grid, &names, ABOUT);
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
        let root = document.root_element();
        assert_eq!((root.tag_name().name(), root.attribute("role")), ("svg", Some("img")));
        let text =
            |name: &str| root.children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name))).and_then(|node| node.text());
        assert!(
            text("title").is_some_and(|title| title.contains("<H3> & \"friends\""))
                && text("desc").is_some_and(|desc| desc.contains(ABOUT))
        );
        let cells = document.descendants().filter(|node| node.tag_name().name() == "title" && node.parent() != Some(root)).count();
        assert_eq!(cells, grid.cells.len() * if timed { 2 } else { 1 });
        for node in document.descendants() {
            assert!(!matches!(node.tag_name().name(), "script" | "image" | "foreignObject" | "use"), "{node:?}");
            assert!(node.attributes().all(|attribute| !attribute.name().starts_with("on") && attribute.name() != "href"), "{node:?}");
        }
        let box_size: Vec<f64> =
            root.attribute("viewBox").expect("a size").split(' ').map(|part| part.parse().expect("a number")).collect();
        for node in document.descendants() {
            let place = |name: &str| node.attribute(name).and_then(|place| place.parse::<f64>().ok()).unwrap_or(0.0);
            let (x, y) = (place("x") + place("cx"), place("y") + place("cy"));
            let letters =
                node.text().filter(|_| node.has_tag_name(("http://www.w3.org/2000/svg", "text"))).map_or(0, |text| text.chars().count());
            // Small text is written in 11 pixels, which no letter is wider than 7 of on average.
            let centred = matches!(node.attribute("class"), Some(class) if class.split(' ').any(|word| matches!(word, "mid" | "end")));
            let wide = if centred { 0.0 } else { 7.0 * f64::from(u32::try_from(letters).expect("few")) };
            assert!(x + place("width") + wide <= box_size[2] && y + place("height") <= box_size[3], "{node:?} lies outside");
        }
    }
}

/// Dark text on every fill has at least the contrast that WCAG asks of small text.
#[test]
fn text_on_every_fill_is_legible() {
    let svg = render::grid_svg(&grid(true), &NAMES, ABOUT);
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("hexadecimal")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let fills: std::collections::BTreeSet<&str> = svg.split("fill=\"").skip(1).map(|rest| &rest[..7]).collect();
    assert!(fills.len() > 3, "{fills:?}");
    let ink = luminance("#14202b");
    for fill in fills.into_iter().chain(["#f3e3e3"]).filter(|fill| *fill != "#14202b") {
        assert!((luminance(fill) + 0.05) / (ink + 0.05) >= 4.5, "{fill}");
    }
}
