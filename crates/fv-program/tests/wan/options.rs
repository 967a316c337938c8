//! What is not looked at could not have been chosen.

use fv_program::optimal::{Budgets, solve};
use fv_program::wan::choice::Compute;
use fv_program::wan::options::{Options, Ways};

use crate::published::{self, BF16, FP8, MIDDLE};

/// Whether the first of two ways differs from the second one in that its pieces are no smaller.
fn larger(a: &Compute, b: &Compute) -> bool {
    let of = |way: &Compute| (way.outputs_on_host, way.residual_on_host, way.paired_guidance, way.text_keys);
    let pieces = |way: &Compute| [way.head_group, way.projection_chunk, way.feed_forward_chunk];
    of(a) == of(b) && a != b && pieces(a).iter().zip(pieces(b)).all(|(a, b)| *a >= b)
}

fn check(name: &str, ways: &Ways<'_>) {
    let all: Vec<_> = (0..ways.all().len()).map(|index| ways.configuration(index).expect("rates are known")).collect();
    for (a, way) in ways.all().iter().enumerate() {
        for (b, _) in ways.all().iter().enumerate().filter(|(_, other)| larger(way, other)) {
            let (large, small) = (&all[a], &all[b]);
            let says = format!("{name}: {way:?} and {:?}: {large:?} and {small:?}", ways.all()[b]);
            assert!(a < b, "{says}");
            assert!(large.device_bytes >= small.device_bytes && large.host_bytes == small.host_bytes, "{says}");
            assert!(large.set_up.ns <= small.set_up.ns && large.set_up.block_ns <= small.set_up.block_ns, "{says}");
            assert!(large.sweep_ns <= small.sweep_ns && large.round_ns <= small.round_ns, "{says}");
            assert!(large.staged.map(|staged| staged.bytes) <= small.staged.map(|staged| staged.bytes), "{says}");
            // Where activations come in pieces, the first one of them is waited for.
            assert!(large.staged.is_some() || large.block_ns <= small.block_ns, "{says}");
        }
    }
}

#[test]
fn larger_pieces_take_no_more_time_and_no_less_memory() {
    for published in published::all() {
        for formats in [BF16, FP8] {
            let rates = published::rates(MIDDLE);
            let options = Options::new(&published.model, &published.request, formats, &rates).expect("rates are known");
            check(&published.model.id, &options.ways);
        }
    }
}

#[test]
fn no_way_is_better_than_the_one_that_is_chosen() {
    let cards = [MIDDLE, [60_000_000_000_000, 272_000_000_000, 13_000_000_000, 1_000_000_000]];
    let mut staged = 0;
    for published in published::all() {
        for (formats, card) in [(BF16, cards[0]), (FP8, cards[1])] {
            let rates = published::rates(card);
            let mut options = Options::new(&published.model, &published.request, formats, &rates).expect("rates are known");
            let ways = 0..options.ways.all().len();
            let all: Vec<_> = ways.map(|index| options.ways.configuration(index).expect("rates are known")).collect();
            for device_gib in [2, 4, 6, 9, 14, 22, 40] {
                for host_gib in [8, 20, 60] {
                    let budgets = Budgets { device_bytes: device_gib << 30, host_bytes: host_gib << 30, per_pinned_gib_bytes: 2 << 20 };
                    let Ok(chosen) = options.solve(&budgets) else { continue };
                    // What parts hand over is kept all the time.
                    let rest = Budgets {
                        device_bytes: budgets.device_bytes - budgets.registered(options.request_bytes),
                        host_bytes: budgets.host_bytes - options.request_bytes,
                        ..budgets
                    };
                    let found = solve(&all, &rest);
                    assert_eq!(found.as_ref(), Some(&chosen.transformer), "{} {device_gib} {host_gib}", published.model.id);
                    staged += u32::from(options.ways.all()[chosen.transformer.configuration].residual_on_host);
                }
            }
        }
    }
    assert!(staged > 5, "ways that keep activations in host memory are chosen: {staged}");
}
