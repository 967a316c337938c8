//! What the replay costs an allocation or a free, on recorded programs of a transformer and a VAE. Items are events.

use std::{env, fs::File, hint::black_box, io::Read as _, path::Path, time::Instant};

use divan::{Bencher, counter::ItemsCount};
use flate2::read::GzDecoder;
use fv_estimate::caching::{BlockId, Config, Replay};

const PROGRAMS: [&str; 3] = ["dit30_480x832x81", "vae_fp32_480x832x81", "vae_bf16_480x832x81"];
/// Replayed in turn, the start of each: so that the processor does not learn a program's branches by heart.
const TURNS: [&str; 8] = [
    "dit30_480x832x81",
    "vae_fp32_480x832x81",
    "dit4_480x832x17",
    "vae_bf16_480x832x17",
    "dit30_480x832x17",
    "vae_bf16_480x832x81",
    "cog_vae_tiled_480x720x17",
    "vae_fp32_480x832x17",
];
const TURN: usize = 5000;

fn main() {
    divan::main();
    if env::args().any(|argument| argument == "--bench") {
        for name in PROGRAMS {
            print_time(name, &[Program::load(name)]);
        }
        print_time("in turn", &turns());
    }
}

/// The shortest of many replays.
#[expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]
fn print_time(name: &str, programs: &[Program]) {
    let mut replay = Replay::new(Config::default());
    let mut ids = ids(programs);
    let events: usize = programs.iter().map(|program| program.events.len()).sum();
    let times = (0..100).map(|_| {
        let start = Instant::now();
        run_all(programs, &mut replay, black_box(&mut ids));
        start.elapsed().as_secs_f64()
    });
    let shortest = times.fold(f64::INFINITY, f64::min);
    let events = u32::try_from(events).map_or(f64::NAN, f64::from);
    println!("{name:20} {:6.2} ns/event", shortest * 1e9 / events);
}

fn turns() -> Vec<Program> {
    let mut programs: Vec<Program> = TURNS.map(Program::load).into();
    for program in &mut programs {
        program.events.truncate(TURN);
    }
    programs
}

fn ids(programs: &[Program]) -> Vec<Option<BlockId>> {
    vec![None; programs.iter().map(|program| program.slots).max().unwrap_or(0)]
}

/// As an estimator does it: one replay for all estimates.
fn run_all(programs: &[Program], replay: &mut Replay, ids: &mut [Option<BlockId>]) -> u64 {
    let run = |program: &Program| {
        replay.reset(Config::default());
        program.run(replay, ids)
    };
    programs.iter().map(run).sum()
}

/// One event; blocks go by the place in a table where their identity is kept.
#[derive(Clone, Copy)]
enum Event {
    Alloc { size: u64, slot: usize },
    Free { slot: usize },
}

struct Program {
    events: Vec<Event>,
    slots: usize,
}

impl Program {
    /// Without what passed between allocator and driver.
    fn load(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/data/allocator/{name}.csv.gz"));
        let mut text = String::new();
        let file = File::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        GzDecoder::new(file).read_to_string(&mut text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut live, mut vacant, mut slots) = (Vec::new(), Vec::new(), 0);
        let mut events = Vec::new();
        for line in text.lines() {
            let mut fields = line.split(',');
            let (operation, size, address) = (fields.next(), fields.next(), fields.next());
            match operation {
                Some("a") => {
                    let slot = vacant.pop().unwrap_or(slots);
                    slots = slots.max(slot + 1);
                    live.push((address, slot));
                    let size = size.and_then(|size| size.parse().ok()).unwrap_or_else(|| panic!("{name}: {line}"));
                    events.push(Event::Alloc { size, slot });
                }
                Some("f") => {
                    let Some(at) = live.iter().rposition(|&(there, _)| there == address) else { continue };
                    let slot = live.swap_remove(at).1;
                    vacant.push(slot);
                    events.push(Event::Free { slot });
                }
                _ => {}
            }
        }
        Self { events, slots }
    }

    fn run(&self, replay: &mut Replay, ids: &mut [Option<BlockId>]) -> u64 {
        for &event in &self.events {
            match event {
                Event::Alloc { size, slot } => ids[slot] = replay.alloc(size, 0).ok(),
                Event::Free { slot } => {
                    if let Some(id) = ids[slot] {
                        let _ = replay.free(id);
                    }
                }
            }
        }
        replay.stats().all.reserved.peak
    }
}

#[divan::bench(args = PROGRAMS)]
fn new(bencher: Bencher, name: &str) {
    let programs = [Program::load(name)];
    let mut ids = ids(&programs);
    bencher.counter(ItemsCount::new(programs[0].events.len())).bench_local(|| {
        let mut replay = Replay::new(Config::default());
        programs[0].run(&mut replay, black_box(&mut ids))
    });
}

#[divan::bench(args = PROGRAMS)]
fn reset(bencher: Bencher, name: &str) {
    measure(bencher, &[Program::load(name)]);
}

#[divan::bench]
fn reset_in_turn(bencher: Bencher) {
    measure(bencher, &turns());
}

fn measure(bencher: Bencher, programs: &[Program]) {
    let mut ids = ids(programs);
    let mut replay = Replay::new(Config::default());
    let events: usize = programs.iter().map(|program| program.events.len()).sum();
    bencher.counter(ItemsCount::new(events)).bench_local(|| run_all(programs, &mut replay, black_box(&mut ids)));
}
