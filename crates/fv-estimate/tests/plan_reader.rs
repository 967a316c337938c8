//! Plans of version 1 are read, those of other versions and those that contradict themselves are refused with words.

mod planning;

use std::fs;

use fv_estimate::planner::{check, diff::diff, explain::explain, id};
use fv_spec::plan::budget::Resource;
use fv_spec::plan::{Fit, Plan, ReasonCode};
use proptest::prelude::*;
use serde_json::{Value, json};

use planning::{GIB, linux, planned, planner, text};

const FIXTURES: [&str; 7] = ["adapter-and-references", "everything", "linux-8gib", "trial", "two-pass", "uncertain", "windows-16gib"];

fn fixture(name: &str) -> String {
    text(&format!("tests/data/plans/v1-{name}.json"))
}

fn value(name: &str) -> Value {
    serde_json::from_str(&fixture(name)).expect("JSON")
}

/// The messages with which a value is refused; none where it is read.
fn refused(value: &Value) -> Vec<String> {
    check::read(&value.to_string()).map_or_else(|errors| errors.into_iter().map(|error| error.message).collect(), |_| Vec::new())
}

#[test]
fn every_version_1_plan_is_read_and_written_back() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/plans");
    let mut names: Vec<String> =
        fs::read_dir(folder).expect("fixtures").flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, FIXTURES.map(|name| format!("v1-{name}.json")));
    for name in FIXTURES {
        let text = fixture(name);
        let plan = check::read(&text).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        assert_eq!(serde_json::to_string_pretty(&plan).expect("JSON") + "\n", text, "{name}");
    }
}

/// The policy still makes the plan that was committed. When a rule is mended this says which plans it changes.
#[test]
fn the_policy_makes_the_committed_plan() {
    let plan = planned(&planner("minimax-h3"), &linux(8.0, 16.0));
    let committed = check::read(&fixture("linux-8gib")).expect("sound");
    assert_eq!(diff(&committed, &plan), diff(&plan, &plan));
    assert_eq!(plan, committed);
}

#[test]
fn other_versions_are_refused_with_words() {
    let mut plan = value("linux-8gib");
    for (version, words) in [
        (json!(2), "this plan is version 2; this build reads version 1; use the release that wrote it, or plan again"),
        (json!(0), "this plan is version 0; this build reads version 1; plan again"),
        (json!("1"), "this plan is version `1`; this build reads version 1; plan again"),
        (json!(1.5), "this plan is version 1.5; this build reads version 1; plan again"),
        (json!(null), "`version` is missing; this build reads version 1"),
        (json!([]), "this plan is version neither a number nor text; this build reads version 1; plan again"),
    ] {
        plan["version"] = version;
        // Even where everything else is new to this build.
        plan["of_another_version"] = json!(true);
        assert_eq!(refused(&plan), [words]);
    }
}

#[test]
fn what_has_not_the_shape_of_a_plan_names_the_field() {
    for (text, words) in [
        ("", "this is no plan: a JSON object is needed"),
        ("{", "this is no plan: EOF while parsing an object"),
        ("[1]", "this is no plan: a JSON object is needed"),
        ("{\"version\": 1, \"shortfalls\": []}", "this is a refusal, and no plan"),
        ("{\"version\": 1, \"reasons\": []}", "this is an unknown answer, and no plan"),
        ("{\"version\": 1}", "missing field `id`"),
        (&format!("{} x", fixture("trial")), "this is no plan: trailing characters"),
    ] {
        let errors = check::read(text).expect_err("no plan");
        assert!(errors[0].message.contains(words), "{text:.20}: {}", errors[0].message);
    }
    for (pointer, found, words) in [
        ("/placements/0/slots", json!("one"), "placements[0].slots: invalid type: string \"one\", expected u32"),
        ("/placements/0/slots", json!(-1), "placements[0].slots: invalid value: integer `-1`, expected u32"),
        ("/placements/0/pin_bytes", json!(1.5), "placements[0].pin_bytes: invalid type: floating point `1.5`, expected u64"),
        ("/budgets/0/free/source", json!("guessed"), "budgets[0].free.source: unknown variant `guessed`, expected one of"),
        ("/passes/0/compute/0/gemm", json!("int4"), "passes[0].compute[0].gemm: unknown variant `int4`"),
        ("/decisions/0/reason", json!("because"), "decisions[0].reason: unknown variant `because`"),
    ] {
        let mut plan = value("linux-8gib");
        *plan.pointer_mut(pointer).expect("a field") = found;
        let messages = refused(&plan);
        assert!(messages[0].contains(words), "{pointer}: {messages:?}");
    }
    let mut plan = value("linux-8gib");
    plan["placements"][0]["slot"] = json!(1);
    assert!(refused(&plan)[0].contains("placements[0].slot: unknown field `slot`, expected one of"), "{:?}", refused(&plan));
}

