//! Programs against recorded allocator traces of diffusers' classes on an H200 (`tests/data`).

use std::collections::{HashMap, HashSet};
use std::io::Read as _;
use std::path::PathBuf;

use fv_estimate::program::{Builder, Event};

const LARGE: u64 = 1 << 20;

/// The forward pass of a trace such as `families/s_NAME.txt.gz`.
fn trace(name: &str) -> Vec<Event> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name);
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
            "f" => events.extend(names.remove(fields[1]).map(Event::Free)),
            _ => {}
        }
    }
    events
}

/// The large events: bytes of an allocation in blocks of 512, or none for a free, and a number.
type Large = Vec<(Option<u64>, u64)>;

fn large(events: &[Event]) -> Large {
    let (mut alive, mut result) = (HashSet::new(), Vec::new());
    for event in events {
        match event {
            Event::Alloc(id, bytes) if *bytes >= LARGE => {
                alive.insert(*id);
                result.push((Some(bytes.div_ceil(512)), *id));
            }
            Event::Free(id) if alive.remove(id) => result.push((None, *id)),
            _ => {}
        }
    }
    result
}

/// The events without what is gone before the next allocation, as workspaces are, numbered anew. Frees that follow each other
/// are in the order of their numbers.
fn lasting(mut list: Large) -> Large {
    let passing: HashSet<u64> = (0..list.len())
        .filter(|at| list[*at].0.is_some())
        .filter(|at| list[at + 1..].iter().take_while(|event| event.0.is_none()).any(|event| event.1 == list[*at].1))
        .map(|at| list[at].1)
        .collect();
    list.retain(|event| !passing.contains(&event.1));
    let mut numbers = HashMap::new();
    for event in &mut list {
        let next = u64::try_from(numbers.len()).expect("few");
        event.1 = *numbers.entry(event.1).or_insert(next);
    }
    list.chunk_by_mut(|a, b| a.0.is_none() && b.0.is_none()).for_each(<[_]>::sort_unstable);
    list
}

fn highest(events: &[Event]) -> u64 {
    let (mut live, mut peak, mut sizes) = (0, 0, HashMap::new());
    for event in events {
        match event {
            Event::Alloc(id, bytes) => {
                live += bytes;
                sizes.insert(*id, *bytes);
            }
            Event::Free(id) => live -= sizes[id],
        }
        peak = peak.max(live);
    }
    peak
}

/// Whether what `build` emits makes the large allocations and frees of a trace, in order and to the block, workspaces left out,
/// which cuDNN picks; and whether the peaks, workspaces and all, agree to so many thousandths.
pub(crate) fn check(name: &str, thousandths: u64, build: impl FnOnce(&mut Builder)) {
    let mut p = Builder::new(false);
    build(&mut p);
    let (program, trace) = (p.finish().expect("in range").events(), trace(name));
    let (ours, theirs) = (lasting(large(&program)), lasting(large(&trace)));
    if let Some(at) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
        let around = |list: &Large| format!("{:?}", &list[at.saturating_sub(6)..list.len().min(at + 8)]);
        panic!("{name}: event {at} of {} and {}\nprogram {}\ntrace   {}", ours.len(), theirs.len(), around(&ours), around(&theirs));
    }
    // What the result's owner does afterwards may differ.
    let common = ours.len().min(theirs.len());
    let rest: Vec<_> = ours[common..].iter().chain(&theirs[common..]).filter(|event| event.0.is_some()).collect();
    assert!(rest.is_empty(), "{name}: {} and {}: {rest:?}", ours.len(), theirs.len());
    let (derived, recorded) = (highest(&program), highest(&trace));
    assert!(derived.abs_diff(recorded) * 1000 <= recorded * thousandths, "{name}: peaks {derived} and {recorded}");
}
