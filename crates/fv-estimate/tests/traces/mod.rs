//! Recorded traces: `tests/data/allocator/NAME.csv.gz` and their summary. The columns are explained in
//! `tests/gpu/allocator_traces.py`.

use fv_estimate::caching::{Action, Config, Event, POWER2_INTERVALS};
use serde_json::Value;
use std::{io::Read as _, path::PathBuf};

/// One line of a trace. Addresses are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line {
    Alloc { size: u64, address: u64, stream: u32 },
    Free { address: u64 },
    Request { address: u64 },
    Complete { address: u64 },
    Driver(Event),
    OutOfMemory { size: u64, stream: u32 },
    Mark,
}

pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) lines: Vec<Line>,
    pub(crate) summary: Value,
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/allocator"))
}

pub(crate) fn all() -> Vec<Trace> {
    let text = std::fs::read_to_string(folder().join("summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&text).unwrap();
    let total = summary["device_total_memory"].as_u64().unwrap();
    summary["cases"].as_object().unwrap().iter().map(|(name, case)| load(name, case, total)).collect()
}

fn load(name: &str, case: &Value, total: u64) -> Trace {
    let file = std::fs::File::open(folder().join(format!("{name}.csv.gz"))).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let lines = text.lines().skip(1).map(line).collect();
    Trace { name: name.into(), config: config(case, total), lines, summary: case.clone() }
}

fn line(text: &str) -> Line {
    let fields: Vec<&str> = text.split(',').collect();
    let number = |i: usize| if fields[i].is_empty() { 0 } else { fields[i].parse::<u64>().unwrap() };
    let (size, address) = (number(1), number(2) * 512);
    let stream = u32::try_from(number(3)).unwrap();
    let driver = |action| Line::Driver(Event { action, address, size, stream });
    match fields[0] {
        "a" => Line::Alloc { size, address, stream },
        "f" => Line::Free { address },
        "r" => Line::Request { address },
        "c" => Line::Complete { address },
        "S" => driver(Action::SegmentAlloc),
        "X" => driver(Action::SegmentFree),
        "M" => driver(Action::Map),
        "U" => driver(Action::Unmap),
        "o" => Line::OutOfMemory { size, stream },
        "s" => Line::Mark,
        other => panic!("unknown line {other}"),
    }
}

fn config(case: &Value, total: u64) -> Config {
    let mut config = Config { capacity: Some(total), allowed: case["allowed_bytes"].as_u64(), device_total: total, ..Config::default() };
    let settings = case["settings"].as_str().unwrap();
    let mut rest = settings;
    while !rest.is_empty() {
        let (key, value) = rest.split_once(':').unwrap();
        let end = if value.starts_with('[') { value.find(']').unwrap() + 1 } else { value.find(',').unwrap_or(value.len()) };
        let (value, after) = value.split_at(end);
        rest = after.trim_start_matches(',');
        let mib = || value.parse::<u64>().unwrap() << 20;
        match key {
            "expandable_segments" => config.expandable = value == "True",
            "max_split_size_mb" => config.max_split_size = Some(mib()),
            "max_non_split_rounding_mb" => config.max_non_split_rounding = mib(),
            "large_segment_size_mb" => config.large_segment = mib(),
            "garbage_collection_threshold" => {
                let tenths: u64 = value.strip_prefix("0.").unwrap().parse().unwrap();
                config.gc_threshold = config.allowed.map(|allowed| allowed * tenths / 10);
            }
            "roundup_power2_divisions" => config.power2_divisions = divisions(value),
            other => panic!("unknown setting {other}"),
        }
    }
    config
}

/// `N`, or `[MIB:N,...,>:N]`, where an entry stands for one interval and `>` for those after the entry before it.
fn divisions(value: &str) -> [u64; POWER2_INTERVALS] {
    let Some(list) = value.strip_prefix('[') else { return [value.parse().unwrap(); POWER2_INTERVALS] };
    let mut all = [0; POWER2_INTERVALS];
    let mut index = 0;
    for entry in list.trim_end_matches(']').split(',') {
        let (mib, count) = entry.split_once(':').unwrap();
        let count: u64 = count.parse().unwrap();
        if mib == ">" {
            all[index + 1..].fill(count);
        } else {
            index = mib.parse::<u64>().unwrap().ilog2() as usize;
            all[index] = count;
        }
    }
    all
}
