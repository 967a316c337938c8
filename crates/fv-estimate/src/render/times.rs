//! Times and costs as text.

use fv_spec::forecast::{Cost, TimeBasis, TimeForecast, TimeInterval, TimeSummary};

use super::text::{Line, Text, Tone};

/// A duration with three digits: seconds up to two minutes, minutes up to two hours, then hours.
pub(super) fn duration(ns: u64) -> String {
    let (unit, word) = match ns {
        0..120_000_000_000 => (1_000_000_000, "s"),
        120_000_000_000..7_200_000_000_000 => (60_000_000_000, "min"),
        _ => (3_600_000_000_000, "h"),
    };
    let milli = (u128::from(ns) * 1000 + unit / 2) / unit;
    let digits = match milli {
        0..10_000 => 2,
        10_000..100_000 => 1,
        _ => 0,
    };
    let scale = 10_u128.pow(3 - digits);
    let value = (milli + scale / 2) / scale;
    let whole = 10_u128.pow(digits);
    let rest = if digits == 0 { String::new() } else { format!(".{:0width$}", value % whole, width = digits as usize) };
    format!("{}{rest} {word}", value / whole)
}

/// `2.08 s (2.02 s to 2.13 s)`.
fn range(time: TimeInterval) -> String {
    format!("{} ({} to {})", duration(time.value_ns), duration(time.low_ns), duration(time.high_ns))
}

/// What a time rests on, for people.
fn rests(basis: TimeBasis) -> &'static str {
    match basis {
        TimeBasis::Measured => "measured on such a device",
        TimeBasis::Extrapolated => "extrapolated on such a device",
        TimeBasis::Scaled => "scaled from another device",
    }
}

/// `1.23 USD (1.10 to 1.40)`.
pub(super) fn cost(cost: &Cost) -> String {
    let amount = |micro: u64| format!("{}.{:04}", micro / 1_000_000, micro % 1_000_000 / 100);
    format!("{} {} ({} to {})", amount(cost.value_micro), cost.currency, amount(cost.low_micro), amount(cost.high_micro))
}

/// In a table: the request's time.
pub(super) fn cell(time: Option<&TimeSummary>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| duration(time.request.value_ns))
}

/// In a table: its cost.
pub(super) fn cost_cell(time: Option<&TimeSummary>) -> String {
    let found = time.and_then(|time| time.cost.as_ref());
    found.map_or_else(
        || "-".to_owned(),
        |cost| format!("{}.{:03} {}", cost.value_micro / 1_000_000, cost.value_micro % 1_000_000 / 1000, cost.currency),
    )
}

/// Everything about a forecast.
pub(super) fn forecast(text: &mut Text, found: &TimeForecast, width: usize) {
    text.blank();
    text.heading("time");
    for pass in &found.passes {
        let name = if found.passes.len() > 1 { format!(" of the {} pass", pass.name) } else { String::new() };
        let words = format!("{}, {} step{}{name}", range(pass.step), pass.steps, if pass.steps == 1 { "" } else { "s" });
        text.wrapped(Line::new().quiet("  a step").pad(13), Line::new().plain(&words), width);
    }
    for stage in &found.stages {
        let words = Line::new().plain(&range(stage.time)).quiet(&format!(", {}", rests(stage.basis)));
        text.wrapped(Line::new().quiet(&format!("  {}", stage.name.word())).pad(13), words, width);
    }
    if let Some(request) = found.request {
        let left = if found.leaves_out.is_empty() { String::new() } else { format!(" without {}", found.leaves_out.join(", ")) };
        text.wrapped(Line::new().quiet("  together").pad(13), Line::new().plain(&range(request)).quiet(&left), width);
    }
    if let Some(found) = &found.cost {
        text.wrapped(Line::new().quiet("  cost").pad(13), Line::new().plain(&cost(found)), width);
    }
    for reason in &found.unknown {
        text.wrapped(Line::new().add(Tone::Unsure, "  unknown").pad(13), Line::new().plain(&reason.message), width);
    }
    for note in &found.notes {
        text.wrapped(Line::new().quiet("  note").pad(13), Line::new().plain(note), width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        let all = [(0, "0.00 s"), (85_500_000, "0.09 s"), (611_139_297, "0.61 s"), (9_060_000_000, "9.06 s"), (99_960_000_000, "100.0 s")];
        for (ns, words) in all {
            assert_eq!(duration(ns), words);
        }
        assert_eq!(duration(119_000_000_000), "119 s");
        assert_eq!(duration(122_000_000_000), "2.03 min");
        assert_eq!(duration(486_000_000_000), "8.10 min");
        assert_eq!(duration(7_200_000_000_000), "2.00 h");
        assert!(duration(u64::MAX).ends_with(" h"));
    }
}