/// One change by hand each: the field, what was found, and what would be consistent.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn contradictions_are_named() {
    for (name, pointer, found, words) in [
        (
            "linux-8gib",
            "/placements/0/runs/0/count",
            json!(29),
            "placements.transformer.0.runs: found 51 blocks, consistent would be 50, as block_count says",
        ),
        (
            "linux-8gib",
            "/placements/0/runs/0/count",
            json!(0),
            "placements.transformer.0.runs: found a run of no block, consistent would be none",
        ),
        ("linux-8gib", "/placements/0/block_count", json!(49), "placements.transformer.0.runs: found 50 blocks, consistent would be 49"),
        (
            "linux-8gib",
            "/placements/0/slots",
            json!(0),
            "placements.transformer.0.slots: found 0, consistent would be from 1 to 50 with 50 blocks off the device",
        ),
        ("linux-8gib", "/placements/0/slots", json!(51), "placements.transformer.0.slots: found 51"),
        (
            "linux-8gib",
            "/placements/0/pin_bytes",
            json!(17_000_000_000_u64),
            "placements.transformer.0.pin_bytes: found 17000000000, consistent would be at most the host's budget, 16106127360",
        ),
        (
            "linux-8gib",
            "/placements/0/pin_bytes",
            json!(1),
            "placements.transformer.0.pin_bytes: found 1, consistent would be at least 12110000000 for 28 blocks",
        ),
        (
            "linux-8gib",
            "/placements/0/disk_streaming",
            json!(false),
            "placements.transformer.0.disk_streaming: found false, consistent would be true, as 22 blocks are on disk",
        ),
        ("linux-8gib", "/placements/0/runs/0/tier", json!("device"), "at most the device's budget, 8053063680"),
        ("linux-8gib", "/placements/0/rank", json!(1), "placements.transformer.1.rank: found 1, consistent would be below 1"),
        (
            "linux-8gib",
            "/placements/1/component",
            json!("transformer"),
            "placements: found two entries of the same component and rank, consistent would be one",
        ),
        (
            "linux-8gib",
            "/budgets/0/budget_bytes",
            json!(8_589_934_592_u64),
            "budgets.vram.budget_bytes: found 8589934592, consistent would be 8053063680",
        ),
        ("linux-8gib", "/budgets/0/capacity_bytes", json!(1), "budgets.vram.capacity_bytes: found 1, consistent would be 8589934592"),
        ("linux-8gib", "/budgets/0/free/bytes", json!(0), "budgets.vram: found 0 bytes, consistent would be more than nothing"),
        ("two-pass", "/budgets/0/limited_by", json!("free"), "budgets.vram.limited_by: found free, consistent would be cap"),
        ("linux-8gib", "/budgets/1/resource", json!("vram"), "budgets.vram.rank: found none, consistent would be below 1"),
        (
            "linux-8gib",
            "/peaks/0/bytes",
            json!(8_589_934_593_u64),
            "peaks.denoising.only.bytes: found 8589934593, consistent would be at most its limit, 8589934592, or fit: uncertain",
        ),
        ("linux-8gib", "/peaks/0/limit_bytes", json!(9_000_000_000_u64), "peaks.denoising.only.limit_bytes: found 9000000000"),
        ("linux-8gib", "/peaks/0/pass", json!("last"), "peaks.denoising.last: found a pass that the plan does not have"),
        ("linux-8gib", "/peaks/0/tier", json!("disk"), "peaks.denoising.only: found a memory and a rank that do not go together"),
        ("linux-8gib", "/fit", json!("uncertain"), "fit: found uncertain, consistent would be fits, as every peak is within its limit"),
        ("trial", "/fit", json!("fits"), "fit: found fits, consistent would be uncertain, as no peak of the pass `only` is predicted"),
        ("linux-8gib", "/request/steps", json!(9), "request.steps: found 9, consistent would be 8, the sum of the passes"),
        ("linux-8gib", "/request/frames", json!(242), "request.frames: found 242, consistent would be 243"),
        ("linux-8gib", "/request/video_tokens", json!(1), "request.video_tokens: found 1, consistent would be 72576"),
        ("linux-8gib", "/request/width", json!(0), "request.width: found 0, consistent would be at least 1"),
        (
            "linux-8gib",
            "/request/width",
            json!(1376),
            "passes.`only`: found 1344x768, consistent would be 1376x768, the size that is asked for",
        ),
        ("linux-8gib", "/request/task", json!("t2v"), "request.task: found `t2v`, consistent would be one of the policy's tasks"),
        ("linux-8gib", "/request/requested_frames", json!(20), "request.requested_frames: found 20"),
        (
            "linux-8gib",
            "/passes/0/compute/0/head_group",
            json!(0),
            "passes.`only`.transformer.head_group: found 0, consistent would be at least 1",
        ),
        ("linux-8gib", "/passes/0/compute/0/slots", json!(2), "passes.`only`.transformer.slots: found 2, consistent would be from 1 to 1"),
        (
            "linux-8gib",
            "/passes/0/compute/0/gemm",
            json!("int8_per_row"),
            "passes.`only`.transformer.gemm: found int8_per_row, consistent would be a path for fp8 weights",
        ),
        ("linux-8gib", "/passes/0/compute/0/attention/global", json!("mps"), "passes.`only`.transformer.attention: found mps"),
        ("linux-8gib", "/passes/0/compute/0/outputs_on_host", json!(true), "passes.`only`.transformer.residual_on_host: found false"),
        (
            "linux-8gib",
            "/passes/0/compute/0/component",
            json!("transformer_2"),
            "passes.`only`.transformer_2: found a component without a placement",
        ),
        (
            "linux-8gib",
            "/passes/0/decisions/8/value",
            json!(16),
            "passes.only.decisions.`transformer.head_group`: found 16, consistent would be 4",
        ),
        ("linux-8gib", "/decisions/3/value", json!(false), "decisions.`transformer.disk_streaming`: found false, consistent would be true"),
        ("linux-8gib", "/decisions/3/key", json!("transformer.speed"), "decisions.`transformer.speed`: found a key that names no field"),
        ("linux-8gib", "/decisions/3/key", json!("transformer.slots"), "decisions.`transformer.slots`: found true, consistent would be 1"),
        (
            "linux-8gib",
            "/decoders/0/offload",
            json!(false),
            "decoders.vae.offload: found false, consistent would be true, with 20 blocks off the device and 1 slots",
        ),
        ("linux-8gib", "/decoders/0/pin_weights", json!(true), "decoders.vae.pin_weights: found true"),
        ("linux-8gib", "/decoders/0/clips", json!(0), "decoders.vae.clips: found 0, consistent would be at least 1"),
        ("linux-8gib", "/decoders/0/tiles/overlap_pixels", json!(256), "decoders.vae.tiles: found 7 x 4"),
        ("linux-8gib", "/decoders/0/component", json!("audio_vae"), "decoders.audio_vae: found a component without a placement"),
        ("linux-8gib", "/system/devices", json!(0), "system.devices: found 0, consistent would be at least 1"),
        ("two-pass", "/two_pass/base_steps", json!(7), "two_pass.base_steps: found 7, consistent would be 8"),
        ("two-pass", "/two_pass/upscale/width", json!(1400), "two_pass.upscale.width: found 1400, consistent would be 1344, at least 1344"),
        (
            "two-pass",
            "/passes/0/block_cache/predicted_blocks",
            json!(51),
            "passes.`first`.block_cache.predicted_blocks: found 51, consistent would be from 3 to 8",
        ),
        ("two-pass", "/passes/0/name", json!("second"), "passes: found two entries of the same name"),
        ("everything", "/forecast/passes/0/steps", json!(9), "forecast.passes.`only`: found 9 steps, consistent would be 8 steps"),
        (
            "everything",
            "/forecast/stages/0/time/low_ns",
            json!(99_000_000_000_u64),
            "forecast.stages.denoising: found 99000000000, 72000000000, 86400000000",
        ),
        ("everything", "/arena/regions/0/bytes", json!(1 << 20), "arena.denoising.0: found `key` beyond its region"),
        ("linux-8gib", "/request/fps", json!(0), "request.fps: found 0, consistent would be 24"),
        (
            "linux-8gib",
            "/request/reference_video_tokens",
            json!(5),
            "request.reference_video_tokens: found 5, consistent would be 0, as the task t2va takes no references",
        ),
        ("two-pass", "/passes/0/video_tokens", json!(1), "passes.`first`.video_tokens: found 1, consistent would be 18144"),
        ("two-pass", "/passes/0/width", json!(704), "passes.`first`: found 704x384, consistent would be 672x384, the first canvas"),
        (
            "linux-8gib",
            "/placements/0/slots",
            json!(3),
            "placements.transformer.0.slots: found 3, consistent would be 1, as many as the passes use",
        ),
        ("two-pass", "/passes/0/compute/0/slots", json!(2), "passes.`first`.transformer.slots: found 2, consistent would be from 1 to 1"),
        ("linux-8gib", "/placements/0/block_bytes", json!(0), "placements.transformer.0.block_bytes: found 0"),
        (
            "linux-8gib",
            "/placements/1/pin_bytes",
            json!(1_000_000),
            "placements.vae.0.pin_bytes: found 1000000, consistent would be 0, as pin_weights is false",
        ),
        (
            "two-pass",
            "/two_pass/upscale/workspace_bytes",
            json!(0),
            "two_pass.upscale.workspace_bytes: found 0, consistent would be 6442450944",
        ),
        ("two-pass", "/peaks/2/bytes", json!(1), "peaks.denoising.upscale.bytes: found 1, consistent would be 6442450944"),
        ("two-pass", "/two_pass/restart_seed_offset", json!(0), "two_pass.restart_seed_offset: found 0, consistent would be 1"),
        ("linux-8gib", "/decoders/0/clips", json!(13), "decoders.vae.clips: found 13, consistent would be 14"),
        ("linux-8gib", "/decoders/0/clip_latent_frames", json!(8), "decoders.vae.clip_latent_frames: found 8, consistent would be 7"),
        ("linux-8gib", "/decoders/0/tiles/rows", json!(5), "decoders.vae.tiles: found 7 x 5 of 256 pixels that share 64"),
        (
            "two-pass",
            "/passes/0/block_cache/most_blocks",
            json!(2),
            "passes.`first`.block_cache.most_blocks: found 2, consistent would be from 3, which are always there, to 50",
        ),
        ("linux-8gib", "/peaks/0/bytes", json!(0), "peaks.denoising.only.bytes: found 0, consistent would be more than nothing"),
        ("linux-8gib", "/peaks/1/bytes", json!(0), "peaks.decoding.bytes: found 0, consistent would be more than nothing"),
        ("linux-8gib", "/peaks/1/bytes", json!(1), "peaks.decoding.bytes: found 1, consistent would be 7786856448"),
        ("adapter-and-references", "/placements/0/block_bytes", json!(432_500_000), "consistent would be 441500000, adapters included"),
        ("linux-8gib", "/system/devices", json!(2), "system.devices: found 2, consistent would be 1"),
        ("linux-8gib", "/peaks/2/bytes", json!(0), "peaks.denoising.only.bytes: found 0, consistent would be 12110000000"),
        ("linux-8gib", "/peaks/2/limit_bytes", json!(1), "peaks.denoising.only.limit_bytes: found 1, consistent would be 16106127360"),
        ("linux-8gib", "/peaks/3/limit_bytes", json!(1), "peaks.denoising.only.limit_bytes: found 1, consistent would be 3996127360"),
        (
            "linux-8gib",
            "/decisions/4/reason",
            json!("pin-every-block"),
            "decisions.`transformer.pin_bytes`.reason: found pin-every-block, consistent would be another",
        ),
        ("everything", "/forecast/stages/0/time/value_ns", json!(0), "forecast.stages.denoising: found"),
        ("everything", "/forecast/passes/0/step/high_ns", json!(u64::MAX), "forecast.passes.`only`: found"),
        ("linux-8gib", "/id", json!("plan-0"), "id: found `plan-0`, consistent would be plan-"),
    ] {
        let mut plan = value(name);
        *plan.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = found;
        let messages = refused(&plan);
        assert!(messages.iter().any(|message| message.contains(words)), "{name} {pointer}: {messages:#?}");
    }
    let mut plan = value("two-pass");
    plan.as_object_mut().expect("an object").remove("two_pass");
    assert!(refused(&plan).iter().any(|message| message.starts_with("passes: found 2 without `two_pass`")), "{:?}", refused(&plan));
    let mut plan = value("linux-8gib");
    plan["passes"] = json!([]);
    assert!(refused(&plan).iter().any(|message| message == "passes: found none, consistent would be at least one"));
}

