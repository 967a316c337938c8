//! What people read of estimates. The estimates are made up here, so that better rules change nothing in this file.

use fv_estimate::render::{self, Names, Text};
use fv_spec::{
    authored::MemoryType,
    estimate::{
        Assessment, Basis, Buffer, BufferKind, Coverage, Estimate, EvidenceMatch, Explanation, Heuristic, HostBytes, HostReport, Interval,
        LargestAllocation, MatchedRun, MemoryReport, PeakBytes, Phase, Provenance, Reason, Recommendation, Recommendations, Setting,
        Shortfall, Stage, Tier, VERSION, Verdict,
    },
    request::Request,
};
use serde_json::json;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NAMES: Names<'_> = Names { model: "Example T2V", device: Some("Example Card 24 GB") };

fn buffer(name: &str, kind: BufferKind, mib: u64, count: u32, formula: &str) -> Buffer {
    let (name, formula) = (name.to_owned(), formula.to_owned());
    Buffer { name, kind, tier: Tier::Device, bytes: mib * MIB, count, formula, rule: "wan.example".to_owned() }
}

/// A stage with a lowest, derived and highest device peak, and pageable host memory, all in MiB.
fn stage(name: &str, [least, low, value, high]: [u64; 4], host: u64) -> Stage {
    const FIXED: u64 = 512;
    let reserved = Interval { low: (low - FIXED) * MIB, value: (value - FIXED) * MIB, high: (high - FIXED) * MIB };
    let allocated = Interval { low: (least - FIXED) * MIB, value: (low - FIXED) * MIB, high: (low - FIXED) * MIB };
    let device = Interval { low: low * MIB, value: value * MIB, high: high * MIB };
    let mut buffers = vec![
        buffer("weights of it", BufferKind::Weights, (least - FIXED) / 2, 90, "1415869504 parameters x 2 B"),
        buffer(
            "feature cache",
            BufferKind::Cache,
            (least - FIXED) / 4,
            8,
            "batch 1 x channels 96 x frames 2 x height 480 x width 832 x 4 B",
        ),
        buffer("scratch", BufferKind::Workspace, (least - FIXED) / 8, 1, "input, output and weights 385148196 x 4 B"),
    ];
    buffers.extend((0..8).map(|i| buffer(&format!("small {i}"), BufferKind::Activation, 1, 1, "tokens 512 x width 1024 x 2 B")));
    let phases = vec![
        Phase { name: "move_in".to_owned(), repeat: 1, allocated_bytes: least.saturating_sub(FIXED + 100) * MIB },
        Phase { name: "attention".to_owned(), repeat: 1500, allocated_bytes: (low - FIXED) * MIB },
    ];
    Stage {
        name: name.to_owned(),
        phases,
        buffers,
        largest_allocation: Some(LargestAllocation { name: "scratch".to_owned(), phase: "attention".to_owned(), bytes: 400 * MIB }),
        peak_bytes: Some(PeakBytes { allocated, reserved, device }),
        ranks: Vec::new(),
        host: HostBytes { pinned_bytes: 0, pageable_bytes: host * MIB, disk_bytes: 0 },
    }
}

