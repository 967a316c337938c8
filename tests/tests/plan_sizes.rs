//! `docs/plan-sizes.md`: what every model that our own runtime has a program for comes to on cards and hosts of usual sizes.
//! `UPDATE_DOCS=1` writes it.

use std::{fmt::Write, sync::LazyLock};

use fv_data::Store;
use fv_estimate::{
    forecast::rates::Rates,
    grid::Way,
    planner::{
        Outcome,
        freevideo::{Machine, Pool},
        optimal::{Asked, Depth, Planner, Question, model},
    },
};
use fv_spec::{
    compiled::{Device, RulesFile},
    plan::{OperatingSystem, Plan, Precision, Role, Sourced, Tier, budget::Resource, refusal::Refusal},
};
use fv_tests::page_is;

const MODELS: [&str; 6] = ["wan21-t2v-1.3b", "wan21-t2v-14b", "fastwan21", "wan22-ti2v-5b", "fastwan22-ti2v-5b", "wan22-t2v-a14b"];
/// Cards of each size; of 8 GiB a second one, since the rates of the more usual card are not known.
const CARDS: [(u64, &str); 9] = [
    (8, "rtx-4060-8gb"),
    (8, "rtx-3070-8gb"),
    (10, "rtx-3080-10gb"),
    (12, "rtx-4070-12gb"),
    (16, "rtx-4080-16gb"),
    (24, "rtx-4090-24gb"),
    (32, "rtx-5090-32gb"),
    (48, "rtx-a6000-48gb"),
    (48, "l40s-48gb"),
];
const HOSTS: [u64; 4] = [16, 32, 64, 128];
const GIB: u64 = 1 << 30;

static RULES: LazyLock<RulesFile> = LazyLock::new(|| store().rules().expect("rules"));
/// Ways are compared by its rates where those of a card are not known.
static REFERENCE: LazyLock<Rates> = LazyLock::new(|| Rates::of(&device("h200-sxm-141gb")));

fn store() -> Store {
    Store::embedded().expect("the built-in catalog")
}

fn device(id: &str) -> Device {
    store().device(id).expect("readable").expect("in the catalog")
}

fn planner(id: &str) -> Planner {
    let compiled = store().model(id).expect("readable").expect("in the catalog");
    Planner::new(model::covered(&compiled).expect("there is a program"))
}

fn answer(planner: &Planner, precision: Precision, card: &Device, vram_bytes: u64, host_bytes: u64) -> Outcome {
    let machine = Machine {
        device: Some(card.id.clone()),
        compute_capability: card.compute_capability.clone().map(Sourced::given),
        precision: Some(Sourced::given(precision)),
        vram: Some(Pool::given(vram_bytes)),
        host: Some(Pool::given(host_bytes)),
        ..Machine::new(Sourced::given(OperatingSystem::Linux))
    };
    let (rates, reference) = (Rates::of(card), REFERENCE.clone());
    let question = Question { request: Asked::default(), machine, rates, reference };
    planner.plan(&question, &RULES, Depth::Outline).expect("the question is right")
}

fn step_ns(plan: &Plan) -> Option<u64> {
    plan.forecast.as_ref().and_then(|forecast| forecast.passes.last()).map(|pass| pass.step.value_ns)
}

