//! Order of estimates: more work never needs less memory, and a larger budget never turns yes into no.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use fv_data::Catalog;
use fv_estimate::budget::{Asked, FixedCosts, budget};
use fv_estimate::device::from_flags;
use fv_estimate::estimate::Workload;
use fv_estimate::resolve::Overrides;
use fv_spec::authored::Runtime;
use fv_spec::estimate::{PeakBytes, StageName, Verdict};
use fv_spec::request::PartialRequest;
use proptest::prelude::*;
use serde_json::{Value, json};

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::embedded().expect("readable"));

/// Models, and how their requests may be placed.
const MODELS: [&str; 4] = ["wan21-t2v-1.3b", "wan21-t2v-14b", "wan22-ti2v-5b", "wan22-t2v-a14b"];

#[derive(Debug, Clone, Copy)]
struct Ask {
    model: usize,
    height: u32,
    width: u32,
    latent_frames: u32,
    batch: u32,
    offload: u8,
    vae: &'static str,
    tiling: bool,
}

fn workload(ask: &Ask) -> Workload {
    let model = CATALOG.model(MODELS[ask.model]).expect("in the catalog");
    let example = model.examples.iter().find(|example| example.runtime == Runtime::Diffusers).expect("a deployment");
    let set: Vec<(String, Value)> = vec![
        ("torch_dtype".to_owned(), json!("bf16")),
        ("vae_dtype".to_owned(), json!(ask.vae)),
        ("vae_tiling".to_owned(), json!(ask.tiling)),
        ("model_cpu_offload".to_owned(), json!(ask.offload == 1)),
        ("sequential_cpu_offload".to_owned(), json!(ask.offload == 2)),
    ];
    let request = PartialRequest {
        height: Some(ask.height),
        width: Some(ask.width),
        num_frames: Some(1 + 4 * (ask.latent_frames - 1)),
        batch: Some(ask.batch),
        num_inference_steps: Some(4),
        ..PartialRequest::default()
    };
    let overrides = Overrides { set, ..Overrides::default() };
    Workload::evaluate(model, example, &request, &overrides, &CATALOG.rules, false).expect("legal")
}

fn peaks(ask: &Ask) -> [PeakBytes; 4] {
    *workload(ask).peaks().expect("covered")
}

prop_compose! {
    fn ask()(
        model in 0..MODELS.len(),
        height in 8_u32..=24,
        width in 8_u32..=40,
        latent_frames in 1_u32..=24,
        batch in 1_u32..=3,
        offload in 0_u8..3,
        vae in prop_oneof![Just("bf16"), Just("fp32")],
        tiling in any::<bool>(),
    ) -> Ask {
        Ask { model, height: 32 * height, width: 32 * width, latent_frames, batch, offload, vae, tiling }
    }
}

/// The ways to ask for more.
fn more(ask: Ask) -> BTreeMap<&'static str, Ask> {
    let mut all = BTreeMap::new();
    all.insert("frames", Ask { latent_frames: ask.latent_frames + 1, ..ask });
    all.insert("height", Ask { height: ask.height + 32, ..ask });
    all.insert("width", Ask { width: ask.width + 32, ..ask });
    all.insert("batch", Ask { batch: ask.batch + 1, ..ask });
    if ask.vae == "bf16" {
        all.insert("dtype", Ask { vae: "fp32", ..ask });
    }
    all
}

/// An allocator hands out whole blocks: a remainder of up to 1 MiB stays with its block, and of some hundred alive each may or may
/// not have one.
const BLOCKS: f64 = 0.01;
/// A caching allocator holds more or less by how sizes happen to follow each other. Seen over the grid below: see the test.
const CACHING: f64 = 0.35;

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn more_work_never_needs_less(ask in ask()) {
        let base = peaks(&ask);
        for (what, larger) in more(ask) {
            let larger = peaks(&larger);
            for (i, stage) in StageName::ALL.into_iter().enumerate() {
                let (small, large) = (base[i], larger[i]);
                let context = format!("{what} {} {ask:?}: {small:?} {large:?}", stage.word());
                // Tensors alone are monotone to the byte.
                prop_assert!(large.allocated.low >= small.allocated.low, "tensors: {context}");
                prop_assert!(share(large.allocated.value, small.allocated.value) >= 1.0 - BLOCKS, "allocated: {context}");
                prop_assert!(share(large.reserved.high, small.reserved.high) >= 1.0 - CACHING, "reserved: {context}");
            }
        }
    }

    #[test]
    fn a_larger_budget_never_turns_yes_into_no(ask in ask(), gib in 4_u64..80, step in 1_u64..16) {
        let workload = workload(&ask);
        let fixed = FixedCosts::exact(700 << 20, "a test");
        let verdict = |bytes: u64| {
            let asked = Asked { memory_budget_bytes: Some(bytes), ..Asked::default() };
            let device = from_flags(200.0, Some(1000.0), None, None).expect("a device");
            workload.summary(&budget(Some(&device), &asked, &fixed).expect("a budget")).status
        };
        let rank = |verdict: Verdict| match verdict {
            Verdict::DoesNotFit => 0,
            Verdict::Uncertain => 1,
            Verdict::Fits => 2,
            Verdict::Unknown => 3,
        };
        let (small, large) = (verdict(gib << 30), verdict((gib + step) << 30));
        prop_assert!(rank(large) >= rank(small) && rank(small) < 3, "{ask:?} {gib} {step}: {small:?} {large:?}");
    }
}
