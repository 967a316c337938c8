//! How exact the rules are: measured rows against what is derived, what was fitted and how it was judged.
//!
//! * [`rows`], [`case`]: measured rows as they are written; [`derive`](mod@derive) is what the rules say about one.
//! * [`fit`]: the spread of measured around derived peaks.
//! * [`caps`], [`pipelines`], [`published`]: other measurements.
//! * [`page`]: the report for people and as a page.

pub mod caps;
pub mod case;
pub mod derive;
pub mod fit;
pub mod page;
pub mod passes;
pub mod pipelines;
pub mod published;
mod published_h3;
pub mod published_times;
pub mod rows;
pub mod times;
pub mod times_page;

use std::collections::{BTreeMap, BTreeSet};

use fv_data::Catalog;
use fv_estimate::budget::{FixedCosts, fixed_costs};
use fv_estimate::device::DeviceSpec;
use fv_estimate::spread::{Ends, Spread, Work};
use fv_spec::authored::{Coefficient, Runtime};
use fv_spec::estimate::Interval;
use rayon::prelude::*;
use serde::Serialize;

use crate::check::not_current;
use crate::finding::Finding;
use crate::sources::Sources;
use derive::{Derived, Why, derive};
use rows::{Measured, Row};

/// Rows of one H200 that came with the task of the estimator: half of a larger set.
pub const FACTS: &str = include_str!("../../../../tests/data/h200_diffusers_peaks.csv");
/// Our own rows of another H200 of the same kind.
pub const OWN: &str = include_str!("../../../../tests/data/wan/peaks.csv");
/// The same for other families.
pub const FAMILIES: &str = include_str!("../../../../tests/data/families/peaks.csv");
/// The tables of rows that spreads are fitted to.
const RECORDED: [(&str, &str); 3] = [("h200_diffusers_peaks.csv", FACTS), ("wan/peaks.csv", OWN), ("families/peaks.csv", FAMILIES)];
/// Allocator caps under which components complete.
pub(crate) static CAPS: &str = include_str!("../../../../tests/data/h200_caps.json");
/// Whole pipelines.
pub(crate) static PIPELINES: &str = include_str!("../../../../tests/data/wan/pipelines.json");
/// What FastVideo's own code was measured to take.
pub(crate) static FASTVIDEO: &str = include_str!("../../../../tests/data/fastvideo/peaks.csv");
/// What others published, by file.
pub(crate) static PUBLISHED: [(&str, &str); 4] = [
    ("published_wan.csv", include_str!("../../../../tests/data/published_wan.csv")),
    ("published_h3.csv", include_str!("../../../../tests/data/published_h3.csv")),
    ("fasth3_rtx4090.csv", include_str!("../../../../tests/data/fasth3_rtx4090.csv")),
    ("published_other.csv", include_str!("../../../../tests/data/published_other.csv")),
];

/// The device that the recorded rows come from.
pub const DEVICE: &str = "h200-sxm-141gb";
/// The day of the fit.
pub const FITTED: &str = "2026-11-30";

/// A row with what was derived for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The row.
    pub row: Row,
    /// What the rules say.
    pub derived: Derived,
}

impl Judged {
    /// What the process held beside the component's own tensors before the pass: `base_alloc` less what was derived for it.
    pub fn held_before(&self) -> i128 {
        i128::from(self.row.measured.base) - i128::from(self.derived.peaks.base)
    }

    /// The same where it is positive. Negative, it only says that a workspace came later than we count it.
    pub fn baseline(&self) -> u64 {
        u64::try_from(self.held_before()).unwrap_or(0)
    }

    /// Relative error of allocated with what the process held before taken from the row: what the limits are about.
    pub fn allocated(&self) -> f64 {
        error(self.derived.peaks.allocated + self.baseline(), self.row.measured.allocated)
    }

    /// Relative error of allocated with nothing taken from the row.
    pub fn allocated_alone(&self) -> f64 {
        error(self.derived.peaks.allocated, self.row.measured.allocated)
    }

    /// Relative error of what is alive before the pass, nothing taken from the row.
    pub fn base(&self) -> f64 {
        error(self.derived.peaks.base, self.row.measured.base)
    }

