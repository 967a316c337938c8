//! A probe as a table.

use fv_spec::authored::MemoryType;
use fv_spec::probe::{Cgroup, Disk, FreeSource, Gpu, Host, HostLimit, HostSource, OperatingSystem, PageCache, Probe, ReadRate, Severity};

use super::text::{Line, cut};
use super::{Text, Tone, bounded, gib};

/// Where the columns of the table end, and where the source begins.
const NAME: usize = 34;
const FREE: usize = NAME + 13;
const TOTAL: usize = FREE + 13;
const SOURCE: usize = TOTAL + 3;
/// Where details stand below a name.
const DETAIL: usize = 4;

/// What was found, with free and total memory and the source of each, and what could not be read.
pub fn probe(probe: &Probe, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    text.wrapped(Line::new(), Line::new().add(Tone::Strong, &system(probe)).quiet(&format!(", {}", probe.time)), width);
    if !probe.gpus.is_empty() || probe.host.is_some() || probe.disk.is_some() {
        text.blank();
        text.line(Line::new().right(Tone::Quiet, "free", FREE).right(Tone::Quiet, "total", TOTAL).pad(SOURCE).quiet("source"));
    }
    for found in &probe.gpus {
        gpu(&mut text, found, width);
    }
    if let Some(found) = &probe.host {
        host(&mut text, found, width);
    }
    if let Some(found) = &probe.disk {
        disk(&mut text, found, width);
    }
    if !probe.problems.is_empty() {
        text.blank();
        text.heading("Notes");
        for problem in &probe.problems {
            let (tone, word) = match problem.severity {
                Severity::Note => (Tone::Plain, ""),
                Severity::Warning => (Tone::Unsure, "warning: "),
                Severity::Error => (Tone::Bad, "error: "),
            };
            text.item(Line::new().add(tone, word).plain(&problem.message).quiet(&format!(" [{}]", problem.code)), width);
        }
    }
    text
}

fn system(probe: &Probe) -> String {
    let system = &probe.system;
    let name = match system.name {
        OperatingSystem::Linux => "Linux",
        OperatingSystem::Windows => "Windows",
        OperatingSystem::Macos => "macOS",
    };
    let kernel = system.kernel.as_ref().map(|kernel| format!(" {kernel}"));
    let wsl = system.wsl.map(|version| format!(" in Windows (WSL {version})"));
    let container = system.container.as_ref().map(|container| format!(", in a container of {container}"));
    [kernel, wsl, container].into_iter().flatten().fold(name.to_owned(), |words, more| words + &more)
}

/// A row of the table.
fn row(text: &mut Text, indent: usize, name: &str, amounts: [Option<u64>; 2], source: &str, width: usize) {
    let [free, total] = amounts.map(|bytes| bytes.map_or_else(|| "unknown".to_owned(), gib));
    let tone = if indent == 0 { Tone::Strong } else { Tone::Plain };
    let line =
        Line::new().pad(indent).add(tone, &cut(name, NAME - indent)).right(Tone::Plain, &free, FREE).right(Tone::Plain, &total, TOTAL);
    text.wrapped(line.pad(SOURCE), Line::new().plain(source), width);
}

/// The end of a path, which says more than its beginning, in at most `width` characters.
fn end_of(path: &str, width: usize) -> String {
    let missing = path.chars().count().saturating_sub(width);
    if missing == 0 { path.to_owned() } else { format!("…{}", path.chars().skip(missing + 1).collect::<String>()) }
}

fn detail(text: &mut Text, words: &str, width: usize) {
    text.wrapped(Line::new().pad(DETAIL), Line::new().quiet(words), width);
}

fn details(text: &mut Text, words: &[Option<String>], width: usize) {
    let words: Vec<&str> = words.iter().flatten().map(String::as_str).collect();
    if !words.is_empty() {
        detail(text, &words.join(", "), width);
    }
}

fn gpu(text: &mut Text, gpu: &Gpu, width: usize) {
    let name = format!("GPU {}  {}", gpu.index, gpu.name.as_deref().unwrap_or("without a name"));
    let source = match (gpu.free_source, gpu.context_bytes) {
        (Some(FreeSource::DriverContext), Some(bytes)) => format!("driver, within a context that takes {} of it", gib(bytes)),
        (Some(FreeSource::DriverContext), None) => "driver, within a context".to_owned(),
        (Some(FreeSource::Nvml), _) => "NVML".to_owned(),
        (None, _) => String::new(),
    };
    row(text, 0, &name, [gpu.free_bytes, gpu.total_bytes], &source, width);
    let whole = gpu.name.as_ref().filter(|_| name.chars().count() > NAME).cloned();
    let shared = gpu.memory_type == Some(MemoryType::Unified);
    details(text, &[whole, shared.then(|| "uses the host's memory".to_owned())], width);
    let driver = gpu.driver_version.as_ref().map(|version| format!("driver {version}"));
    let cuda = gpu.cuda_driver_version.as_ref().map(|version| format!("CUDA {version}"));
    let capability = gpu.compute_capability.as_ref().map(|version| format!("compute capability {version}"));
    details(text, &[gpu.architecture.map(|found| found.word().to_owned()), capability, driver, cuda, link(gpu)], width);
    let reported = gpu.reported_bytes.map(|bytes| format!("NVML reports {}", gib(bytes)));
    let others = gpu.used_by_others_bytes.map(|bytes| format!("others use {}", gib(bytes)));
    let processes = gpu.processes.map(|count| format!("{count} process{}", if count == 1 { "" } else { "es" }));
    details(text, &[reported, others, processes], width);
    let instance = gpu.mig.as_ref().map(|mig| {
        let parent = mig.parent_uuid.as_deref().map(|uuid| format!(" of {uuid}")).unwrap_or_default();
        format!("MIG instance {}{parent}", mig.instance)
    });
    details(text, &[gpu.uuid.clone(), instance], width);
}

