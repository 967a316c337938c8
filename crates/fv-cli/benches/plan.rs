//! What the planner's commands cost, from arguments to the last byte of output: one plan, and the published grid of 625.

use clap::{Args, Command, FromArgMatches};
use divan::{Bencher, counter::ItemsCount};
use fv_cli::plan::{GridArguments, PlanArguments, Session, grid, plan};
use fv_data::Store;

fn main() {
    divan::main();
}

fn parsed<T: Args + FromArgMatches>(line: &str) -> T {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let matches = T::augment_args(Command::new("bench")).get_matches_from(words);
    T::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn answered(command: impl Fn(&mut Session<'_>) -> Result<(), fv_cli::stop::Stop>, json: bool) -> Vec<u8> {
    let store = Store::embedded().unwrap_or_else(|error| panic!("{error}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = Session { store: &store, out: &mut out, err: &mut err, json, paints: false, measure: None };
    command(&mut session).unwrap_or_else(|stop| panic!("{stop:?}"));
    out
}

/// The catalog is read, the plan is made and written.
#[divan::bench(args = ["human", "json"])]
fn one_plan(bencher: Bencher<'_, '_>, format: &str) {
    let arguments: PlanArguments = parsed("--vram-gib 16 --ram-gib 32");
    bencher.bench(|| answered(|session| plan(session, &arguments), format == "json"));
}

/// Limit: 0.3 s.
#[divan::bench(args = ["table", "csv", "svg"])]
fn grid_of_625(bencher: Bencher<'_, '_>, format: &str) {
    let arguments: GridArguments = parsed(&format!("--vram 8..32 --ram 8..32 --no-two-pass --format {format}"));
    bencher.counter(ItemsCount::new(625_u32)).bench(|| answered(|session| grid(session, &arguments), false));
}