/// Fields that nothing else in a plan follows from.
const FREE: [&str; 12] = [
    // What is known of the machine and does not limit it.
    "budgets.free.bytes",
    "budgets.total.bytes",
    // A constant of the policy.
    "encoders.host_minimum_bytes",
    // Whole blocks of these count.
    "passes.block_cache.allowance_bytes",
    "passes.block_cache.margin_bytes",
    "passes.block_cache.most_blocks",
    // The working set of a transformer's pass is not in the plan.
    "peaks.bytes",
    // What was asked for.
    "request.adapter.root_bytes",
    "request.reference_audio_tokens",
    "request.reference_video_tokens",
    "request.text_tokens.value",
    "system.geforce.value",
];

/// What a number or a truth may be changed to: a little more, nothing or much, or the opposite.
fn others(value: &Value) -> Vec<Value> {
    match value {
        Value::Bool(truth) => vec![json!(!truth)],
        Value::Number(number) => {
            let number = number.as_u64().unwrap_or(0);
            [number + 1, 0, number / 2, 1_000_000_000_000_000].into_iter().filter(|other| *other != number).map(Value::from).collect()
        }
        _ => Vec::new(),
    }
}

/// Numbers and truths of a plan are tied to each other: one that is changed alone is noticed even where the id is made anew. What is not
/// noticed is what nothing else in a plan follows from: [`FREE`].
#[test]
fn what_is_tied_to_nothing_else() {
    let mut free = std::collections::BTreeSet::new();
    for name in FIXTURES {
        let whole = value(name);
        let mut paths = Vec::new();
        leaves(&whole, String::new(), &mut paths);
        // What a decision compared, and when and how long, stand for themselves.
        let aside = ["numbers", "alternatives", "forecast", "arena", "plan_revisions"];
        for path in paths.iter().filter(|path| !path.split('/').any(|part| aside.contains(&part))) {
            for other in others(whole.pointer(path).expect("a leaf")) {
                let mut changed = whole.clone();
                *changed.pointer_mut(path).expect("a leaf") = other;
                let Ok(mut plan) = serde_json::from_value::<Plan>(changed) else { continue };
                plan.id = id(&plan);
                if check::read(&serde_json::to_string(&plan).expect("JSON")).is_ok() {
                    free.insert(path.split('/').skip(1).filter(|part| part.parse::<u32>().is_err()).collect::<Vec<_>>().join("."));
                }
            }
        }
    }
    assert_eq!(free.iter().map(String::as_str).collect::<Vec<_>>(), FREE);
}

