//! Forecasts of time: the published capacity grid, what is not known, and rows that no coefficient was fitted to.

use std::sync::LazyLock;

use fv_catalog::accuracy::times::{Cell, STEPS, Setting, TimeErrors, cells, file, fit};
use fv_data::Catalog;
use fv_estimate::forecast::freevideo::Step;
use fv_estimate::forecast::rates::{Rate, Rates};
use fv_estimate::forecast::request::{Request, forecast, rows};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::StageName;
use fv_spec::forecast::{TimeBasis, TimeForecast};
use fv_spec::plan::Source;
use fv_tests::root;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::embedded().expect("readable"));
static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| cells(STEPS).expect("sound"));

fn rates(id: &str) -> Rates {
    Rates::of(CATALOG.devices.iter().find(|device| device.id == id).expect("known"))
}

fn one_pass(step: Step) -> Request {
    Request { passes: vec![("only".to_owned(), 8, step)], upscales: false, encodes: true, pin_bytes: 0, decoder: None }
}

fn of(step: Step, rates: &Rates) -> TimeForecast {
    forecast(&one_pass(step), rates, &CATALOG.rules)
}

/// The forecast of the committed catalog for every cell, as a person gets it.
fn figures() -> Vec<[f64; 2]> {
    let h200 = rates("h200-sxm-141gb");
    CELLS
        .iter()
        .map(|cell| {
            let answer = of(cell.step, &h200);
            #[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds")]
            let seconds = answer.passes[0].step.value_ns as f64 / 1e9;
            [cell.seconds, seconds]
        })
        .collect()
}

#[test]
fn the_published_grid_is_met() {
    let errors = TimeErrors::of(&figures());
    assert_eq!(errors.count, 313);
    assert!(errors.median <= 0.02 && errors.worst <= 0.12 && errors.order() >= 0.999, "{errors:?}");
    // Tighter than demanded: what is reached is kept.
    assert!(errors.median <= 0.006 && errors.worst <= 0.055 && errors.ordered == errors.pairs, "{errors:?}");
}

/// A row or a column of the grid that the fit has not seen is met as well.
#[test]
fn rows_and_columns_that_were_left_out_are_met() {
    let setting = Setting::of(&CATALOG).expect("complete");
    let fitted = fit(&setting, &CELLS);
    for (slot, what) in [(1, "row"), (2, "column")] {
        let figures: Vec<[f64; 2]> = CELLS.iter().zip(&fitted.forecasts).map(|(cell, f)| [cell.seconds, f[slot]]).collect();
        let errors = TimeErrors::of(&figures);
        assert!(errors.median <= 0.01 && errors.worst <= 0.12 && errors.order() >= 0.999, "{what}: {errors:?}");
    }
}

#[test]
fn the_committed_fit_is_what_the_rows_give() {
    let (name, text) = file(&CATALOG).expect("complete");
    let committed = std::fs::read_to_string(root().join("catalog").join(name)).expect("there");
    assert_eq!(committed, text, "run `fv-catalog accuracy --fit`, then `make docs`");
}

#[test]
fn intervals_hold_what_was_measured_and_say_so() {
    let h200 = rates("h200-sxm-141gb");
    for cell in CELLS.iter() {
        let answer = of(cell.step, &h200);
        let stage = answer.stages.iter().find(|stage| stage.name == StageName::Denoising).expect("there");
        assert_eq!(stage.basis, TimeBasis::Measured);
        let step = answer.passes[0].step;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds")]
        let measured = (cell.seconds * 1e9) as u64;
        assert!(step.low_ns <= measured && measured <= step.high_ns, "line {}: {step:?}", cell.line);
    }
}

#[test]
fn another_canvas_is_extrapolated_and_another_device_scaled() {
    let step = CELLS[0].step;
    let basis = |step: Step, id: &str| of(step, &rates(id)).stages.iter().find(|s| s.name == StageName::Denoising).expect("there").basis;
    assert_eq!(basis(Step { rows: rows(480, 832, 243, 367), ..step }, "h200-sxm-141gb"), TimeBasis::Extrapolated);
    assert_eq!(basis(Step { residual_on_host: true, ..step }, "h200-sxm-141gb"), TimeBasis::Extrapolated);
    assert_eq!(basis(step, "rtx-5090-32gb"), TimeBasis::Scaled);
}

#[test]
fn what_is_missing_is_named() {
    let answer = of(CELLS[0].step, &rates("rtx-4060-ti-8gb"));
    assert!(answer.request.is_none() && answer.passes.is_empty());
    let messages: Vec<&str> = answer.unknown.iter().map(|reason| reason.message.as_str()).collect();
    assert!(messages.iter().any(|message| message.contains("dense rate of fp8") && message.contains("rtx-4060-ti-8gb")), "{messages:?}");
    assert!(answer.leaves_out.contains(&"denoising".to_owned()));

    let bare = RulesFile {
        coefficients: CATALOG.rules.coefficients.clone().into_iter().filter(|(id, _)| !id.ends_with("-passes")).collect(),
        ..CATALOG.rules.clone()
    };
    let answer = forecast(&one_pass(CELLS[0].step), &rates("h200-sxm-141gb"), &bare);
    assert!(answer.stages.is_empty() && answer.unknown[0].message.contains("passes"), "{:?}", answer.unknown);
}

/// Where nobody says how fast the disk is, that is a note, and elsewhere than on the measured host the range is wide.
#[test]
fn an_assumed_disk_is_said() {
    let from_disk = CELLS.iter().find(|cell| cell.streamed() && cell.step.pinned == 0).expect("there").step;
    let assumed = of(from_disk, &rates("rtx-5090-32gb"));
    assert!(assumed.notes.iter().any(|note| note.contains("disk")), "{:?}", assumed.notes);
    let with = |rate| Rates { disk: Rate::new(rate, Source::Given), ..rates("rtx-5090-32gb") };
    let [fast, slow] = [with(7.0), with(0.2)].map(|rates| of(from_disk, &rates));
    assert!(fast.notes.is_empty(), "{:?}", fast.notes);
    assert!(fast.passes[0].step.high_ns < assumed.passes[0].step.high_ns);
    assert!(assumed.passes[0].step.value_ns < slow.passes[0].step.value_ns);
}
