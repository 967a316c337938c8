//! Recorded allocator traces of diffusers' classes on an H200 (`tests/data`), and programs, as the same events.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;

use fv_estimate::program::Event;

/// Smaller events are left out of comparisons.
pub(crate) const LARGE: u64 = 1 << 20;

/// The forward pass of a trace such as `families/s_NAME.txt.gz`: lines `a,bytes,name` and `f,name`, others aside.
pub(crate) fn trace(name: &str) -> Vec<Event> {
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

/// The highest sum of what is alive.
pub(crate) fn highest(events: &[Event]) -> u64 {
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
