//! What memory there is to plan with, from what was given and what was measured.
//!
//! * [`Purpose::Plan`]: a given capacity is free memory, of whatever machine; only what is not given is measured.
//! * [`Purpose::Generate`]: the work happens here, so free memory is measured, and a given capacity is an upper bound on it.
//!
//! Reserves are no part of this: policies keep them back.

use fv_spec::authored::MemoryType;
use fv_spec::probe::{FreeSource, Gpu, HostLimit, HostSource, Probe, Severity};

use crate::device::MAX_CAPACITY;
use crate::error::{InputError, gib, listed, quoted};

/// What the capacities are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A plan, for this machine or another one.
    Plan,
    /// Work on this machine.
    Generate,
}

/// What whoever asks has said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Given<'a> {
    /// Device memory.
    pub vram_bytes: Option<u64>,
    /// Host memory.
    pub ram_bytes: Option<u64>,
    /// Which GPU: its number, or its identifier.
    pub gpu: Option<&'a str>,
}

/// Where an amount came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Whoever asked.
    Given,
    /// A probe.
    Probed,
    /// A rule, since nobody said.
    Assumed,
}

/// Bytes with where they came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    /// How much.
    pub bytes: u64,
    /// Where the figure came from.
    pub origin: Origin,
    /// What measured it, or the rule.
    pub by: Option<&'static str>,
    /// When it was measured, as the probe says.
    pub at: Option<String>,
}

impl Amount {
    fn given(bytes: u64) -> Self {
        Self { bytes, origin: Origin::Given, by: None, at: None }
    }
}

/// A pool of memory. Each amount bounds what may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// All of it.
    pub total: Amount,
    /// What others do not use, and limits on this process leave.
    pub free: Amount,
    /// The most that may be used, by whoever asked.
    pub cap: Option<Amount>,
    /// A control group's limit.
    pub cgroup_limit: Option<Amount>,
}

impl Pool {
    /// A pool that somebody described.
    fn described(bytes: u64) -> Self {
        let rule = "no more than the given free memory is known to be there";
        let total = Amount { bytes, origin: Origin::Assumed, by: Some(rule), at: None };
        Self { total, free: Amount::given(bytes), cap: None, cgroup_limit: None }
    }

    /// The least of all bounds.
    pub fn capacity_bytes(&self) -> u64 {
        let bounds = [Some(&self.total), Some(&self.free), self.cap.as_ref(), self.cgroup_limit.as_ref()];
        bounds.into_iter().flatten().map(|amount| amount.bytes).min().unwrap_or(0)
    }
}

/// Memory to plan with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacities<'p> {
    /// The GPU that was measured.
    pub gpu: Option<&'p Gpu>,
    /// Memory of the device.
    pub vram: Pool,
    /// Memory of the host.
    pub ram: Pool,
    /// Whether both are one pool: the same bytes, and never to be added up.
    pub unified: bool,
}

/// Which parts of a probe these capacities would need: GPUs, and memory of the host.
pub fn needs(given: &Given<'_>, purpose: Purpose) -> (bool, bool) {
    match purpose {
        Purpose::Generate => (true, true),
        Purpose::Plan => (given.vram_bytes.is_none(), given.ram_bytes.is_none()),
    }
}

