//! Words and figures that answers about plans share.

use fv_spec::plan::{
    Numbers, PlanRequest, Source, Sourced,
    budget::{Amount, Resource},
    forecast::Interval,
};
use fv_spec::questions::OutputEffect;
use serde::Serialize;
use serde_json::Value;

use super::gib;

/// A time as people read it, to about three digits.
pub(super) fn duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let rounded = |unit: u64| (ns / unit) + u64::from(ns % unit >= unit / 2);
    match ns {
        0 => "0 s".to_owned(),
        _ if ns < SECOND / 200 => "<0.01 s".to_owned(),
        _ if rounded(SECOND / 100) < 1_000 => decimal(rounded(SECOND / 100), 100, " s"),
        _ if rounded(SECOND / 10) < 1_000 => decimal(rounded(SECOND / 10), 10, " s"),
        _ if rounded(SECOND) < 600 => format!("{} s", rounded(SECOND)),
        _ if rounded(SECOND) < 3_600 => format!("{} min {} s", rounded(SECOND) / 60, rounded(SECOND) % 60),
        _ => format!("{} h {} min", rounded(60 * SECOND) / 60, rounded(60 * SECOND) % 60),
    }
}

/// `tenths 123, 10` is `12.3`.
pub(super) fn decimal(parts: u64, of_one: u64, unit: &str) -> String {
    let digits = of_one.to_string().len() - 1;
    format!("{}.{:0digits$}{unit}", parts / of_one, parts % of_one)
}

/// A time with the range it is known in.
pub(super) fn interval(time: &Interval) -> String {
    if time.low_ns == time.high_ns {
        return duration(time.value_ns);
    }
    format!("{} ({} .. {})", duration(time.value_ns), duration(time.low_ns), duration(time.high_ns))
}

