//! Programs against traces: every event of at least 1 MiB, in order.

use std::collections::HashMap;

use fv_estimate::program::{Builder, Event};

use crate::events::{LARGE, highest, trace};

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

/// Compares program and trace. Workspaces of small convolutions differ, since cuDNN picks other algorithms for them: such sizes
/// may be off, and are returned as (program, trace).
#[expect(clippy::many_single_char_names, reason = "a pair of lists, of sizes and of numbers")]
fn compare(name: &str, program: &[Event], trace: &[Event]) -> Result<Vec<(u64, u64)>, String> {
    let (a, b) = (large(program), large(trace));
    let mut sizes = Vec::new();
    // Encoders are followed by the posterior's own tensors, which the program leaves out.
    for i in 0..if name.contains("_enc_") { a.len() } else { a.len().max(b.len()) } {
        let around = || {
            let show = |list: &[(Option<u64>, usize)]| list[i.saturating_sub(6).min(list.len())..(i + 6).min(list.len())].to_vec();
            format!("{name}: event {i} of {} and {}\nprogram {:?}\ntrace   {:?}", a.len(), b.len(), show(&a), show(&b))
        };
        let (Some((x, m)), Some((y, n))) = (a.get(i), b.get(i)) else { return Err(around()) };
        if m != n || x.is_some() != y.is_some() {
            return Err(around());
        }
        if let (Some(x), Some(y)) = (x, y)
            && x.div_ceil(512) != y.div_ceil(512)
        {
            let freed_at_once = a.get(i + 1) == Some(&(None, *m));
            if !freed_at_once {
                return Err(around());
            }
            sizes.push((*x, *y));
        }
    }
    Ok(sizes)
}

/// Whether what `build` emits equals a trace but for sizes of workspaces: of those that are a tenth of the peak or more the
/// program's are at most 6 % smaller and 30 % larger.
pub(crate) fn check<T>(name: &str, build: impl FnOnce(&mut Builder) -> T) {
    let mut p = Builder::new(false);
    build(&mut p);
    let (program, trace) = (p.finish().expect("a program").events(), trace(name));
    let (derived, recorded) = (highest(&program), highest(&trace));
    // What is smaller than 1 MiB is not compared one by one.
    assert!(derived.abs_diff(recorded) <= (recorded / 200).max(LARGE), "{name}: peaks {derived} and {recorded}");
    for (x, y) in compare(name, &program, &trace).unwrap_or_else(|difference| panic!("{difference}")) {
        assert!(y * 10 < recorded || (y * 94 <= x * 100 && x * 100 <= y * 130), "{name}: workspace {x}, recorded {y}, peak {recorded}");
    }
}
