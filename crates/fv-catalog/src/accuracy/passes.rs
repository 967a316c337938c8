//! Seconds of single passes under diffusers: measured rows against counted operations, and the fit of each family's shares.

use std::collections::{BTreeMap, BTreeSet};

use fv_data::Catalog;
use fv_estimate::forecast::coefficients::Coefficients;
use fv_estimate::forecast::operations::Operations;
use fv_estimate::forecast::rates::{Rates, TERA};
use fv_estimate::forecast::roofline::{Kind, PREFIX, Shares, dense, parts, prefix};
use fv_spec::authored::{Coefficient, Runtime};

use super::{DEVICE, FACTS, FAMILIES, FITTED, Judged};

/// Relative errors beyond this count less than by their square.
const ROBUST: f64 = 0.03;
/// Shorter passes of the second host took as long as launching them: its LTX-Video rows say so beside the first one's.
const HOST_BOUND: f64 = 0.25;
/// Rounds of the robust fit.
const ROUNDS: usize = 40;

/// A measured pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// The file and its line.
    pub place: (String, usize),
    /// The component and case as written.
    pub name: String,
    /// The family.
    pub family: &'static str,
    /// What kind of pass.
    pub kind: Kind,
    /// Its geometry without the batch: left out together.
    pub geometry: String,
    /// Measured seconds.
    pub seconds: f64,
    /// Seconds of products, of attention and of one move at the device's full rates.
    pub parts: [f64; 3],
    /// Its operations.
    pub operations: Operations,
    /// Whether the fit uses it.
    pub fitted: bool,
}

/// The column `sec` of a table of rows, by line.
fn seconds_of(text: &str) -> BTreeMap<usize, f64> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let column = reader.headers().ok().and_then(|header| header.iter().position(|name| name.trim() == "sec"));
    let Some(column) = column else { return BTreeMap::new() };
    // Each record is one line below the header's.
    let records = reader.records().enumerate();
    records.filter_map(|(i, record)| Some((i + 2, record.ok()?.get(column)?.trim().parse().ok()?))).collect()
}

/// Where seconds stand: the file's name in rows, its text, and whether the pass before had warmed everything up. The first pass of a
/// process fetches its memory from the driver, so those of `wan/peaks.csv` are shown and not fitted.
static TIMES: [(&str, &str, bool); 3] =
    [("h200_diffusers_peaks.csv", FACTS, true), ("families/peaks.csv", FAMILIES, true), ("wan/peaks.csv", super::OWN, false)];

/// The passes among judged rows that have seconds and counted operations.
pub fn timed(catalog: &Catalog, rows: &[Judged]) -> Result<Vec<Timed>, String> {
    let device = catalog.devices.iter().find(|device| device.id == DEVICE).ok_or(format!("the catalog lacks {DEVICE}"))?;
    let rates = Rates::of(device);
    let memory = rates.memory().map_err(|reason| reason.message)?.value;
    let times: Vec<(&str, BTreeMap<usize, f64>, bool)> = TIMES.iter().map(|(file, text, warm)| (*file, seconds_of(text), *warm)).collect();
    let mut all = Vec::new();
    for row in rows {
        let Some(operations) = row.derived.operations else { continue };
        let kind = match row.row.stage.as_str() {
            "denoise_forward" => Kind::Forward,
            "decode" => Kind::Decode,
            _ => continue,
        };
        let Some((file, seconds, warm)) = times.iter().find(|(file, ..)| row.row.file.ends_with(file)) else { continue };
        let Some(seconds) = seconds.get(&row.row.line).copied().filter(|seconds| *seconds > 0.0) else { continue };
        let dense = dense(&rates, operations.dtype).map_err(|reason| reason.message)?.value;
        let parts = parts(&operations, [dense, memory]);
        all.push(Timed {
            place: (row.row.file.clone(), row.row.line),
            name: format!("{} {}", row.row.component, row.row.case),
            family: row.derived.family,
            kind,
            geometry: row.derived.video.map_or_else(String::new, |[pixels, frames, _]| format!("{pixels}x{frames}")),
            seconds,
            parts,
            operations,
            fitted: *warm && (file.starts_with("h200") || seconds >= HOST_BOUND),
        });
    }
    Ok(all)
}

/// What products and, for decoders, attention reach in every family.
pub fn common(catalog: &Catalog) -> Result<Shares, String> {
    let all = Coefficients::new(&catalog.rules, PREFIX);
    let value = |name: &str| all.positive(name).map_err(|reason| reason.message);
    Ok(Shares { products: value("product-efficiency")?, attention: value("attention-efficiency")?, passes: 0.0 })
}

fn forecast(timed: &Timed, shares: &Shares) -> f64 {
    timed.parts[0] / shares.products + timed.parts[1] / shares.attention + timed.parts[2] * shares.passes
}

/// Relative error: positive is too much.
pub fn error(timed: &Timed, shares: &Shares) -> f64 {
    forecast(timed, shares) / timed.seconds - 1.0
}

