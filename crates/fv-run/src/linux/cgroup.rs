//! Limits that control groups put on this process' memory, in both versions.
//!
//! The kernel has one memory controller, and it belongs to one hierarchy: where a hierarchy of version 1 has it, version 2
//! has none, even when both are mounted. From this process' own group every ancestor that can be seen from here counts, since
//! each may have a limit of its own; what is available is the least over all of them.
//!
//! Within a limit, available = limit - use, and clean file cache is added to it: the system drops that when memory is asked
//! for. Of the file cache, memory files, changed pages, pages being written and pages that may not be dropped are no part of
//! it. All five counters must be there, otherwise nothing is added.

use std::io;

use fv_spec::probe::{Cgroup, CgroupLimit, Problem};

use super::mountinfo::{self, Mount};
use crate::{believed, files::Files};

/// The groups of this process.
pub const OWN: &str = "/proc/self/cgroup";

/// Limits from here on are how version 1 writes that there is none.
const NO_LIMIT: u64 = 1 << 60;

/// A hierarchy that this process is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Its controllers, separated by commas; empty for version 2.
    pub controllers: String,
    /// This process' group.
    pub path: String,
}

/// Reads `/proc/self/cgroup`: lines such as `4:memory:/user.slice` and, for version 2, `0::/user.slice`.
pub fn memberships(text: &str) -> Vec<Membership> {
    let line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let number = fields.next()?;
        let (controllers, path) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        // Only version 2 has the number 0, and only named or controlled hierarchies have another.
        let version = (number == "0") == controllers.is_empty();
        (version && path.starts_with('/')).then_some(Membership { controllers, path })
    };
    text.lines().filter_map(line).collect()
}

/// The names of a version.
struct Version {
    number: u8,
    kind: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// File cache, and what of it cannot be dropped.
    counters: [&'static str; 5],
}

const V1: Version = Version {
    number: 1,
    kind: "cgroup",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    // Use is that of the group and all below it, and so are these.
    counters: ["total_cache", "total_shmem", "total_dirty", "total_writeback", "total_unevictable"],
};
const V2: Version = Version {
    number: 2,
    kind: "cgroup2",
    limit: "memory.max",
    usage: "memory.current",
    counters: ["file", "shmem", "file_dirty", "file_writeback", "unevictable"],
};

/// The groups of this process and their limits; nothing where there are none or nothing says so.
pub fn read(files: &dyn Files, problems: &mut Vec<Problem>) -> Option<Cgroup> {
    let mut text = |path: &str| match files.read(path) {
        Ok(text) => Some(text),
        // A kernel without control groups.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            problems.push(Problem::warning("cgroup-unreadable", format!("limits of control groups are not known: {path}: {error}")));
            None
        }
    };
    let own = memberships(&text(OWN)?);
    let mounts = mountinfo::parse(&text(mountinfo::PATH)?);
    let first = |member: &Membership| member.controllers.split(',').any(|controller| controller == "memory");
    let first = own.iter().find(|member| first(member)).map(|member| (&V1, member));
    let second = own.iter().find(|member| member.controllers.is_empty()).map(|member| (&V2, member));
    let mounted = |version: &Version| mounts.iter().any(|mount| mounts_memory(version, mount));
    let (version, member) = first.filter(|_| mounted(&V1)).or_else(|| second.filter(|_| mounted(&V2))).or_else(|| {
        if first.or(second).is_some() {
            let message = "limits of control groups are not known: their file system is not mounted here";
            problems.push(Problem::warning("cgroup-not-mounted", message));
        }
        None
    })?;
    let mut found = Cgroup { version: version.number, path: member.path.clone(), limits: Vec::new(), limiting: None };
    let Some((mount, rest)) = visible(version, &mounts, &member.path) else {
        let message = format!("the control group {} lies outside of what is mounted here; its limits are not known", member.path);
        problems.push(Problem::warning("cgroup-outside", message));
        return Some(found);
    };
    for depth in (0..=rest.matches('/').count()).rev() {
        let relative = cut(rest, depth);
        let path = format!("{}{relative}", mount.root.trim_end_matches('/'));
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let folder = format!("{}{relative}", mount.point.trim_end_matches('/'));
        found.limits.extend(limit(files, version, path, &folder, problems));
    }
    // Of several alike the innermost.
    found.limiting = found.limits.iter().min_by_key(|limit| limit.available_bytes).map(|limit| limit.path.clone());
    Some(found)
}

fn mounts_memory(version: &Version, mount: &Mount) -> bool {
    mount.kind == version.kind && (version.number == 2 || mount.has("memory"))
}

/// The mount through which most ancestors of `path` can be seen, and `path` as seen from there.
fn visible<'m, 'p>(version: &Version, mounts: &'m [Mount], path: &'p str) -> Option<(&'m Mount, &'p str)> {
    // A process that was moved out of its namespace: the group cannot be reached from the mount.
    if path.split('/').any(|part| part == "..") {
        return None;
    }
    let there = mounts.iter().filter(|mount| mounts_memory(version, mount));
    let within = there.filter_map(|mount| Some((mount, mountinfo::below(&mount.root, path)?)));
    within.max_by_key(|(_, rest)| rest.len())
}

