//! The questions beside an estimate: answers hold against plain estimates, and more memory never gives less.

use std::sync::LazyLock;

use fv_data::Catalog;
use fv_estimate::{
    budget::Asked,
    device::{DeviceSpec, from_flags},
    estimate::Workload,
    largest::{Wanted, largest},
    minimum::minimum,
    place,
    question::{Question, exactly},
    resolve::{Overrides, legal::legal},
    sweep::{Axes, Plan, Range, Reuse},
};
use fv_spec::{
    authored::Runtime,
    compiled::{Example, Model},
    estimate::{Interval, StageName, Verdict},
    questions::{Change, Clip, Extent, Largest, LargestAnswer, LimitKind, Minimum, OutputEffect, SweepRow},
    request::{PartialRequest, Request},
};
use proptest::prelude::*;
use serde_json::{Value, json};

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::embedded().expect("readable"));

const DEPLOYMENTS: [(&str, &str); 4] =
    [("wan21-t2v-1.3b", "diffusers"), ("wan21-t2v-1.3b", "fastvideo"), ("fastwan21", "default"), ("wan22-ti2v-5b", "diffusers")];

fn deployment(at: usize) -> (&'static Model, &'static Example) {
    let (model, example) = DEPLOYMENTS[at];
    let model = CATALOG.model(model).expect("in the catalog");
    (model, model.examples.iter().find(|found| found.id == example).expect("a deployment"))
}

/// What is asked about a deployment on a card with so much memory.
struct Case {
    at: usize,
    device: DeviceSpec,
    asked: Asked,
    overrides: Overrides,
}

impl Case {
    fn new(at: usize, mib: u64) -> Self {
        let device = from_flags(200.0, Some(1000.0), None, None).expect("a device");
        let asked = Asked { memory_budget_bytes: Some(mib << 20), ..Asked::default() };
        Self { at, device, asked, overrides: Overrides::default() }
    }

    fn question(&self) -> Question<'_> {
        let (model, example) = deployment(self.at);
        let Self { device, asked, overrides, .. } = self;
        Question { model, example, rules: &CATALOG.rules, device: Some(device), asked, overrides }
    }

    fn largest(&self, request: &PartialRequest, wanted: Wanted) -> Largest {
        *largest(&self.question(), request, wanted).expect("legal").expect("covered")
    }

    fn minimum(&self, request: &PartialRequest) -> Minimum {
        minimum(&self.question(), request).expect("legal")
    }

    fn status(&self, request: &Request) -> Verdict {
        self.question().estimate(&exactly(request)).expect("legal").status
    }
}

const PLAIN: Wanted = Wanted { admit_uncertain: false, pareto: false, changes: false, adapted: false };

/// A small request, so that a search is short.
fn small(height: u32, width: u32, latents: u32) -> PartialRequest {
    let (height, width) = (Some(32 * height), Some(32 * width));
    PartialRequest { height, width, num_frames: Some(4 * latents - 3), num_inference_steps: Some(4), ..PartialRequest::default() }
}

fn clip_request(request: &Request, clip: &Clip) -> Request {
    Request { height: clip.height, width: clip.width, num_frames: clip.num_frames, ..*request }
}