    /// Relative error of reserved, nothing taken from the row.
    pub fn reserved(&self) -> f64 {
        error(self.derived.peaks.reserved, self.row.measured.reserved)
    }

    /// Relative error of reserved with what the process held before added.
    pub fn reserved_with_baseline(&self) -> f64 {
        error(self.derived.peaks.reserved + self.baseline(), self.row.measured.reserved)
    }

    /// The device interval under `ends`, nothing taken from the row.
    pub fn device(&self, ends: Ends, fixed: &FixedCosts) -> Option<Interval> {
        let peaks = &self.derived.peaks;
        fixed.device_peak(ends.peaks(peaks.tensors, peaks.allocated, peaks.reserved).reserved, peaks.pinned)
    }
}

/// Derived against measured: positive is too much.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
pub fn error(derived: u64, measured: u64) -> f64 {
    if measured == 0 { 0.0 } else { (derived as f64 - measured as f64) / measured as f64 }
}

/// The spread of each kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spreads([(Work, Ends); 2]);

impl Spreads {
    /// Those of a family in the catalog.
    pub fn of(catalog: &Catalog, family: &str) -> Self {
        let spread = Spread::of(&catalog.rules, family, Runtime::Diffusers);
        Self([Work::Plain, Work::Vae].map(|work| (work, spread.ends(work))))
    }

    /// The ends for one kind.
    pub fn ends(&self, work: Work) -> Ends {
        self.0.iter().find(|(known, _)| *known == work).map_or(Ends::EXACT, |(_, ends)| *ends)
    }
}

/// Errors of one metric over some rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Errors {
    /// Rows.
    pub count: usize,
    /// Median of the absolute errors.
    pub median: f64,
    /// The largest error above, 0 where there is none.
    pub worst_over: f64,
    /// The largest error below, negative, 0 where there is none.
    pub worst_under: f64,
}

impl Errors {
    /// Over `errors`.
    pub fn of(errors: impl IntoIterator<Item = f64>) -> Self {
        let mut errors: Vec<f64> = errors.into_iter().collect();
        let worst_over = errors.iter().copied().fold(0.0, f64::max);
        let worst_under = errors.iter().copied().fold(0.0, f64::min);
        errors.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let median = match errors.len() {
            0 => 0.0,
            n if n % 2 == 1 => errors[n / 2].abs(),
            n => f64::midpoint(errors[n / 2 - 1].abs(), errors[n / 2].abs()),
        };
        Self { count: errors.len(), median, worst_over, worst_under }
    }

    /// The largest error either way.
    pub fn worst(&self) -> f64 {
        self.worst_over.max(-self.worst_under)
    }
}

/// How well an interval covers some rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Rows.
    pub count: usize,
    /// Rows inside.
    pub inside: usize,
    /// Rows outside: file, line, and by how much of the measured value; negative where the interval ends below it.
    pub misses: Vec<Miss>,
    /// Width in shares of the derived value, median and largest.
    pub width: [f64; 2],
}

/// A row outside its interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Miss {
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// The nearer end against the measured value.
    pub by: f64,
}

impl Coverage {
    /// The share of rows inside; 1 without rows.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share(&self) -> f64 {
        if self.count == 0 { 1.0 } else { self.inside as f64 / self.count as f64 }
    }

    /// The largest miss below the measured value, 0 where there is none.
    pub fn worst_under(&self) -> f64 {
        self.misses.iter().map(|miss| miss.by).fold(0.0, f64::min)
    }

    fn of<'a>(rows: impl IntoIterator<Item = (&'a Judged, Option<Interval>)>) -> Self {
        let mut coverage = Self::default();
        let mut widths = Vec::new();
        for (row, interval) in rows {
            let Some(interval) = interval else { continue };
            let measured = row.row.measured.device;
            coverage.count += 1;
            widths.push(error(interval.high, interval.value) - error(interval.low, interval.value));
            if (interval.low..=interval.high).contains(&measured) {
                coverage.inside += 1;
            } else {
                let by = error(if measured > interval.high { interval.high } else { interval.low }, measured);
                coverage.misses.push(Miss { file: row.row.file.clone(), line: row.row.line, by });
            }
        }
        let median = Errors::of(widths.iter().copied()).median;
        coverage.width = [median, widths.iter().copied().fold(0.0, f64::max)];
        coverage
    }
}