/// Combines what was given with what was measured.
///
/// # Errors
/// For a given capacity that cannot be believed, a GPU that is not there (`no-device`), and memory that is neither given nor
/// measured, or of which nothing is left. Nothing is made up for it.
pub fn capacities<'p>(probe: Option<&'p Probe>, given: &Given<'_>, purpose: Purpose) -> Result<Capacities<'p>, Vec<InputError>> {
    let mut errors = Vec::new();
    for (flag, bytes) in [("--vram-gib", given.vram_bytes), ("--ram-gib", given.ram_bytes)] {
        if bytes.is_some_and(|bytes| !(1..=MAX_CAPACITY).contains(&bytes)) {
            errors.push(InputError::new("invalid-capacity", format!("`{flag}` must lie between 1 byte and 1000000 GiB")));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let (need_gpu, need_host) = needs(given, purpose);
    let mut keep = |result: Result<Option<Pool>, InputError>| result.map_err(|error| errors.push(error)).ok().flatten();
    // Where the host's memory is the device's, a system may list no device of its own.
    let shared = need_gpu && given.gpu.is_none() && probe.is_some_and(|probe| probe.host.as_ref().is_some_and(|host| host.unified));
    let gpu = if (need_gpu && !shared) || given.gpu.is_some() { select(probe, given.gpu).map(Some) } else { Ok(None) };
    let unified = shared || matches!(gpu, Ok(Some(gpu)) if gpu.memory_type == Some(MemoryType::Unified));
    let vram = keep(match &gpu {
        Err(error) => Err(error.clone()),
        // What the host has left can stand in for the device's figure.
        Ok(Some(gpu)) if unified && gpu.free_bytes.is_none() => Ok(None),
        Ok(Some(gpu)) if need_gpu => measured_gpu(gpu, probe).map(Some),
        Ok(_) => Ok(None),
    });
    let ram = keep(if need_host { measured_host(probe).map(Some) } else { Ok(None) });
    if !errors.is_empty() {
        return Err(errors);
    }
    let pools = if unified {
        let least_given = given.vram_bytes.into_iter().chain(given.ram_bytes).min();
        combined(one_pool(vram, ram), least_given, purpose).map(|pool| (pool.clone(), pool))
    } else {
        combined(vram, given.vram_bytes, purpose).zip(combined(ram, given.ram_bytes, purpose))
    };
    match pools {
        Some((vram, ram)) => Ok(Capacities { gpu: gpu.ok().flatten(), vram, ram, unified }),
        None => Err(vec![InputError::new("not-measured", "memory was not measured; give `--vram-gib` and `--ram-gib`")]),
    }
}

/// What was measured with what was given.
fn combined(measured: Option<Pool>, given: Option<u64>, purpose: Purpose) -> Option<Pool> {
    match (given, purpose) {
        (Some(bytes), Purpose::Plan) => Some(Pool::described(bytes)),
        (given, _) => measured.map(|pool| Pool { cap: given.map(Amount::given), ..pool }),
    }
}

/// One pool of which device and host each give a figure: both speak of the same bytes, and the lower one counts.
fn one_pool(device: Option<Pool>, host: Option<Pool>) -> Option<Pool> {
    let least = |a: Amount, b: Amount| if b.bytes < a.bytes { b } else { a };
    match (host, device) {
        (Some(host), Some(device)) => Some(Pool { total: least(host.total, device.total), free: least(host.free, device.free), ..host }),
        (one, other) => one.or(other),
    }
}

/// The GPU that was named, or the first.
fn select<'p>(probe: Option<&'p Probe>, wanted: Option<&str>) -> Result<&'p Gpu, InputError> {
    let Some(probe) = probe else {
        return Err(InputError::new("not-measured", "GPUs were not measured; give `--vram-gib`"));
    };
    let Some(first) = probe.gpus.first() else {
        let message = "this machine has no GPU that can be used; give `--vram-gib` for a machine that has one";
        return Err(InputError::new("no-device", message));
    };
    let Some(wanted) = wanted else { return Ok(first) };
    let bare = |uuid: &str| uuid.trim_start_matches("GPU-").trim_start_matches("MIG-").to_ascii_lowercase();
    let named = |gpu: &&Gpu| gpu.uuid.as_deref().is_some_and(|uuid| bare(uuid) == bare(wanted));
    let numbered = |gpu: &&Gpu| gpu.index.to_string() == wanted;
    let found: Vec<&Gpu> = probe.gpus.iter().filter(|gpu| named(gpu) || numbered(gpu)).collect();
    let all = || listed(probe.gpus.iter().map(|gpu| gpu.uuid.as_deref().unwrap_or("one without identifier")));
    match found[..] {
        [gpu] => Ok(gpu),
        [] => Err(InputError::new("no-device", format!("there is no GPU {}, only 0 to {} ({})", quoted(wanted), last(probe), all()))),
        _ => Err(InputError::new("ambiguous-device", format!("GPU {} is partitioned; name an instance: {}", quoted(wanted), all()))),
    }
}