fn checked(case: &Case, answer: &Largest, extent: &Extent, admit: bool) {
    for clip in extent.largest.iter().chain(&extent.next).chain(&extent.may_fit).chain(&answer.pareto) {
        let estimate = case.question().estimate(&exactly(&clip_request(&answer.request, clip))).expect("legal");
        assert_eq!(estimate.status, clip.status, "{clip:?}");
        // Of each figure the largest, whichever stage it is of.
        let most = |of: fn(&Interval) -> u64| {
            estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| of(&peaks.device)).max().expect("stages")
        };
        let found = Interval { low: most(|peak| peak.low), value: most(|peak| peak.value), high: most(|peak| peak.high) };
        assert_eq!(clip.device_peak, Some(found), "{clip:?}");
    }
    let fits = |clip: &Clip| clip.status == Verdict::Fits || (admit && clip.status == Verdict::Uncertain);
    assert!(extent.largest.iter().chain(&answer.pareto).all(fits), "{extent:?}");
    assert!(extent.next.iter().all(|clip| !fits(clip)), "{extent:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn the_largest_is_what_a_plain_estimate_says(
        at in 0..DEPLOYMENTS.len(), mib in 3_000_u64..14_000, height in 4_u32..12, width in 4_u32..12, latents in 1_u32..8, admit: bool,
    ) {
        let case = Case::new(at, mib);
        let request = small(height, width, latents);
        let answer = case.largest(&request, Wanted { admit_uncertain: admit, ..PLAIN });
        checked(&case, &answer, &answer.frames, admit);
        checked(&case, &answer, &answer.size, admit);
        prop_assert_eq!(case.status(&answer.request), answer.status);
        if let Some(clip) = answer.frames.largest.filter(|_| answer.status == Verdict::Fits) {
            prop_assert!(clip.num_frames >= answer.request.num_frames);
        }
    }

    #[test]
    fn more_memory_never_gives_a_smaller_clip(at in 0..DEPLOYMENTS.len(), mib in 3_000_u64..10_000, more in 1_u64..4_000) {
        let request = small(8, 12, 5);
        let [less, more] = [mib, mib + more].map(|mib| Case::new(at, mib).largest(&request, PLAIN));
        let frames = |answer: &Largest| answer.frames.largest.map_or(0, |clip| clip.num_frames);
        let rows = |answer: &Largest| answer.size.largest.map_or(0, |clip| clip.height);
        prop_assert!(frames(&more) >= frames(&less) && rows(&more) >= rows(&less));
    }

    #[test]
    fn a_byte_less_than_the_minimum_does_not_fit(at in 0..DEPLOYMENTS.len(), height in 4_u32..20, width in 4_u32..30, latents in 1_u32..12) {
        let request = small(height, width, latents);
        let answer = Case::new(at, 1_000).minimum(&request);
        let (fits, may) = (answer.fits_bytes.expect("covered"), answer.uncertain_bytes.expect("covered"));
        let status = |bytes: u64| {
            let asked = Asked { memory_budget_bytes: Some(bytes), ..Asked::default() };
            Case { asked, ..Case::new(at, 0) }.status(&answer.request)
        };
        prop_assert_eq!(status(fits), Verdict::Fits);
        prop_assert_ne!(status(fits - 1), Verdict::Fits);
        prop_assert_ne!(status(may), Verdict::DoesNotFit);
        prop_assert_eq!(status(may - 1), Verdict::DoesNotFit);
        prop_assert_eq!(answer.stages.iter().map(|stage| stage.fits_bytes).max(), Some(fits));
        prop_assert_eq!(answer.stages.iter().map(|stage| stage.uncertain_bytes).max(), Some(may));
        for tried in &answer.checks {
            prop_assert_eq!(tried.status == Verdict::Fits, tried.budget_bytes >= fits && tried.host_bytes >= answer.host_bytes.filter(|_| tried.host_bytes.is_some()));
        }
    }

    #[test]
    fn what_is_offered_fits(at in 0..DEPLOYMENTS.len(), mib in 2_000_u64..9_000) {
        let request = small(15, 26, 21);
        let case = Case::new(at, mib);
        let answer = case.largest(&request, Wanted { changes: true, ..PLAIN });
        prop_assert!(answer.status != Verdict::Fits || answer.changes.is_empty());
        for change in &answer.changes {
            let mut again = Case::new(at, mib);
            again.overrides.set = change.settings.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
            again.overrides.env = change.environment.iter().map(|set| (set.key.clone(), set.value.as_str().expect("text").to_owned())).collect();
            let (model, _) = deployment(at);
            let example = model.examples.iter().find(|example| example.id == change.deployment).expect("a deployment");
            let question = Question { example, ..again.question() };
            let request = change.request.as_ref().map_or(request, exactly);
            prop_assert_eq!(question.estimate(&request).expect("legal").status, Verdict::Fits, "{:?}", change);
        }
        // Of a device whose rates nobody says no time is known.
        let moved = |change: &Change| change.moved_bytes.unwrap_or(u64::MAX);
        let order: Vec<(OutputEffect, u64)> = answer.changes.iter().map(|change| (change.output_effect, moved(change))).collect();
        prop_assert!(order.is_sorted(), "{:?}", order);
    }
}