fn estimate(status: Verdict) -> Estimate {
    Estimate {
        version: VERSION,
        model: "example".to_owned(),
        deployment: "default".to_owned(),
        hardware: Some("card-24gb".to_owned()),
        request: Request {
            height: 480,
            width: 832,
            num_frames: 81,
            batch: 1,
            guidance_scale: 3.5,
            num_inference_steps: 50,
            text_tokens: 512,
            references: 1,
        },
        status,
        reasons: Vec::new(),
        capacity_gib: None,
        memory: MemoryReport {
            kind: Some(MemoryType::Dedicated),
            nominal_gib: None,
            budget_bytes: Some(24_564 * MIB),
            budget_gib: None,
            partition: None,
            budget_source: Some("reported".to_owned()),
            reserve_bytes: 0,
        },
        host: HostReport { required_bytes: Some(14_000 * MIB), capacity_bytes: Some(64 * GIB), status: Verdict::Fits },
        shortfall: None,
        stages: vec![
            stage("load", [612, 700, 800, 900], 14_000),
            stage("encoding", [9_000, 9_300, 9_500, 9_900], 3_000),
            stage("denoising", [16_000, 17_000, 18_500, 20_000], 12_000),
            stage("decoding", [11_000, 12_000, 12_500, 12_800], 13_000),
        ],
        settings: vec![
            Setting { key: "vae_tiling".to_owned(), value: json!(true), provenance: Provenance::User },
            Setting {
                key: "transformer.placement".to_owned(),
                value: json!({ "moved": { "pinned": false } }),
                provenance: Provenance::Forced,
            },
            Setting { key: "tiling".to_owned(), value: json!(null), provenance: Provenance::RuntimeDefault },
        ],
        coverage: Coverage { rules: vec!["wan x diffusers".to_owned()], ..Coverage::default() },
        notes: vec!["without effect with diffusers: generator.engine.compile.enabled, generator.engine.offload.dit, and others".to_owned()],
        forecast: None,
    }
}

fn budget(mut estimate: Estimate, mib: u64, source: &str) -> Estimate {
    estimate.memory.budget_bytes = Some(mib * MIB);
    estimate.memory.budget_source = Some(source.to_owned());
    estimate
}

fn too_small(status: Verdict, mib: u64, code: &str) -> Estimate {
    let mut estimate = budget(estimate(status), mib, "explicit");
    estimate.reasons.push(Reason::new(code, "denoising needs more than there is"));
    estimate
}

fn short() -> Estimate {
    let mut estimate = too_small(Verdict::DoesNotFit, 12_000, "exceeds-budget");
    estimate.shortfall =
        Some(Shortfall { tier: "device".to_owned(), stage: "denoising".to_owned(), bytes: 4_000 * MIB, buffers: Vec::new() });
    estimate
}

fn unknown() -> Estimate {
    let mut estimate = estimate(Verdict::Unknown);
    estimate.stages.clear();
    estimate.host = HostReport { required_bytes: None, capacity_bytes: None, status: Verdict::Unknown };
    let reason = "no memory rule covers cogvideox x diffusers: weights are known, what a request needs is not";
    estimate.reasons = vec![Reason::new("uncovered-family", reason), Reason::new("unknown-stage", "no stage is known")];
    estimate.coverage = Coverage { uncovered: vec!["cogvideox x diffusers".to_owned()], ..Coverage::default() };
    estimate
}

fn unified() -> Estimate {
    let mut estimate = budget(estimate(Verdict::DoesNotFit), 24_000, "unified_default");
    estimate.memory.kind = Some(MemoryType::Unified);
    estimate.host = HostReport { required_bytes: Some(14_000 * MIB), capacity_bytes: Some(24_000 * MIB), status: Verdict::DoesNotFit };
    estimate.shortfall =
        Some(Shortfall { tier: "host".to_owned(), stage: "denoising".to_owned(), bytes: 4_000 * MIB, buffers: Vec::new() });
    estimate.reasons.push(Reason::new("exceeds-pool", "denoising needs at least 3.91 GiB more than the pool of 23.44 GiB"));
    estimate
}

fn shown(estimate: &Estimate) -> String {
    render::estimate(estimate, &NAMES, 100).plain()
}

/// Parts that have a tone, visibly.
fn toned(text: &Text) -> String {
    text.painted(|tone, text| format!("<{tone:?}:{text}>"))
}

#[test]
fn fits() {
    insta::assert_snapshot!(shown(&estimate(Verdict::Fits)));
}

#[test]
fn fits_in_tones() {
    insta::assert_snapshot!(toned(&render::estimate(&estimate(Verdict::Fits), &NAMES, 100)));
}

#[test]
fn does_not_fit_with_the_buffers_that_make_it() {
    insta::assert_snapshot!(shown(&short()));
}

