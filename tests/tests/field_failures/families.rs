//! The same kinds of failure in the families beside Wan: LTX-Video, CogVideoX, HunyuanVideo, Mochi and MiniMax H3.

use super::*;

/// A model under diffusers, a size that it takes, two frame counts, and the images that it is given.
struct Case {
    model: &'static str,
    size: [u32; 2],
    frames: [u32; 2],
    references: u32,
}

const CASES: [Case; 6] = [
    Case { model: "ltx-video-2b", size: [512, 704], frames: [97, 161], references: 0 },
    Case { model: "cogvideox-5b", size: [480, 720], frames: [25, 49], references: 0 },
    Case { model: "cogvideox-5b-i2v", size: [480, 720], frames: [25, 49], references: 1 },
    Case { model: "hunyuanvideo", size: [544, 960], frames: [33, 61], references: 0 },
    Case { model: "mochi-1", size: [480, 848], frames: [19, 31], references: 0 },
    Case { model: "minimax-h3", size: [480, 832], frames: [124, 243], references: 0 },
];

impl Case {
    fn request(&self, frames: u32) -> PartialRequest {
        PartialRequest { references: Some(self.references), ..size(self.size[0], self.size[1], frames) }
    }

    fn workload(&self, request: PartialRequest, set: &[(&str, Value)]) -> Workload {
        workload(self.model, "diffusers", request, set)
    }

    fn estimate(&self, frames: u32, set: &[(&str, Value)]) -> Estimate {
        estimate(&self.workload(self.request(frames), set), &big(), &host(512.0))
    }

    /// Whether the pipeline can move layers one at a time: that of MiniMax H3 cannot.
    fn moves_layers(&self) -> bool {
        self.model != "minimax-h3"
    }
}

fn highest(estimate: &Estimate) -> u64 {
    estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.allocated.value).max().expect("stages")
}

fn resident() -> (&'static str, Value) {
    ("model_cpu_offload", json!(false))
}