/// That a row says what a plain estimate does.
fn is_plain(
    row: &SweepRow,
    (model, example): (&Model, &Example),
    device: &DeviceSpec,
    asked: &Asked,
    request: &PartialRequest,
    set: Vec<(String, Value)>,
) {
    let overrides = Overrides { set, unified_memory: place::unified_memory(device), ..Overrides::default() };
    let question = Question { model, example, rules: &CATALOG.rules, device: Some(device), asked, overrides: &overrides };
    let request = PartialRequest {
        height: Some(row.height),
        width: Some(row.width),
        num_frames: Some(row.num_frames),
        batch: Some(row.batch),
        ..*request
    };
    let estimate = question.estimate(&request).expect("legal");
    let peak = |name: StageName| estimate.stages.iter().find(|stage| stage.name == name.word())?.peak_bytes.map(|peaks| peaks.device.value);
    assert_eq!(
        (row.status, row.budget_bytes, row.host_bytes),
        (estimate.status, estimate.memory.budget_bytes, estimate.host.required_bytes),
        "{row:?}"
    );
    let peaks = [row.load_bytes, row.encoding_bytes, row.denoising_bytes, row.decoding_bytes];
    assert_eq!(peaks, StageName::ALL.map(peak), "{row:?}");
}

/// Settings of diffusers, most of which change nothing about most requests.
const VARIED: [(&str, [&str; 2]); 6] = [
    ("vae_slicing", ["true", "false"]),
    ("vae_tiling", ["true", "false"]),
    ("attention_backend", ["\"native\"", "\"_native_math\""]),
    ("model_cpu_offload", ["true", "false"]),
    ("vae_dtype", ["\"bf16\"", "\"fp32\""]),
    ("non_blocking", ["true", "false"]),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn a_setting_without_effect_changes_no_row(
        model in prop::sample::select(vec!["wan21-t2v-1.3b", "wan22-ti2v-5b", "mochi-1", "ltx-video-2b", "hunyuanvideo", "cogvideox-5b"]),
        keys in prop::sample::subsequence(VARIED.to_vec(), 1..=3),
        side in 1_u32..10, batches in 1_u32..3, places in (0_u32..6, 1_u32..3), steps in 1_u32..5,
    ) {
        let model = CATALOG.model(model).expect("in the catalog");
        let example = model.examples.iter().find(|example| example.runtime == Runtime::Diffusers).expect("a deployment");
        let legal = legal(model, example);
        let device = DeviceSpec::from(CATALOG.device("rtx-4090-24gb").expect("in the catalog"));
        let settings = keys.iter().fold(vec![Vec::new()], |all: Vec<Vec<(String, Value)>>, (key, values)| {
            let value = |text: &str| serde_json::from_str(text).expect("JSON");
            let with = |one: &[(String, Value)], text: &str| [one, &[((*key).to_owned(), value(text))]].concat();
            all.iter().flat_map(|one| values.map(|text| with(one, text))).collect()
        });
        let (first, last) = (legal.frames(places.0), legal.frames(places.0 + places.1));
        let axes = Axes {
            sizes: vec![[64 * side, 64 * side], [64, 128]],
            frames: vec![Range { first, last, step: None }],
            batches: vec![Range { first: 1, last: batches, step: None }],
            settings: settings.clone(),
        };
        let (asked, overrides) = (Asked { host_gb: Some(64.0), ..Asked::default() }, Overrides::default());
        let request = PartialRequest { num_inference_steps: Some(steps), ..PartialRequest::default() };
        let devices = [device];
        let plan = Plan::new(&[(model, example)], &devices, &asked, &CATALOG.rules, &request, &overrides, &axes).expect("legal");
        let (mut rows, mut reuse) = (Vec::new(), Reuse::default());
        for number in 0..u64::try_from(plan.requests()).expect("few") {
            plan.rows(number, &mut reuse, |row| rows.push(row.clone()));
        }
        prop_assert!(rows.len() >= settings.len() && rows.len() % settings.len() == 0);
        for (row, set) in rows.iter().zip(settings.iter().cycle()) {
            is_plain(row, (model, example), &devices[0], &asked, &request, set.clone());
        }
    }
}

