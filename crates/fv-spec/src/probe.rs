//! What a machine was found to have: the output of `fv-run probe --json`, version 1.
//!
//! Sizes are bytes below 2^53. What could not be read is absent, and [`Probe::problems`] says why. A probe holds no user
//! names, no environment and no processes but their number.

pub use crate::plan::{Architecture, OperatingSystem};
use serde::{Deserialize, Serialize};

use crate::authored::MemoryType;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The version of the probe format.
pub const VERSION: u32 = 1;

/// A time in UTC to the second, as RFC 3339 writes it.
pub const TIME: &str = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$";

/// What a machine was found to have at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The version of the format, 1.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = VERSION, "maximum" = VERSION)))]
    pub version: u32,
    /// When it was taken, in UTC: `2026-11-18T09:30:00Z`.
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = TIME)))]
    pub time: String,
    /// The operating system.
    pub system: System,
    /// Usable GPUs: devices, or the instances of a device that is partitioned. Empty where there is none.
    pub gpus: Vec<Gpu>,
    /// Memory of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The file system of the folder that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// What could not be read and why, and what to know about what was.
    pub problems: Vec<Problem>,
}

/// The operating system and what encloses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Which one; Linux inside of Windows is Linux.
    pub name: OperatingSystem,
    /// The release of its kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The version of the Windows Subsystem for Linux that it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 2)))]
    pub wsl: Option<u8>,
    /// What runs the container, such as `docker`, where signs of one were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

impl Architecture {
    /// The architecture of a compute capability, by the published planner's table.
    pub fn of(capability: ComputeCapability) -> Self {
        match (capability.major, capability.minor) {
            (8, 0..=8) => Self::Ampere,
            (8, 9) => Self::Ada,
            (9, _) => Self::Hopper,
            (10, 0 | 3) => Self::BlackwellDatacenter,
            (11, 0) => Self::BlackwellTegra,
            (12, 1) => Self::BlackwellUnified,
            (12, _) => Self::BlackwellRtx,
            _ => Self::Other,
        }
    }
}

/// What a CUDA device can execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// The generation.
    pub major: u32,
    /// The step within it.
    pub minor: u32,
}

impl ComputeCapability {
    /// Reads `9.0`: a number of at most three digits on either side of one point.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |part: &str| {
            let digits = (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl std::fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Where the figures for a GPU's memory come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FreeSource {
    /// The driver, asked from within a context: limits on the process count.
    DriverContext,
    /// NVML, which sees the device and not the process.
    Nvml,
}

/// A GPU, or an instance of a partitioned one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// NVML's number of the device; CUDA's where NVML has not answered. Instances have the number of their device.
    pub index: u32,
    /// As the driver calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The driver's identifier of the device or instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The architecture of its compute capability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// Such as `9.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("pattern" = r"^[0-9]{1,3}\.[0-9]{1,3}$")))]
    pub compute_capability: Option<String>,
    /// `unified` where it has no memory of its own and uses the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_type: Option<MemoryType>,
    /// All its memory, by `free_source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Its memory that a process can still get, by `free_source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Who said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_source: Option<FreeSource>,
    /// What the context took that `free_bytes` was asked from: it is in use in `free_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<u64>,
    /// All its memory as NVML reports it, which is more than a process can get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_bytes: Option<u64>,
    /// What others use of `reported_bytes`, without what the driver keeps for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_by_others_bytes: Option<u64>,
    /// How many processes use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
    /// Such as `580.159.04`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// The newest CUDA that the driver serves, such as `13.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda_driver_version: Option<String>,
    /// Its link to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie: Option<Pcie>,
    /// The part of its memory that the host can address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar1_bytes: Option<u64>,
    /// Which instance of which device it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
}

/// A PCI Express link. An idle device lowers its generation, so the highest counts for planning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pcie {
    /// The generation now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// The lanes now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u32>,
    /// The highest generation of this device in this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_generation: Option<u32>,
    /// The most lanes of this device in this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lanes: Option<u32>,
}

/// An instance of a device that is partitioned (Multi-Instance GPU).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// The device's identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_uuid: Option<String>,
    /// The instance's number within the device.
    pub instance: u32,
    /// Slices of the device's memory and engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_slices: Option<u32>,
    /// Slices of the device's multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_slices: Option<u32>,
}

/// Which of the system's figures for memory were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostSource {
    /// `/proc/meminfo` on Linux.
    ProcMeminfo,
    /// `GlobalMemoryStatusEx` on Windows.
    GlobalMemoryStatus,
    /// `vm_stat` and `sysctl` on macOS.
    VmStat,
}

/// What decides the available memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostLimit {
    /// What the system has left.
    System,
    /// A control group of this process.
    Cgroup,
    /// What the system may still commit to.
    Commit,
}

