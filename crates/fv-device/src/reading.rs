//! What libraries answered, unjudged: sentinels such as `N/A` or 2^64 - 1 are kept as they came.

use serde::{Deserialize, Serialize};

/// One line of what a reader prints. A reader that dies has still said what it knew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The driver as a whole, by NVML.
    Driver(Driver),
    /// A device, by NVML.
    Nvml(NvmlDevice),
    /// A device, by CUDA.
    Cuda(CudaDevice),
    /// The library is not on this machine.
    Absent {
        /// What the loader said.
        message: String,
    },
    /// The library is there and refused.
    Failed {
        /// What it said.
        message: String,
    },
    /// Every device has been asked. Without this line the reader died on the way.
    Done,
}

/// The driver as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Such as `580.159.04`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// 1000 times the major and 10 times the minor version of CUDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda_version: Option<i32>,
}

/// Device memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// Kept by driver and firmware.
    #[serde(default)]
    pub reserved: u64,
}

/// A device, by NVML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NvmlDevice {
    /// NVML's number.
    pub index: u32,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `GPU-` and hexadecimal digits in groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Major and minor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<(i32, i32)>,
    /// Its memory; of a partitioned device, of all instances together and for some users only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Generation now, lanes now, highest generation, most lanes.
    pub pcie: [Option<u32>; 4],
    /// Memory that the host can address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bar1: Option<u64>,
    /// Processes that use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<u32>>,
    /// Whether it is partitioned.
    pub partitioned: bool,
    /// Its instances.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<NvmlInstance>,
    /// Questions that were refused for another reason than that this device does not answer them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// An instance of a partitioned device, by NVML.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NvmlInstance {
    /// Its number within the device.
    pub index: u32,
    /// The name, which contains the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `MIG-` and hexadecimal digits in groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Its memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Slices of memory and engines, and of multiprocessors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slices: Option<(u32, u32)>,
}

/// A device, by CUDA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CudaDevice {
    /// CUDA's number, which need not be NVML's.
    pub ordinal: u32,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Hexadecimal digits in groups: of the instance where the device is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Major and minor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<(i32, i32)>,
    /// Whether it uses the host's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrated: Option<bool>,
    /// Its memory, asked from within a context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// How much less was free by NVML once that context was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Why there is no context or no answer from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Memory of Windows in bytes, as `GlobalMemoryStatusEx` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowsMemory {
    /// `ullTotalPhys`.
    pub total_physical: u64,
    /// `ullAvailPhys`.
    pub available_physical: u64,
    /// `ullTotalPageFile`: physical memory and page file together.
    pub commit_limit: u64,
    /// `ullAvailPageFile`: what this process may still commit.
    pub commit_available: u64,
    /// By `GetPhysicallyInstalledSystemMemory`, where the firmware says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<u64>,
}