#[test]
fn sweep_rows_equal_plain_estimates() {
    let deployments: Vec<_> = [0, 1, 3].map(deployment).into();
    let names = ["rtx-3060-12gb", "rtx-4090-24gb", "gb10-128gb", "h100-sxm-80gb"];
    let devices: Vec<DeviceSpec> = names.iter().filter_map(|name| CATALOG.device(name)).map(DeviceSpec::from).collect();
    assert!(devices.len() >= 3);
    let asked = Asked { host_gb: Some(64.0), ..Asked::default() };
    let axes = Axes {
        sizes: vec![[256, 256], [480, 832]],
        frames: vec![Range { first: 1, last: 9, step: None }, Range { first: 33, last: 33, step: Some(1) }],
        batches: vec![Range { first: 1, last: 2, step: None }],
        settings: vec![vec![("vae_tiling".to_owned(), json!(false))], vec![("vae_tiling".to_owned(), json!(true))]],
    };
    let overrides = Overrides::default();
    let plan = Plan::new(&deployments, &devices, &asked, &CATALOG.rules, &PartialRequest::default(), &overrides, &axes).expect("legal");
    // The sizes of the third model are multiples of 32, and so are these; its frames are alike.
    let requests = 3 * 2 * 2 * 4 * 2;
    assert_eq!((plan.requests(), plan.points()), (requests, requests * devices.len() as u128));
    let (mut rows, mut reuse): (Vec<SweepRow>, _) = (Vec::new(), Reuse::default());
    for request in 0..u64::try_from(plan.requests()).expect("few") {
        plan.rows(request, &mut reuse, |row| rows.push(row.clone()));
    }
    assert_eq!(rows.len() as u128, plan.points());
    for row in rows.iter().step_by(5) {
        let found = deployments.iter().find(|(model, example)| model.id == row.model && example.id == row.deployment).expect("one of them");
        let device = devices.iter().find(|device| device.id == row.hardware).expect("one of them");
        is_plain(
            row,
            *found,
            device,
            &asked,
            &PartialRequest::default(),
            vec![("vae_tiling".to_owned(), json!(row.settings == "vae_tiling=true"))],
        );
    }
    let keys: Vec<_> =
        rows.iter().map(|row| (&row.model, &row.deployment, &row.settings, row.height, row.num_frames, row.batch, &row.hardware)).collect();
    let mut sorted = keys.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), keys.len(), "every point once");
}

/// What makes the usual request of a model fit on a card.
fn offered(model: &str, example: &str, card: &str) -> Largest {
    let model = CATALOG.model(model).expect("in the catalog");
    let example = model.examples.iter().find(|found| found.id == example).expect("a deployment");
    let device = DeviceSpec::from(CATALOG.device(card).expect("in the catalog"));
    let (asked, overrides) = (Asked { host_gb: Some(128.0), ..Asked::default() }, Overrides::default());
    let question = Question { model, example, rules: &CATALOG.rules, device: Some(&device), asked: &asked, overrides: &overrides };
    let answer = *largest(&question, &PartialRequest::default(), Wanted { changes: true, ..PLAIN }).expect("legal").expect("covered");
    for change in &answer.changes {
        let example = model.examples.iter().find(|found| found.id == change.deployment).expect("a deployment");
        let set = change.settings.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
        let env = change.environment.iter().map(|set| (set.key.clone(), set.value.as_str().expect("text").to_owned())).collect();
        let overrides = Overrides { set, env, ..Overrides::default() };
        let request = change.request.as_ref().map_or_else(PartialRequest::default, exactly);
        let again = Question { example, overrides: &overrides, ..question }.estimate(&request).expect("legal");
        assert_eq!(again.status, Verdict::Fits, "{change:?}");
    }
    answer
}

#[test]
fn another_deployment_is_offered_with_its_settings() {
    let answer = offered("wan21-t2v-14b", "fastvideo", "rtx-3060-12gb");
    let change = answer.changes.first().expect("one is enough");
    assert_eq!((change.deployment.as_str(), change.output_effect), ("diffusers", OutputEffect::Different));
    assert!(
        change.changes[0] == "deployment diffusers (diffusers)" && !change.settings.is_empty() && change.request.is_none(),
        "{change:?}"
    );
    assert!(change.arguments.starts_with("--deployment diffusers --set "), "{change:?}");
    assert!(answer.tried.is_empty());
}

#[test]
fn settings_are_offered_with_a_smaller_clip_where_neither_is_enough() {
    let answer = offered("wan21-t2v-14b", "fastvideo", "rtx-4060-8gb");
    assert!(!answer.changes.is_empty());
    for change in &answer.changes {
        let request = change.request.expect("a smaller clip");
        let [fewer, smaller] = [request.num_frames < answer.request.num_frames, request.height < answer.request.height];
        assert!(fewer != smaller && !change.settings.is_empty(), "{change:?}");
        assert!(change.arguments.contains(if fewer { "--frames" } else { "--height" }), "{change:?}");
    }
}