/// The shares that fit `rows` best: least squares of relative errors, of which large ones count less.
fn fit(rows: &[&Timed], kind: Kind, common: &Shares) -> Shares {
    let mut shares = *common;
    for _ in 0..ROUNDS {
        let [mut aa, mut am, mut mm, mut a, mut m] = [0.0; 5];
        for row in rows {
            let e = error(row, &shares) / ROBUST;
            let weight = 1.0 / (1.0 + e * e).sqrt();
            let [products, attention, moved] = row.parts.map(|part| part / row.seconds);
            let (attention, fixed) = if kind == Kind::Forward { (attention, 0.0) } else { (0.0, attention / common.attention) };
            let rest = 1.0 - products / common.products - fixed;
            aa += weight * attention * attention;
            am += weight * attention * moved;
            mm += weight * moved * moved;
            a += weight * attention * rest;
            m += weight * moved * rest;
        }
        let determinant = aa * mm - am * am;
        let (inverse, passes) = if kind == Kind::Forward && determinant > aa * mm * 1e-9 {
            ((a * mm - m * am) / determinant, (m * aa - a * am) / determinant)
        } else {
            (1.0 / common.attention, if mm > 0.0 { m / mm } else { 0.0 })
        };
        // No kernel is faster than the device.
        shares = Shares { products: common.products, attention: (1.0 / inverse.max(1e-9)).clamp(0.01, 1.0), passes: passes.max(0.0) };
    }
    shares
}

/// The fit of one kind of pass of a family.
#[derive(Debug, Clone, PartialEq)]
pub struct PassFit {
    /// What was fitted.
    pub shares: Shares,
    /// For each row of the fit, its place in the rows, the error of the whole fit, and without its geometry.
    pub errors: Vec<(usize, [f64; 2])>,
}

/// Fits every family and kind.
pub fn fit_all(rows: &[Timed], common: &Shares) -> BTreeMap<(&'static str, Kind), PassFit> {
    let keys: BTreeSet<(&'static str, Kind)> = rows.iter().filter(|row| row.fitted).map(|row| (row.family, row.kind)).collect();
    let one = |(family, kind): (&'static str, Kind)| {
        let own = |row: &&Timed| row.fitted && row.family == family && row.kind == kind;
        let all: Vec<&Timed> = rows.iter().filter(own).collect();
        let shares = fit(&all, kind, common);
        let mut without: BTreeMap<&str, Shares> = BTreeMap::new();
        for geometry in all.iter().map(|row| row.geometry.as_str()).collect::<BTreeSet<_>>() {
            let others: Vec<&Timed> = all.iter().copied().filter(|row| row.geometry != geometry).collect();
            without.insert(geometry, fit(&others, kind, common));
        }
        let errors = rows.iter().enumerate().filter(|(_, row)| own(row));
        let errors = errors.map(|(i, row)| (i, [error(row, &shares), error(row, without.get(row.geometry.as_str()).unwrap_or(&shares))]));
        ((family, kind), PassFit { shares, errors: errors.collect() })
    };
    keys.into_iter().map(one).collect()
}

fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Each family's file: its name and text.
pub fn files(rows: &[Timed], fits: &BTreeMap<(&'static str, Kind), PassFit>) -> BTreeMap<String, String> {
    let mut files: BTreeMap<&str, BTreeMap<String, Coefficient>> = BTreeMap::new();
    for ((family, kind), fit) in fits {
        let own: Vec<&Timed> = fit.errors.iter().map(|(i, _)| &rows[*i]).collect();
        let tflop = own.iter().map(|row| {
            #[expect(clippy::cast_precision_loss, reason = "a range for people")]
            let operations = (row.operations.products + row.operations.attention) as f64;
            operations / TERA
        });
        let [low, high] = tflop.fold([f64::INFINITY, 0.0], |[low, high]: [f64; 2], value| [low.min(value), high.max(value)]);
        let range = BTreeMap::from([
            ("tflop".to_owned(), [(low * 100.0).floor() / 100.0, (high * 100.0).ceil() / 100.0]),
            ("compute_capability".to_owned(), [9.0, 9.0]),
            ("memory_bandwidth_gbps".to_owned(), [4800.0, 4800.0]),
        ]);
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in &own {
            places.entry(&row.place.0).or_default().push(row.place.1);
        }
        let source_rows: Vec<String> = places.iter().map(|(file, lines)| format!("{file} lines {}", super::fit::spans(lines))).collect();
        let worst = fit.errors.iter().map(|(_, [_, left_out])| left_out.abs()).fold(0.0, f64::max);
        // Measured over forecast, of both fits.
        let ratios = fit.errors.iter().flat_map(|(_, errors)| errors.map(|error| 1.0 / (1.0 + error)));
        let [least, most] = ratios.fold([1.0, 1.0], |[low, high]: [f64; 2], ratio| [low.min(ratio), high.max(ratio)]);
        let mut put = |name: &str, value: f64, unit: &str, metric: &str| {
            let coefficient = Coefficient {
                value: rounded(value),
                unit: unit.to_owned(),
                rule: (*family).to_owned(),
                runtime: Runtime::Diffusers,
                metric: metric.to_owned(),
                range: range.clone(),
                source_rows: source_rows.clone(),
                date: FITTED.to_owned(),
                leave_one_out_error: Some((worst * 1e6).round() / 1e6),
            };
            files.entry(family).or_default().insert(format!("{}{name}", prefix(family)), coefficient);
        };
        let name = |what: &str| format!("{}{what}", kind.infix());
        if *kind == Kind::Forward {
            put("attention-efficiency", fit.shares.attention, "share", "attention operations per second / dense rate");
        }
        put(&name("passes"), fit.shares.passes, "moves", "seconds less products and attention / seconds of moving activations once");
        put(&name("low"), least, "ratio", "measured seconds / forecast, lowest of all fits");
        put(&name("high"), most, "ratio", "measured seconds / forecast, highest of all fits");
    }
    let head = "# Written by `fv-catalog accuracy --fit`; do not edit. The law of docs/forecast.md for passes of this family.\n\
                # leave_one_out_error is the largest relative error of a row whose geometry was left out of the fit.\n\n";
    files.into_iter().map(|(family, c)| (format!("rules/time-{family}-diffusers.yaml"), super::fit::yaml_with(&c, head))).collect()
}
