//! The spread of measured around derived peaks: fitted, and fitted again without each geometry in turn.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use fv_estimate::spread::{Ends, ONE, Work};
use fv_spec::authored::{Coefficient, Runtime};

use super::Judged;

/// Beyond the highest and lowest ratio, in millionths: the next geometry is not one of the measured ones.
pub fn margin(work: Work) -> u64 {
    match work {
        Work::Plain => 2_000,
        Work::Vae => 10_000,
    }
}

/// Measured over derived, in millionths.
fn ratio(measured: u64, derived: u64) -> u64 {
    u64::try_from(u128::from(measured) * u128::from(ONE) / u128::from(derived.max(1))).unwrap_or(u64::MAX)
}

/// How many rows the low end may leave out: one in fifty. A low end that is too high promises no room that is not there.
fn left_below(rows: usize) -> usize {
    rows / 50
}

/// The ends for `rows`: the highest ratio, and the lowest but for one row in fifty, each with a margin beyond. The derived value
/// is always inside.
pub fn ends<'a>(rows: impl IntoIterator<Item = &'a Judged>, work: Work) -> Ends {
    let mut reserved = Vec::new();
    let mut allocated = ONE;
    for row in rows {
        let peaks = &row.derived.peaks;
        reserved.push(ratio(row.row.measured.reserved, peaks.reserved));
        // Division rounds down, so the last millionth belongs to the ratio.
        allocated = allocated.max(ratio(row.row.measured.allocated, peaks.allocated + row.baseline()) + 1);
    }
    reserved.sort_unstable();
    let low = reserved.get(left_below(reserved.len())).copied().unwrap_or(ONE).min(ONE);
    let high = reserved.last().map_or(ONE, |ratio| (ratio + 1).max(ONE));
    let margin = margin(work);
    Ends { allocated_high: allocated + margin / 10, reserved_low: low.saturating_sub(margin), reserved_high: high + margin }
}

/// The ends of each kind of work of a family, from all its rows but those of `without`.
pub fn all_ends(rows: &[Judged], family: &str, without: Option<&str>) -> [(Work, Ends); 2] {
    [Work::Plain, Work::Vae].map(|work| {
        let own = rows.iter().filter(|row| row.derived.family == family && row.derived.work == work);
        (work, ends(own.filter(|row| Some(row.derived.geometry.as_str()) != without), work))
    })
}

/// The geometries of a family's rows.
pub fn geometries<'a>(rows: &'a [Judged], family: &str) -> BTreeSet<&'a str> {
    rows.iter().filter(|row| row.derived.family == family).map(|row| row.derived.geometry.as_str()).collect()
}

/// Coefficients for `catalog/rules/spread-<family>-diffusers.yaml`. `errors` are the largest of each kind of work when a geometry
/// is left out: of reserved below and above, and of allocated above.
pub fn coefficients(rows: &[Judged], family: &str, errors: &BTreeMap<Work, [f64; 3]>, date: &str) -> BTreeMap<String, Coefficient> {
    let mut all = BTreeMap::new();
    for (work, ends) in all_ends(rows, family, None) {
        let of: Vec<&Judged> = rows.iter().filter(|row| row.derived.family == family && row.derived.work == work).collect();
        if of.is_empty() {
            continue;
        }
        let mut range: BTreeMap<String, [f64; 2]> = BTreeMap::new();
        for video in of.iter().filter_map(|row| row.derived.video) {
            for (name, value) in ["pixels", "num_frames", "batch"].into_iter().zip(video) {
                #[expect(clippy::cast_precision_loss, reason = "extents are small")]
                let value = value as f64;
                let ends = range.entry(name.to_owned()).or_insert([value, value]);
                *ends = [ends[0].min(value), ends[1].max(value)];
            }
        }
        let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for row in &of {
            files.entry(row.row.file.as_str()).or_default().push(row.row.line);
        }
        let source_rows: Vec<String> = files.into_iter().map(|(file, lines)| format!("{file} lines {}", spans(&lines))).collect();
        let [low, high, allocated] = errors.get(&work).copied().unwrap_or_default();
        let metrics = [
            ("reserved-low", ends.reserved_low, "measured torch_peak_reserved / derived, lowest but for one row in fifty", low),
            ("reserved-high", ends.reserved_high, "measured torch_peak_reserved / derived, highest", high),
            (
                "allocated-high",
                ends.allocated_high,
                "measured torch_peak_allocated / derived with what the process held before, highest",
                allocated,
            ),
        ];
        for (name, value, metric, error) in metrics {
            #[expect(clippy::cast_precision_loss, reason = "millionths near one")]
            let value = value as f64 / ONE as f64;
            let coefficient = Coefficient {
                value,
                unit: "ratio".to_owned(),
                rule: family.to_owned(),
                runtime: Runtime::Diffusers,
                metric: metric.to_owned(),
                range: range.clone(),
                source_rows: source_rows.clone(),
                date: date.to_owned(),
                leave_one_out_error: Some((error * 1e6).round() / 1e6),
            };
            all.insert(format!("spread-{family}-diffusers-{}{name}", work.infix()), coefficient);
        }
    }
    all
}

/// `2-5, 9`.
pub(crate) fn spans(lines: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for line in lines {
        match parts.last_mut() {
            Some((_, end)) if *end + 1 == *line => *end = *line,
            _ => parts.push((*line, *line)),
        }
    }
    let text: Vec<String> = parts.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") }).collect();
    text.join(", ")
}

/// The coefficients as a file of the catalog that `command` writes.
pub fn yaml(coefficients: &BTreeMap<String, Coefficient>, command: &str) -> String {
    let head = format!(
        "# Written by `fv-catalog {command}`; do not edit. How far measured peaks lie from derived ones: measured divided by\n\
         # derived, lowest and highest of the rows, and a margin beyond. Ids with `vae-` are for stages in which a VAE has run.\n\
         # docs/accuracy.md says how the fit was judged.\n\n",
    );
    yaml_with(coefficients, &head)
}

/// The same below comments of another kind of coefficients.
pub(crate) fn yaml_with(coefficients: &BTreeMap<String, Coefficient>, head: &str) -> String {
    let mut text = format!("# yaml-language-server: $schema=../../schemas/rules.schema.json\n{head}");
    for (id, c) in coefficients {
        let range: Vec<String> = c.range.iter().map(|(name, [low, high])| format!("{name}: [{low}, {high}]")).collect();
        let rows: Vec<String> = c.source_rows.iter().map(|row| format!("\"{row}\"")).collect();
        let _ = write!(
            text,
            "{id}:\n  value: {}\n  unit: {}\n  rule: {}\n  runtime: {}\n  metric: \"{}\"\n  range: {{ {} }}\n  source_rows: [{}]\n  date: {}\n",
            c.value,
            c.unit,
            c.rule,
            c.runtime.word(),
            c.metric,
            range.join(", "),
            rows.join(", "),
            c.date
        );
        if let Some(error) = c.leave_one_out_error {
            let _ = writeln!(text, "  leave_one_out_error: {error}");
        }
    }
    text
}
