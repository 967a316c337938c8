//! macOS: texts of `sysctl` and `vm_stat`.
//!
//! Available is what `vm_stat` calls free, inactive and speculative: pages without content, pages not used lately, and pages
//! read ahead. Compressed and wired pages are in use.

use fv_spec::probe::{Host, HostLimit, HostSource, Problem};

use crate::believed;

/// What is asked of `sysctl`.
pub const SYSCTL: [&str; 2] = ["hw.memsize", "hw.optional.arm64"];

/// A number by its name in the output of `sysctl`: lines such as `hw.memsize: 34359738368`.
pub fn sysctl(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().parse().ok().and_then(believed)
}

/// Bytes that are available by the output of `vm_stat`.
pub fn available(text: &str) -> Option<u64> {
    let page = text.lines().next()?.split_once("page size of ")?.1.split_once(" bytes")?.0.parse::<u64>().ok()?;
    let pages = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches('.').parse::<u64>().ok().and_then(believed)
    };
    // Three numbers below 2^53.
    let pages = pages("Pages free")? + pages("Pages inactive")? + pages("Pages speculative")?;
    pages.checked_mul(page).and_then(believed)
}

/// Memory of the host, or nothing where the texts say nothing that can be believed; the problems say why.
pub fn host(sysctl_text: &str, vm_stat: &str, problems: &mut Vec<Problem>) -> Option<Host> {
    let total_bytes = match sysctl(sysctl_text, "hw.memsize") {
        Some(0) => {
            problems.push(Problem::error("zero-memory", "sysctl says that this machine has no memory: hw.memsize is 0"));
            return None;
        }
        Some(total) => total,
        None => {
            problems.push(Problem::error("host-memory-unreadable", "sysctl has no hw.memsize that can be read"));
            return None;
        }
    };
    let available_bytes = available(vm_stat).filter(|available| *available <= total_bytes);
    if available_bytes.is_none() {
        let message = "vm_stat does not say its page size and the pages that are free, inactive and speculative";
        problems.push(Problem::warning("available-memory-unknown", message));
    }
    Some(Host {
        source: HostSource::VmStat,
        total_bytes,
        available_bytes,
        limited_by: available_bytes.map(|_| HostLimit::System),
        system_available_bytes: available_bytes,
        installed_bytes: None,
        swap_bytes: None,
        unified: sysctl(sysctl_text, "hw.optional.arm64") == Some(1),
        cgroup: None,
        commit: None,
    })
}
