//! Failures of the questions beside an estimate: what is offered, recommended or searched has to hold up as a plain estimate.

use fv_estimate::largest::{Wanted, largest};
use fv_estimate::minimum::minimum;
use fv_estimate::question::{Question, exactly};
use fv_estimate::sweep::{Axes, Plan, Range, Reuse};
use fv_spec::questions::{Clip, Largest, OutputEffect, StageMinimum};
use fv_spec::request::Request;

use super::*;

/// A deployment with diffusers on a device.
struct Case {
    catalog: Catalog,
    model: &'static str,
    device: DeviceSpec,
    asked: Asked,
    overrides: Overrides,
}

impl Case {
    fn new(model: &'static str, hardware: &str) -> Self {
        Self { catalog: catalog(), model, device: device(hardware), asked: host(256.0), overrides: Overrides::default() }
    }

    fn question(&self) -> Question<'_> {
        let model = &self.catalog.models[self.model];
        let example = model.examples.iter().find(|example| example.id == "diffusers").expect("a deployment");
        Question { model, example, rules: &self.catalog.rules, device: Some(&self.device), asked: &self.asked, overrides: &self.overrides }
    }

    fn status(&self, request: &PartialRequest) -> Verdict {
        self.question().estimate(request).expect("legal").status
    }

    fn largest(&self, request: &PartialRequest) -> Largest {
        let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: false };
        *largest(&self.question(), request, wanted).expect("legal").expect("covered")
    }
}

fn clip_of(request: &Request, clip: &Clip) -> PartialRequest {
    PartialRequest { height: Some(clip.height), width: Some(clip.width), num_frames: Some(clip.num_frames), ..exactly(request) }
}

const PLACES: [(&str, &str); 5] = [
    ("ltx-video-2b", "rtx-3060-12gb"),
    ("cogvideox-5b", "rtx-4080-16gb"),
    ("hunyuanvideo", "rtx-5090-32gb"),
    ("mochi-1", "rtx-4090-24gb"),
    ("minimax-h3", "h100-sxm-80gb"),
];

/// 16, 52, and clips above nine seconds that ran out of memory: how long and how large a clip may be is found before it is made, and
/// the next longer one is known not to fit.
#[test]
fn the_largest_clip_and_the_next_are_what_plain_estimates_say() {
    for (model, hardware) in PLACES {
        let case = Case::new(model, hardware);
        let answer = case.largest(&PartialRequest::default());
        let mut seen = 0;
        for extent in [&answer.frames, &answer.size] {
            if let Some(clip) = &extent.largest {
                assert_eq!(case.status(&clip_of(&answer.request, clip)), Verdict::Fits, "{model} {clip:?}");
                seen += 1;
            }
            if let Some(clip) = &extent.next {
                assert_ne!(case.status(&clip_of(&answer.request, clip)), Verdict::Fits, "{model} {clip:?}");
                seen += 1;
            }
        }
        assert!(seen >= 2, "{model}: {answer:?}");
    }
}

/// 52: rules of one kind of device taken for another. Nothing is promised there, and it is said why.
#[test]
fn no_clip_is_promised_where_the_rules_do_not_hold() {
    for hardware in ["m4-pro-24gb", "m5-pro-48gb"] {
        let case = Case::new("minimax-h3", hardware);
        let wanted = Wanted { admit_uncertain: true, pareto: true, changes: true, adapted: true };
        let answer = largest(&case.question(), &PartialRequest::default(), wanted).expect("legal");
        let unknown = answer.expect_err("not covered");
        assert!(unknown.reasons.iter().any(|reason| reason.message.contains("CUDA")), "{unknown:?}");
    }
}

/// 67: a budget found by a search is the one that is enforced, to the byte.
#[test]
fn a_byte_less_than_the_smallest_budget_is_not_enough() {
    for (model, hardware) in PLACES {
        let mut case = Case::new(model, hardware);
        case.device = from_flags(200.0, Some(1000.0), None, None).expect("a device");
        let answer = minimum(&case.question(), &PartialRequest::default()).expect("legal");
        let (fits, may) = (answer.fits_bytes.expect("covered"), answer.uncertain_bytes.expect("covered"));
        let mut with = |bytes: u64| {
            case.asked.memory_budget_bytes = Some(bytes);
            case.status(&exactly(&answer.request))
        };
        assert_eq!([with(fits), with(fits - 1)], [Verdict::Fits, Verdict::Uncertain], "{model}");
        assert_eq!([with(may), with(may - 1)], [Verdict::Uncertain, Verdict::DoesNotFit], "{model}");
        let ends = |name: fn(&StageMinimum) -> u64| answer.stages.iter().map(name).max();
        assert_eq!((ends(|stage| stage.fits_bytes), ends(|stage| stage.uncertain_bytes)), (Some(fits), Some(may)), "{model}");
    }
}

