//! What a sweep came to: how many rows of each verdict, and what was left out.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use fv_estimate::{render::grouped, sweep::Plan};
use fv_spec::{
    estimate::{VERSION, Verdict},
    questions::{LeftOut, LeftOutKind, ReasonCount, SweepReport},
};

use super::counted;

/// Lines of what was left out on the error stream; a report has all of them.
const MOST_LINES: usize = 20;
/// Values named in such a line.
const MOST_NAMED: usize = 6;

/// Rows by verdict, and those that are unknown by reason.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Tally {
    fits: u64,
    uncertain: u64,
    does_not_fit: u64,
    unknown: u64,
    reasons: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts a row with this verdict, and its reason where that is unknown.
    pub(super) fn add(&mut self, status: Verdict, reason: Option<&str>) {
        match status {
            Verdict::Fits => self.fits += 1,
            Verdict::Uncertain => self.uncertain += 1,
            Verdict::DoesNotFit => self.does_not_fit += 1,
            Verdict::Unknown => {
                self.unknown += 1;
                let code = reason.unwrap_or_default();
                match self.reasons.get_mut(code) {
                    Some(rows) => *rows += 1,
                    None => drop(self.reasons.insert(code.to_owned(), 1)),
                }
            }
        }
    }

    pub(super) fn join(&mut self, other: Self) {
        self.fits += other.fits;
        self.uncertain += other.uncertain;
        self.does_not_fit += other.does_not_fit;
        self.unknown += other.unknown;
        for (code, rows) in other.reasons {
            *self.reasons.entry(code).or_default() += rows;
        }
    }

    /// The report of a sweep with these rows.
    pub(super) fn report(self, plan: &Plan<'_>) -> SweepReport {
        let Self { fits, uncertain, does_not_fit, unknown, reasons } = self;
        SweepReport {
            version: VERSION,
            rows: fits + uncertain + does_not_fit + unknown,
            fits,
            uncertain,
            does_not_fit,
            unknown,
            unknown_reasons: reasons.into_iter().map(|(code, rows)| ReasonCount { code, rows }).collect(),
            left_out: plan.left_out.clone(),
        }
    }
}

/// A report for people.
pub(super) fn write(report: &SweepReport, out: &mut dyn Write) -> io::Result<()> {
    let verdicts =
        [("fits", report.fits), ("uncertain", report.uncertain), ("does_not_fit", report.does_not_fit), ("unknown", report.unknown)];
    let reasons = report.unknown_reasons.iter().map(|reason| format!("{} {}", reason.code, grouped(reason.rows)));
    let reasons = if report.unknown > 0 { format!(" ({})", reasons.collect::<Vec<_>>().join(", ")) } else { String::new() };
    let words: Vec<String> =
        verdicts.iter().filter(|(_, rows)| *rows > 0).map(|(word, rows)| format!("{word} {}", grouped(*rows))).collect();
    // The unknown ones come last.
    writeln!(out, "{}: {}{reasons}", counted(report.rows.into(), "row"), words.join(", "))?;
    if report.left_out.is_empty() {
        return Ok(());
    }
    let kinds = [LeftOutKind::Size, LeftOutKind::Frames, LeftOutKind::Setting, LeftOutKind::Request];
    let of = |kind| report.left_out.iter().filter(|left| left.kind == kind).map(|left| u128::from(left.count)).sum::<u128>();
    let sums: Vec<String> = kinds.into_iter().filter(|kind| of(*kind) > 0).map(|kind| counted(of(kind), noun(kind))).collect();
    writeln!(out, "left out, over all deployments: {}", sums.join(", "))?;
    for left in report.left_out.iter().take(MOST_LINES) {
        writeln!(out, "  {}", line(left))?;
    }
    if let Some(more) = report.left_out.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more; --report FILE has them all")?;
    }
    Ok(())
}

fn noun(kind: LeftOutKind) -> &'static str {
    match kind {
        LeftOutKind::Size => "size",
        LeftOutKind::Frames => "frame count",
        LeftOutKind::Setting => "setting that the runtime does not have",
        LeftOutKind::Request => "refused request",
    }
}

fn line(left: &LeftOut) -> String {
    let LeftOut { model, deployment, kind, count, values, reason } = left;
    let named: Vec<&str> = values.iter().take(MOST_NAMED).map(String::as_str).collect();
    let more = usize::try_from(*count).unwrap_or(usize::MAX).saturating_sub(named.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = match kind {
        LeftOutKind::Size => "sizes ",
        LeftOutKind::Frames => "frames ",
        LeftOutKind::Setting | LeftOutKind::Request => "",
    };
    format!("{model} ({deployment}): {what}{}{more}: {reason}", named.join(", "))
}