/// Memory of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Which figures these are.
    pub source: HostSource,
    /// What the system manages. Less than what is installed where firmware or an integrated GPU keeps a part.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1)))]
    pub total_bytes: u64,
    /// What this process can still get without swapping: the least of the system's figure and of every limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// What decided `available_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<HostLimit>,
    /// What the system has left, without any limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_available_bytes: Option<u64>,
    /// What the firmware says is installed, carve-outs included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed_bytes: Option<u64>,
    /// Swap or page file. Recorded, never counted as memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    /// Whether the GPU uses this same memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unified: bool,
    /// The control groups of this process that limit memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
    /// What the system may commit to: physical memory and page file together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<Commit>,
}

/// The commit charge of Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// Physical memory and page file.
    pub limit_bytes: u64,
    /// What is left of it for this process.
    pub available_bytes: u64,
}

/// The control groups that this process is in, as far as they can be seen from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    /// The version of the hierarchy that has the memory controller.
    #[cfg_attr(feature = "schema", schemars(extend("minimum" = 1, "maximum" = 2)))]
    pub version: u8,
    /// This process' own group.
    pub path: String,
    /// Groups with a limit, from its own outwards.
    pub limits: Vec<CgroupLimit>,
    /// The group of `limits` with the least available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limiting: Option<String>,
}

/// A control group with a limit on memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CgroupLimit {
    /// The group.
    pub path: String,
    /// What it may use.
    pub limit_bytes: u64,
    /// What it uses, file cache included. Absent when it could not be read; then nothing counts as available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_bytes: Option<u64>,
    /// Clean file cache within `usage_bytes`, which the system drops on demand. Absent when a counter is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaimable_bytes: Option<u64>,
    /// The limit less use, with the clean file cache.
    pub available_bytes: u64,
}

/// How much a measured read rate can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PageCache {
    /// The files were opened past the page cache.
    Bypassed,
    /// The system was asked to drop the files from its cache and may not have done so.
    Dropped,
    /// What was read may come from the page cache.
    MayServe,
}

/// A folder's file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// The folder as it was given; the home folder is written `~`.
    pub path: String,
    /// The kind of file system, such as `ext4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Its size.
    pub total_bytes: u64,
    /// What this user can still write.
    pub free_bytes: u64,
    /// The measured read rate, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadRate>,
}

/// A read rate that was measured on files that were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReadRate {
    /// Bytes per second over the whole measurement.
    pub bytes_per_second: u64,
    /// What was read.
    pub read_bytes: u64,
    /// How long it took, in nanoseconds.
    pub nanoseconds: u64,
    /// How many reads were under way at once.
    pub readers: u32,
    /// Whether the page cache could have answered.
    pub page_cache: PageCache,
}

/// How serious a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A normal answer that is good to know, such as that there is no GPU.
    Note,
    /// A figure is missing or less certain than it looks.
    Warning,
    /// Nothing can be planned on what is left.
    Error,
}

/// What could not be read, or what to know about what was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// How serious it is.
    pub severity: Severity,
    /// Lower case with hyphens, such as `no-nvml`.
    pub code: String,
    /// A sentence.
    pub message: String,
}

impl Problem {
    /// A problem.
    pub fn new(severity: Severity, code: &str, message: impl Into<String>) -> Self {
        Self { severity, code: code.to_owned(), message: message.into() }
    }

    /// A normal answer that is good to know.
    pub fn note(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, message)
    }

    /// A figure that is missing or uncertain.
    pub fn warning(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message)
    }

    /// What leaves nothing to plan on.
    pub fn error(code: &str, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_follow_the_published_table() {
        let table = [
            ("8.0", "ampere"),
            ("8.6", "ampere"),
            ("8.8", "ampere"),
            ("8.9", "ada"),
            ("9.0", "hopper"),
            ("9.9", "hopper"),
            ("10.0", "blackwell-datacenter"),
            ("10.3", "blackwell-datacenter"),
            ("10.1", "other"),
            ("11.0", "blackwell-tegra"),
            ("11.1", "other"),
            ("12.0", "blackwell-rtx"),
            ("12.1", "blackwell-unified"),
            ("12.2", "blackwell-rtx"),
            ("7.5", "other"),
            ("8.10", "other"),
            ("13.0", "other"),
        ];
        for (capability, word) in table {
            let capability = ComputeCapability::parse(capability).expect("a capability");
            assert_eq!(Architecture::of(capability).word(), word, "{capability}");
        }
        for architecture in Architecture::ALL {
            let json = serde_json::to_value(architecture).expect("a word");
            assert_eq!(json, architecture.word());
        }
    }

    #[test]
    fn capabilities_have_digits_on_both_sides_of_a_point() {
        for text in ["", "9", "9.", ".0", "9.0.0", "+9.0", "9.0a", " 9.0", "9,0", "1000.0", "-8.0"] {
            assert_eq!(ComputeCapability::parse(text), None, "{text}");
        }
        assert_eq!(ComputeCapability::parse("12.1").map(|found| found.to_string()), Some("12.1".to_owned()));
    }
}