fn last(probe: &Probe) -> u32 {
    probe.gpus.iter().map(|gpu| gpu.index).max().unwrap_or(0)
}

fn probed(bytes: u64, by: Option<&'static str>, probe: Option<&Probe>) -> Amount {
    Amount { bytes, origin: Origin::Probed, by, at: probe.map(|probe| probe.time.clone()) }
}

fn measured_gpu(gpu: &Gpu, probe: Option<&Probe>) -> Result<Pool, InputError> {
    let label = format!("GPU {} ({})", gpu.index, gpu.name.as_deref().unwrap_or("without a name"));
    let by = gpu.free_source.map(|source| match source {
        FreeSource::DriverContext => "the driver, from within a context",
        FreeSource::Nvml => "NVML",
    });
    let (Some(total), Some(free)) = (gpu.total_bytes, gpu.free_bytes) else {
        let message = format!("the free memory of {label} could not be measured; give `--vram-gib`");
        return Err(InputError::new("unknown-capacity", message));
    };
    if free == 0 {
        return Err(InputError::new("no-memory", format!("{label} has no free memory: all of its {} is in use", gib(total.into()))));
    }
    let amount = |bytes| probed(bytes, by, probe);
    Ok(Pool { total: amount(total), free: amount(free), cap: None, cgroup_limit: None })
}

