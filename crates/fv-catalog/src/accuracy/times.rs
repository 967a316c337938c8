//! Steps of MiniMax H3 under `FreeVideo`: measured cells against the law, and the fit of its coefficients.

use std::collections::BTreeMap;

use fv_data::Catalog;
use fv_estimate::forecast::freevideo::{BLOCKS, Law, PREFIX, Rows, Step, StepRates, step};
use fv_estimate::forecast::rates::Rates;
use fv_spec::authored::{Coefficient, Runtime};
use fv_spec::plan::{AttentionBackend, GemmPath};

use super::{DEVICE, FITTED};

/// Half of the published capacity grid.
pub static STEPS: &str = include_str!("../../../../tests/data/freevideo/steps.csv");
/// Its name in sources.
const FILE: &str = "freevideo/steps.csv";
/// Bytes of a block in the runtime's cache.
const BLOCK: u64 = 432_500_000;
/// The request of the grid: 1344x768, 243 frames, with the text that the runtime assumes.
const ROWS: Rows = Rows { video: 72_576, frame: 1008, references: 0, text: 367, audio: 810 };
/// Relative errors beyond this count less than by their square.
const ROBUST: f64 = 0.02;
/// Pairs of cells that differ by more than this must come in the right order.
const APART: f64 = 1.1;

/// A measured cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Device and host memory in GiB.
    pub memory: [u64; 2],
    /// Measured seconds of a step.
    pub seconds: f64,
    /// What the plan decides.
    pub step: Step,
}

impl Cell {
    /// Whether blocks are read from disk.
    pub fn streamed(&self) -> bool {
        self.step.disk > 0
    }

    /// Its class in reports.
    pub fn class(&self) -> &'static str {
        match (self.streamed(), self.memory[0]) {
            (false, ..11) => "no disk, 8 to 10 GiB",
            (false, 11..15) => "no disk, 11 to 14 GiB",
            (false, _) => "no disk, 15 GiB and more",
            (true, ..11) => "from disk, 8 to 10 GiB",
            (true, 11..15) => "from disk, 11 to 14 GiB",
            (true, _) => "from disk, 15 GiB and more",
        }
    }
}

/// Reads cells in the columns of `tests/data/freevideo/steps.csv`.
///
/// # Errors
/// The line that is wrong, and why.
pub fn cells(text: &str) -> Result<Vec<Cell>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut cells = Vec::new();
    for (i, record) in reader.records().enumerate() {
        let line = i + 2;
        let record = record.map_err(|error| format!("line {line}: {error}"))?;
        let number = |at: usize| -> Result<u64, String> {
            let text = record.get(at).unwrap_or_default();
            text.parse().map_err(|_| format!("line {line}: {text:?} is no whole number"))
        };
        let seconds = record.get(2).and_then(|text| text.parse::<f64>().ok()).filter(|seconds| seconds.is_finite() && *seconds > 0.0);
        let seconds = seconds.ok_or(format!("line {line}: no seconds"))?;
        let (resident, disk, pinned) = (number(3)?, number(4)? == 1, number(7)?);
        let away = BLOCKS.saturating_sub(resident + pinned);
        cells.push(Cell {
            line,
            memory: [number(0)?, number(1)?],
            seconds,
            step: Step {
                rows: ROWS,
                head_group: number(5)?,
                gemm: GemmPath::Fp8PerChannel,
                attention: AttentionBackend::Sage2,
                slots: u32::try_from(number(6)?).unwrap_or(u32::MAX),
                block_bytes: BLOCK,
                pinned,
                pageable: if disk { 0 } else { away },
                disk: if disk { away } else { 0 },
                outputs_on_host: false,
                residual_on_host: false,
                recompute: false,
            },
        });
    }
    Ok(cells)
}

