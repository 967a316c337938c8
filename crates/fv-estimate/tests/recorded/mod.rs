//! Programs against recorded allocator traces of diffusers' classes on an H200 (`tests/data`).

use std::collections::{HashMap, HashSet};

use fv_estimate::program::{Builder, Event};

use crate::events::{LARGE, highest, trace};

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