/// The first `depth` names of a path that is empty or starts with `/`.
fn cut(path: &str, depth: usize) -> &str {
    let end = path.match_indices('/').nth(depth).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

/// The limit of one group, when it has one.
fn limit(files: &dyn Files, version: &Version, path: String, folder: &str, problems: &mut Vec<Problem>) -> Option<CgroupLimit> {
    let file = |name: &str| files.read(&format!("{folder}/{name}"));
    let text = match file(version.limit) {
        Ok(text) => text,
        // The root group, and groups that the controller was not given to.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let message = format!("whether the control group {path} limits memory is not known: {}: {error}", version.limit);
            problems.push(Problem::warning("cgroup-limit-unreadable", message));
            return None;
        }
    };
    let limit_bytes = match parse_limit(&text) {
        Ok(limit) => limit?,
        Err(found) => {
            let message = format!("the limit of the control group {path} is not a number: {} holds {found:?}", version.limit);
            problems.push(Problem::warning("cgroup-limit-unreadable", message));
            return None;
        }
    };
    let usage = file(version.usage).ok().and_then(|text| parse_usage(&text));
    let Some(usage_bytes) = usage else {
        let message = format!("nothing counts as available: what the control group {path} uses of its limit cannot be read");
        problems.push(Problem::error("cgroup-usage-unreadable", message));
        return Some(CgroupLimit { path, limit_bytes, usage_bytes: None, reclaimable_bytes: None, available_bytes: 0 });
    };
    let reclaimable_bytes = file("memory.stat").ok().and_then(|text| reclaimable(&text, version.number, usage_bytes));
    Some(CgroupLimit {
        path,
        limit_bytes,
        usage_bytes: Some(usage_bytes),
        reclaimable_bytes,
        available_bytes: available(limit_bytes, usage_bytes, reclaimable_bytes.unwrap_or(0)),
    })
}

/// What a group may still use: the limit less use, and what of the use can be dropped, but never more than the limit.
pub fn available(limit_bytes: u64, usage_bytes: u64, reclaimable_bytes: u64) -> u64 {
    limit_bytes.saturating_sub(usage_bytes).saturating_add(reclaimable_bytes).min(limit_bytes)
}

/// Reads a limit; `max` and numbers from 2^60 on are none.
///
/// # Errors
/// The first characters of a text that is neither.
pub fn parse_limit(text: &str) -> Result<Option<u64>, String> {
    let text = text.trim();
    if text == "max" {
        return Ok(None);
    }
    let limit: u64 = text.parse().map_err(|_| text.chars().take(20).collect::<String>())?;
    Ok(believed(limit).filter(|limit| *limit < NO_LIMIT))
}

/// Reads a group's use.
pub fn parse_usage(text: &str) -> Option<u64> {
    text.trim().parse().ok().and_then(believed)
}

/// Clean file cache by `memory.stat`, at most the group's use; nothing unless all five counters are there.
pub fn reclaimable(stat: &str, version: u8, usage_bytes: u64) -> Option<u64> {
    let names = if version == 1 { V1.counters } else { V2.counters };
    let counter = |name: &str| {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse::<u64>().ok().and_then(believed)
    };
    let [file, shmem, dirty, writeback, unevictable] = names.map(counter);
    // Five numbers below 2^53.
    let kept = shmem? + dirty? + writeback? + unevictable?;
    Some(usage_bytes.min(file?).saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_numbers_or_max() {
        for (text, limit) in [
            ("max\n", Ok(None)),
            ("1073741824\n", Ok(Some(1 << 30))),
            ("0", Ok(Some(0))),
            ("9223372036854771712\n", Ok(None)),
            ("1152921504606846976", Ok(None)),
            ("18446744073709551615", Ok(None)),
            ("-1\n", Err("-1")),
            ("", Err("")),
            ("Max", Err("Max")),
            ("18446744073709551616", Err("18446744073709551616")),
        ] {
            assert_eq!(parse_limit(text), limit.map_err(str::to_owned), "{text:?}");
        }
    }

    #[test]
    fn clean_cache_is_file_cache_less_what_cannot_be_dropped() {
        let stat = "anon 5\nfile 1000\nfile_mapped 7\nshmem 100\nfile_dirty 20\nfile_writeback 3\nunevictable 4\nfile_thp 0\n";
        assert_eq!(reclaimable(stat, 2, 5000), Some(873));
        assert_eq!(reclaimable(stat, 2, 500), Some(373), "no more than the group uses");
        assert_eq!(reclaimable(stat, 2, 50), Some(0));
        assert_eq!(reclaimable(stat, 1, 5000), None, "the counters of the other version");
        for name in V2.counters {
            let without: String =
                stat.lines().filter(|line| !line.starts_with(&format!("{name} "))).flat_map(|line| [line, "\n"]).collect();
            assert_eq!(reclaimable(&without, 2, 5000), None, "without {name}");
            let odd = stat.replace(&format!("\n{name} "), &format!("\n{name} x"));
            assert_eq!(reclaimable(&odd, 2, 5000), None, "{name} is not a number");
        }
    }

    #[test]
    fn available_is_between_nothing_and_the_limit() {
        for (limit, usage, credit, bytes) in [(100, 30, 0, 70), (100, 30, 20, 90), (100, 30, 50, 100), (100, 130, 20, 20), (100, 130, 0, 0)]
        {
            assert_eq!(available(limit, usage, credit), bytes);
        }
    }

    #[test]
    fn lines_of_own_groups() {
        let member = |controllers: &str, path: &str| Membership { controllers: controllers.to_owned(), path: path.to_owned() };
        let text = "12:cpu,cpuacct:/a:b\n4:memory:/c\n1:name=systemd:/d\n0::/e\n\nx\n0:memory:/f\n3::/g\n5:pids:h\n";
        let all = [member("cpu,cpuacct", "/a:b"), member("memory", "/c"), member("name=systemd", "/d"), member("", "/e")];
        assert_eq!(memberships(text), all);
    }
}
