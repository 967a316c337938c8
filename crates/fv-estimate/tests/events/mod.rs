//! Programs against traces: the events of at least 1 MiB, in order.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use fv_estimate::program::Event;

const LARGE: u64 = 1 << 20;

/// The text of a file in `tests/data`.
pub(crate) fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip of text");
    text
}

/// The events of a trace: lines `a,bytes,name` and `f,name`, others aside.
pub(crate) fn trace(text: &str) -> Vec<Event> {
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

/// The large events: allocations numbered anew, frees by that number.
fn large(events: &[Event]) -> Vec<(Option<u64>, usize)> {
    let (mut numbers, mut result, mut count) = (HashMap::new(), Vec::new(), 0);
    for event in events {
        match event {
            Event::Alloc(id, bytes) if *bytes >= LARGE => {
                numbers.insert(*id, count);
                result.push((Some(*bytes), count));
                count += 1;
            }
            Event::Free(id) => result.extend(numbers.remove(id).map(|number| (None, number))),
            Event::Alloc(..) => {}
        }
    }
    result
}

/// Panics at the first event in which program and trace differ. Sizes of what is freed at once, which are workspaces, may differ.
#[expect(clippy::many_single_char_names, reason = "a pair of lists, of sizes and of numbers")]
pub(crate) fn compare(name: &str, program: &[Event], trace: &[Event]) {
    let (a, b) = (large(program), large(trace));
    // Encoders are followed by the posterior's own tensors, which the program leaves out.
    for i in 0..if name.contains("_enc_") { a.len() } else { a.len().max(b.len()) } {
        let around = || {
            let show = |list: &[(Option<u64>, usize)]| {
                list[i.saturating_sub(8).min(list.len())..(i + 8).min(list.len())]
                    .iter()
                    .map(|(size, n)| size.map_or(format!("f {n}"), |size| format!("a {n} {size}")))
                    .collect::<Vec<_>>()
                    .join("; ")
            };
            format!("{name}: event {i} of {} and {}\nprogram {}\ntrace   {}", a.len(), b.len(), show(&a), show(&b))
        };
        let (Some((x, m)), Some((y, n))) = (a.get(i), b.get(i)) else { panic!("{}", around()) };
        assert!(m == n && x.is_some() == y.is_some(), "{}", around());
        if let (Some(x), Some(y)) = (x, y) {
            let freed_at_once = a.get(i + 1) == Some(&(None, *m));
            assert!(x.div_ceil(512) == y.div_ceil(512) || freed_at_once, "{}", around());
        }
    }
}