#[test]
fn where_nothing_helps_it_is_said_what_was_tried() {
    let answer = offered("fasth3", "diffusers", "rtx-3050-laptop-4gb");
    assert_eq!((answer.status, answer.changes.len()), (Verdict::DoesNotFit, 0));
    let model = CATALOG.model("fasth3").expect("in the catalog");
    for example in &model.examples {
        let name = format!("deployment {} ({})", example.id, example.runtime.word());
        assert!(answer.tried.iter().any(|tried| tried.starts_with(&name)), "{name}: {:?}", answer.tried);
    }
    assert!(answer.tried[0].contains(" combinations of up to 3 of its settings: "), "{:?}", answer.tried);
}

#[test]
fn without_a_device_the_minimum_says_whether_it_is_known() {
    let (overrides, asked) = (Overrides::default(), Asked::default());
    let status = |model: &str, example: &str| {
        let model = CATALOG.model(model).expect("in the catalog");
        let example = model.examples.iter().find(|found| found.id == example).expect("a deployment");
        let question = Question { model, example, rules: &CATALOG.rules, device: None, asked: &asked, overrides: &overrides };
        let answer = minimum(&question, &PartialRequest::default()).expect("legal");
        (answer.status, answer.fits_bytes.is_some())
    };
    assert_eq!(status("wan21-t2v-1.3b", "diffusers"), (Verdict::Fits, true));
    assert_eq!(status("kandinsky5-lite", "fastvideo"), (Verdict::Unknown, false));
}

/// Rules that say nothing of how far measured peaks lie from derived ones: nothing is known to fit, and what does not fit by
/// its tensors still does not.
#[test]
fn without_a_spread_nothing_is_known_to_fit() {
    let mut rules = CATALOG.rules.clone();
    rules.coefficients.retain(|id, _| !id.starts_with("spread-"));
    let request = small(8, 12, 5);
    for at in 0..DEPLOYMENTS.len() {
        let case = Case::new(at, 100_000);
        let ask = |rules, asked: &Asked| Question { rules, asked, ..case.question() }.estimate(&request).expect("legal");
        assert_eq!(ask(&CATALOG.rules, &case.asked).status, Verdict::Fits);
        let estimate = ask(&rules, &case.asked);
        assert_eq!((estimate.status, estimate.reasons[0].code.as_str()), (Verdict::Uncertain, "unknown-spread"));
        let short = Case::new(at, 100).asked;
        assert_eq!(ask(&rules, &short).status, Verdict::DoesNotFit);
        let question = Question { rules: &rules, ..case.question() };
        let answer = minimum(&question, &request).expect("legal");
        assert!(answer.fits_bytes.is_none() && answer.uncertain_bytes.is_some(), "{answer:?}");
        let found = largest(&question, &request, PLAIN).expect("legal").expect("covered");
        assert!(found.frames.largest.is_none() && found.frames.may_fit.is_some(), "{found:?}");
        assert!(found.frames.limit.message.contains("no rule says how far measured peaks lie"), "{found:?}");
    }
}

/// The catalog of this repository: every deployment has its largest clip, or stands among the unknown.
#[test]
fn the_largest_on_a_card_lists_every_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(fv_tests::program());
    command.args(["largest", "--hardware", "rtx-3060-12gb", "--format", "json"]).current_dir(folder.path()).env_remove("FV_CATALOG");
    let done = command.output().expect("the program starts");
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr).as_ref()), (Some(0), ""));
    let answer: LargestAnswer = serde_json::from_slice(&done.stdout).expect("JSON");
    let mut listed: Vec<(String, String)> = answer.answers.iter().map(|one| (one.model.clone(), one.deployment.clone())).collect();
    listed.extend(answer.unknown.iter().map(|one| (one.model.clone(), one.deployment.clone())));
    listed.sort();
    let models = CATALOG.models.values();
    let mut all: Vec<(String, String)> =
        models.flat_map(|model| model.examples.iter().map(|example| (model.id.clone(), example.id.clone()))).collect();
    all.sort();
    assert_eq!(listed, all);
    assert!(answer.unknown.iter().all(|one| !one.reasons.is_empty()));
    for one in &answer.answers {
        let (frames, size) = one.adapted.as_ref().map_or((&one.frames, &one.size), |adapted| (&adapted.frames, &adapted.size));
        for extent in [frames, size] {
            assert!(extent.next.is_some() || extent.limit.kind == LimitKind::Family, "{one:?}");
            assert!(!extent.limit.message.is_empty(), "{one:?}");
            // The stage beside the words is the one that the words name.
            if let (LimitKind::Memory, Some(stage)) = (extent.limit.kind, extent.limit.stage) {
                assert!(extent.limit.message.contains(stage.word()), "{:?}", extent.limit);
            }
        }
    }
    // Where something that was not said decides, how to say it.
    for one in answer.unknown.iter().filter(|one| one.deployment == "freevideo") {
        assert!(one.reasons.iter().any(|reason| reason.message.contains("--host-gb")), "{one:?}");
    }
}