/// A row without a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NotCovered {
    /// The file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// As written.
    pub component: String,
    /// As written.
    pub stage: String,
    /// As written.
    pub case: String,
    /// Why not.
    pub why: String,
}

/// Everything that was measured, and what comes of it.
#[derive(Debug)]
pub struct Accuracy {
    /// Rows with a figure, in the order of the files.
    pub rows: Vec<Judged>,
    /// Rows without one.
    pub not_covered: Vec<NotCovered>,
    /// What is wrong with the files.
    pub findings: Vec<Finding>,
    /// The fixed costs that device intervals contain.
    pub fixed: FixedCosts,
    /// The catalog's spread of each family with rows.
    pub spreads: BTreeMap<&'static str, Spreads>,
    /// Device intervals under the catalog's spread.
    pub coverage: Coverage,
    /// The recorded rows only.
    pub recorded: Option<Recorded>,
}

/// What is judged of the recorded rows and not of others.
#[derive(Debug)]
pub struct Recorded {
    /// Device intervals with the spread fitted again without a row's geometry.
    pub left_out: Coverage,
    /// The largest errors by family and kind of work when a geometry is left out: reserved below and above, allocated above.
    pub left_out_errors: BTreeMap<&'static str, BTreeMap<Work, [f64; 3]>>,
    /// Thresholds of allocator caps.
    pub caps: Vec<caps::Cap>,
    /// Whole pipelines.
    pub pipelines: Vec<pipelines::StageRow>,
    /// Published rows.
    pub published: Vec<published::Published>,
    /// Forecasts of time, or what the catalog lacks for them.
    pub times: Result<times_page::Times, String>,
}

impl Accuracy {
    /// Judges the rows of `files`: path and text of each.
    pub fn of(catalog: &Catalog, files: &[(String, String)]) -> Self {
        let (mut measured, mut findings) = (Vec::new(), Vec::new());
        for (path, text) in files {
            let (rows, wrong) = rows::read(path, text);
            // A row keeps its place for the finding that only its case can cause.
            measured.extend(rows.into_iter().map(|row| (row, text)));
            findings.extend(wrong);
        }
        let derived: Vec<Result<Derived, Why>> = measured.par_iter().map(|(row, _)| derive(catalog, row)).collect();
        let (mut rows, mut not_covered) = (Vec::new(), Vec::new());
        for ((row, text), derived) in measured.into_iter().zip(derived) {
            match derived {
                Ok(derived) => rows.push(Judged { row, derived }),
                Err(Why::NotCovered(why)) => not_covered.push(NotCovered {
                    file: row.file,
                    line: row.line,
                    component: row.component,
                    stage: row.stage,
                    case: row.case,
                    why,
                }),
                Err(Why::Malformed(why)) => findings.push(rows::case_finding(&row, text, &why)),
            }
        }
        crate::finding::sort(&mut findings);
        let spec = catalog.device(DEVICE).map(DeviceSpec::from);
        let fixed = spec.map_or_else(
            || FixedCosts::exact(0, format!("the catalog has no {DEVICE}")),
            |spec| fixed_costs(&catalog.rules, &spec, Runtime::Diffusers),
        );
        let families: BTreeSet<&'static str> = rows.iter().map(|row: &Judged| row.derived.family).collect();
        let spreads: BTreeMap<_, _> = families.into_iter().map(|family| (family, Spreads::of(catalog, family))).collect();
        let coverage = Coverage::of(rows.iter().map(|row| (row, row.device(spreads[row.derived.family].ends(row.derived.work), &fixed))));
        Self { rows, not_covered, findings, fixed, spreads, coverage, recorded: None }
    }

