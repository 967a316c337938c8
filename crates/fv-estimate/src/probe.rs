//! Probe files read back, with what is wrong with them said.

use std::fmt::Display;

use fv_spec::probe::{Architecture, Cgroup, ComputeCapability, Disk, Gpu, Host, Probe, VERSION};
use fv_spec::units::MAX_JSON_INTEGER;
use serde::Deserialize;

use crate::error::{InputError, quoted};

/// Reads a probe file.
///
/// # Errors
/// When it is no probe of a version that is known; otherwise for every figure that contradicts another, since somebody has
/// then edited the file and nothing tells which of the two is right.
pub fn read(text: &str) -> Result<Probe, Vec<InputError>> {
    /// What every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let one = |code, message| vec![InputError::new(code, message)];
    let text = text.trim_start_matches('\u{feff}');
    let Versioned { version } = serde_json::from_str(text).map_err(|error| {
        let message = format!("this is not the output of `fv-run probe --json`: {error}");
        one("probe-shape", message)
    })?;
    if version != u64::from(VERSION) {
        let what = if version > u64::from(VERSION) { "a newer program wrote it" } else { "there is no such version" };
        let message =
            format!("the probe has version {version} and only version {VERSION} is known: {what}; take it again with this program");
        return Err(one("probe-version", message));
    }
    let probe: Probe = serde_json::from_str(text).map_err(|error| one("probe-shape", format!("the probe cannot be read: {error}")))?;
    let errors = check(&probe);
    if errors.is_empty() { Ok(probe) } else { Err(errors) }
}

/// What contradicts itself in a probe.
pub fn check(probe: &Probe) -> Vec<InputError> {
    let mut checker = Checker { errors: Vec::new() };
    checker.time(&probe.time);
    for (i, gpu) in probe.gpus.iter().enumerate() {
        checker.gpu(&format!("gpus[{i}]"), gpu);
        let twice = |other: &Gpu| gpu.uuid.is_some() && other.uuid == gpu.uuid;
        if let Some(first) = probe.gpus[..i].iter().position(twice) {
            checker.wrong(format!("`gpus[{i}].uuid` is that of `gpus[{first}]`"));
        }
    }
    if let Some(host) = &probe.host {
        checker.host(host);
    }
    if let Some(disk) = &probe.disk {
        checker.disk(disk);
    }
    checker.errors
}

struct Checker {
    errors: Vec<InputError>,
}

impl Checker {
    fn wrong(&mut self, message: String) {
        self.errors.push(InputError::new("probe-inconsistent", message));
    }

    /// `low` is a part of `high`.
    fn part(&mut self, path: &str, low: (&str, Option<u64>), high: (&str, Option<u64>)) {
        for (name, value) in [low, high] {
            if value.is_some_and(|value| value > MAX_JSON_INTEGER) {
                self.wrong(format!("`{path}.{name}` is not below 2^53"));
            }
        }
        if let ((name, Some(part)), (whole, Some(all))) = (low, high)
            && part > all
        {
            self.wrong(format!("`{path}.{name}` is {part} and more than the {all} of `{path}.{whole}`"));
        }
    }

    fn positive(&mut self, path: &str, name: &str, value: Option<u64>) {
        if value == Some(0) {
            self.wrong(format!("`{path}.{name}` is 0: what is not known is left out"));
        }
    }