/// What a change costs is the time that its request takes; bytes moved only where there is no forecast.
#[test]
fn the_cheapest_change_is_the_fastest_of_its_effect() {
    let mut several = 0;
    for (model, example, card) in
        [("ltx-video-13b", "diffusers", "rtx-4090"), ("wan21-t2v-14b", "diffusers", "rtx-4090"), ("mochi-1", "diffusers", "rtx-3090")]
    {
        let answer = offered(model, example, card);
        assert!(answer.changes.iter().all(|change| change.time.is_some()), "{model}: {:?}", answer.changes);
        for pair in answer.changes.windows(2) {
            let key = |change: &Change| (change.output_effect, change.time.map(|time| time.value_ns));
            assert!(key(&pair[0]) <= key(&pair[1]), "{model}: {pair:?}");
            several += usize::from(pair[0].output_effect == pair[1].output_effect);
        }
        // The figure is that of the forecast of the same request.
        if let Some(change) = answer.changes.first() {
            let model = CATALOG.model(model).expect("in the catalog");
            let example = model.examples.iter().find(|found| found.id == change.deployment).expect("a deployment");
            let set = change.settings.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
            let env = change.environment.iter().map(|set| (set.key.clone(), set.value.as_str().expect("text").to_owned())).collect();
            let overrides = Overrides { set, env, ..Overrides::default() };
            let request = change.request.as_ref().map_or_else(PartialRequest::default, exactly);
            let workload = Workload::evaluate(model, example, &request, &overrides, &CATALOG.rules, false).expect("legal");
            let device = DeviceSpec::from(CATALOG.device(card).expect("in the catalog"));
            let asked = Asked { host_gb: Some(128.0), ..Asked::default() };
            let budget = place::offer(Some(&device), &asked, example.runtime, &CATALOG.rules).expect("a budget");
            assert_eq!(workload.forecast(&budget, model, example, &CATALOG.rules).request, change.time);
        }
    }
    assert!(several > 0, "more than one change of an effect, or nothing is compared");
    // A card whose rates nobody says: no time, and fewer bytes first.
    let (model, example) = deployment(0);
    let device = from_flags(6.0, Some(64.0), None, None).expect("a device");
    let (asked, overrides) = (Asked::default(), Overrides::default());
    let question = Question { model, example, rules: &CATALOG.rules, device: Some(&device), asked: &asked, overrides: &overrides };
    let answer = *largest(&question, &PartialRequest::default(), Wanted { changes: true, ..PLAIN }).expect("legal").expect("covered");
    assert!(!answer.changes.is_empty() && answer.changes.iter().all(|change| change.time.is_none()), "{:?}", answer.changes);
    for pair in answer.changes.windows(2) {
        let key = |change: &Change| (change.output_effect, change.moved_bytes.unwrap_or(u64::MAX));
        assert!(key(&pair[0]) <= key(&pair[1]), "{pair:?}");
    }
}