    /// Judges everything that is recorded.
    ///
    /// # Errors
    /// When a recorded file is not what it should be.
    pub fn recorded(catalog: &Catalog) -> Result<Self, String> {
        let files = RECORDED.map(|(path, text)| (path.to_owned(), text.to_owned()));
        let (accuracy, (caps, (pipelines, published))) = rayon::join(
            || Self::of(catalog, &files),
            || {
                let spreads = Spreads::of(catalog, "wan");
                let pipelines = || rayon::join(|| pipelines::pipelines(catalog), || published::published(catalog, &spreads));
                rayon::join(|| caps::caps(catalog, &spreads), pipelines)
            },
        );
        let mut accuracy = accuracy;
        if let Some(finding) = accuracy.findings.first() {
            return Err(format!("{}: {}", finding.file.path, finding.message));
        }
        let (left_out, left_out_errors) = accuracy.leave_out();
        let times = times_page::Times::of(catalog, &accuracy.rows);
        accuracy.recorded = Some(Recorded { left_out, left_out_errors, caps: caps?, pipelines: pipelines?, published: published?, times });
        Ok(accuracy)
    }

    /// The families of the rows.
    pub fn families(&self) -> impl Iterator<Item = &'static str> {
        self.spreads.keys().copied()
    }

    /// Fits the spread of each family without each geometry in turn and looks at that geometry's rows.
    fn leave_out(&self) -> (Coverage, BTreeMap<&'static str, BTreeMap<Work, [f64; 3]>>) {
        let ends: BTreeMap<(&str, &str), Spreads> = self
            .families()
            .flat_map(|family| fit::geometries(&self.rows, family).into_iter().map(move |geometry| (family, geometry)))
            .map(|(family, geometry)| ((family, geometry), Spreads(fit::all_ends(&self.rows, family, Some(geometry)))))
            .collect();
        let of = |row: &Judged| {
            let key = (row.derived.family, row.derived.geometry.as_str());
            ends.get(&key).map_or(Ends::EXACT, |spreads| spreads.ends(row.derived.work))
        };
        let coverage = Coverage::of(self.rows.iter().map(|row| (row, row.device(of(row), &self.fixed))));
        let mut errors: BTreeMap<&'static str, BTreeMap<Work, [f64; 3]>> = BTreeMap::new();
        for row in &self.rows {
            let peaks = &row.derived.peaks;
            let expected = of(row).peaks(peaks.tensors, peaks.allocated + row.baseline(), peaks.reserved);
            let Measured { allocated, reserved, .. } = row.row.measured;
            let worst = errors.entry(row.derived.family).or_default().entry(row.derived.work).or_default();
            worst[0] = worst[0].max(error(expected.reserved.low, reserved));
            worst[1] = worst[1].max(-error(expected.reserved.high, reserved));
            worst[2] = worst[2].max(-error(expected.allocated.high, allocated));
        }
        (coverage, errors)
    }

    /// Errors of a metric over the rows that `keep` accepts.
    pub fn errors(&self, keep: impl Fn(&Judged) -> bool, metric: impl Fn(&Judged) -> f64) -> Errors {
        Errors::of(self.rows.iter().filter(|row| keep(row)).map(metric))
    }

    /// The demanded limits, each with the figure and whether it holds.
    pub fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        for family in self.families() {
            // Median, largest error and largest error below of allocated.
            let [median, worst, under] = if family == "wan" { [0.04, 0.10, 0.02] } else { [0.06, 0.15, 0.03] };
            let allocated = self.errors(|row| row.derived.family == family, Judged::allocated);
            limits.push(Limit::most(&format!("{family}: allocated, median error"), allocated.median, median));
            limits.push(Limit::most(&format!("{family}: allocated, largest error"), allocated.worst(), worst));
            limits.push(Limit::most(&format!("{family}: allocated, largest error below"), -allocated.worst_under, under));
            if family == "wan" {
                let reserved = self.errors(|row| row.derived.family == family, Judged::reserved);
                limits.push(Limit::most("wan: reserved, median error", reserved.median, 0.08));
            }
        }
        let coverage = self.recorded.as_ref().map_or(&self.coverage, |recorded| &recorded.left_out);
        let intervals = if self.recorded.is_some() { ", each geometry left out of the fit" } else { "" };
        limits.push(Limit {
            what: format!("device interval, rows inside{intervals}"),
            found: coverage.share(),
            limit: 0.95,
            holds: coverage.share() >= 0.95,
        });
        limits.push(Limit::most(&format!("device interval, largest miss below{intervals}"), -coverage.worst_under(), 0.05));
        if let Some(recorded) = &self.recorded {
            // The rows of the notes whose settings are published whole: one device, 0, 6 and 30 resident blocks.
            let notes = recorded.published.iter().filter(|row| row.file == "fasth3_rtx4090.csv" && row.what.contains("streamed encoder"));
            let errors: Vec<f64> = notes.filter_map(|row| Some(error(row.value?, row.bytes?))).collect();
            let worst = Errors::of(errors.iter().copied()).worst();
            limits.push(Limit::most("minimax_h3 x fastvideo: allocated, largest error of the RTX 4090 rows", worst, 0.08));
            let judged: Vec<bool> = recorded.caps.iter().filter_map(caps::Cap::inside).collect();
            let inside = judged.iter().filter(|inside| **inside).count();
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = if judged.is_empty() { 1.0 } else { inside as f64 / judged.len() as f64 };
            limits.push(Limit {
                what: "allocator caps, thresholds inside `uncertain`".to_owned(),
                found: share,
                limit: 1.0,
                holds: inside == judged.len(),
            });
        }
        limits
    }

    /// The coefficients that the recorded rows give: for each family a file of the catalog, by its path below it.
    pub fn fitted(&self) -> BTreeMap<String, String> {
        let errors = self.recorded.as_ref().map(|recorded| recorded.left_out_errors.clone()).unwrap_or_default();
        let file = |family: &'static str| {
            let errors = errors.get(family).cloned().unwrap_or_default();
            let text = fit::yaml(&fit::coefficients(&self.rows, family, &errors, FITTED), "accuracy --fit");
            (format!("rules/spread-{family}-diffusers.yaml"), text)
        };
        self.families().map(file).collect()
    }

    /// Every file of the catalog that is fitted to recorded rows, spreads and times: its path below the catalog, and its text.
    ///
    /// # Errors
    /// What the catalog or the rows lack.
    pub fn fitted_files(&self, catalog: &Catalog) -> Result<BTreeMap<String, String>, String> {
        let rows = passes::timed(catalog, &self.rows)?;
        let passes = passes::files(&rows, &passes::fit_all(&rows, &passes::common(catalog)?));
        Ok(self.fitted().into_iter().chain([times::file(catalog)?]).chain(passes).collect())
    }

    /// Coefficients of the catalog's files that are not what the recorded rows give, each at its place.
    ///
    /// # Errors
    /// As [`fitted_files`](Self::fitted_files).
    pub fn not_fitted(&self, catalog: &Catalog, sources: &Sources) -> Result<Vec<Finding>, String> {
        let mut fitted: BTreeMap<String, Coefficient> = BTreeMap::new();
        for text in self.fitted_files(catalog)?.values() {
            let file: BTreeMap<String, Coefficient> = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
            fitted.extend(file);
        }
        let spread = |id: &str, coefficient: &Coefficient| id.starts_with("spread-") && Self::names_recorded_rows(coefficient);
        Ok(not_current(sources, &fitted, spread, "`fv-catalog accuracy --fit`, then `make docs`"))
    }

    /// Whether a coefficient says that it was fitted to recorded rows.
    pub fn names_recorded_rows(coefficient: &Coefficient) -> bool {
        coefficient.source_rows.iter().any(|row| RECORDED.iter().any(|(file, _)| row.starts_with(file)))
    }
}

/// A demanded limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// What is limited.
    pub what: String,
    /// What was found, as a share.
    pub found: f64,
    /// The limit.
    pub limit: f64,
    /// Whether it holds.
    pub holds: bool,
}

impl Limit {
    fn most(what: &str, found: f64, limit: f64) -> Self {
        // `-0.0` is no error below, and which zero `max` gives differs between builds.
        Self { what: what.to_owned(), found: found.max(0.0) + 0.0, limit, holds: found <= limit }
    }
}