/// What is fitted, in the order of the fit's vector: id, unit, what it is.
const FITS: [(&str, &str, &str); 8] = [
    ("group-passes", "moves of the residual stream", "for each group of eight heads or more"),
    ("narrow-group-passes", "moves of the residual stream", "for each group of fewer than eight heads"),
    ("passes", "moves of the residual stream", "in a block, whatever the groups"),
    ("exposed-copies", "share", "of copies with one slot that computing does not hide"),
    ("disk-rate", "GB/s", "read from disk and cache of the grid's host"),
    ("hidden-reads", "share", "of a block's computing that reading runs beside"),
    ("kept-bytes", "bytes", "of blocks on disk that are read ahead or in the system's cache, with page-locked blocks"),
    ("kept-bytes-unpinned", "bytes", "the same with no page-locked block"),
];
/// Where every fit starts. What only one row or column tells apart starts equal, and stays so when that is left out.
const START: [f64; 8] = [35.0, 35.0, 200.0, 0.7, 1.7, 0.8, 2.8e9, 2.8e9];

fn with(law: &Law, x: &[f64; 8]) -> Law {
    Law {
        group_passes: [x[0], x[1]],
        passes: x[2],
        exposed: x[3].clamp(0.0, 1.0),
        disk: x[4].max(0.05),
        hidden: x[5].clamp(0.0, 1.0),
        kept: [x[6].max(0.0), x[7].max(0.0)],
        ..*law
    }
}

/// The grid's device and the coefficients that are not fitted.
#[derive(Debug, Clone)]
pub struct Setting {
    rates: Rates,
    law: Law,
}

impl Setting {
    /// From the catalog.
    ///
    /// # Errors
    /// What it lacks.
    pub fn of(catalog: &Catalog) -> Result<Self, String> {
        let device = catalog.devices.iter().find(|device| device.id == DEVICE).ok_or(format!("the catalog lacks {DEVICE}"))?;
        // The fitted ones may be missing, since this is what they come from.
        let mut rules = catalog.rules.clone();
        for ((name, unit, _), value) in FITS.iter().zip(START) {
            rules.coefficients.entry(format!("{PREFIX}{name}")).or_insert_with(|| coefficient(value, unit, "", Vec::new(), None));
        }
        Ok(Self { rates: Rates::of(device), law: Law::of(&rules).map_err(|reason| reason.message)? })
    }

    /// What a law says of a cell.
    ///
    /// # Errors
    /// Rates that the device lacks.
    pub fn seconds(&self, cell: &Cell, law: &Law) -> Result<f64, String> {
        let rates = StepRates::of(&cell.step, &self.rates, law).map_err(|reasons| reasons[0].message.clone())?;
        Ok(step(&cell.step, &rates, law).total())
    }

    /// The catalog's law.
    pub fn law(&self) -> &Law {
        &self.law
    }

    /// Relative error of a law at a cell: positive is too much.
    fn error(&self, cell: &Cell, law: &Law) -> f64 {
        self.seconds(cell, law).map_or(0.0, |seconds| seconds / cell.seconds - 1.0)
    }

    /// Coefficients that fit `cells` best: least squares of relative errors, of which large ones count less, by damped
    /// Gauss-Newton steps from `start`.
    fn fit(&self, cells: &[&Cell], start: [f64; 8]) -> [f64; 8] {
        let errors = |x: &[f64; 8]| -> Vec<f64> {
            let law = with(&self.law, x);
            cells.iter().map(|cell| self.error(cell, &law)).collect()
        };
        let robust = |errors: &[f64]| errors.iter().map(|e| ((1.0 + (e / ROBUST) * (e / ROBUST)).sqrt() - 1.0) * ROBUST).sum::<f64>();
        let (mut x, mut damping) = (start, 1e-3);
        let mut found = errors(&x);
        let mut best = robust(&found);
        for _ in 0..60 {
            let slopes: Vec<Vec<f64>> = (0..x.len())
                .map(|i| {
                    let mut moved = x;
                    let by = START[i] * 1e-4;
                    moved[i] += by;
                    errors(&moved).iter().zip(&found).map(|(a, b)| (a - b) / by * START[i]).collect()
                })
                .collect();
            let weights: Vec<f64> = found.iter().map(|e| 1.0 / (1.0 + (e / ROBUST) * (e / ROBUST)).sqrt()).collect();
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).zip(&weights).map(|((a, b), w)| a * b * w).sum::<f64>();
            let mut system: [[f64; 9]; 8] = [[0.0; 9]; 8];
            for (i, row) in system.iter_mut().enumerate() {
                for (j, value) in row.iter_mut().take(8).enumerate() {
                    *value = dot(&slopes[i], &slopes[j]);
                }
                row[i] += damping * (row[i] + 1e-9);
                row[8] = -dot(&slopes[i], &found);
            }
            let change = solve(system);
            let mut next = x;
            for ((value, change), scale) in next.iter_mut().zip(change).zip(START) {
                *value = (*value + change * scale).max(0.0);
            }
            let next_errors = errors(&next);
            let sum = robust(&next_errors);
            if sum < best {
                let settled = best - sum < best * 1e-9;
                (x, found, best, damping) = (next, next_errors, sum, damping * 0.3);
                if settled {
                    break;
                }
            } else {
                damping *= 10.0;
                if damping > 1e9 {
                    break;
                }
            }
        }
        x
    }
}