/// Whatever a rule does not cover, weights by stage and the decoded video are known of every model, and the verdict is unknown.
#[test]
fn a_model_that_no_rule_covers_has_stages_all_the_same() {
    let device = DeviceSpec::from(CATALOG.device("h200-sxm-141gb").expect("in the catalog"));
    let (asked, overrides) = (Asked { host_gb: Some(512.0), ..Asked::default() }, Overrides::default());
    let mut uncovered = 0;
    for model in CATALOG.models.values() {
        for example in model.examples.iter().filter(|example| example.runtime != Runtime::FreeVideo) {
            let question = Question { model, example, rules: &CATALOG.rules, device: Some(&device), asked: &asked, overrides: &overrides };
            let estimate = question.estimate(&PartialRequest::default()).expect("legal");
            let name = format!("{} {}", model.id, example.id);
            assert!(!estimate.reasons.iter().any(|reason| reason.code == "unknown-stage"), "{name}: {:?}", estimate.reasons);
            let weights = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).map(|peaks| peaks.allocated.value).max();
            assert!(weights.is_some_and(|bytes| bytes > 1 << 28), "{name}: {:?}", estimate.stages);
            if !estimate.coverage.uncovered.is_empty() {
                uncovered += 1;
                assert_eq!(estimate.status, Verdict::Unknown, "{name}");
                assert!(estimate.notes.iter().any(|note| note.contains("sizes are a floor")), "{name}: {:?}", estimate.notes);
            }
        }
    }
    assert!(uncovered > 10, "{uncovered}");
}

/// Deployments of MiniMax H3 with FastVideo on one device are answered; what is not modelled is unknown by name.
#[test]
fn h3_with_fastvideo_is_answered() {
    let ask = |model: &str, example: &str, card: &str, env: &[(&str, &str)]| {
        let model = CATALOG.model(model).expect("in the catalog");
        let example = model.examples.iter().find(|found| found.id == example).expect("a deployment");
        let device = DeviceSpec::from(CATALOG.device(card).expect("in the catalog"));
        let asked = Asked { host_gb: Some(256.0), ..Asked::default() };
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let overrides = Overrides { env, ..Overrides::default() };
        let question = Question { model, example, rules: &CATALOG.rules, device: Some(&device), asked: &asked, overrides: &overrides };
        question.estimate(&PartialRequest::default()).expect("legal")
    };
    for (model, example, card, status) in [
        // Their tensors fit, and both were seen to run; what the allocator's segments hold beside them may be too much.
        ("fasth3-trim", "rtx4090-24gb", "rtx-4090", Verdict::Uncertain),
        ("fasth3-trim", "rtx4090-12gib-cap", "rtx-4090", Verdict::Uncertain),
        ("fasth3-trim", "rtx4090-24gb", "rtx-5090", Verdict::Fits),
        ("fasth3-trim", "rtx4090-24gb", "rtx-3060-12gb", Verdict::DoesNotFit),
        ("fasth3", "fastvideo", "h200-sxm-141gb", Verdict::Fits),
        ("minimax-h3", "fastvideo", "h200-sxm-141gb", Verdict::Fits),
        ("minimax-h3", "fastvideo", "rtx-3060-12gb", Verdict::DoesNotFit),
    ] {
        let estimate = ask(model, example, card, &[]);
        assert_eq!(estimate.status, status, "{model} {example} {card}: {:?}", estimate.reasons);
        assert!(estimate.coverage.uncovered.is_empty(), "{:?}", estimate.coverage);
    }
    for (model, example, env, named) in [
        ("fasth3", "fastvideo-4gpu", &[][..], "several devices"),
        ("fasth3", "fastvideo", &[("FASTVIDEO_H3_VSA_TILE_FIRST", "1")], "FASTVIDEO_H3_VSA_TILE_FIRST"),
        ("minimax-h3", "fastvideo", &[("FASTVIDEO_H3_ENCODER_LAYERWISE", "1")], "FASTVIDEO_H3_ENCODER_LAYERWISE"),
        ("fasth3-trim", "rtx4090-24gb", &[("FASTVIDEO_H3_VSA_TILE_FIRST", "0")], "FASTVIDEO_H3_VSA_TILE_FIRST=1"),
        ("fasth3-trim", "rtx4090-24gb", &[("FASTVIDEO_H3_VAE_TILE_BATCH", "0")], "FASTVIDEO_H3_VAE_TILE_BATCH"),
        ("fasth3-trim", "rtx4090-24gb", &[("FASTVIDEO_H3_VAE_INT8_SHARED_QKV", "maybe")], "FASTVIDEO_H3_VAE_INT8_SHARED_QKV"),
    ] {
        let estimate = ask(model, example, "h200-sxm-141gb", env);
        assert_eq!(estimate.status, Verdict::Unknown, "{model} {env:?}");
        assert!(estimate.reasons.iter().any(|reason| reason.message.contains(named)), "{named}: {:?}", estimate.reasons);
    }
}
