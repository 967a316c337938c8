//! `PYTORCH_ALLOC_CONF` and its older name `PYTORCH_CUDA_ALLOC_CONF`, as torch 2.11.0 reads them.

use fv_spec::estimate::Provenance;
use serde_json::{Value, json};

use super::book::Book;
use super::{Context, scaled};
use crate::caching::{Config, POWER2_INTERVALS};
use crate::error::{did_you_mean, quoted};

const MIB: u64 = 1 << 20;
const NAMES: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Options that are modelled.
const KNOWN: [&str; 7] = [
    "backend",
    "expandable_segments",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "roundup_power2_divisions",
];
/// Options about host memory and threads that leave the device's blocks alone.
const HARMLESS: [&str; 3] = ["pinned_num_register_threads", "pinned_use_background_threads", "release_lock_on_cudamalloc"];

/// The allocator's configuration; `allowed` is what the process lets itself take, where something caps it.
pub(super) fn resolve(context: &Context<'_>, allowed: Option<u64>, book: &mut Book) -> Config {
    let mut config = Config { allowed, ..Config::default() };
    let given: Vec<(&str, &str, Provenance)> =
        NAMES.iter().filter_map(|name| context.env.get(name).map(|(text, provenance)| (*name, *text, *provenance))).collect();
    if let [(_, first, _), (_, second, _)] = given[..]
        && first.trim() != second.trim()
    {
        book.unmodelled("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF says something else, and which one is read depends on the version");
    }
    if let Some((name, text, provenance)) = given.first() {
        for (option, value) in options(text) {
            // PyTorch refuses to start with such a text, too.
            let Some(value) = value else {
                let text = format!(
                    "{name}: found {}, allowed: OPTION:VALUE, separated by commas, such as expandable_segments:True",
                    quoted(&option)
                );
                book.error("invalid-value", text);
                continue;
            };
            read(&mut config, name, &option, &value, book);
            book.report(&format!("{name}.{option}"), value, *provenance);
        }
    }
    book.derive("allocator", describe(&config), given.first().map_or(Provenance::RuntimeDefault, |(_, _, provenance)| *provenance));
    config
}

/// `option:value` pairs, separated by commas outside of brackets; what has no value is no pair.
fn options(text: &str) -> Vec<(String, Option<String>)> {
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    let pair = |part: String| {
        let (option, value) = part.split_once(':').map_or((part.as_str(), None), |(option, value)| (option, Some(value.to_owned())));
        (option.to_owned(), value)
    };
    parts.into_iter().filter(|part| !part.is_empty()).map(pair).collect()
}

fn read(config: &mut Config, name: &str, option: &str, value: &str, book: &mut Book) {
    let wrong = |book: &mut Book, allowed: &str| {
        book.error("invalid-value", format!("{name}: {option}: found {}, allowed: {allowed}", quoted(value)));
    };
    match option {
        "backend" if value == "native" => {}
        "expandable_segments" => match value {
            "True" => config.expandable = true,
            "False" => config.expandable = false,
            _ => wrong(book, "True or False"),
        },
        "max_split_size_mb" | "max_non_split_rounding_mb" => match value.parse::<u64>().ok().filter(|mib| *mib > 20) {
            Some(mib) => {
                let bytes = mib.saturating_mul(MIB);
                if option == "max_split_size_mb" {
                    // So large that every block may be split is how it is turned off.
                    config.max_split_size = mib.checked_mul(MIB);
                } else {
                    config.max_non_split_rounding = bytes;
                }
            }
            None => wrong(book, "a whole number above 20"),
        },
        "large_segment_size_mb" => match value.parse::<u64>().ok().and_then(|mib| mib.checked_mul(MIB)).filter(|bytes| *bytes > 0) {
            Some(bytes) => config.large_segment = bytes,
            None => wrong(book, "a positive whole number"),
        },
        "garbage_collection_threshold" => match scaled(value, 1_000_000_000_000).filter(|share| (1..1_000_000_000_000).contains(share)) {
            Some(_) => {
                config.gc_threshold = config.allowed.and_then(|allowed| scaled(value, allowed));
                if config.allowed.is_none() {
                    book.note("garbage_collection_threshold has no effect: nothing sets the memory fraction that it is a share of");
                }
            }
            None => wrong(book, "a number between 0 and 1"),
        },
        "roundup_power2_divisions" => match divisions(value) {
            Some(divisions) => config.power2_divisions = divisions,
            None => wrong(book, "a power of two, or a list such as [256:1,512:2,>:4] of powers of two"),
        },
        _ if HARMLESS.contains(&option) => {}
        _ => {
            let hint = did_you_mean(option, KNOWN);
            book.unmodelled(name, &format!("no rule models the option {} with the value {}{hint}", quoted(option), quoted(value)));
        }
    }
}

/// One number for all sizes, or sizes in MiB with a number each: what is below the first takes its number, `>` is the rest.
fn divisions(text: &str) -> Option<[u64; POWER2_INTERVALS]> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|n| *n == 0 || n.is_power_of_two());
    let Some(list) = text.strip_prefix('[') else {
        return Some([number(text)?; POWER2_INTERVALS]);
    };
    let mut out = [0; POWER2_INTERVALS];
    let mut top: Option<usize> = None;
    for entry in list.strip_suffix(']')?.split(',') {
        let (size, value) = entry.split_once(':')?;
        let value = number(value)?;
        if size == ">" {
            out.iter_mut().skip(top.map_or(0, |index| index + 1)).for_each(|slot| *slot = value);
            continue;
        }
        let boundary = number(size).filter(|n| *n > 0)?;
        let index = usize::try_from(boundary.ilog2()).ok()?.min(POWER2_INTERVALS - 1);
        if top.is_none() {
            out.iter_mut().take(index).for_each(|slot| *slot = value);
        }
        out[index] = value;
        top = Some(index);
    }
    Some(out)
}

fn describe(config: &Config) -> Value {
    json!({
        "allowed_bytes": config.allowed,
        "gc_threshold_bytes": config.gc_threshold,
        "max_split_size_bytes": config.max_split_size,
        "max_non_split_rounding_bytes": config.max_non_split_rounding,
        "large_segment_bytes": config.large_segment,
        "roundup_power2_divisions": config.power2_divisions,
        "expandable_segments": config.expandable,
    })
}