/// Digits in groups of three.
pub fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(super) fn plural(count: u64, word: &str) -> String {
    format!("{} {word}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A word as it is written in files.
pub(super) fn written(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(Value::Array(words)) => words.iter().map(written).collect::<Vec<_>>().join(", "),
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

pub(super) fn source(source: Source) -> &'static str {
    match source {
        Source::Given => "given",
        Source::Probed => "measured",
        Source::Assumed => "assumed",
        Source::Catalog => "from the catalog",
    }
}

/// `int8 weights (assumed)`.
pub(super) fn sourced<T: Serialize>(fact: &Sourced<T>, what: &str) -> String {
    let space = if what.is_empty() { "" } else { " " };
    format!("{}{space}{what} ({})", written(&fact.value), source(fact.source))
}

/// `16.00 GiB measured by NVML, 2026-11-30T10:00:00Z`.
pub(super) fn amount(amount: &Amount) -> String {
    let by = amount.by.as_ref().map_or(String::new(), |by| match amount.source {
        Source::Catalog => format!(", {by}"),
        _ => format!(" by {by}"),
    });
    let at = amount.at.as_ref().map_or(String::new(), |at| format!(", {at}"));
    format!("{} {}{by}{at}", gib(amount.bytes), source(amount.source))
}

/// A pool of memory, with the device's rank where there are several.
pub(super) fn pool(resource: Resource, rank: Option<u32>, devices: u32) -> String {
    match (resource, rank) {
        (Resource::Vram, Some(rank)) if devices > 1 => format!("device {rank}"),
        (Resource::Vram, _) => "device".to_owned(),
        (Resource::Host, _) => "host".to_owned(),
        (Resource::Unified, _) => "shared".to_owned(),
    }
}

/// The memory of a pool in a sentence.
pub(super) fn memory(resource: Resource) -> &'static str {
    match resource {
        Resource::Vram => "device memory",
        Resource::Host => "host memory",
        Resource::Unified => "shared memory",
    }
}

/// What stands behind a decision: `budget 15.50 GiB, blocks 12`. The name of a number says its unit.
pub(super) fn numbers(numbers: &Numbers) -> String {
    let shown = |(name, value): (&String, &i64)| {
        let sign = if *value < 0 { "-" } else { "" };
        let size = value.unsigned_abs();
        let (name, figure) = if let Some(name) = name.strip_suffix("_bytes") {
            (name, gib(size))
        } else if let Some(name) = name.strip_suffix("_ns") {
            (name, duration(size))
        } else {
            (name.as_str(), grouped(size))
        };
        format!("{} {sign}{figure}", name.replace('_', " "))
    };
    numbers.iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// A value of a decision or field. Names of bytes and times say so.
pub(super) fn value(name: &str, value: &Value) -> String {
    match (value, value.as_u64()) {
        (_, Some(bytes)) if name.ends_with("_bytes") || name == "bytes" => gib(bytes),
        (_, Some(ns)) if name.ends_with("_ns") => duration(ns),
        (Value::Bool(yes), _) => if *yes { "yes" } else { "no" }.to_owned(),
        (Value::Number(number), None) => number.to_string(),
        (_, Some(count)) => grouped(count),
        (Value::Null, _) => "none".to_owned(),
        (other, _) => written(other),
    }
}

/// What a choice does to the output.
pub(super) fn effect(effect: OutputEffect) -> &'static str {
    match effect {
        OutputEffect::None => "same output",
        OutputEffect::Reordered => "sums in another order",
        OutputEffect::Quantised => "fewer bits",
        OutputEffect::Different => "another output",
    }
}

/// `1344 x 768, 243 frames (10.13 s), 8 steps, t2va`.
pub(super) fn request(request: &PlanRequest) -> String {
    let mut text = format!("{} x {}, {}", request.width, request.height, plural(request.frames.into(), "frame"));
    if let Some(fps) = request.fps.filter(|fps| *fps > 0) {
        let ns = u64::from(request.frames) * 1_000_000_000 / u64::from(fps);
        text = format!("{text} ({})", duration(ns));
    }
    if request.requested_frames != request.frames {
        text = format!("{text} for the {} asked for", grouped(request.requested_frames));
    }
    text = format!("{text}, {}, {}", plural(request.steps.into(), "step"), request.task);
    text = format!("{text}; {}", plural(request.video_tokens, "video token"));
    for (count, what) in
        [(request.reference_video_tokens, "reference picture token"), (request.reference_audio_tokens, "reference sound token")]
    {
        if count > 0 {
            text = format!("{text}, {}", plural(count, what));
        }
    }
    text = format!("{text}, {} ({})", plural(request.text_tokens.value, "text token"), source(request.text_tokens.source));
    if let Some(adapter) = request.adapter {
        text = format!("{text}; adapters of {} a block at most and {} outside", gib(adapter.max_block_bytes), gib(adapter.root_bytes));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_about_three_digits() {
        const MS: u64 = 1_000_000;
        for (ns, text) in [
            (0, "0 s"),
            (1, "<0.01 s"),
            (5 * MS, "0.01 s"),
            (9_023 * MS, "9.02 s"),
            (9_994 * MS, "9.99 s"),
            (9_995 * MS, "10.0 s"),
            (99_949 * MS, "99.9 s"),
            (99_950 * MS, "100 s"),
            (599_499 * MS, "599 s"),
            (599_500 * MS, "10 min 0 s"),
            (3_599_499 * MS, "59 min 59 s"),
            (3_599_500 * MS, "1 h 0 min"),
            (u64::MAX, "5124095 h 35 min"),
        ] {
            assert_eq!(duration(ns), text, "{ns}");
        }
    }

    #[test]
    fn digits_are_grouped_by_threes() {
        for (number, text) in [(0_u64, "0"), (999, "999"), (1_000, "1,000"), (72_576, "72,576"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn numbers_say_their_unit_by_name() {
        let all = [("budget_bytes", 1 << 30), ("least_ns", 2_000_000_000), ("margin_bytes", -(1 << 29)), ("video_tokens", 72_576)];
        let all: Numbers = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!(numbers(&all), "budget 1.00 GiB, least 2.00 s, margin -0.50 GiB, video tokens 72,576");
    }
}