/// 70, 74: an offer that does not fit, or that is another job under the same name.
#[test]
fn what_is_offered_fits_and_says_when_it_is_another_clip() {
    let mut offers = 0;
    for (model, hardware) in [
        ("hunyuanvideo", "rtx-4090-24gb"),
        ("mochi-1", "rtx-3060-12gb"),
        ("cogvideox-5b", "rtx-3060-12gb"),
        ("wan22-t2v-a14b", "rtx-4090-24gb"),
    ] {
        let case = Case::new(model, hardware);
        let answer = case.largest(&PartialRequest::default());
        assert_ne!(answer.status, Verdict::Fits, "{model}");
        for change in answer.changes.iter().filter(|change| change.deployment == "diffusers") {
            let mut again = Case::new(model, hardware);
            again.overrides.set = change.settings.iter().map(|set| (set.key.clone(), set.value.clone())).collect();
            let variables = change.environment.iter();
            again.overrides.env = variables.map(|set| (set.key.clone(), set.value.as_str().expect("text").to_owned())).collect();
            let request = change.request.as_ref().map_or_else(PartialRequest::default, exactly);
            assert_eq!(again.status(&request), Verdict::Fits, "{model}: {}", change.arguments);
            // One request, never several that are to be joined; and another clip is another output.
            let other = change.request.as_ref().is_some_and(|request| *request != answer.request);
            let tiled = change.settings.iter().any(|set| set.key == "vae_tiling");
            assert_eq!(other || tiled, change.output_effect == OutputEffect::Different, "{model}: {change:?}");
            offers += 1;
        }
    }
    assert!(offers > 8, "{offers}");
}

/// An undersized machine that works for an hour before it fails, and a question that is met with silence: where nothing helps, the
/// answer says so.
#[test]
fn where_nothing_helps_the_answer_says_so() {
    for command in ["largest", "minimum", "recommend"] {
        let mut program = std::process::Command::new(fv_tests::program());
        program
            .args([
                command,
                "minimax-h3",
                "--runtime",
                "diffusers",
                "--hardware",
                "rtx-4090",
                "--host-gb",
                "64",
                "--memory-budget-gib",
                "1",
            ])
            .env_remove("FV_CATALOG");
        let out = String::from_utf8(program.output().expect("the program starts").stdout).expect("text");
        assert!(out.contains("nothing found"), "{command}: {out}");
    }
}

/// 67, 71: a table of many points that disagrees with the estimate of one.
#[test]
fn a_sweep_and_an_estimate_are_one_answer() {
    let case = Case::new("mochi-1", "rtx-4090-24gb");
    let other = Case::new("ltx-video-2b", "rtx-4090-24gb");
    let deployments = [&case, &other].map(|case| (case.question().model, case.question().example));
    let devices = ["rtx-4090-24gb", "rtx-3060-12gb"].map(device);
    let axes = Axes {
        sizes: vec![[480, 832]],
        frames: vec![Range { first: 25, last: 49, step: None }],
        batches: vec![Range { first: 1, last: 1, step: None }],
        settings: vec![Vec::new()],
    };
    let plan = Plan::new(&deployments, &devices, &case.asked, &case.catalog.rules, &PartialRequest::default(), &case.overrides, &axes)
        .expect("legal");
    let (mut seen, mut reuse) = (0, Reuse::default());
    for at in 0..u64::try_from(plan.requests()).expect("few") {
        plan.rows(at, &mut reuse, |row| {
            let asked = if row.model == case.model { &case } else { &other };
            let device = devices.iter().find(|device| device.id == row.hardware).expect("one of them");
            let request = size(row.height, row.width, row.num_frames);
            let estimate = Question { device: Some(device), ..asked.question() }.estimate(&request).expect("legal");
            assert_eq!((row.status, row.host_bytes), (estimate.status, estimate.host.required_bytes), "{row:?}");
            let peak = stage(&estimate, "decoding").peak_bytes.map(|peaks| peaks.device.value);
            assert_eq!(row.decoding_bytes, peak, "{row:?}");
            seen += 1;
        });
    }
    assert!(seen >= 12, "{seen}");
}
