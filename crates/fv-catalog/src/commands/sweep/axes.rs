//! What varies: ranges, sizes and values of settings.

use fv_catalog::yaml::short;
use fv_estimate::{
    error::quoted,
    render::grouped,
    resolve::canonical,
    sweep::{Range, Varied},
};
use fv_spec::compiled::{Example, Model};
use serde_json::Value;

use super::super::ask::{Settings, setting};
use super::counted;
use crate::cli::Stop;

/// Combinations of settings in one sweep, at most: each is resolved for every deployment before the first row.
pub(super) const MOST_COMBINATIONS: u128 = 1_024;

/// What is no setting, since it is an axis of its own: names, and how it is given.
const OTHER_AXES: [(&[&str], &str); 7] = [
    (&["size", "sizes", "width", "height", "resolution"], "--size WIDTHxHEIGHT"),
    (&["frames", "frame", "num_frames", "seconds"], "--frames A..B"),
    (&["batch", "batch_size", "num_videos_per_prompt"], "--batch A..B"),
    (&["hardware", "device", "gpu"], "--hardware ID"),
    (&["model", "models"], "the models before the options"),
    (&["deployment", "deployments"], "--deployment ID"),
    (&["runtime", "runtimes"], "--runtime NAME"),
];

/// Height and width of `832x480`.
pub(super) fn size(text: &str) -> Result<[u32; 2], String> {
    let parsed = text.split_once(['x', 'X']).and_then(|(width, height)| Some([height.trim().parse().ok()?, width.trim().parse().ok()?]));
    parsed.ok_or_else(|| format!("found {}, allowed: a width, `x` and a height in whole pixels, such as 832x480", quoted(text)))
}

/// Whole numbers from one to another.
pub(super) fn range(text: &str) -> Result<Range, String> {
    let wrong = |why: &str| {
        format!(
            "found {}{why}, allowed: a whole number or A..B or A..B/STEP, upwards from 1, such as 81, 17..161 or 17..161/16",
            quoted(text)
        )
    };
    let number = |part: &str| match part.trim() {
        "" => Err(wrong(", of which an end is missing")),
        part if part == text.trim() => part.parse::<u32>().map_err(|_| wrong("")),
        part => part.parse::<u32>().map_err(|_| wrong(&format!(", in which {} is no whole number up to {}", quoted(part), u32::MAX))),
    };
    let Some((first, rest)) = text.split_once("..") else {
        let only = number(text)?;
        return Ok(Range { first: only, last: only, step: Some(1) });
    };
    let (last, step) = rest.split_once('/').map_or((rest, None), |(last, step)| (last, Some(step)));
    let (first, last, step) = (number(first)?, number(last)?, step.map(number).transpose()?);
    if first > last {
        return Err(wrong(&format!(", which is reversed and so holds nothing ({last}..{first} goes upwards)")));
    }
    if step == Some(0) {
        return Err(wrong(", whose step of 0 goes nowhere"));
    }
    Ok(Range { first, last, step })
}

/// A name and its values: separated by commas, outside of brackets and quotes.
pub(super) fn varied(text: &str) -> Result<(String, Vec<Value>), String> {
    let shape = || "a name, `=` and values separated by commas".to_owned();
    let (key, values) = text.split_once('=').ok_or_else(shape)?;
    let mut parts = vec![String::new()];
    let (mut depth, mut quoted) = (0_u32, false);
    for c in values.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 || quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    if key.trim().is_empty() || parts.iter().any(|part| part.trim().is_empty()) || text.contains(char::is_control) {
        return Err(shape());
    }
    let values = parts.iter().map(|part| setting(&format!("{key}={part}")).map(|(_, value)| value)).collect::<Result<Vec<_>, _>>()?;
    Ok((key.trim().to_owned(), values))
}

/// What `--vary` gives, each setting once with each of its values once.
///
/// # Errors
/// A setting that is decided twice, or that is no setting but another axis.
pub(super) fn vary(
    given: &[(String, Vec<Value>)],
    settings: &Settings,
    deployments: &[(&Model, &Example)],
) -> Result<Vec<(String, Vec<Value>)>, Stop> {
    let canonical = |key: &str| -> Vec<Option<String>> {
        deployments.iter().map(|(_, example)| canonical(example.runtime, key)).collect() //
    };
    // A setting has several names.
    let same = |a: &str, b: &str| a == b || canonical(a).iter().zip(&canonical(b)).any(|(a, b)| a.is_some() && a == b);
    let mut known: Vec<(String, Vec<Value>)> = Vec::new();
    for (key, values) in given {
        let axis = OTHER_AXES.iter().find(|(names, _)| names.contains(&key.as_str()));
        if let Some((_, flag)) = axis.filter(|_| canonical(key).iter().all(Option::is_none)) {
            return Err(Stop::Usage(format!("--vary {}: no setting but an axis of its own, given by {flag}", short(key))));
        }
        if let Some((other, _)) = known.iter().find(|(other, _)| same(other, key)) {
            let both = if other == key {
                format!("--vary {} is given twice", short(key))
            } else {
                format!("--vary {} and --vary {} are the same setting", short(other), short(key))
            };
            return Err(Stop::Usage(format!("{both}: put its values into one, separated by commas")));
        }
        if settings.names().any(|other| same(other, key)) {
            return Err(Stop::Usage(format!("{} is set for all points with --set, and varied with --vary: leave out one", short(key))));
        }
        let mut each: Vec<Value> = Vec::new();
        for value in values {
            if !each.contains(value) {
                each.push(value.clone());
            }
        }
        known.push((key.clone(), each));
    }
    Ok(known)
}

/// How many combinations of values there are.
pub(super) fn combination_count(vary: &[(String, Vec<Value>)]) -> u128 {
    vary.iter().fold(1, |all: u128, (_, values)| all.saturating_mul(values.len() as u128))
}

/// The first so many combinations of values, of each setting in turn the last varying fastest.
pub(super) fn combinations(vary: &[(String, Vec<Value>)], most: u128) -> Vec<Varied> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    vary.iter().fold(vec![Vec::new()], |all, (key, values)| {
        let with = |one: Varied, value: &Value| one.into_iter().chain([(key.clone(), value.clone())]).collect();
        all.into_iter().flat_map(|one: Varied| values.iter().map(move |value| with(one.clone(), value))).take(most).collect()
    })
}

/// That there are more points than allowed, with what makes them so many.
pub(super) fn too_many(points: u128, limit: u64, extents: &[(&str, u128)]) -> Stop {
    let extents: Vec<String> = extents.iter().filter(|(_, count)| *count > 1).map(|(what, count)| counted(*count, what)).collect();
    let allow = u64::try_from(points).map_or_else(|_| String::new(), |points| format!(", or allow them with --limit {points}"));
    Stop::Usage(format!(
        "{} points are more than the limit of {}: narrow the axes ({}){allow}",
        grouped(points),
        grouped(limit),
        extents.join(" x ")
    ))
}