/// `PCIe 5 x16 (now 1 x16)`: the link at its best, and now where that is less.
fn link(gpu: &Gpu) -> Option<String> {
    let pcie = gpu.pcie?;
    let shown = |generation: Option<u32>, lanes: Option<u32>| Some(format!("{} x{}", generation?, lanes?));
    let now = shown(pcie.generation, pcie.lanes);
    match (shown(pcie.max_generation, pcie.max_lanes), now) {
        (Some(best), Some(now)) if best != now => Some(format!("PCIe {best} (now {now})")),
        (Some(link), _) | (None, Some(link)) => Some(format!("PCIe {link}")),
        (None, None) => None,
    }
}

fn host(text: &mut Text, host: &Host, width: usize) {
    let source = match host.source {
        HostSource::ProcMeminfo => "/proc/meminfo",
        HostSource::GlobalMemoryStatus => "GlobalMemoryStatusEx",
        HostSource::VmStat => "vm_stat, sysctl",
    };
    let decides = |limit| if host.limited_by == Some(limit) { ", decides" } else { "" };
    let limited = !matches!(host.limited_by, Some(HostLimit::System) | None);
    row(text, 0, "Host memory", [host.system_available_bytes, Some(host.total_bytes)], source, width);
    let kept = host.installed_bytes.map(|bytes| bytes.saturating_sub(host.total_bytes)).filter(|bytes| *bytes > 0);
    let kept = kept.map(|bytes| format!("{} more are installed and kept by firmware or an integrated GPU", gib(bytes)));
    let swap = host.swap_bytes.filter(|bytes| *bytes > 0).map(|bytes| format!("{} of swap do not count", gib(bytes)));
    details(text, &[host.unified.then(|| "shared with the GPU".to_owned()), kept, swap], width);
    if let Some(commit) = host.commit {
        let source = format!("physical memory and page file{}", decides(HostLimit::Commit));
        row(text, 2, "commit limit", [Some(commit.available_bytes), Some(commit.limit_bytes)], &source, width);
    }
    if let Some(found) = &host.cgroup {
        cgroup(text, found, host.limited_by == Some(HostLimit::Cgroup), width);
    }
    if limited {
        row(text, 2, "for this process", [host.available_bytes, Some(host.total_bytes)], "the least of these", width);
    }
}

fn cgroup(text: &mut Text, cgroup: &Cgroup, decides: bool, width: usize) {
    for limit in &cgroup.limits {
        let used = match (limit.usage_bytes, limit.reclaimable_bytes) {
            (None, _) => ", its use cannot be read".to_owned(),
            (Some(usage), None) => format!(": {} in use", gib(usage)),
            (Some(usage), Some(clean)) => format!(": {} in use, {} of it clean cache", gib(usage), gib(clean)),
        };
        let first = decides && cgroup.limiting.as_ref() == Some(&limit.path);
        let source = format!("control group, version {}{used}{}", cgroup.version, if first { ", decides" } else { "" });
        row(text, 2, &end_of(&limit.path, NAME - 2), [Some(limit.available_bytes), Some(limit.limit_bytes)], &source, width);
    }
}

fn disk(text: &mut Text, disk: &Disk, width: usize) {
    let source = disk.filesystem.as_deref().unwrap_or("file system");
    row(text, 0, &format!("Disk  {}", end_of(&disk.path, NAME - 6)), [Some(disk.free_bytes), Some(disk.total_bytes)], source, width);
    if let Some(found) = disk.read {
        detail(text, &read(found), width);
    }
}

fn read(read: ReadRate) -> String {
    let cache = match read.page_cache {
        PageCache::Bypassed => "past the page cache",
        PageCache::Dropped => "after dropping them from the page cache",
        PageCache::MayServe => "and the page cache may have answered",
    };
    format!(
        "reads {} GB/s: {} GB in {} s, {} at once, {cache}",
        hundredths(read.bytes_per_second),
        hundredths(read.read_bytes),
        hundredths(read.nanoseconds),
        read.readers
    )
}

/// Thousand millions with two decimals: GB of bytes, seconds of nanoseconds.
fn hundredths(value: u64) -> String {
    let hundredths = (u128::from(value) + 5_000_000) / 10_000_000;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