/// What a first line says is needed, is there and is missing: one and the same stage, at least.
#[test]
fn what_is_missing_is_what_is_needed_less_what_is_there() {
    let gib = |text: &str, after: &str| -> f64 {
        let rest = text.split(after).nth(1).unwrap_or_else(|| panic!("{after}: {text}"));
        rest.trim_start().split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{after}: {text}"))
    };
    let first = |estimate: &Estimate| shown(estimate).lines().next().unwrap_or_default().to_owned();
    for missing in [11, 57, 512, 4_000, 90_001] {
        let mut device = short();
        device.shortfall.as_mut().expect("short").bytes = missing * MIB;
        let line = first(&device);
        let [needs, there, lacks] = [gib(&line, "needs at least"), gib(&line, " GiB of"), gib(&line, "24 GB,")];
        assert!((needs - there - lacks).abs() < 0.011, "{line}");
        let mut host = estimate(Verdict::DoesNotFit);
        host.host = HostReport { required_bytes: None, capacity_bytes: Some(8_000 * MIB), status: Verdict::DoesNotFit };
        host.shortfall = Some(Shortfall { tier: "host".to_owned(), stage: "load".to_owned(), bytes: missing * MIB, buffers: Vec::new() });
        let line = first(&host);
        assert!((gib(&line, "needs") - 8_000.0 / 1024.0 - gib(&line, "at least")).abs() < 0.011, "{line}");
        let mut close = too_small(Verdict::Uncertain, 20_000, "between-allocated-and-reserved");
        close.memory.budget_bytes = Some(20_000 * MIB - missing.min(3_000) * MIB);
        let line = first(&close);
        assert!((gib(&line, " and") - gib(&line, " GiB of") - gib(&line, "up to")).abs() < 0.011, "{line}");
    }
}

/// A cap that the process sets on its allocator is no budget: the line gives its own figures.
#[test]
fn a_cap_that_is_exceeded_is_said_as_such() {
    let mut capped = short();
    capped.reasons = vec![Reason::new(
        "allocator-cap",
        "denoising needs at least 1.00 GiB more than the 2.00 GiB that the process lets its allocator take",
    )];
    assert_eq!(
        shown(&capped).lines().next(),
        Some(
            "does not fit: Example T2V (default) on Example Card 24 GB: denoising needs at least 1.00 GiB more than the 2.00 GiB that the process lets its allocator take"
        )
    );
}

#[test]
fn does_not_fit_the_host() {
    let mut estimate = estimate(Verdict::DoesNotFit);
    estimate.host = HostReport { required_bytes: Some(14_000 * MIB), capacity_bytes: Some(8_000 * MIB), status: Verdict::DoesNotFit };
    estimate.shortfall = Some(Shortfall { tier: "host".to_owned(), stage: "load".to_owned(), bytes: 6_000 * MIB, buffers: Vec::new() });
    estimate.reasons.push(Reason::new("host-memory-short", "load needs 5.86 GiB more host memory than the 7.81 GiB there are"));
    insta::assert_snapshot!(shown(&estimate));
}

#[test]
fn uncertain() {
    let mut estimate = too_small(Verdict::Uncertain, 19_000, "between-allocated-and-reserved");
    estimate.coverage.extrapolated.push("num_frames 161 (measured 17 to 121)".to_owned());
    insta::assert_snapshot!(shown(&estimate));
}

#[test]
fn unknown_without_a_rule() {
    insta::assert_snapshot!(shown(&unknown()));
}

#[test]
fn unknown_because_of_a_setting_shows_what_the_rules_give() {
    let mut estimate = estimate(Verdict::Unknown);
    estimate.reasons.push(Reason::new("unknown-setting", "record_stream: no rule models the value true"));
    insta::assert_snapshot!(shown(&estimate));
}