/// A plan that was changed consistently is still another plan: its id says so.
#[test]
fn the_id_is_that_of_the_content() {
    let mut plan = check::read(&fixture("linux-8gib")).expect("sound");
    let before = plan.id.clone();
    plan.budgets[0].free.at = Some("2026-12-01T10:00:00Z".to_owned());
    plan.forecast = check::read(&fixture("everything")).expect("sound").forecast;
    assert_eq!(id(&plan), before, "when it was measured and how long it takes decide nothing");
    plan.request.text_tokens.value += 1;
    let problems = check::check(&plan);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.starts_with(&format!("id: found `{before}`")), "{problems:?}");
    plan.id = id(&plan);
    assert_eq!(check::check(&plan), vec![]);
}

#[test]
fn differences_are_named_by_field_and_by_decision() {
    let h3 = planner("minimax-h3");
    let (a, b) = (planned(&h3, &linux(8.0, 16.0)), planned(&h3, &linux(16.0, 64.0)));
    let found = diff(&a, &b);
    assert!(!found.same);
    let field = |path: &str| found.fields.iter().find(|field| field.path == path).unwrap_or_else(|| panic!("{path}: {:#?}", found.fields));
    let slots = field("placements.transformer.0.slots");
    assert_eq!((slots.a.clone(), slots.b.clone(), slots.change), (Some(json!(1)), Some(json!(2)), Some(1)));
    assert_eq!(field("passes.only.compute.transformer.head_group").change, Some(12));
    assert_eq!(field("budgets.vram.0.free.bytes").change, Some(8 * GIB.cast_signed()));
    let streaming = found.decisions.iter().find(|decision| decision.key == "transformer.disk_streaming").expect("differs");
    let reasons = [&streaming.a, &streaming.b].map(|side| side.as_ref().map(|side| side.reason));
    assert_eq!(reasons, [Some(ReasonCode::WeightsExceedHost), Some(ReasonCode::WeightsFitHost)]);
    assert!(found.decisions.iter().any(|decision| decision.pass.as_deref() == Some("only") && decision.key == "transformer.head_group"));
    // One more pass is one more entry, and what both have is compared with its own kind.
    let two = check::read(&fixture("two-pass")).expect("sound");
    let paths: Vec<String> = diff(&a, &two).fields.into_iter().map(|field| field.path).collect();
    assert!(paths.contains(&"passes.only".to_owned()) && paths.contains(&"passes.first".to_owned()), "{paths:?}");
    assert_eq!(diff(&a, &a).fields, vec![]);
}

