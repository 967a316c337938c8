//! What holds of every forecast of a step, whatever the input.

use fv_estimate::forecast::freevideo::{Law, Rows, Step, StepRates, step};
use fv_estimate::forecast::interval::Seconds;
use fv_estimate::forecast::rates::Rate;
use fv_spec::plan::{AttentionBackend, GemmPath, Source};
use proptest::prelude::*;

/// Coefficients near the fitted ones; `anything` below draws others.
const LAW: Law = Law {
    products: 0.638,
    attention: [0.256, 0.366],
    attention_elsewhere: 1.464,
    passes: 211.0,
    group_passes: [35.0, 41.0],
    link: 0.88,
    exposed: 0.8,
    hidden: 0.784,
    kept: [2.8e9, 1e9],
    disk: 1.744,
    host: 7.75,
    recompute: 0.18,
};

fn rates() -> impl Strategy<Value = StepRates> {
    (1.0_f64..5000.0, 1.0_f64..5000.0, 10.0_f64..20000.0, 0.1_f64..200.0, 0.01_f64..50.0, any::<bool>()).prop_map(
        |(products, attention, memory, link, disk, hopper)| {
            let rate = |value| Rate { value, source: Source::Given };
            StepRates {
                products: rate(products),
                attention: rate(attention),
                memory: rate(memory),
                link: Some(rate(link)),
                disk: rate(disk),
                hopper,
            }
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let rows = (1_u64..400_000, 1_u64..5000, 0_u64..100_000, 0_u64..1000, 0_u64..4000);
    (rows, 1_u64..57, 0_u32..3, 0_u64..51, 0_u64..51, 0_u64..51, any::<[bool; 4]>()).prop_map(
        |((video, frame, references, text, audio), head_group, slots, a, b, c, [outputs, residual, recompute, sage])| {
            // At most fifty blocks in all.
            let (pinned, pageable) = (a, b.min(50 - a));
            Step {
                rows: Rows { video, frame, references, text, audio },
                head_group,
                gemm: GemmPath::Fp8PerChannel,
                attention: if sage { AttentionBackend::Sage2 } else { AttentionBackend::TorchFlash },
                slots,
                block_bytes: 432_500_000,
                pinned,
                pageable,
                disk: c.min(50 - a - pageable),
                outputs_on_host: outputs,
                residual_on_host: residual,
                recompute,
            }
        },
    )
}

/// A hair of rounding.
fn at_most(a: f64, b: f64) -> bool {
    a <= b + b.abs() * 1e-12
}

proptest! {
    #[test]
    fn no_rate_that_is_faster_makes_a_step_slower(one in steps(), rates in rates(), which in 0..5, by in 1.0_f64..4.0) {
        let mut faster = rates;
        match which {
            0 => faster.products.value *= by,
            1 => faster.attention.value *= by,
            2 => faster.memory.value *= by,
            3 => faster.disk.value *= by,
            _ => faster.link = faster.link.map(|link| Rate { value: link.value * by, ..link }),
        }
        let [slow, fast] = [rates, faster].map(|rates| step(&one, &rates, &LAW).total());
        prop_assert!(at_most(fast, slow), "{fast} after {slow}");
    }

    #[test]
    fn a_block_further_away_never_makes_a_step_faster(one in steps(), rates in rates()) {
        let total = |one: &Step| step(one, &rates, &LAW).total();
        let here = total(&one);
        if one.pageable > 0 {
            prop_assert!(at_most(here, total(&Step { pageable: one.pageable - 1, disk: one.disk + 1, ..one })), "in the wrong order");
        }
        if one.pinned > 0 {
            prop_assert!(at_most(here, total(&Step { pinned: one.pinned - 1, disk: one.disk + 1, ..one })), "in the wrong order");
            prop_assert!(at_most(here, total(&Step { pinned: one.pinned - 1, pageable: one.pageable + 1, ..one })), "in the wrong order");
        }
        if one.copied() < 50 {
            prop_assert!(at_most(here, total(&Step { disk: one.disk + 1, ..one })), "in the wrong order");
            prop_assert!(at_most(here, total(&Step { pinned: one.pinned + 1, ..one })), "in the wrong order");
        }
    }

    #[test]
    fn more_rows_take_longer_and_narrower_groups_do_too(one in steps(), rates in rates(), more in 1_u64..100_000) {
        let total = |one: &Step| step(one, &rates, &LAW);
        let (here, longer) = (total(&one), total(&Step { rows: Rows { video: one.rows.video + more, ..one.rows }, ..one }));
        let computed = |s: fv_estimate::forecast::freevideo::StepSeconds| s.products + s.attention + s.passes + s.staging;
        prop_assert!(computed(here) < computed(longer));
        if one.head_group > 1 {
            prop_assert!(at_most(computed(here), computed(total(&Step { head_group: one.head_group - 1, ..one }))), "in the wrong order");
        }
    }

    /// Whatever the numbers are, nanoseconds come out, in order and as JavaScript's integers.
    #[test]
    fn any_numbers_give_bounded_nanoseconds(
        counts in any::<[u64; 10]>(), figures in any::<[f64; 6]>(), slots in any::<u32>(), bits in any::<[bool; 4]>(),
    ) {
        let rate = |value: f64| Rate::new(value.abs(), Source::Given).unwrap_or(Rate { value: f64::MIN_POSITIVE, source: Source::Assumed });
        let rates = StepRates {
            products: rate(figures[0]), attention: rate(figures[1]), memory: rate(figures[2]),
            link: bits[0].then(|| rate(figures[3])), disk: rate(figures[4]), hopper: bits[1],
        };
        let [video, frame, references, text, audio, head_group, block_bytes, pinned, pageable, disk] = counts;
        let one = Step {
            rows: Rows { video, frame, references, text, audio }, head_group, gemm: GemmPath::Int8PerRow,
            attention: AttentionBackend::Sage2, slots, block_bytes, pinned, pageable, disk,
            outputs_on_host: bits[2], residual_on_host: bits[3], recompute: bits[0],
        };
        let value = step(&one, &rates, &LAW).total();
        let time = Seconds::within(value, [0.5, figures[5].abs().min(10.0)]).nanoseconds();
        prop_assert!(time.low_ns <= time.value_ns && time.value_ns <= time.high_ns && time.high_ns < 1 << 53);
    }
}