fn seconds(ns: u64) -> String {
    let tenths = (ns + 50_000_000) / 100_000_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn minutes(ns: u64) -> String {
    let seconds = (ns + 500_000_000) / 1_000_000_000;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Cells of a row behind card and memory.
fn cells(outcome: &Outcome, unlimited: Option<u64>) -> String {
    match outcome {
        Outcome::Planned(plan) => planned(plan, unlimited),
        Outcome::Refused(refusal) => format!("does not fit | | | | {} | | |", short(refusal)),
        Outcome::Unplanned(_) => "unknown | | | | | | |".to_owned(),
    }
}

/// What is short.
fn short(refusal: &Refusal) -> String {
    let said = |short: &fv_spec::plan::refusal::Shortfall| {
        let pool = if short.resource == Resource::Host { "ram" } else { "vram" };
        let hundredths = (short.shortfall_bytes * 100).div_ceil(GIB);
        format!("{pool}, {}.{:02} GiB short", hundredths / 100, hundredths % 100)
    };
    refusal.shortfalls.iter().map(said).collect::<Vec<_>>().join("; ")
}

fn planned(plan: &Plan, unlimited: Option<u64>) -> String {
    let way = Way::of(plan).expect("it says how it computes");
    let on_host = match (way.outputs_on_host, way.residual_on_host) {
        (false, false) => "",
        (true, false) => "; attention on host",
        (false, true) => "; residual on host",
        (true, true) => "; attention and residual on host",
    };
    let rows = |chunk: u32| if u64::from(chunk) >= plan.request.video_tokens { "all".to_owned() } else { chunk.to_string() };
    let decoder = &plan.decoders[0];
    let vae = plan.placements.iter().find(|placement| placement.component == decoder.component).expect("placed");
    let kept = vae.count(Tier::Device);
    let tiles = decoder.tiles.map_or("whole".to_owned(), |tiles| format!("{} x {} tiles", tiles.columns, tiles.rows));
    let decoding = if kept == u64::from(vae.block_count) { tiles } else { format!("{tiles}, {kept} of {} blocks", vae.block_count) };
    let step = step_ns(plan).map_or("unknown".to_owned(), seconds);
    let denoising = step_ns(plan).map_or("unknown".to_owned(), |step| minutes(step * u64::from(plan.request.steps)));
    format!(
        "{} / {} / {} | {} heads, {} / {} rows{on_host} | {} | {decoding} | {} | {step} | {denoising} |",
        way.resident_blocks,
        way.pinned_blocks,
        way.disk_blocks,
        way.head_group,
        rows(way.projection_chunk),
        rows(way.feed_forward_chunk),
        way.slots,
        binds(&way, step_ns(plan), unlimited),
    )
}

/// What the time is made of: computing, where it is within a percent of a card with all memory; otherwise what is waited for, and the
/// memory that would spare it.
fn binds(way: &Way, step: Option<u64>, unlimited: Option<u64>) -> &'static str {
    match (step, unlimited) {
        (Some(step), Some(fastest)) if step * 100 <= fastest * 101 => "compute",
        (None, _) if way.slots > 0 || way.outputs_on_host || way.residual_on_host => "unknown",
        (None, _) => "compute",
        _ if way.disk_blocks > 0 => "disk, for want of ram",
        _ if way.slots > 0 || way.outputs_on_host || way.residual_on_host => "link, for want of vram",
        _ => "vram: smaller pieces",
    }
}

fn table(page: &mut String, planner: &Planner, precision: Precision) {
    // Writing to a string does not fail.
    let _ = writeln!(
        page,
        "\n### Weights in {}\n\n| card | host GiB | blocks device / page-locked / disk | computed at a time | slots | video decoder | binds | s a step | \
         denoising min:s |\n| --- | --- | --- | --- | ---: | --- | --- | ---: | ---: |",
        precision.word().to_uppercase()
    );
    for (gib, id) in CARDS {
        let card = device(id);
        let unlimited = match answer(planner, precision, &card, 1 << 40, 1 << 40) {
            Outcome::Planned(plan) => step_ns(&plan),
            _ => None,
        };
        let rows = HOSTS.map(|host| cells(&answer(planner, precision, &card, gib * GIB, host * GIB), unlimited));
        let mut first = 0;
        while first < rows.len() {
            let same = rows[first..].iter().take_while(|row| **row == rows[first]).count();
            let hosts = HOSTS[first..first + same].iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            let _ = writeln!(page, "| {gib} GiB, {} | {hosts} | {}", card.name, rows[first]);
            first += same;
        }
    }
}

fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    for id in MODELS {
        let planner = planner(id);
        let usual = &planner.covered().usual;
        let _ = writeln!(
            page,
            "\n## {id}\n\n{} x {}, {} frames, {} steps; {} blocks in {}.",
            usual.width,
            usual.height,
            usual.frames,
            usual.steps,
            planner.covered().model.transformer.blocks,
            if planner.covered().model.boundary.is_some() { "each of two transformers" } else { "the transformer" },
        );
        for precision in [Precision::Bf16, Precision::Fp8] {
            table(&mut page, &planner, precision);
        }
    }
    page
}

const INTRODUCTION: &str = "# What fits where

What the policy `optimal` ([programs.md](programs.md)) plans for our own runtime with the request of each model's pipeline, on cards and
hosts of usual sizes. Generated; `UPDATE_DOCS=1 cargo test -p fv-tests --test plan_sizes` writes it.

- A card of so many GiB has them free, less the policy's reserve. What the process takes beside its layout, the context above all, is
  within that: half a GiB and more, from [the rules](../catalog/rules), which say of each figure how it was measured.
- Host memory is free memory, less the reserve; planned blocks in it are page-locked. Of two transformers one is there at a time, and
  blocks are those of both.
- FP8 stores the weights of blocks in eight bits with a scale for each output; computing stays in BF16.
- Rows are those of a chunk of the projections and of the feed-forward layer; `all` is one chunk.
- `binds` is `compute` where a step takes at most a percent longer than on the same card with all memory. Otherwise it names what is waited
  for, and the memory that would spare it; or, where nothing fits, what is short.
- Times are a roofline with shares of the dense rate that another engine reached on one H200, not measurements; `unknown` where the catalog
  lacks a rate of the card, and then blocks are placed by the rates of an H200. Disks are taken to read as fast as one that was measured.
  Text encoding, decoding and loading come on top.
- Nothing here was executed: plans are outlines, whose programs are not packed. `fv-run plan` packs them, and reckons with less where a layout
  takes more.
";

#[test]
fn the_page_of_sizes_is_current() {
    page_is("docs/plan-sizes.md", &page());
}

/// With 32 GiB of host memory the blocks of 14B leave half of it to others in eight bits, on every card, where in BF16 they take most of
/// it on the small ones. With 16 GiB nothing is read from disk in eight bits either.
#[test]
fn weights_in_fp8_make_14b_usable_with_little_host_memory() {
    for id in ["wan21-t2v-14b", "wan22-t2v-a14b"] {
        let planner = planner(id);
        for (gib, card) in CARDS {
            let card = device(card);
            let plan = |precision, host: u64| match answer(&planner, precision, &card, gib * GIB, host * GIB) {
                Outcome::Planned(plan) => *plan,
                other => panic!("{id} on {}: {other:?}", card.id),
            };
            let disk = |plan: &Plan| Way::of(plan).expect("a way").disk_blocks;
            let locked = |plan: &Plan| {
                let blocks = plan.placements.iter().filter(|placement| placement.component == Role::Transformer);
                blocks.map(|placement| placement.pin_bytes).sum::<u64>()
            };
            let at = format!("{id} on {}", card.id);
            for host in [16, 32] {
                assert_eq!(disk(&plan(Precision::Fp8, host)), 0, "{at}: nothing is read from disk in FP8");
            }
            assert!(locked(&plan(Precision::Fp8, 32)) < 14 * GIB, "{at}");
            if gib <= 10 {
                assert!(locked(&plan(Precision::Bf16, 32)) > 20 * GIB && disk(&plan(Precision::Bf16, 16)) > 0, "{at}");
            }
        }
    }
}