#[test]
fn without_a_device() {
    let mut estimate = estimate(Verdict::Unknown);
    estimate.hardware = None;
    estimate.memory = MemoryReport { kind: None, budget_bytes: None, budget_source: None, ..estimate.memory };
    estimate.reasons.push(Reason::new("no-hardware", "no device was chosen"));
    for stage in &mut estimate.stages {
        stage.peak_bytes = None;
    }
    insta::assert_snapshot!(render::estimate(&estimate, &Names { model: "Example T2V", device: None }, 100).plain());
}

#[test]
fn custom_device() {
    let mut estimate = budget(estimate(Verdict::Fits), 40 << 10, "explicit");
    estimate.hardware = Some("custom".to_owned());
    estimate.memory.reserve_bytes = GIB;
    estimate.notes.push("`Custom accelerator` is described by the user and was not compared with any source".to_owned());
    insta::assert_snapshot!(render::estimate(&estimate, &Names { model: "Example T2V", device: Some("Custom accelerator") }, 100).plain());
}

#[test]
fn partition() {
    let mut estimate = budget(estimate(Verdict::Fits), 38_146, "partition");
    estimate.memory.partition = Some("3g.40gb".to_owned());
    insta::assert_snapshot!(shown(&estimate));
}

#[test]
fn unified_memory() {
    insta::assert_snapshot!(shown(&unified()));
}

#[test]
fn explained() {
    let heuristic = |name: &str, bytes, formula: &str| Heuristic { name: name.to_owned(), bytes, formula: formula.to_owned() };
    let heuristics = vec![
        heuristic("feature_cache", Some(3_680_501_760), "multiplier 48 x batch 1 x decoder channels 96 x height 480 x width 832 x 2 B"),
        heuristic("output_buffers", None, "the catalog has no output_channels for example-vae"),
    ];
    let explanation = Explanation { version: VERSION, estimate: estimate(Verdict::Fits), heuristics };
    insta::assert_snapshot!(render::explanation(&explanation, &NAMES, 100).plain());
}

fn run(id: &str, code: &str) -> MatchedRun {
    MatchedRun { id: id.to_owned(), reasons: vec![Reason::new(code, "a sentence that says what it is that decided about this run")] }
}

#[test]
fn runs_are_judged() {
    let matches = EvidenceMatch {
        applicable: vec![run("first", "context-same")],
        unverified: vec![run("second", "runtime-revision-unknown")],
        rejected: vec![run("third", "hardware-differs")],
    };
    let text = |matches: &EvidenceMatch| render::evidence(matches, &NAMES, "default", 100).plain();
    let without = EvidenceMatch { applicable: Vec::new(), ..matches.clone() };
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    assert_eq!(first(text(&without)), "0 of 2 runs apply to Example T2V (default) on Example Card 24 GB");
    assert_eq!(text(&EvidenceMatch::default()), "no runs: none are recorded for Example T2V\n");
    insta::assert_snapshot!(text(&matches));
}

#[test]
fn assessed() {
    let evidence = EvidenceMatch { applicable: vec![run("first", "context-same")], ..EvidenceMatch::default() };
    let reasons = vec![Reason::new("completed-run", "run `first` completed on this device; how much of it was used was not measured")];
    let assessment = Assessment { status: Verdict::Fits, reasons, basis: Basis::Measured, estimate: short(), evidence };
    insta::assert_snapshot!(render::assessment(&assessment, &NAMES, 100).plain());
    let estimate = short();
    let reasons = estimate.reasons.clone();
    let evidence = EvidenceMatch::default();
    let assessment = Assessment { status: Verdict::DoesNotFit, reasons, basis: Basis::Analytical, estimate, evidence };
    let text = render::assessment(&assessment, &NAMES, 100).plain();
    assert!(text.starts_with("does not fit, by the rules: Example T2V (default) needs at least 15.63 GiB of 11.72 GiB"), "{text}");
    assert_eq!(text.matches("exceeds-budget").count(), 1, "the estimate's reasons are told once");
}

