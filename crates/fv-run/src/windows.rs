//! Windows: physical memory and commit charge.
//!
//! Every page that a process may write is charged against the commit limit, physical memory and page file together, whether
//! it is in memory or not. So a process can be refused with memory free, and the page file makes no memory: what is available
//! is the least of both, and never more than there is.

use fv_device::reading::WindowsMemory;
use fv_spec::probe::{Commit, Host, HostLimit, HostSource, Problem};

use crate::believed;

/// What a process can still get: the least of all memory, what may be committed, and free memory together with what this
/// process holds in memory and shares with nobody's private pages, which the system can take back.
pub fn effective_available(total: u64, physical_available: u64, commit_available: u64, own_shareable: u64) -> u64 {
    total.min(commit_available).min(physical_available.saturating_add(own_shareable))
}

/// Memory of the host, or nothing where the figures cannot be believed; the problems say why.
pub fn host(memory: &WindowsMemory, problems: &mut Vec<Problem>) -> Option<Host> {
    let total_bytes = match memory.total_physical {
        0 => {
            problems.push(Problem::error("zero-memory", "GlobalMemoryStatusEx says that this machine has no memory"));
            return None;
        }
        total => believed(total).or_else(|| {
            let message = format!("GlobalMemoryStatusEx says that this machine has {total} bytes of memory");
            problems.push(Problem::error("host-memory-unreadable", message));
            None
        })?,
    };
    let physical = memory.available_physical.min(total_bytes);
    let commit = believed(memory.commit_limit)
        .filter(|limit| *limit > 0)
        .map(|limit_bytes| Commit { limit_bytes, available_bytes: memory.commit_available.min(limit_bytes) });
    if commit.is_none() {
        problems.push(Problem::warning("commit-unknown", "what may be committed is not known; only physical memory counts"));
    }
    // The probe itself holds next to nothing.
    let available = effective_available(total_bytes, physical, commit.map_or(u64::MAX, |commit| commit.available_bytes), 0);
    if available == 0 {
        problems.push(Problem::error("nothing-available", "no host memory is available to this process"));
    }
    Some(Host {
        source: HostSource::GlobalMemoryStatus,
        total_bytes,
        available_bytes: Some(available),
        limited_by: Some(if available < physical { HostLimit::Commit } else { HostLimit::System }),
        system_available_bytes: Some(physical),
        installed_bytes: memory.installed.and_then(believed).filter(|installed| *installed >= total_bytes),
        swap_bytes: commit.map(|commit| commit.limit_bytes.saturating_sub(total_bytes)),
        unified: false,
        cgroup: None,
        commit,
    })
}
