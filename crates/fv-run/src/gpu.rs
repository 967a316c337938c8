//! Answers of NVML and CUDA as devices: which figure counts, what is a figure at all, and what belongs together.
//!
//! * Memory is CUDA's where a context could be made, since limits on this process count there; otherwise NVML's.
//! * A partitioned device is its instances, each with its own memory. The device's total is nobody's.
//! * Texts such as `N/A`, totals of 0, and figures near 2^64 are how drivers say that they do not know.

use fv_device::reading::{CudaDevice, Driver, Line, Memory, NvmlDevice, NvmlInstance};
use fv_spec::{
    authored::MemoryType,
    probe::{Architecture, ComputeCapability, FreeSource, Gpu, Mig, Pcie, Problem},
};

use crate::{believed, child::Answer};

/// Devices and instances that can be used, by NVML's number, with what is to say about them.
pub fn gpus(nvml: &Answer, cuda: &Answer, problems: &mut Vec<Problem>) -> Vec<Gpu> {
    libraries(nvml, cuda, problems);
    let driver = nvml.lines.iter().find_map(|line| if let Line::Driver(driver) = line { Some(driver.clone()) } else { None });
    let driver = driver.unwrap_or_default();
    let seen = nvml.lines.iter().filter_map(|line| if let Line::Nvml(device) = line { Some(device) } else { None });
    let mut usable: Vec<&CudaDevice> =
        cuda.lines.iter().filter_map(|line| if let Line::Cuda(device) = line { Some(device) } else { None }).collect();
    // Otherwise a device that is not among CUDA's may merely not have been reached.
    let listed = cuda.lines.last() == Some(&Line::Done);
    let mut gpus = Vec::new();
    for device in seen {
        for refused in &device.refused {
            problems.push(Problem::warning("gpu-refused", format!("GPU {}: {refused}", device.index)));
        }
        if device.partitioned {
            gpus.extend(instances(device, &driver, &mut usable, problems));
        } else {
            gpus.push(whole(device, &driver, &mut usable, listed, problems));
        }
    }
    // Without NVML, as on some boards with unified memory, CUDA's word is all there is.
    gpus.extend(usable.into_iter().map(|device| by_cuda(device, &driver, problems)));
    gpus
}

/// What the libraries said of themselves.
fn libraries(nvml: &Answer, cuda: &Answer, problems: &mut Vec<Problem>) {
    let absent = |answer: &Answer| match answer.lines.last() {
        Some(Line::Absent { message }) => Some(text(message).unwrap_or_else(|| "it does not say why".to_owned())),
        _ => None,
    };
    let seen = |answer: &Answer| answer.lines.iter().any(|line| matches!(line, Line::Nvml(_) | Line::Cuda(_)));
    let sized = |line: &Line| matches!(line, Line::Nvml(device) if device.memory.is_some() || !device.instances.is_empty());
    match (absent(nvml), absent(cuda)) {
        (Some(nvml), Some(cuda)) => problems.push(Problem::note("no-gpu", format!("no NVIDIA GPU: NVML: {nvml}; CUDA: {cuda}"))),
        (Some(nvml), None) => problems.push(Problem::note("no-nvml", format!("NVML: {nvml}; other processes and links are not known"))),
        (None, Some(cuda)) if nvml.lines.iter().any(sized) => {
            let message = format!("CUDA: {cuda}; free memory is NVML's, which does not know of limits on this process");
            problems.push(Problem::warning("no-cuda", message));
        }
        (None, Some(cuda)) => problems.push(Problem::note("no-cuda", format!("CUDA: {cuda}"))),
        (None, None) if nvml.complete() && cuda.complete() && !seen(nvml) && !seen(cuda) => {
            problems.push(Problem::note("no-gpu", "the NVIDIA driver has no GPU"));
        }
        (None, None) => {}
    }
    for (name, code, answer) in [("NVML", "nvml-failed", nvml), ("CUDA", "cuda-failed", cuda)] {
        if let Some(Line::Failed { message }) = answer.lines.last() {
            let message = text(message).unwrap_or_else(|| "it failed and does not say why".to_owned());
            problems.push(Problem::warning(code, format!("{name}: {message}")));
        }
        if let Some(why) = &answer.broke_off {
            problems.push(Problem::warning(code, format!("the process that asks {name} broke off: {why}")));
        }
    }
}