#[test]
fn recommended() {
    let place = |hardware: &str, partition: Option<&str>, high: u64, budget: u64, codes: &[&str]| Recommendation {
        model: None,
        hardware: hardware.to_owned(),
        partition: partition.map(str::to_owned),
        deployment: "default".to_owned(),
        gpu_count: 1,
        device_peak: Some(Interval { low: high / 2 * MIB, value: high * MIB, high: high * MIB }),
        budget_bytes: Some(budget * MIB),
        runs: Vec::new(),
        reasons: codes.iter().map(|code| Reason::new(code, format!("a sentence about {hardware}"))).collect(),
        time: None,
    };
    let found = Recommendations {
        measured: vec![place("card-24gb", None, 13_000, 24_564, &["completed-run"])],
        analytical: vec![
            place("card-16gb", None, 13_000, 16_384, &["host-memory-unknown"]),
            place("split-80gb", Some("3g.40gb"), 13_000, 38_146, &["host-memory-unknown"]),
            place("split-80gb", None, 13_000, 81_559, &["host-memory-unknown", "other"]),
        ],
        uncertain: vec![place("card-12gb", None, 13_000, 12_288, &["between-allocated-and-reserved"])],
        unknown: vec![
            place("old-8gb", None, 13_000, 8_000, &["format-not-listed"]),
            place("old-16gb", None, 13_000, 16_000, &["format-not-listed"]),
            place("old-32gb", None, 13_000, 16_000, &["other"]),
        ],
        changes: Vec::new(),
    };
    let one = [("default".to_owned(), estimate(Verdict::Fits).request)];
    let asked = render::Asked { model: "Example T2V", requests: &one, considered: 12, limit: 2 };
    insta::assert_snapshot!(render::recommendations(&found, &asked, 100).plain());
    let text = render::recommendations(&Recommendations::default(), &asked, 100).plain();
    assert!(text.starts_with("0 of 12 fit Example T2V; 0 may, 12 do not, 0 unknown\n"), "{text}");
}

/// Every estimate at every width: lines are as wide as asked for where they can be, and no figure is none.
#[test]
fn no_width_and_no_size_breaks_a_line() {
    let mut huge = estimate(Verdict::DoesNotFit);
    huge.stages = vec![stage("denoising", [1 << 32, 1 << 32, 1 << 33, 1 << 33], 1 << 33)];
    let mut tiny = estimate(Verdict::Fits);
    tiny.memory.budget_bytes = Some(0);
    tiny.stages.iter_mut().for_each(|stage| stage.peak_bytes = Some(PeakBytes::default()));
    for estimate in [estimate(Verdict::Fits), short(), unknown(), unified(), huge, tiny] {
        for width in [0, 1, 40, 64, 80, 100, 140, usize::MAX] {
            let text = render::estimate(&estimate, &NAMES, width).plain();
            for wrong in ["NaN", "inf ", "GiB -", " -0", "\u{fffd}"] {
                assert!(!text.contains(wrong), "{wrong}: {text}");
            }
            for line in text.lines().skip(1).filter(|line| width >= 80 && line.chars().count() > width) {
                assert!(line.contains("8388608") || line.contains("4194304"), "{width}: {line}");
            }
            // A stage never crosses the mark of a budget that it keeps to.
            for line in text.lines().filter(|line| estimate.status == Verdict::Fits && line.contains('│')) {
                let behind = line.rsplit('│').next().unwrap_or_default();
                assert!(!behind.contains(['█', '▓', '░']), "{line}");
            }
        }
    }
}

/// Names come from files.
#[test]
fn no_name_reaches_a_terminal_as_a_command() {
    let mut estimate = short();
    estimate.reasons[0].message = "\u{1b}[2J".to_owned();
    estimate.notes[0] = "a\nb\r".to_owned();
    estimate.stages[2].buffers[0].name = "\u{7}".to_owned();
    let names = Names { model: "\u{1b}]0;x\u{7}", device: Some("\u{9b}31m") };
    let text = render::estimate(&estimate, &names, 100).plain();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}
