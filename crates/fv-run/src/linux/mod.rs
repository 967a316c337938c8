//! Linux: `/proc/meminfo` and the control groups of this process.

pub mod cgroup;
pub mod meminfo;
pub mod mountinfo;

use std::io;

use fv_spec::probe::{Host, HostLimit, HostSource, OperatingSystem, Problem, Severity, System};

use crate::files::Files;

/// Memory of the host, or nothing where the system says nothing that can be believed; the problems say why.
pub fn host(files: &dyn Files, problems: &mut Vec<Problem>) -> Option<Host> {
    let text = match files.read(meminfo::PATH) {
        Ok(text) => text,
        Err(error) => {
            problems.push(Problem::error("host-memory-unreadable", format!("{}: {error}", meminfo::PATH)));
            return None;
        }
    };
    let found = meminfo::parse(&text);
    let total_bytes = match found.total_bytes {
        Some(0) => {
            let message = format!("{} says that this machine has no memory: MemTotal is 0", meminfo::PATH);
            problems.push(Problem::error("zero-memory", message));
            return None;
        }
        Some(total) => total,
        None => {
            let message = format!("{} has no line `MemTotal: ... kB` that can be read", meminfo::PATH);
            problems.push(Problem::error("host-memory-unreadable", message));
            return None;
        }
    };
    let system_available_bytes = found.available_bytes.filter(|available| *available <= total_bytes);
    if system_available_bytes.is_none() {
        let message = match found.available_bytes {
            Some(_) => format!("{}: MemAvailable is above MemTotal", meminfo::PATH),
            None => format!("{} has no line MemAvailable: Linux before 3.14, or WSL 1", meminfo::PATH),
        };
        problems.push(Problem::warning("available-memory-unknown", message));
    }
    let cgroup = cgroup::read(files, problems);
    let grouped = cgroup.as_ref().and_then(|found| found.limits.iter().map(|limit| limit.available_bytes).min());
    let candidates = [(system_available_bytes, HostLimit::System), (grouped, HostLimit::Cgroup)];
    // What the system has left is not known: a group's figure alone may be more than that.
    let known = system_available_bytes.is_some() || grouped == Some(0);
    let least = candidates.into_iter().filter_map(|(bytes, limit)| Some((bytes?, limit))).min().filter(|_| known);
    let said = problems.iter().any(|problem| problem.severity == Severity::Error);
    if !said && least.is_some_and(|(bytes, _)| bytes == 0) {
        problems.push(Problem::error("nothing-available", "no host memory is available to this process"));
    }
    Some(Host {
        source: HostSource::ProcMeminfo,
        total_bytes,
        available_bytes: least.map(|(bytes, _)| bytes),
        limited_by: least.map(|(_, limit)| limit),
        system_available_bytes,
        installed_bytes: None,
        swap_bytes: found.swap_bytes,
        unified: false,
        cgroup,
        commit: None,
    })
}

/// The system and what encloses it.
pub fn system(files: &dyn Files) -> System {
    let kernel = files.read("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned()).filter(|text| printable(text));
    System { name: OperatingSystem::Linux, wsl: kernel.as_deref().and_then(wsl), kernel, container: container(files) }
}

fn printable(text: &str) -> bool {
    !text.is_empty() && text.len() <= 100 && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

/// The version of the Windows Subsystem for Linux, by the release of its kernel: `4.4.0-19041-Microsoft` is the first, which
/// has no Linux kernel; `4.19.84-microsoft-standard` and `6.6.87.2-microsoft-standard-WSL2` are the second.
fn wsl(kernel: &str) -> Option<u8> {
    if kernel.contains("WSL2") || kernel.contains("microsoft") { Some(2) } else { kernel.contains("Microsoft").then_some(1) }
}

/// Who runs the container that this process is in, by the marks that they leave.
fn container(files: &dyn Files) -> Option<String> {
    // A folder counts too: reading it fails, but not since nothing is there.
    let there = |path| files.read(path).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true);
    let groups = files.read(cgroup::OWN).unwrap_or_default();
    let marked = |marks: &[&str]| marks.iter().any(|mark| groups.contains(mark));
    let named = || {
        let name = files.read("/run/systemd/container").ok()?.trim().to_owned();
        let word = !name.is_empty() && name.len() <= 40 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        word.then_some(name)
    };
    let known = [
        ("kubernetes", marked(&["/kubepods"]) || there("/var/run/secrets/kubernetes.io")),
        ("docker", there("/.dockerenv") || marked(&["/docker/", "/docker-"])),
        ("podman", there("/run/.containerenv") || marked(&["/libpod"])),
        ("lxc", marked(&["/lxc/", "/lxc.payload"])),
    ];
    known.into_iter().find(|(_, seen)| *seen).map(|(name, _)| name.to_owned()).or_else(named)
}