#[test]
fn every_decision_is_explained() {
    for name in FIXTURES {
        let plan = check::read(&fixture(name)).expect("sound");
        let explanation = explain(&plan);
        let count = plan.decisions.len() + plan.passes.iter().map(|pass| pass.decisions.len()).sum::<usize>();
        assert_eq!(explanation.decisions.len(), count);
        assert!(
            explanation.decisions.iter().all(|one| !one.meaning.is_empty() && one.alternatives.len() == one.decision.alternatives.len())
        );
        let vram = explanation.margins.iter().find(|margin| margin.resource == Resource::Vram).expect("device memory");
        let over = plan.peaks.iter().any(|peak| peak.bytes > peak.limit_bytes);
        assert_eq!(plan.fit == Fit::Uncertain, over || name == "trial", "{name}");
        assert!(!over || vram.margin_bytes < 0, "{name}");
    }
}

/// Every leaf of a plan as a path of keys and places.
fn leaves(value: &Value, path: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(value, format!("{path}/{key}"), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| leaves(value, format!("{path}/{at}"), found)),
        _ => found.push(path),
    }
}

fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..70).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        proptest::sample::select(vec!["device", "disk", "host", "vae", "transformer", "fits", "x"]).prop_map(Value::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever a field is set to: the plan is read only where nothing that decides has changed.
    #[test]
    fn a_changed_field_is_noticed(
        name in proptest::sample::select(FIXTURES.to_vec()), at in any::<proptest::sample::Index>(), with in replacement(),
    ) {
        let mut changed = value(name);
        let mut paths = Vec::new();
        leaves(&changed, String::new(), &mut paths);
        let path = at.get(&paths);
        *changed.pointer_mut(path).expect("a leaf") = with;
        if let Ok(plan) = check::read(&changed.to_string()) {
            let before: Plan = check::read(&fixture(name)).expect("sound");
            prop_assert!(id(&plan) == id(&before), "{}", path);
        }
    }
}