fn measured_host(probe: Option<&Probe>) -> Result<Pool, InputError> {
    // Why there is nothing has been said by whoever looked.
    let why = || {
        let said = probe.map_or(&[][..], |probe| &probe.problems);
        let worst = said.iter().find(|problem| problem.severity == Severity::Error);
        worst.map(|problem| format!(": {}", problem.message)).unwrap_or_default()
    };
    let Some(host) = probe.and_then(|probe| probe.host.as_ref()) else {
        return Err(InputError::new("not-measured", format!("host memory was not measured{}; give `--ram-gib`", why())));
    };
    let Some(free) = host.available_bytes else {
        return Err(InputError::new("unknown-capacity", "the available host memory could not be measured; give `--ram-gib`"));
    };
    if free == 0 {
        return Err(InputError::new("no-memory", format!("there is no host memory to plan with{}; give `--ram-gib`", why())));
    }
    let source = match host.source {
        HostSource::ProcMeminfo => "/proc/meminfo",
        HostSource::GlobalMemoryStatus => "GlobalMemoryStatusEx",
        HostSource::VmStat => "vm_stat",
    };
    let by = match host.limited_by {
        Some(HostLimit::Cgroup) => "the control group",
        Some(HostLimit::Commit) => "the commit limit",
        Some(HostLimit::System) | None => source,
    };
    let amount = |bytes, by| probed(bytes, Some(by), probe);
    let limit = host.cgroup.as_ref().and_then(|cgroup| cgroup.limits.iter().map(|limit| limit.limit_bytes).min());
    Ok(Pool {
        total: amount(host.total_bytes, source),
        free: amount(free, by),
        cap: None,
        cgroup_limit: limit.map(|bytes| amount(bytes, "the control group")),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const GIB: u64 = 1 << 30;

    fn host(available: u64) -> Value {
        json!({
            "source": "proc_meminfo", "total_bytes": 64 * GIB, "available_bytes": available, "limited_by": "system",
            "system_available_bytes": available
        })
    }

    fn gpu(index: u32, uuid: &str, free: u64) -> Value {
        json!({ "index": index, "uuid": uuid, "total_bytes": 24 * GIB, "free_bytes": free, "free_source": "driver_context" })
    }

    fn probe(gpus: &[Value], host: &Value) -> Probe {
        let mut value = json!({
            "version": 1, "time": "2026-11-18T09:30:00Z", "system": { "name": "linux" }, "gpus": gpus, "problems": []
        });
        if !host.is_null() {
            value["host"] = host.clone();
        }
        crate::probe::read(&value.to_string()).expect("a probe")
    }

    fn given(vram: Option<u64>, ram: Option<u64>) -> Given<'static> {
        Given { vram_bytes: vram.map(|gib| gib * GIB), ram_bytes: ram.map(|gib| gib * GIB), gpu: None }
    }

    fn codes(result: Result<Capacities<'_>, Vec<InputError>>) -> Vec<&'static str> {
        result.err().unwrap_or_default().into_iter().map(|error| error.code).collect()
    }

    #[test]
    fn a_plan_takes_what_is_given_as_free_and_measures_only_the_rest() {
        let here = probe(&[gpu(0, "GPU-a", 20 * GIB)], &host(40 * GIB));
        let both = given(Some(80), Some(256));
        let found = capacities(None, &both, Purpose::Plan).expect("nothing need be measured");
        assert_eq!((found.vram.capacity_bytes(), found.ram.capacity_bytes(), found.gpu), (80 * GIB, 256 * GIB, None));
        assert_eq!((found.vram.free.origin, found.vram.total.origin), (Origin::Given, Origin::Assumed));
        let found = capacities(Some(&here), &given(None, Some(256)), Purpose::Plan).expect("measured");
        assert_eq!((found.vram.free.bytes, found.ram.free.bytes), (20 * GIB, 256 * GIB));
        assert_eq!(found.vram.free.at.as_deref(), Some("2026-11-18T09:30:00Z"));
        assert_eq!(found.vram.free.by, Some("the driver, from within a context"));
        assert_eq!((found.vram.free.origin, found.ram.free.origin), (Origin::Probed, Origin::Given));
        assert_eq!(needs(&both, Purpose::Plan), (false, false));
        assert_eq!(needs(&both, Purpose::Generate), (true, true));
    }

    #[test]
    fn work_here_takes_what_is_given_as_an_upper_bound() {
        let here = probe(&[gpu(0, "GPU-a", 20 * GIB)], &host(40 * GIB));
        for (vram, ram, capacity) in [(8, 16, (8, 16)), (80, 256, (20, 40))] {
            let given = given(Some(vram), Some(ram));
            let found = capacities(Some(&here), &given, Purpose::Generate).expect("measured");
            assert_eq!((found.vram.capacity_bytes(), found.ram.capacity_bytes()), (capacity.0 * GIB, capacity.1 * GIB));
            assert_eq!((found.vram.free.bytes, found.vram.free.origin), (20 * GIB, Origin::Probed));
            assert_eq!(found.vram.cap.map(|cap| (cap.bytes, cap.origin)), Some((vram * GIB, Origin::Given)));
        }
        assert_eq!(codes(capacities(None, &given(Some(8), Some(8)), Purpose::Generate)), ["not-measured", "not-measured"]);
    }

    #[test]
    fn what_is_missing_is_said_and_never_made_up() {
        let nothing = given(None, None);
        let empty = probe(&[], &Value::Null);
        assert_eq!(codes(capacities(Some(&empty), &nothing, Purpose::Plan)), ["no-device", "not-measured"]);
        assert_eq!(codes(capacities(Some(&empty), &given(Some(8), Some(8)), Purpose::Plan)), [] as [&str; 0]);
        let full = probe(&[gpu(0, "GPU-a", 0)], &host(0));
        assert_eq!(codes(capacities(Some(&full), &nothing, Purpose::Plan)), ["no-memory", "no-memory"]);
        let silent = probe(&[json!({ "index": 0 })], &json!({ "source": "proc_meminfo", "total_bytes": 5 }));
        assert_eq!(codes(capacities(Some(&silent), &nothing, Purpose::Plan)), ["unknown-capacity", "unknown-capacity"]);
        let absurd = Given { vram_bytes: Some(0), ram_bytes: Some(u64::MAX), gpu: None };
        assert_eq!(codes(capacities(Some(&full), &absurd, Purpose::Plan)), ["invalid-capacity", "invalid-capacity"]);
    }

    #[test]
    fn the_reason_why_no_memory_counts_is_repeated() {
        let mut here = probe(&[gpu(0, "GPU-a", 20 * GIB)], &host(0));
        here.problems.push(fv_spec::probe::Problem::error("cgroup-usage-unreadable", "nothing counts: the use of /a cannot be read"));
        let errors = capacities(Some(&here), &given(None, None), Purpose::Plan).expect_err("refused");
        let message = "there is no host memory to plan with: nothing counts: the use of /a cannot be read; give `--ram-gib`";
        assert_eq!(errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>(), [message]);
    }

    #[test]
    fn a_gpu_is_named_by_number_or_identifier() {
        let instance = |uuid: &str, number: u32| {
            let mut gpu = gpu(1, uuid, 5 * GIB);
            gpu["mig"] = json!({ "instance": number });
            gpu
        };
        let here = probe(&[gpu(0, "GPU-a", 20 * GIB), instance("MIG-b", 0), instance("MIG-c", 1)], &host(GIB));
        for (name, found) in [
            (None, Ok("GPU-a")),
            (Some("0"), Ok("GPU-a")),
            (Some("GPU-A"), Ok("GPU-a")),
            (Some("c"), Ok("MIG-c")),
            (Some("1"), Err("ambiguous-device")),
            (Some("2"), Err("no-device")),
            (Some(""), Err("no-device")),
        ] {
            let given = Given { gpu: name, ..given(None, None) };
            let result = capacities(Some(&here), &given, Purpose::Plan);
            let result = result.map(|found| found.gpu.and_then(|gpu| gpu.uuid.as_deref()).unwrap_or_default());
            assert_eq!(result.map_err(|errors| errors[0].code), found, "{name:?}");
        }
    }

    #[test]
    fn a_shared_pool_counts_once_and_its_lower_figure_counts() {
        let mut integrated = gpu(0, "GPU-a", 20 * GIB);
        integrated["memory_type"] = json!("unified");
        for (device_free, host_free) in [(20, 40), (20, 10)] {
            integrated["free_bytes"] = json!(device_free * GIB);
            let here = probe(&[integrated.clone()], &host(host_free * GIB));
            let found = capacities(Some(&here), &given(None, None), Purpose::Plan).expect("measured");
            assert!(found.unified && found.vram == found.ram);
            assert_eq!(found.vram.free.bytes, device_free.min(host_free) * GIB);
            let found = capacities(Some(&here), &given(Some(8), Some(4)), Purpose::Generate).expect("measured");
            assert_eq!((found.unified, found.vram.capacity_bytes()), (true, 4 * GIB));
        }
        let mut apple = host(30 * GIB);
        apple["unified"] = json!(true);
        let here = probe(&[], &apple);
        let found = capacities(Some(&here), &given(None, None), Purpose::Plan).expect("no device is listed, and none is needed");
        assert_eq!((found.unified, found.vram.free.bytes, found.gpu), (true, 30 * GIB, None));
        let found = capacities(Some(&here), &given(Some(8), None), Purpose::Plan).expect("a machine that was described");
        assert_eq!((found.unified, found.vram.free.bytes, found.ram.free.bytes), (false, 8 * GIB, 30 * GIB));
    }

    proptest! {
        #[test]
        fn nothing_exceeds_any_bound(vram in 1..200_u64, ram in 1..200_u64, free in 1..24_u64, available in 1..64_u64) {
            let here = probe(&[gpu(0, "GPU-a", free * GIB)], &host(available * GIB));
            let given = given(Some(vram), Some(ram));
            let found = capacities(Some(&here), &given, Purpose::Generate).expect("measured");
            prop_assert_eq!(found.vram.capacity_bytes(), vram.min(free) * GIB);
            prop_assert_eq!(found.ram.capacity_bytes(), ram.min(available) * GIB);
        }
    }
}
