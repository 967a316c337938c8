//! Every kernel on a device against the reference in double precision, from the same stored numbers. Inputs are new in every run:
//! `FV_SEED` repeats one. Targets hold what is no number before. Needs a device: `cargo test -p fv-device --test kernels -- --ignored`.

#![expect(clippy::print_stdout, reason = "errors and times are what this is for")]
#![expect(clippy::cast_precision_loss, reason = "counts, for people")]

mod cases;
mod machine;
mod speeds;

use std::collections::BTreeSet;

use fv_device::cuda::Device;
use fv_spec::program::Element;

use cases::{Case, all};
use machine::{Machine, Numbers};

/// The seed of this run.
fn seed() -> u64 {
    let given = std::env::var("FV_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| u64::from(time.subsec_nanos()));
    given.unwrap_or_else(now)
}

fn device() -> Device {
    Device::open(0).unwrap_or_else(|error| panic!("{error}"))
}

/// The size of the difference to the size of what is expected; infinite where something is no number.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let sum = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>().sqrt();
    let difference = sum(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    let size = sum(&mut expected.iter().copied());
    if difference.is_nan() { f64::INFINITY } else { difference / size.max(f64::MIN_POSITIVE) }
}

/// How many of the numbers in each row are in the other's row too, as a share.
fn overlap(found: &[f64], expected: &[f64], columns: usize) -> f64 {
    let set = |row: &[f64]| row.iter().map(|number| number.to_bits()).collect::<BTreeSet<_>>();
    let shared: usize = found.chunks(columns).zip(expected.chunks(columns)).map(|(a, b)| set(a).intersection(&set(b)).count()).sum();
    shared as f64 / expected.len() as f64
}

#[test]
#[ignore = "needs a CUDA device"]
fn kernels_agree_with_double_precision() {
    let (seed, device) = (seed(), device());
    println!("FV_SEED={seed} on {}", device.name());
    let mut wrong = Vec::new();
    for (at, case) in all().iter().enumerate() {
        let mut numbers = Numbers::new(seed ^ (at as u64) << 32);
        let mut machine = Machine::new(&device, case, &mut numbers);
        let found = machine.run();
        let expected = machine.reference();
        for ((view, found), expected) in case.writes.iter().zip(&found).zip(&expected) {
            let (error, accepted, ok) = if view.element == Element::I32 {
                let share = overlap(found, expected, usize::try_from(view.columns).expect("few"));
                (1.0 - share, 0.01, share >= 0.99)
            } else {
                let error = error(found, expected);
                (error, case.accepted, error <= case.accepted)
            };
            println!("{:<58} {error:>12.3e} of {accepted:.1e}{}", case.name, if ok { "" } else { "  WRONG" });
            if !ok {
                wrong.push(case.name.clone());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// What a plan splits must not change a bit: rows and heads that are computed alone, and those that are computed together.
#[test]
#[ignore = "needs a CUDA device"]
fn parts_are_the_bits_of_the_whole() {
    let (seed, device) = (seed(), device());
    println!("FV_SEED={seed}");
    let mut wrong = Vec::new();
    for (whole, parts) in cases::splits() {
        let mut machine = Machine::new(&device, &whole, &mut Numbers::new(seed));
        let expected = machine.bytes();
        for part in parts {
            machine.poison();
            for case in &part.1 {
                machine.launch(case);
            }
            let same = machine.written() == expected;
            println!("{:<44} {:<24} {}", whole.name, part.0, if same { "the same bits" } else { "OTHER BITS" });
            if !same {
                wrong.push(format!("{}, {}", whole.name, part.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// What kernels do not take is refused with words, before anything is launched.
#[test]
#[ignore = "needs a CUDA device"]
fn operands_that_do_not_fit_are_refused() {
    let device = device();
    for case in cases::refused() {
        let machine = Machine::new(&device, &case, &mut Numbers::new(1));
        let error = machine.try_launch(&case).expect_err(&case.name).to_string();
        assert!(error.starts_with("no kernel computes "), "{error}");
    }
}

/// What a program that carries no kernels does at its first start: `FV_CUDA_LIBS` says where the compiler is.
#[test]
#[ignore = "needs the CUDA run-time compiler"]
fn kernels_are_compiled_at_run_time() {
    for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (12, 0)] {
        let made = fv_device::cuda::modules::compile_all(capability).unwrap_or_else(|error| panic!("{error}"));
        assert!(made.iter().all(|(_, image)| image.starts_with(b"\x7fELF")), "machine code is an ELF file");
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn speeds() {
    speeds::table(&device());
}

fn case(name: impl Into<String>, kernel: fv_spec::program::Kernel, accepted: f64) -> Case {
    Case { name: name.into(), kernel, step: cases::NO_STEP, reads: vec![], writes: vec![], accepted, spread: 1.0, in_place: false }
}