fn by_layers() -> [(&'static str, Value); 2] {
    [resident(), ("sequential_cpu_offload", json!(true))]
}

/// 8: another attention kernel is another estimate, and one that no rule covers is said to be so.
#[test]
fn attention_that_keeps_its_scores_is_never_taken_for_a_fused_one() {
    for case in &CASES {
        let e = case.estimate(case.frames[0], &[("attention_backend", json!("_native_math"))]);
        let fused = case.estimate(case.frames[0], &[]);
        let scores = allocated(&e, "denoising") - allocated(&fused, "denoising");
        assert!(e.status == Verdict::Unknown || scores > GIB, "{}: {:?}, {scores} more", case.model, e.status);
    }
}

/// 11, and a request that ran out of memory when the finished clip was put together: each decoded video is a buffer in frames and pixels.
#[test]
fn the_finished_clip_is_a_term_of_its_own() {
    for case in &CASES {
        let after = |frames: u32| {
            let e = case.estimate(frames, &[]);
            let phases = &stage(&e, "decoding").phases;
            phases.iter().find(|phase| phase.name == "postprocess").expect("a phase").allocated_bytes
        };
        let [short, long] = case.frames.map(after);
        let pixels = 3 * u64::from(case.size[0] * case.size[1]) * u64::from(case.frames[1] - case.frames[0]);
        // The clip as it is decoded and at least two copies, of two or four bytes a value.
        assert!((3 * 2 * pixels..=4 * 4 * pixels).contains(&(long - short)), "{}: {short} {long}", case.model);
    }
}

/// 14: out of memory in the decoder after hours of denoising.
#[test]
fn a_short_decoder_is_named_before_anything_starts() {
    let mut judged = 0;
    for case in CASES.iter().filter(|case| case.moves_layers()) {
        let set: Vec<_> = by_layers().into_iter().chain([("vae_tiling", json!(false))]).collect();
        let w = case.workload(case.request(case.frames[1]), &set);
        let e = estimate(&w, &big(), &host(512.0));
        let low = |name: &str| stage(&e, name).peak_bytes.expect("peaks").device.low;
        assert!(["load", "encoding", "denoising"].iter().all(|name| low(name) < low("decoding")), "{}", case.model);
        let asked = Asked { memory_budget_bytes: Some(low("denoising")), ..host(512.0) };
        let e = estimate(&w, &big(), &asked);
        assert_eq!(e.status, Verdict::DoesNotFit, "{}", case.model);
        let short = e.shortfall.expect("what is missing");
        assert_eq!((short.tier.as_str(), short.stage.as_str(), short.buffers.is_empty()), ("device", "decoding", false), "{}", case.model);
        judged += 1;
    }
    assert_eq!(judged, 5);
}

/// 17: a tile taken for a fraction of what it needs.
#[test]
fn a_tiled_video_needs_no_less_than_one_tile_and_the_clip() {
    for case in &CASES {
        let decoding = |[height, width]: [u32; 2], tiled: bool| {
            let request = PartialRequest { references: Some(case.references), ..size(height, width, case.frames[0]) };
            let leaves = by_layers();
            let moves: &[_] = if case.moves_layers() { &leaves } else { &[] };
            let set: Vec<_> = moves.iter().cloned().chain([("vae_tiling", json!(tiled))]).collect();
            let e = estimate(&case.workload(request, &set), &big(), &host(512.0));
            let phases = &stage(&e, "decoding").phases;
            phases
                .iter()
                .filter(|phase| phase.name.starts_with("decode_l") || phase.name.starts_with("decode_f"))
                .map(|phase| phase.allocated_bytes)
                .max()
        };
        // Models of one size have tiles of their own, so the whole stands for one.
        let fixed = case.model.starts_with("cogvideox");
        let (tiled, whole) = (decoding(case.size, true).expect("phases"), decoding(case.size, false).expect("phases"));
        assert!(tiled < whole, "{}: {tiled} {whole}", case.model);
        if !fixed {
            let one = decoding([256, 256], true).expect("phases");
            assert!(tiled >= one, "{}: {tiled} {one}", case.model);
        }
    }
}

/// 19: the unconditional pass, as each pipeline runs it.
#[test]
fn guidance_is_counted_as_each_pipeline_runs_it() {
    for case in &CASES {
        let denoising = |guidance: f64| {
            let request = PartialRequest { guidance_scale: Some(guidance), ..case.request(case.frames[0]) };
            allocated(&estimate(&case.workload(request, &[resident()]), &big(), &host(512.0)), "denoising")
        };
        let (without, with) = (denoising(1.0), denoising(6.0));
        let both_at_once = ["ltx-video-2b", "cogvideox-5b", "cogvideox-5b-i2v", "mochi-1"].contains(&case.model);
        if both_at_once {
            // Both branches are one batch: the states of one token are there twice.
            assert!(with - without > 64 << 20, "{}: {without} {with}", case.model);
        } else {
            // The scale is an input of the transformer, or has been trained in.
            assert_eq!(with, without, "{}", case.model);
        }
    }
}

/// 23: placements of the same model are one number.
#[test]
fn placements_of_every_family_differ() {
    for case in &CASES {
        let peak = |set: &[(&str, Value)]| highest(&case.estimate(case.frames[0], set));
        let (all, moved) = (peak(&[resident()]), peak(&[]));
        assert!(all > moved, "{}: {all} {moved}", case.model);
        if case.moves_layers() {
            let layers = peak(&by_layers());
            assert!(moved > layers, "{}: {moved} {layers}", case.model);
        }
    }
}

/// A floor that forgets the largest component (unslothai/unsloth#8283), and an encoder that does not fit by itself.
#[test]
fn with_models_moved_the_floor_is_the_largest_component() {
    for case in &CASES {
        let catalog = catalog();
        let components = catalog.models[case.model].components.values();
        let largest = components.map(|component| 2 * component.parameter_count.get()).max().expect("components");
        assert!(highest(&case.estimate(case.frames[0], &[])) > largest, "{}", case.model);
    }
    let w = workload("minimax-h3", "diffusers", size(480, 832, 124), &[]);
    let e = estimate(&w, &device("rtx-5090-32gb"), &host(512.0));
    assert_eq!(e.status, Verdict::DoesNotFit);
    let least = stage(&e, "encoding").peak_bytes.expect("peaks").allocated.low;
    assert!(least > e.memory.budget_bytes.expect("a budget"), "the text encoder alone is larger than the card");
}

/// 25: a lighter profile is not a promise.
#[test]
fn the_frames_that_ran_out_of_memory_do_not_fit() {
    let w = workload("hunyuanvideo", "diffusers", size(544, 960, 97), &[]);
    assert_eq!(estimate(&w, &device("rtx-3090-24gb"), &host(128.0)).status, Verdict::DoesNotFit);
    let w = workload("minimax-h3", "diffusers", size(480, 832, 243), &[]);
    assert_eq!(estimate(&w, &device("rtx-3090-24gb"), &host(128.0)).status, Verdict::DoesNotFit);
}

/// 26, and runs that host memory of 24 to 64 GB ended: a card that is large enough beside a host that is not.
#[test]
fn a_short_host_is_a_no_in_every_family() {
    for case in &CASES {
        let w = case.workload(case.request(case.frames[0]), &[]);
        let e = estimate(&w, &big(), &host(8.0));
        assert_eq!((e.status, e.host.status), (Verdict::DoesNotFit, Verdict::DoesNotFit), "{}", case.model);
        assert_eq!(e.shortfall.expect("what is missing").tier, "host", "{}", case.model);
        let required = e.host.required_bytes.expect("a sum");
        let enough = |bytes: f64| estimate(&w, &big(), &host(bytes)).host.status;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let gb = required as f64 / 1e9;
        assert_eq!((enough(gb * 0.999), enough(gb * 1.001)), (Verdict::DoesNotFit, Verdict::Fits), "{}", case.model);
    }
    let w = workload("minimax-h3", "diffusers", size(480, 832, 124), &[]);
    assert_eq!(estimate(&w, &big(), &host(64.0)).host.status, Verdict::DoesNotFit);
}

/// An image whose encoding is not estimated (Comfy-Org/ComfyUI#15316).
#[test]
fn encoding_an_image_is_part_of_the_encoding_stage() {
    let encoded = |e: &Estimate| stage(e, "encoding").phases.iter().any(|phase| phase.name.starts_with("encode_"));
    let image = CASES[2].estimate(49, &[]);
    assert!(encoded(&image) && !encoded(&CASES[1].estimate(49, &[])));
    assert!(allocated(&image, "encoding") > allocated(&CASES[1].estimate(49, &[]), "encoding"));
    let h3 = |references: u32| {
        let request = PartialRequest { references: Some(references), ..size(480, 832, 124) };
        estimate(&workload("minimax-h3", "diffusers", request, &[resident()]), &big(), &host(512.0))
    };
    assert!(encoded(&h3(1)) && !encoded(&h3(0)));
    // Where no rule covers an image, it is not left out in silence.
    for model in ["ltx-video-2b", "hunyuanvideo", "mochi-1", "cogvideox-5b"] {
        let case = CASES.iter().find(|case| case.model == model).expect("a case");
        let request = PartialRequest { references: Some(1), ..case.request(case.frames[0]) };
        let e = estimate(&case.workload(request, &[]), &big(), &host(512.0));
        assert_eq!(e.status, Verdict::Unknown, "{model}");
    }
}

/// What the encoder left behind in the allocator was forgotten, and a later pass ran out of memory.
#[test]
fn what_a_stage_leaves_in_the_allocator_counts_in_the_next() {
    for case in &CASES {
        let e = case.estimate(case.frames[0], &[resident()]);
        let reserved: Vec<u64> = e.stages.iter().map(|stage| stage.peak_bytes.expect("peaks").reserved.value).collect();
        assert!(reserved.is_sorted(), "{}: nothing is given back between stages {reserved:?}", case.model);
        for stage in &e.stages {
            let peaks = stage.peak_bytes.expect("peaks");
            assert!(peaks.reserved.value >= peaks.allocated.value, "{} {}", case.model, stage.name);
        }
    }
}

/// 55: a reserve that is ignored.
#[test]
fn a_reserve_is_kept_in_every_family() {
    for case in &CASES {
        let w = case.workload(case.request(case.frames[0]), &[]);
        let with = |reserve_bytes: Option<u64>| estimate(&w, &big(), &Asked { reserve_bytes, ..host(512.0) });
        let free = with(None);
        let peak = free.stages.iter().map(|s| s.peak_bytes.expect("peaks").device.high).max().expect("stages");
        let room = free.memory.budget_bytes.expect("a budget") - peak;
        assert_eq!([with(Some(room)).status, with(Some(room + 1)).status], [Verdict::Fits, Verdict::Uncertain], "{}", case.model);
    }
}

/// 59b: the same request is judged on what the allocator holds, and a budget that only the tensors fit in is no yes.
#[test]
fn a_budget_for_the_tensors_alone_is_no_yes() {
    for case in &CASES {
        let w = case.workload(case.request(case.frames[0]), &[]);
        let e = estimate(&w, &big(), &host(512.0));
        let most = e.stages.iter().map(|stage| stage.peak_bytes.expect("peaks")).max_by_key(|peaks| peaks.device.high).expect("stages");
        let tensors = Asked { memory_budget_bytes: Some(highest(&e)), ..host(512.0) };
        assert_ne!(estimate(&w, &big(), &tensors).status, Verdict::Fits, "{}", case.model);
        let short = Asked { memory_budget_bytes: Some(most.device.high - 1), ..host(512.0) };
        assert_eq!(
            estimate(&w, &big(), &short).status,
            Verdict::Uncertain,
            "{}: a shortfall smaller than the interval is no no",
            case.model
        );
    }
}

/// 68: a default that nobody would run.
#[test]
fn the_default_request_of_every_model_is_its_own() {
    for (model, clip) in [
        ("ltx-video-2b", (512, 704, 161)),
        ("cogvideox-5b", (480, 720, 49)),
        ("cogvideox1.5-5b", (768, 1360, 81)),
        ("hunyuanvideo", (720, 1280, 129)),
        ("mochi-1", (480, 848, 19)),
        ("minimax-h3", (768, 1344, 124)),
    ] {
        let e = estimate(&workload(model, "diffusers", PartialRequest::default(), &[]), &big(), &host(512.0));
        assert_eq!((e.request.height, e.request.width, e.request.num_frames), clip, "{model}");
    }
}

/// A budget that a measured working set does not fit in was admitted, far beyond the rows of its table: what lies beyond is said to.
#[test]
fn a_plan_beyond_its_table_says_so() {
    let w = workload("minimax-h3", "freevideo", size(768, 1344, 362), &[]);
    let e = estimate(&w, &big(), &host(512.0));
    assert!(!e.coverage.extrapolated.is_empty(), "107,856 rows and more lie beyond what was measured: {:?}", e.coverage);
}