    fn between(&mut self, path: &str, value: Option<u32>, low: u32, high: u32) {
        if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
            self.wrong(format!("`{path}` is {value} and not between {low} and {high}"));
        }
    }

    fn time(&mut self, time: &str) {
        let shape = |(i, byte): (usize, u8)| match i {
            4 | 7 => byte == b'-',
            10 => byte == b'T',
            13 | 16 => byte == b':',
            19 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        };
        let number = |range: std::ops::Range<usize>| time.get(range).and_then(|digits| digits.parse::<u32>().ok());
        let calendar = || {
            let within = |range, low, high| number(range).is_some_and(|value| (low..=high).contains(&value));
            within(5..7, 1, 12) && within(8..10, 1, 31) && within(11..13, 0, 23) && within(14..16, 0, 59) && within(17..19, 0, 60)
        };
        if time.len() != 20 || !time.bytes().enumerate().all(shape) || !calendar() {
            self.wrong(format!("`time` is {}; it is written in UTC as 2026-11-18T09:30:00Z", quoted(time)));
        }
    }

    fn gpu(&mut self, path: &str, gpu: &Gpu) {
        self.positive(path, "total_bytes", gpu.total_bytes);
        self.positive(path, "reported_bytes", gpu.reported_bytes);
        self.part(path, ("free_bytes", gpu.free_bytes), ("total_bytes", gpu.total_bytes));
        self.part(path, ("context_bytes", gpu.context_bytes), ("total_bytes", gpu.total_bytes));
        self.part(path, ("used_by_others_bytes", gpu.used_by_others_bytes), ("reported_bytes", gpu.reported_bytes));
        self.part(path, ("bar1_bytes", gpu.bar1_bytes), ("bar1_bytes", None));
        if gpu.free_bytes.is_some() != gpu.free_source.is_some() || gpu.free_bytes.is_some() != gpu.total_bytes.is_some() {
            self.wrong(format!("`{path}`: `total_bytes`, `free_bytes` and `free_source` come together"));
        }
        if let Some(pcie) = gpu.pcie {
            for (name, value) in [("lanes", pcie.lanes), ("max_lanes", pcie.max_lanes)] {
                self.between(&format!("{path}.pcie.{name}"), value, 1, 32);
            }
            for (name, value) in [("generation", pcie.generation), ("max_generation", pcie.max_generation)] {
                self.between(&format!("{path}.pcie.{name}"), value, 1, 9);
            }
        }
        self.capability(path, gpu);
    }

    fn capability(&mut self, path: &str, gpu: &Gpu) {
        let capability = gpu.compute_capability.as_deref().map(|text| (text, ComputeCapability::parse(text)));
        match (capability, gpu.architecture) {
            (Some((text, None)), _) => self.wrong(format!("`{path}.compute_capability` is {}; it is text such as \"9.0\"", quoted(text))),
            (Some((text, Some(parsed))), Some(said)) if Architecture::of(parsed) != said => {
                let right = Architecture::of(parsed).word();
                self.wrong(format!("`{path}.architecture` is `{}`; compute capability {text} is `{right}`", said.word()));
            }
            _ => {}
        }
    }

    fn host(&mut self, host: &Host) {
        let total = ("total_bytes", Some(host.total_bytes));
        self.positive("host", "total_bytes", Some(host.total_bytes));
        self.part("host", ("available_bytes", host.available_bytes), total);
        self.part("host", ("system_available_bytes", host.system_available_bytes), total);
        self.part("host", ("available_bytes", host.available_bytes), ("system_available_bytes", host.system_available_bytes));
        self.part("host", total, ("installed_bytes", host.installed_bytes));
        self.part("host", ("swap_bytes", host.swap_bytes), ("swap_bytes", None));
        if host.available_bytes.is_some() != host.limited_by.is_some() {
            self.wrong("`host`: `available_bytes` and `limited_by` come together".to_owned());
        }
        if let Some(commit) = host.commit {
            let available = ("available_bytes", Some(commit.available_bytes));
            self.part("host.commit", available, ("limit_bytes", Some(commit.limit_bytes)));
            self.bounded(host, "host.commit.available_bytes", commit.available_bytes);
        }
        if let Some(cgroup) = &host.cgroup {
            self.cgroup(host, cgroup);
        }
    }

    /// Nothing is available beyond a limit.
    fn bounded(&mut self, host: &Host, path: &str, limit: impl Into<u64> + Display + Copy) {
        if let Some(available) = host.available_bytes.filter(|available| *available > limit.into()) {
            self.wrong(format!("`host.available_bytes` is {available} and more than the {limit} of `{path}`"));
        }
    }

    fn cgroup(&mut self, host: &Host, cgroup: &Cgroup) {
        if !(1..=2).contains(&cgroup.version) {
            self.wrong(format!("`host.cgroup.version` is {}; there are versions 1 and 2", cgroup.version));
        }
        let least = cgroup.limits.iter().min_by_key(|limit| limit.available_bytes).map(|limit| &limit.path);
        if cgroup.limiting.as_ref() != least {
            self.wrong("`host.cgroup.limiting` is not the group of `host.cgroup.limits` with the least available".to_owned());
        }
        for (i, limit) in cgroup.limits.iter().enumerate() {
            let path = format!("host.cgroup.limits[{i}]");
            self.part(&path, ("available_bytes", Some(limit.available_bytes)), ("limit_bytes", Some(limit.limit_bytes)));
            self.part(&path, ("reclaimable_bytes", limit.reclaimable_bytes), ("usage_bytes", limit.usage_bytes));
            self.bounded(host, &format!("{path}.available_bytes"), limit.available_bytes);
        }
    }

    fn disk(&mut self, disk: &Disk) {
        self.part("disk", ("free_bytes", Some(disk.free_bytes)), ("total_bytes", Some(disk.total_bytes)));
        if let Some(read) = disk.read {
            self.positive("disk.read", "nanoseconds", Some(read.nanoseconds));
            self.positive("disk.read", "readers", Some(u64::from(read.readers)));
            self.part("disk.read", ("read_bytes", Some(read.read_bytes)), ("read_bytes", None));
            self.part("disk.read", ("bytes_per_second", Some(read.bytes_per_second)), ("bytes_per_second", None));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sound() -> Value {
        json!({
            "version": 1,
            "time": "2026-11-18T09:30:00Z",
            "system": { "name": "linux" },
            "gpus": [{
                "index": 0, "uuid": "GPU-0", "architecture": "hopper", "compute_capability": "9.0",
                "total_bytes": 1000, "free_bytes": 900, "free_source": "driver_context", "reported_bytes": 1100,
                "used_by_others_bytes": 10, "pcie": { "generation": 1, "lanes": 16 }
            }],
            "host": {
                "source": "proc_meminfo", "total_bytes": 1000, "available_bytes": 400, "limited_by": "cgroup",
                "system_available_bytes": 900,
                "cgroup": {
                    "version": 2, "path": "/a/b", "limiting": "/a",
                    "limits": [
                        { "path": "/a/b", "limit_bytes": 800, "usage_bytes": 100, "available_bytes": 700 },
                        { "path": "/a", "limit_bytes": 500, "usage_bytes": 100, "reclaimable_bytes": 0, "available_bytes": 400 }
                    ]
                }
            },
            "disk": { "path": "w", "total_bytes": 10, "free_bytes": 5 },
            "problems": []
        })
    }

    fn messages(value: &Value) -> Vec<String> {
        read(&value.to_string()).err().unwrap_or_default().into_iter().map(|error| format!("{}: {}", error.code, error.message)).collect()
    }

    #[test]
    fn what_contradicts_itself_is_said() {
        assert_eq!(messages(&sound()), [] as [String; 0]);
        let table: &[(&str, Value, &str)] = &[
            ("/time", json!("18.11.2026"), "`time` is `18.11.2026`"),
            ("/time", json!("2026-13-18T09:30:00Z"), "written in UTC"),
            ("/gpus/0/free_bytes", json!(1001), "`gpus[0].free_bytes` is 1001 and more than the 1000 of `gpus[0].total_bytes`"),
            ("/gpus/0/total_bytes", json!(0), "`gpus[0].total_bytes` is 0: what is not known is left out"),
            ("/gpus/0/used_by_others_bytes", json!(1101), "more than the 1100 of `gpus[0].reported_bytes`"),
            ("/gpus/0/context_bytes", json!(1101), "`gpus[0].context_bytes`"),
            ("/gpus/0/bar1_bytes", json!(1_u64 << 53), "`gpus[0].bar1_bytes` is not below 2^53"),
            ("/gpus/0/architecture", json!("ada"), "compute capability 9.0 is `hopper`"),
            ("/gpus/0/compute_capability", json!("9"), "text such as \"9.0\""),
            ("/gpus/0/pcie/lanes", json!(33), "`gpus[0].pcie.lanes` is 33 and not between 1 and 32"),
            ("/gpus/0/pcie/generation", json!(0), "`gpus[0].pcie.generation` is 0"),
            ("/gpus/1", json!({ "index": 1, "uuid": "GPU-0" }), "`gpus[1].uuid` is that of `gpus[0]`"),
            ("/gpus/1", json!({ "index": 1, "free_bytes": 5 }), "come together"),
            ("/host/total_bytes", json!(0), "`host.total_bytes` is 0"),
            ("/host/available_bytes", json!(401), "more than the 400 of `host.cgroup.limits[1].available_bytes`"),
            ("/host/system_available_bytes", json!(1001), "more than the 1000 of `host.total_bytes`"),
            ("/host/installed_bytes", json!(999), "`host.total_bytes` is 1000 and more than the 999 of `host.installed_bytes`"),
            ("/host/commit", json!({ "limit_bytes": 10, "available_bytes": 11 }), "`host.commit.available_bytes` is 11"),
            ("/host/cgroup/version", json!(3), "there are versions 1 and 2"),
            ("/host/cgroup/limiting", json!("/a/b"), "with the least available"),
            ("/host/cgroup/limits/0/available_bytes", json!(801), "more than the 800 of `host.cgroup.limits[0].limit_bytes`"),
            ("/host/cgroup/limits/1/reclaimable_bytes", json!(101), "more than the 100 of `host.cgroup.limits[1].usage_bytes`"),
            ("/disk/free_bytes", json!(11), "`disk.free_bytes` is 11 and more than the 10 of `disk.total_bytes`"),
        ];
        for (pointer, value, wanted) in table {
            let mut probe = sound();
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            match probe.pointer_mut(parent).expect("is there") {
                Value::Object(map) => drop(map.insert(key.to_owned(), value.clone())),
                Value::Array(list) if list.len().to_string() == key => list.push(value.clone()),
                Value::Array(list) => list[key.parse::<usize>().expect("an index")] = value.clone(),
                other => panic!("{other}"),
            }
            let found = messages(&probe);
            assert!(found.iter().any(|message| message.contains(wanted)), "{pointer} = {value}: {found:?}");
            assert!(found.iter().all(|message| message.starts_with("probe-inconsistent: ")), "{found:?}");
        }
    }

    #[test]
    fn other_versions_and_other_files_are_refused_with_words() {
        for (text, wanted) in [
            ("", "probe-shape: this is not the output of `fv-run probe --json`"),
            ("[]", "probe-shape: this is not the output"),
            ("{\"version\": \"1\"}", "probe-shape: this is not the output"),
            (
                "{\"version\": 2, \"devices\": []}",
                "probe-version: the probe has version 2 and only version 1 is known: a newer program wrote it",
            ),
            ("{\"version\": 0}", "probe-version: the probe has version 0 and only version 1 is known: there is no such version"),
            ("{\"version\": 1}", "probe-shape: the probe cannot be read: missing field `time`"),
            ("{\"version\": 1, \"gpu\": []}", "unknown field `gpu`, expected one of `version`, `time`, `system`, `gpus`"),
        ] {
            let found = read(text).expect_err("refused");
            let found: Vec<String> = found.into_iter().map(|error| format!("{}: {}", error.code, error.message)).collect();
            assert!(found.len() == 1 && found[0].contains(wanted), "{text}: {found:?}");
        }
        assert!(read(&format!("\u{feff}{}", sound())).is_ok(), "a byte-order mark is no difference");
    }
}
