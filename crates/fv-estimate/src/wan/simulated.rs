//! What FastVideo's own code allocates, for tests: run on fake tensors (`tests/data/simulated/README.md`), and on an H200
//! (`tests/data/fastvideo/README.md`).

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::PathBuf;

use crate::program::{Builder, Event, Model, Program, Sampling};

/// Events of smaller tensors are in neither list.
const LARGE: u64 = 1 << 20;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/simulated").join(name)
}

/// A trace: `a,bytes,number` and `f,number`.
fn trace(name: &str) -> Vec<Event> {
    let path = path(&format!("{name}.csv.gz"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip of text");
    let number = |field: Option<&str>| field.and_then(|field| field.parse().ok()).expect("a number");
    text.lines()
        .map(|line| {
            let mut fields = line.split(',');
            match fields.next() {
                Some("a") => {
                    let bytes = number(fields.next());
                    Event::Alloc(number(fields.next()), bytes)
                }
                _ => Event::Free(number(fields.next())),
            }
        })
        .collect()
}

/// The rows of a table: fields by column. A field with commas, which only the last one has, is quoted.
pub(crate) fn table(name: &str) -> Vec<HashMap<String, String>> {
    let text = std::fs::read_to_string(path(name)).expect("a table");
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().expect("a header").split(',').collect();
    lines
        .map(|line| {
            let fields = line.splitn(columns.len(), ',').map(|field| field.trim_matches('"').to_owned());
            columns.iter().map(|column| (*column).to_owned()).zip(fields).collect()
        })
        .collect()
}

/// Large allocations and frees, numbered in order. Frees without an allocation between them are sorted: autocast drops its
/// copies in the order of a hash table.
fn large(events: &[Event]) -> Vec<(bool, u64, u64)> {
    let (mut numbers, mut count) = (HashMap::new(), 0);
    let mut result: Vec<(bool, u64, u64)> = Vec::new();
    for event in events {
        match event {
            Event::Alloc(id, bytes) if *bytes >= LARGE => {
                count += 1;
                numbers.insert(*id, (count, *bytes));
                result.push((true, count, *bytes));
            }
            Event::Free(id) => {
                if let Some((count, bytes)) = numbers.remove(id) {
                    result.push((false, count, bytes));
                }
            }
            Event::Alloc(..) => {}
        }
    }
    result.chunk_by_mut(|a, b| !a.0 && !b.0).for_each(<[_]>::sort_unstable);
    result
}

/// Whether a program without workspaces makes the large allocations and frees of a trace, in order and to the byte.
pub(crate) fn assert_equal(program: &Program, name: &str) {
    let (ours, theirs) = (large(&program.tensor_events()), large(&trace(name)));
    let differ = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    if let Some(at) = differ {
        let around = |list: &[(bool, u64, u64)]| format!("{:?}", &list[at.saturating_sub(4)..list.len().min(at + 8)]);
        panic!("{name}: event {at} of {} and {}\n{}\n{}", ours.len(), theirs.len(), around(&ours), around(&theirs));
    }
    assert_eq!(ours.len(), theirs.len(), "{name}");
}

/// The program that `build` emits.
pub(crate) fn program(build: impl FnOnce(&mut Builder)) -> Program {
    let mut p = Builder::new(false);
    p.phase("all");
    build(&mut p);
    p.finish().expect("in range")
}

/// The highest sum of tensors alive, workspaces left out.
pub(crate) fn peak(program: &Program, sampling: Sampling) -> u64 {
    program.run(&Model::TensorsOnly, sampling).phases.iter().map(|phase| phase.allocated).max().unwrap_or(0)
}

/// Whether a program's peak is the one of a table, which is in GiB, to a unit of its last decimal.
pub(crate) fn assert_peak(program: &Program, gib: &str, name: &str) {
    let (whole, decimals) = gib.split_once('.').unwrap_or((gib, ""));
    let digits: u64 = format!("{whole}{decimals}").parse().expect("a decimal number");
    let unit = 10_u64.pow(decimals.len().try_into().expect("few decimals"));
    let (found, expected) = (peak(program, Sampling::Ends), (digits << 30) / unit);
    assert!(found.abs_diff(expected) <= (1 << 30) / unit, "{name}: found {found}, simulated {expected}");
}

/// A recorded trace of a call: `a,bytes,name,...` and `f,name`.
fn recorded(name: &str) -> Vec<Event> {
    let path = path("../fastvideo").join(format!("f_{name}.txt.gz"));
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip of text");
    let (mut events, mut names, mut next) = (Vec::new(), HashMap::new(), 0);
    for line in text.lines() {
        let fields: Vec<&str> = line.split(',').collect();
        match fields[0] {
            "a" => {
                events.push(Event::Alloc(next, fields[1].parse().expect("bytes")));
                names.insert(fields[2].to_owned(), next);
                next += 1;
            }
            // Given back; `w` waits for another stream to be reused.
            "f" | "w" => events.extend(names.remove(fields[1]).map(Event::Free)),
            _ => {}
        }
    }
    events
}

/// Whether an allocation is gone before the next one is made, as workspaces are.
fn passing(list: &[(bool, u64, u64)], at: usize) -> bool {
    list[at].0 && list[at + 1..].iter().take_while(|event| !event.0).any(|event| event.1 == list[at].1)
}

/// The highest sum of what is alive.
fn highest(list: &[(bool, u64, u64)]) -> u64 {
    let (mut live, mut peak) = (0, 0);
    for (alloc, _, bytes) in list {
        live = if *alloc { live + bytes } else { live - bytes };
        peak = peak.max(live);
    }
    peak
}

/// The events without what only passes, numbered anew; nor what holds only such a thing, as reordered weights hold a workspace.
fn lasting(list: &[(bool, u64, u64)]) -> Vec<(bool, u64, u64)> {
    let mut list = list.to_vec();
    for _ in 0..2 {
        let left_out: HashSet<u64> = (0..list.len()).filter(|at| passing(&list, *at)).map(|at| list[at].1).collect();
        list.retain(|event| !left_out.contains(&event.1));
    }
    let mut numbers = HashMap::new();
    for event in &mut list {
        let next = u64::try_from(numbers.len()).expect("few");
        event.1 = *numbers.entry(event.1).or_insert(next);
    }
    list.chunk_by_mut(|a, b| !a.0 && !b.0).for_each(<[_]>::sort_unstable);
    list
}

/// Whether a program makes the large allocations and frees of a trace recorded on a GPU, in order, but for those that are gone
/// before the next, which are workspaces: cuDNN picks among algorithms. The peaks agree to a thousandth all the same.
///
/// The first `before` allocations of the program are there when the recorded call begins.
pub(crate) fn assert_recorded(program: &Program, name: &str, before: u64) {
    let events: Vec<Event> = program.events().into_iter().filter(|(Event::Alloc(id, _) | Event::Free(id))| *id >= before).collect();
    let (ours, theirs) = (large(&events), large(&recorded(name)));
    let (found, expected) = (highest(&ours), highest(&theirs));
    assert!(found.abs_diff(expected) * 1000 <= expected, "{name}: peak {found}, recorded {expected}");
    let (ours, theirs) = (lasting(&ours), lasting(&theirs));
    // The allocator's own sizes are multiples of 512.
    let equal = |(a, b): (&(bool, u64, u64), &(bool, u64, u64))| (a.0, a.1, a.2.div_ceil(512)) == (b.0, b.1, b.2.div_ceil(512));
    if let Some(at) = ours.iter().zip(&theirs).position(|pair| !equal(pair)) {
        let around = |list: &[(bool, u64, u64)]| format!("{:?}", &list[at.saturating_sub(4)..list.len().min(at + 8)]);
        panic!("{name}: event {at} of {} and {}\n{}\n{}", ours.len(), theirs.len(), around(&ours), around(&theirs));
    }
    // Only what is dropped when all is over may be missing.
    let common = ours.len().min(theirs.len());
    assert!(ours[common..].iter().chain(&theirs[common..]).all(|event| !event.0), "{name}: {} and {}", ours.len(), theirs.len());
}