fn whole(device: &NvmlDevice, driver: &Driver, usable: &mut Vec<&CudaDevice>, listed: bool, problems: &mut Vec<Problem>) -> Gpu {
    let label = label(device.index, device.name.as_deref(), None);
    let memory = memory(device.memory, &label, problems);
    let mut gpu = described(device, driver);
    gpu.reported_bytes = memory.map(|memory| memory.total);
    by_nvml(&mut gpu, memory);
    match take(usable, device.uuid.as_deref()) {
        Some(found) => refine(&mut gpu, found, &label, problems),
        None if listed => {
            let message = format!("{label} is not visible to CUDA here{}", instead(&gpu));
            problems.push(Problem::note("gpu-hidden", message));
        }
        None => {}
    }
    gpu
}

/// What NVML says of a device, its memory aside.
fn described(device: &NvmlDevice, driver: &Driver) -> Gpu {
    let [generation, lanes, max_generation, max_lanes] = device.pcie;
    let generations = |value: Option<u32>| value.filter(|value| (1..=9).contains(value));
    let widths = |value: Option<u32>| value.filter(|value| (1..=32).contains(value));
    let pcie = Pcie {
        generation: generations(generation),
        lanes: widths(lanes),
        max_generation: generations(max_generation),
        max_lanes: widths(max_lanes),
    };
    let nothing = Pcie { generation: None, lanes: None, max_generation: None, max_lanes: None };
    let capability = capability(device.compute_capability);
    Gpu {
        index: device.index,
        name: device.name.as_deref().and_then(text),
        uuid: device.uuid.as_deref().and_then(text),
        architecture: capability.map(Architecture::of),
        compute_capability: capability.map(|found| found.to_string()),
        memory_type: None,
        total_bytes: None,
        free_bytes: None,
        free_source: None,
        context_bytes: None,
        reported_bytes: None,
        used_by_others_bytes: None,
        processes: device.processes.as_ref().and_then(|list| u32::try_from(list.len()).ok()),
        driver_version: driver.version.as_deref().and_then(text),
        cuda_driver_version: driver.cuda_version.and_then(cuda_version),
        pcie: Some(pcie).filter(|pcie| *pcie != nothing),
        bar1_bytes: device.bar1.and_then(believed).filter(|bytes| *bytes > 0),
        mig: None,
    }
}

/// Each instance as a device. Links, processes and the address window are those of the whole device.
fn instances(device: &NvmlDevice, driver: &Driver, usable: &mut Vec<&CudaDevice>, problems: &mut Vec<Problem>) -> Vec<Gpu> {
    if device.instances.is_empty() {
        let label = label(device.index, device.name.as_deref(), None);
        let message = format!("{label} is partitioned (MIG) and no instance of it can be used from here");
        problems.push(Problem::warning("mig-without-instance", message));
    }
    let instance = |instance: &NvmlInstance| {
        let label = label(device.index, device.name.as_deref(), Some(instance.index));
        let memory = memory(instance.memory, &label, problems);
        let slices = instance.slices.unwrap_or_default();
        let count = |slices: u32| Some(slices).filter(|slices| (1..=64).contains(slices));
        let mut gpu = Gpu {
            name: instance.name.as_deref().and_then(text).or_else(|| device.name.as_deref().and_then(text)),
            uuid: instance.uuid.as_deref().and_then(text),
            processes: None,
            bar1_bytes: None,
            mig: Some(Mig {
                parent_uuid: device.uuid.as_deref().and_then(text),
                instance: instance.index,
                gpu_slices: count(slices.0),
                compute_slices: count(slices.1),
            }),
            ..described(device, driver)
        };
        gpu.reported_bytes = memory.map(|memory| memory.total);
        by_nvml(&mut gpu, memory);
        // A CUDA process sees one instance; the others being hidden says nothing.
        if let Some(found) = take(usable, instance.uuid.as_deref()) {
            refine(&mut gpu, found, &label, problems);
        }
        gpu
    };
    device.instances.iter().map(instance).collect()
}

fn by_nvml(gpu: &mut Gpu, memory: Option<Memory>) {
    let Some(memory) = memory else { return };
    gpu.total_bytes = Some(memory.total);
    gpu.free_bytes = Some(memory.free);
    gpu.free_source = Some(FreeSource::Nvml);
    // Whether NVML's own figure for use contains what the driver keeps depends on the driver.
    gpu.used_by_others_bytes = (memory.total - memory.free).checked_sub(memory.reserved);
}

