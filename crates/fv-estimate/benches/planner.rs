//! What planning costs: one plan, a refusal with what would do instead, a row of a table, and the capacity grid.

use std::{fs, path::Path};

use divan::{Bencher, counter::ItemsCount};
use fv_estimate::planner::freevideo::{Asked, Machine, Planner, Pool, Question, TwoPassAsked, table};
use fv_estimate::planner::{Outcome, check};
use fv_spec::compiled::Model;
use fv_spec::plan::{Architecture, OperatingSystem, Sourced};

fn main() {
    divan::main();
}

fn planner() -> Planner {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data/models/minimax-h3.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let model: Model = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Planner::new(&model).unwrap_or_else(|reasons| panic!("{reasons:?}"))
}

fn question(vram_gib: u64, ram_gib: u64) -> Question {
    let machine = Machine {
        architecture: Some(Sourced::given(Architecture::Hopper)),
        vram: Some(Pool::given(vram_gib << 30)),
        host: Some(Pool::given(ram_gib << 30)),
        ..Machine::new(Sourced::given(OperatingSystem::Linux))
    };
    Question { request: Asked::default(), machine, capacity_trial: false, demonstrated_host_bytes: None }
}

/// With its decisions and its id.
#[divan::bench]
fn one_plan(bencher: Bencher) {
    let (planner, question) = (planner(), question(12, 32));
    bencher.bench_local(|| planner.plan(&question));
}

#[divan::bench]
fn one_plan_of_two_passes(bencher: Bencher) {
    let planner = planner();
    let request = Asked { two_pass: Some(TwoPassAsked::default()), ..Asked::default() };
    let question = Question { request, ..question(12, 32) };
    bencher.bench_local(|| planner.plan(&question));
}

/// Reading the model, planning, and writing JSON: what a command does.
#[divan::bench]
fn from_the_catalog_to_json(bencher: Bencher) {
    let question = question(12, 32);
    bencher.bench_local(|| match planner().plan(&question) {
        Ok(Outcome::Planned(plan)) => serde_json::to_string(&plan).map_or(0, |text| text.len()),
        _ => 0,
    });
}

#[divan::bench]
fn reading_a_plan(bencher: Bencher) {
    let Ok(Outcome::Planned(plan)) = planner().plan(&question(12, 32)) else { return };
    let text = serde_json::to_string(&plan).unwrap_or_default();
    bencher.bench_local(|| check::read(&text));
}

/// The refusal and everything that is searched for in its place.
#[divan::bench]
fn a_refusal_with_advice(bencher: Bencher) {
    let (planner, question) = (planner(), question(6, 32));
    bencher.bench_local(|| match planner.plan(&question) {
        Ok(Outcome::Refused(refusal)) => planner.advise(&question, *refusal).is_ok(),
        _ => false,
    });
}

/// Every whole GiB from 8 to 32 of both memories, each a complete plan.
#[divan::bench(sample_count = 20)]
fn the_capacity_grid(bencher: Bencher) {
    let planner = planner();
    let cells: Vec<Question> = (8..=32).flat_map(|ram| (8..=32).map(move |vram| question(vram, ram))).collect();
    bencher.counter(ItemsCount::new(cells.len())).bench_local(|| cells.iter().filter(|cell| planner.plan(cell).is_ok()).count());
}

#[divan::bench]
fn one_row_of_a_table(bencher: Bencher) {
    let planner = planner();
    let columns = table::Columns::read(table::GIVEN).unwrap_or_else(|errors| panic!("{errors:?}"));
    let fields = ["Linux", "ada", "int8", "1344", "768", "243", "72576", "12", "32"];
    bencher.bench_local(|| table::row(&planner, &columns, &fields));
}