/// Solves eight linear equations by elimination; an unknown that nothing depends on stays 0.
fn solve(mut system: [[f64; 9]; 8]) -> [f64; 8] {
    for i in 0..8 {
        let pivot = (i..8).max_by(|a, b| system[*a][i].abs().total_cmp(&system[*b][i].abs())).unwrap_or(i);
        system.swap(i, pivot);
        let head = system[i];
        if head[i].abs() < 1e-300 {
            continue;
        }
        for (j, row) in system.iter_mut().enumerate() {
            if j != i {
                let factor = row[i] / head[i];
                row.iter_mut().zip(head).for_each(|(value, other)| *value -= factor * other);
            }
        }
    }
    std::array::from_fn(|i| if system[i][i].abs() < 1e-300 { 0.0 } else { system[i][8] / system[i][i] })
}

/// Errors of forecasts over some cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeErrors {
    /// Cells.
    pub count: usize,
    /// Median of the absolute relative errors.
    pub median: f64,
    /// The largest.
    pub worst: f64,
    /// Pairs that differ by more than a tenth.
    pub pairs: usize,
    /// Of these, pairs in the right order.
    pub ordered: usize,
}

impl TimeErrors {
    /// Of measured and forecast seconds.
    pub fn of(figures: &[[f64; 2]]) -> Self {
        let mut errors: Vec<f64> = figures.iter().map(|[measured, forecast]| (forecast / measured - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let (mut pairs, mut ordered) = (0, 0);
        for (i, a) in figures.iter().enumerate() {
            for b in &figures[i + 1..] {
                if a[0].max(b[0]) / a[0].min(b[0]) > APART {
                    pairs += 1;
                    ordered += usize::from((a[0] < b[0]) == (a[1] < b[1]) && a[1].to_bits() != b[1].to_bits());
                }
            }
        }
        let median = errors.get(errors.len() / 2).copied().unwrap_or_default();
        Self { count: errors.len(), median, worst: errors.last().copied().unwrap_or_default(), pairs, ordered }
    }

    /// Share of the pairs in the right order.
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn order(&self) -> f64 {
        if self.pairs == 0 { 1.0 } else { self.ordered as f64 / self.pairs as f64 }
    }
}

/// A fit with what was found when a row or column of the grid was left out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The coefficients, by name without prefix.
    values: [f64; 8],
    /// For each cell: the forecast of the whole fit, without the cell's RAM row, and without its VRAM column.
    pub forecasts: Vec<[f64; 3]>,
}

/// Fits the law to cells and judges the fit.
pub fn fit(setting: &Setting, cells: &[Cell]) -> Fitted {
    let all: Vec<&Cell> = cells.iter().collect();
    let values = setting.fit(&all, START);
    let whole = with(&setting.law, &values);
    let mut forecasts: Vec<[f64; 3]> = cells.iter().map(|cell| [setting.seconds(cell, &whole).unwrap_or_default(); 3]).collect();
    for (slot, axis) in [(1, 1), (2, 0)] {
        let mut lines: Vec<u64> = cells.iter().map(|cell| cell.memory[axis]).collect();
        lines.sort_unstable();
        lines.dedup();
        for line in lines {
            let others: Vec<&Cell> = cells.iter().filter(|cell| cell.memory[axis] != line).collect();
            let law = with(&setting.law, &setting.fit(&others, START));
            for (cell, forecast) in cells.iter().zip(&mut forecasts).filter(|(cell, _)| cell.memory[axis] == line) {
                forecast[slot] = setting.seconds(cell, &law).unwrap_or_default();
            }
        }
    }
    Fitted { values, forecasts }
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

fn coefficient(value: f64, unit: &str, metric: &str, source_rows: Vec<String>, error: Option<f64>) -> Coefficient {
    Coefficient {
        value,
        unit: unit.to_owned(),
        rule: "minimax_h3".to_owned(),
        runtime: Runtime::FreeVideo,
        metric: metric.to_owned(),
        range: BTreeMap::from([
            ("video_tokens".to_owned(), [72_576.0, 72_576.0]),
            ("head_group".to_owned(), [4.0, 16.0]),
            ("memory_bandwidth_gbps".to_owned(), [4800.0, 4800.0]),
        ]),
        source_rows,
        date: FITTED.to_owned(),
        leave_one_out_error: error.map(|error| (error * 1e6).round() / 1e6),
    }
}

/// The coefficients for `catalog/rules/time-minimax_h3-freevideo-fitted.yaml`: the law's, and how far cells lay off when their row
/// or column was left out.
pub fn coefficients(cells: &[Cell], fitted: &Fitted) -> BTreeMap<String, Coefficient> {
    let rows = vec![format!("{FILE} lines 2-{}", cells.len() + 1)];
    let ratios = |streamed: bool| {
        let of = cells.iter().zip(&fitted.forecasts).filter(move |(cell, _)| cell.streamed() == streamed);
        of.flat_map(|(cell, forecasts)| forecasts.map(|forecast| cell.seconds / forecast))
    };
    let ends = |streamed: bool| ratios(streamed).fold([1.0_f64, 1.0], |[low, high], ratio| [low.min(ratio), high.max(ratio)]);
    let worst = |streamed: bool| {
        let of = cells.iter().zip(&fitted.forecasts).filter(|(cell, _)| cell.streamed() == streamed);
        of.flat_map(|(cell, f)| [f[1], f[2]].map(|f| (f / cell.seconds - 1.0).abs())).fold(0.0, f64::max)
    };
    let mut all = BTreeMap::new();
    for ((name, unit, what), value) in FITS.iter().zip(fitted.values) {
        let reads = matches!(*name, "disk-rate" | "hidden-reads" | "kept-bytes" | "kept-bytes-unpinned");
        all.insert(format!("{PREFIX}{name}"), coefficient(rounded(value), unit, what, rows.clone(), Some(worst(reads))));
    }
    for (name, streamed) in [("measured", false), ("measured-disk", true)] {
        for (end, value) in ["low", "high"].into_iter().zip(ends(streamed)) {
            let metric = "measured seconds / forecast, furthest of all fits";
            all.insert(format!("{PREFIX}{name}-{end}"), coefficient(rounded(value), "ratio", metric, rows.clone(), Some(worst(streamed))));
        }
    }
    all
}

/// The coefficients as a file of the catalog.
pub fn yaml(coefficients: &BTreeMap<String, Coefficient>) -> String {
    super::fit::yaml_with(
        coefficients,
        "# Written by `fv-catalog accuracy --fit`; do not edit. The law of docs/forecast.md, fitted to the published capacity grid.\n\
         # leave_one_out_error is the largest relative error of a cell whose row or column of the grid was left out of the fit.\n\n",
    )
}

/// The fitted file of a catalog: its name and text.
///
/// # Errors
/// What the catalog or the rows lack.
pub fn file(catalog: &Catalog) -> Result<(String, String), String> {
    let setting = Setting::of(catalog)?;
    let cells = cells(STEPS).map_err(|why| format!("{FILE}: {why}"))?;
    for cell in &cells {
        setting.seconds(cell, setting.law())?;
    }
    Ok(("rules/time-minimax_h3-freevideo-fitted.yaml".to_owned(), yaml(&coefficients(&cells, &fit(&setting, &cells)))))
}