/// What CUDA knows better.
fn refine(gpu: &mut Gpu, device: &CudaDevice, label: &str, problems: &mut Vec<Problem>) {
    if let Some(capability) = capability(device.compute_capability) {
        gpu.architecture = Some(Architecture::of(capability));
        gpu.compute_capability = Some(capability.to_string());
    }
    gpu.memory_type = device.integrated.map(|unified| if unified { MemoryType::Unified } else { MemoryType::Dedicated });
    if let Some(memory) = memory(device.memory, label, problems) {
        gpu.total_bytes = Some(memory.total);
        gpu.free_bytes = Some(memory.free);
        gpu.free_source = Some(FreeSource::DriverContext);
        gpu.context_bytes = device.context.and_then(believed).filter(|bytes| *bytes <= memory.total - memory.free);
    }
    if let Some(refused) = device.refused.as_deref().and_then(text) {
        let message = format!("{label}: no context could be asked: {refused}{}", instead(gpu));
        problems.push(Problem::warning("context-refused", message));
    }
}

/// What is left without CUDA's word.
fn instead(gpu: &Gpu) -> &'static str {
    if gpu.free_source.is_some() { "; its free memory is NVML's" } else { "; its free memory is not known" }
}

fn by_cuda(device: &CudaDevice, driver: &Driver, problems: &mut Vec<Problem>) -> Gpu {
    let uuid = device.uuid.as_deref().and_then(text).map(|uuid| format!("GPU-{uuid}"));
    let bare = NvmlDevice { index: device.ordinal, name: device.name.clone(), uuid, ..NvmlDevice::default() };
    let mut gpu = described(&bare, driver);
    refine(&mut gpu, device, &label(device.ordinal, device.name.as_deref(), None), problems);
    gpu
}

/// Takes the device with this identifier out of CUDA's. The kind before the digits differs between the libraries.
fn take<'d>(usable: &mut Vec<&'d CudaDevice>, uuid: Option<&str>) -> Option<&'d CudaDevice> {
    let digits = uuid?.trim_start_matches("GPU-").trim_start_matches("MIG-");
    let at = usable.iter().position(|device| device.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(digits)))?;
    Some(usable.remove(at))
}

fn label(index: u32, name: Option<&str>, instance: Option<u32>) -> String {
    let name = name.and_then(text).map(|name| format!(" ({name})")).unwrap_or_default();
    let instance = instance.map(|instance| format!(", MIG instance {instance}")).unwrap_or_default();
    format!("GPU {index}{name}{instance}")
}

/// A text that says something, without what a terminal obeys.
fn text(found: &str) -> Option<String> {
    const NOTHING: [&str; 6] = ["", "n/a", "not supported", "unknown", "unknown error", "unavailable"];
    const LONGEST: usize = 200;
    let shown: String = found.chars().filter(|char| !char.is_control()).take(LONGEST).collect();
    let shown = shown.trim();
    let bare = shown.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    (!NOTHING.contains(&bare.as_str())).then(|| shown.to_owned())
}

/// Memory that can be believed.
fn memory(found: Option<Memory>, label: &str, problems: &mut Vec<Problem>) -> Option<Memory> {
    let found = found?;
    let total = believed(found.total).filter(|total| *total > 0)?;
    let free = believed(found.free)?;
    if free > total {
        let message = format!("{label}: the driver says that {free} bytes of {total} are free; neither counts");
        problems.push(Problem::warning("memory-inconsistent", message));
        return None;
    }
    Some(Memory { total, free, reserved: believed(found.reserved).unwrap_or(0) })
}

fn capability(found: Option<(i32, i32)>) -> Option<ComputeCapability> {
    let (major, minor) = found?;
    let major = u32::try_from(major).ok().filter(|major| (1..=999).contains(major))?;
    let minor = u32::try_from(minor).ok().filter(|minor| *minor <= 999)?;
    Some(ComputeCapability { major, minor })
}

/// 13000 is 13.0.
fn cuda_version(found: i32) -> Option<String> {
    (found > 0).then(|| format!("{}.{}", found / 1000, found % 1000 / 10))
}
