//! How exact forecasts of time are: the figures, and their section of the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fv_data::Catalog;
use fv_estimate::forecast::roofline::Kind;
use serde::Serialize;

use super::Judged;
use super::passes::{self, Timed};
use super::published_times::{PublishedTime, published};
use super::times::{Fitted, STEPS, Setting, TimeErrors, cells, fit};

/// Errors of one kind of pass of a family.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PassErrors {
    /// The family.
    pub family: String,
    /// `step` or `decode`.
    pub pass: String,
    /// Rows of the fit.
    pub rows: usize,
    /// Median and largest absolute error of the fit.
    pub fitted: [f64; 2],
    /// The same with each geometry left out.
    pub left_out: [f64; 2],
    /// Rows that the fit did not use, and their median and largest absolute error.
    pub others: Option<(usize, [f64; 2])>,
}

/// How exact forecasts are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    /// The published grid: all cells, then by class.
    pub grid: Vec<(String, TimeErrors)>,
    /// Passes under diffusers.
    pub passes: Vec<PassErrors>,
    /// What nothing was fitted to.
    pub published: BTreeMap<&'static str, Vec<PublishedTime>>,
}

impl Times {
    /// From the catalog and the judged rows.
    ///
    /// # Errors
    /// What either lacks.
    pub fn of(catalog: &Catalog, rows: &[Judged]) -> Result<Self, String> {
        let setting = Setting::of(catalog)?;
        let cells = cells(STEPS)?;
        let Fitted { forecasts, .. } = fit(&setting, &cells);
        let of = |class: Option<&str>, slot: usize| {
            let own = cells.iter().zip(&forecasts).filter(|(cell, _)| class.is_none_or(|class| cell.class() == class));
            TimeErrors::of(&own.map(|(cell, forecast)| [cell.seconds, forecast[slot]]).collect::<Vec<_>>())
        };
        let mut grid = vec![
            ("all cells".to_owned(), of(None, 0)),
            ("each host-memory row left out".to_owned(), of(None, 1)),
            ("each device-memory column left out".to_owned(), of(None, 2)),
        ];
        let mut classes: Vec<&str> = cells.iter().map(super::times::Cell::class).collect();
        classes.sort_unstable();
        classes.dedup();
        grid.extend(classes.into_iter().map(|class| (class.to_owned(), of(Some(class), 0))));
        let timed = passes::timed(catalog, rows)?;
        let common = passes::common(catalog)?;
        let fits = passes::fit_all(&timed, &common);
        let errors = |(key, fit): (&(&'static str, Kind), &passes::PassFit)| {
            let others = |row: &&Timed| !row.fitted && (row.family, row.kind) == *key;
            let others: Vec<f64> = timed.iter().filter(others).map(|row| passes::error(row, &fit.shares)).collect();
            PassErrors {
                family: key.0.to_owned(),
                pass: if key.1 == Kind::Forward { "step" } else { "decode" }.to_owned(),
                rows: fit.errors.len(),
                fitted: spread(fit.errors.iter().map(|(_, errors)| errors[0])),
                left_out: spread(fit.errors.iter().map(|(_, errors)| errors[1])),
                others: (!others.is_empty()).then(|| (others.len(), spread(others.into_iter()))),
            }
        };
        Ok(Self { grid, passes: fits.iter().map(errors).collect(), published: published(catalog) })
    }

    /// The section of the page.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "\n## Times\n\nWhat forecasts of [docs/forecast.md](forecast.md) say, against what was measured. Errors are relative.\n\n\
             Steps of MiniMax H3 under FreeVideo, the published capacity grid (`tests/data/freevideo/steps.csv`). Demanded of all cells: median\n\
             at most 2 %, worst at most 12 %, and 99.9 % of the pairs that differ by more than a tenth in the right order.\n\n\
             | cells | count | median | worst | pairs in order |\n| --- | ---: | ---: | ---: | ---: |\n",
        );
        for (name, errors) in &self.grid {
            let TimeErrors { count, median, worst, pairs, ordered } = errors;
            let _ = writeln!(text, "| {name} | {count} | {} | {} | {ordered} of {pairs} |", percent(*median), percent(*worst));
        }
        text.push_str(
            "\nSingle passes under diffusers on one H200, by family. *Left out*: each geometry in turn. *Not fitted*: first passes of a process,\n\
             and passes of a slower host that took as long as launching them.\n\n\
             | family | pass | rows | median | worst | left out, median | worst | not fitted | median | worst |\n\
             | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for row in &self.passes {
            let [fitted, left_out] = [row.fitted, row.left_out].map(|pair| pair.map(percent).join(" | "));
            let others = row.others.map_or_else(|| " | | ".to_owned(), |(n, pair)| format!("{n} | {}", pair.map(percent).join(" | ")));
            let _ = writeln!(text, "| {} | {} | {} | {fitted} | {left_out} | {others} |", row.family, row.pass, row.rows);
        }
        let tables = [
            (
                "end to end",
                "Requests under Windows that nothing was fitted to (two passes, 1344x768, ten seconds; seconds). Sound, scaling up and\nwriting the file are in the measured figure and not in ours; the disk is assumed.",
                "s",
            ),
            (
                "ratios",
                "Published pairs of settings that nothing was fitted to but for the first's coefficients, as ratios. The card of the\nfirst three is not named; our figures are those of an H200.",
                "",
            ),
        ];
        for (key, words, unit) in tables {
            let _ = write!(text, "\n{words}\n\n| what | published | forecast | range | error |\n| --- | ---: | ---: | ---: | ---: |\n");
            for row in self.published.get(key).into_iter().flatten() {
                let digits = if unit.is_empty() { 2 } else { 0 };
                let range = row.range.map_or_else(String::new, |[low, high]| format!("{low:.0} to {high:.0}"));
                let _ = writeln!(
                    text,
                    "| {} | {:.digits$} | {:.digits$} | {range} | {:+.0} % |",
                    row.what,
                    row.measured,
                    row.forecast,
                    row.error() * 100.0
                );
            }
        }
        text
    }
}

/// Median and largest of absolute errors.
fn spread(errors: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut all: Vec<f64> = errors.map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    [all.get(all.len() / 2).copied().unwrap_or_default(), all.last().copied().unwrap_or_default()]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
