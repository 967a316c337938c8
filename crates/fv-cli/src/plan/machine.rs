//! From arguments, the catalog and a probe to the machine that is planned for.

use std::path::Path;

use fv_data::Store;
use fv_estimate::{
    budget::Asked,
    capacities::{self, Capacities, Given, Origin, Purpose, capacities},
    device::{DeviceSpec, gib_to_bytes, reserve_to_bytes},
    error::{InputError, gib},
    forecast::rates::{Rate, Rates},
    place,
    planner::freevideo::{AttentionAsked, Machine, Pool, is_geforce},
};
use fv_spec::{
    authored::{Backend, MemoryType, Runtime},
    compiled::Device,
    plan::{Architecture, OperatingSystem, Source, Sourced, budget::Amount},
    probe::{PageCache, Probe},
};

use super::{
    Session,
    arguments::{MachineArguments, MemoryArguments},
    text_of,
};
use crate::{lookup, stop::Stop};

/// Whose rules count where no card is named: the published grid's.
const ASSUMED: Architecture = Architecture::Hopper;

/// A machine, what people call its device, and how fast that is.
pub(super) struct Described {
    pub(super) machine: Machine,
    pub(super) name: Option<String>,
    pub(super) rates: Rates,
}

/// What somebody said of memory, in bytes.
#[derive(Default)]
pub(super) struct Memory {
    vram: Option<u64>,
    ram: Option<u64>,
    probe: Option<Probe>,
}

impl Memory {
    /// Reads arguments; what is wrong is added to `errors`.
    pub(super) fn read(arguments: &MemoryArguments, errors: &mut Vec<InputError>) -> Result<Self, Stop> {
        let probe = arguments.probe.as_deref().map(probe_file).transpose()?;
        let vram = bytes("`--vram-gib`", arguments.vram_gib, errors);
        let ram = bytes("`--ram-gib`", arguments.ram_gib, errors);
        Ok(Self { vram, ram, probe })
    }

    /// So much of both, for cells of a grid.
    pub(super) fn given(vram: u64, ram: u64) -> Self {
        Self { vram: Some(vram), ram: Some(ram), probe: None }
    }
}

/// Bytes of GiB on the command line.
pub(super) fn bytes(what: &str, gib: Option<f64>, errors: &mut Vec<InputError>) -> Option<u64> {
    gib.and_then(|gib| gib_to_bytes(what, gib).map_err(|error| errors.push(error)).ok())
}

fn probe_file(path: &Path) -> Result<Probe, Stop> {
    let at = |error: InputError| InputError::new(error.code, format!("{}: {error}", path.display()));
    fv_estimate::probe::read(&text_of(path)?).map_err(|errors| Stop::wrong(errors.into_iter().map(at)))
}

/// The machine that is meant; everything wrong is said at once.
pub(super) fn machine(
    session: &mut Session<'_>,
    arguments: &MachineArguments,
    memory: Memory,
    mut errors: Vec<InputError>,
) -> Result<Described, Stop> {
    let device = match &arguments.hardware {
        Some(name) => lookup::device(session.store, name)?.map_err(|error| errors.push(error)).ok(),
        None => None,
    };
    if arguments.attention.len() > 2 {
        let message =
            format!("attention: found {} implementations, allowed: one for everything and one for windows", arguments.attention.len());
        errors.push(InputError::new("invalid-value", message));
    }
    let reserves = [("`--gpu-reserve-gib`", arguments.gpu_reserve_gib), ("`--ram-reserve-gib`", arguments.ram_reserve_gib)];
    let reserves = reserves.map(|(flag, gib)| match gib {
        Some(gib) => reserve_to_bytes(flag, gib).map_err(|error| errors.push(error)).ok(),
        None => None,
    });
    if !errors.is_empty() {
        return Err(Stop::wrong(errors));
    }
    let Memory { vram, ram, probe } = memory;
    let said = vram.is_some() && ram.is_some();
    let offered = device.as_ref().map(|device| Offered::of(session.store, device, said)).transpose()?;
    let stated = arguments.system.map(Sourced::given).or(offered.as_ref().and_then(|offered| offered.os));
    let macos = |os: Option<Sourced<OperatingSystem>>| os.is_some_and(|os| os.value == OperatingSystem::Macos);
    let known_device = vram.or(offered.as_ref().and_then(|offered| offered.vram));
    let known_host = ram.or(offered.as_ref().and_then(|offered| offered.ram));
    let wanted = Wanted { gpus: known_device.is_none() && !macos(stated), host: known_host.is_none() };
    if let Some(gpu) = session.gpu().filter(|_| probe.is_none() && !wanted.gpus) {
        let message =
            format!("`--gpu {gpu}` names a GPU to measure, and none is measured where its memory is given: leave one of them out");
        return Err(Stop::wrong([InputError::new("conflict", message)]));
    }
    let probe = match (probe, &session.measure) {
        (None, Some(here)) if wanted.gpus || wanted.host => Some((here.probe)(wanted)?),
        (probe, _) => probe,
    };
    let os = stated.or(probe.as_ref().map(|probe| Sourced { value: probe.system.name, source: Source::Probed }));
    let os = os.or(session.measure.as_ref().map(|here| Sourced { value: here.system, source: Source::Probed }));
    let os = os.unwrap_or(Sourced::assumed(OperatingSystem::Linux));
    let shared = os.value == OperatingSystem::Macos;
    if probe.is_none() {
        missing(known_device.is_none() && !shared, known_host.is_none(), session.measure.is_some())?;
    }
    // On macOS device memory is the host's, and no device is looked for.
    let given = Given { vram_bytes: if shared { Some(1) } else { known_device }, ram_bytes: known_host, gpu: session.gpu() };
    let found = capacities(probe.as_ref(), &given, Purpose::Plan).map_err(refused)?;
    if found.unified && !shared {
        return Err(refused(vec![no_shared_memory(found.gpu.and_then(|gpu| gpu.name.as_deref()).unwrap_or("this machine's GPU"))]));
    }
    let [vram_reserve, ram_reserve] = reserves;
    let host = Pool { reserve_bytes: ram_reserve, ..pool(&found.ram) };
    let vram_pool = Pool { reserve_bytes: vram_reserve, ..pool(&found.vram) };
    let (vram_pool, host) = match &offered {
        Some(offered) => (offered.vram_pool(vram, vram_pool), offered.ram_pool(ram, host)),
        None => (vram_pool, host),
    };
    let vram_pool = if shared { vram.map(Pool::given) } else { Some(vram_pool) };
    let rates = rates(session.store, device.as_ref(), &found, probe.as_ref())?;
    let (mut machine, name) = described(arguments, os, device.as_ref(), &found, vram_pool, host);
    machine.notes.extend(offered.as_ref().zip(vram).and_then(|(offered, vram)| offered.larger(vram)));
    Ok(Described { machine, name, rates })
}

fn described(
    arguments: &MachineArguments,
    os: Sourced<OperatingSystem>,
    device: Option<&Device>,
    found: &Capacities<'_>,
    vram: Option<Pool>,
    host: Pool,
) -> (Machine, Option<String>) {
    let gpu = found.gpu;
    let sourced = |text: &String, source| Sourced { value: text.clone(), source };
    let catalog = device.and_then(|device| device.compute_capability.as_ref()).map(|text| sourced(text, Source::Catalog));
    let probed = gpu.and_then(|gpu| gpu.compute_capability.as_ref()).map(|text| sourced(text, Source::Probed));
    let compute_capability = arguments.compute_capability.clone().map(Sourced::given).or(catalog).or(probed);
    let unnamed = device.is_none() && gpu.is_none() && os.value != OperatingSystem::Macos;
    let assumed = (unnamed && compute_capability.is_none()).then_some(Sourced::assumed(ASSUMED));
    let name = device.map(|device| device.name.clone()).or_else(|| gpu.and_then(|gpu| gpu.name.clone()));
    let machine = Machine {
        os,
        device: device.map(|device| device.id.clone()).or_else(|| gpu.and_then(|gpu| gpu.name.clone())),
        architecture: arguments.architecture.map(Sourced::given).or(assumed),
        compute_capability,
        geforce: match (device, gpu.and_then(|gpu| gpu.name.as_ref())) {
            (Some(device), _) => Some(Sourced { value: is_geforce(&device.name), source: Source::Catalog }),
            (None, Some(name)) => Some(Sourced { value: is_geforce(name), source: Source::Probed }),
            (None, None) => None,
        },
        precision: arguments.precision.map(Sourced::given),
        attention_backends: (!arguments.attention_backends.is_empty()).then(|| Sourced::given(arguments.attention_backends.clone())),
        attention: match arguments.attention[..] {
            [] => AttentionAsked::Auto,
            [one] => AttentionAsked::Pair(one, one),
            [global, window, ..] => AttentionAsked::Pair(global, window),
        },
        vram,
        host: Some(host),
        notes: Vec::new(),
    };
    (machine, name)
}

/// How fast the device is: the catalog's figures of the card that is named, or of the one whose name the driver gives, where the
/// catalog has it; reading from disk as it was measured.
fn rates(store: &Store, device: Option<&Device>, found: &Capacities<'_>, probe: Option<&Probe>) -> Result<Rates, Stop> {
    let named = || found.gpu.and_then(|gpu| gpu.name.as_deref());
    let mut rates = match (device, named()) {
        (Some(device), _) => Rates::of(device),
        (None, Some(name)) => {
            let short = name.strip_prefix("NVIDIA ").unwrap_or(name);
            let known = store.device(name)?.map_or_else(|| store.device(short), |device| Ok(Some(device)))?;
            known.as_ref().map_or_else(|| Rates { device: name.to_owned(), ..Rates::default() }, Rates::of)
        }
        (None, None) => Rates::default(),
    };
    // What the page cache may have answered is no rate of a disk.
    let read = probe.and_then(|probe| probe.disk.as_ref()).and_then(|disk| disk.read.as_ref());
    let read = read.filter(|read| read.page_cache != PageCache::MayServe);
    #[expect(clippy::cast_precision_loss, reason = "a rate, not a size")]
    let disk = read.and_then(|read| Rate::new(read.bytes_per_second as f64 / 1e9, Source::Probed));
    rates.disk = disk.or(rates.disk);
    Ok(rates)
}

/// What a program is asked to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// GPUs.
    pub gpus: bool,
    /// Memory of the host.
    pub host: bool,
}

/// What is neither given nor measured.
fn missing(vram: bool, ram: bool, measures: bool) -> Result<(), Stop> {
    let mut errors = Vec::new();
    let why = if measures { "" } else { "; this program measures nothing" };
    if vram {
        let message = format!("how much device memory is free was not said: give `--vram-gib`, `--hardware` or `--probe`{why}");
        errors.push(InputError::new("missing-capacity", message));
    }
    if ram {
        let message = format!("how much host memory is free was not said: give `--ram-gib` or `--probe`{why}");
        errors.push(InputError::new("missing-capacity", message));
    }
    if errors.is_empty() { Ok(()) } else { Err(Stop::wrong(errors)) }
}

/// Errors of capacities: no device is an answer of its own.
fn refused(errors: Vec<InputError>) -> Stop {
    match &errors[..] {
        [only] if only.code == "no-device" => {
            let hint = "for a card that is not here, give `--vram-gib N` with `--architecture NAME`, or `--hardware ID`";
            Stop::NoDevice(format!("{}\n{hint}", only.message))
        }
        _ => Stop::wrong(errors),
    }
}

fn no_shared_memory(device: &str) -> InputError {
    let message = format!(
        "{device} shares its memory with the host, and the policy has no rule for that outside macOS; say with `--vram-gib` and `--ram-gib` how much counts as which"
    );
    InputError::new("shared-memory", message)
}

/// A device of the catalog as a machine.
struct Offered {
    id: String,
    os: Option<Sourced<OperatingSystem>>,
    vram: Option<u64>,
    total: Option<u64>,
    ram: Option<u64>,
}

impl Offered {
    /// `said`: how much counts as device memory and how much as the host's was given.
    fn of(store: &Store, device: &Device, said: bool) -> Result<Self, Stop> {
        let id = device.id.clone();
        let apple = device.backend == Backend::Mps;
        if !apple && device.backend != Backend::Cuda {
            let message = format!("{id} does not run CUDA, and the policy covers CUDA and macOS only");
            return Err(Stop::wrong([InputError::new("uncovered-backend", message)]));
        }
        let spec = DeviceSpec::from(device);
        let budget = place::offer(Some(&spec), &Asked::default(), Runtime::FreeVideo, &store.rules()?).map_err(Stop::wrong)?;
        let gb = |gb: Option<f64>| gb.and_then(|gb| fv_estimate::device::gb_to_bytes("host memory", gb).ok());
        if apple {
            // The pool is one; the policy keeps its own reserve of it.
            let ram = gb(Some(device.memory_gb));
            let os = Some(Sourced { value: OperatingSystem::Macos, source: Source::Catalog });
            return Ok(Self { id, os, vram: None, total: None, ram });
        }
        if device.memory_type == MemoryType::Unified {
            if said {
                return Ok(Self { id, os: None, vram: None, total: None, ram: None });
            }
            return Err(Stop::wrong([no_shared_memory(&id)]));
        }
        Ok(Self { os: None, vram: budget.budget_bytes, total: budget.capacity_bytes, ram: gb(device.host_memory_gb), id })
    }

    /// A remark where more device memory is given than the device has.
    fn larger(&self, given: u64) -> Option<String> {
        let total = self.total.filter(|total| given > *total)?;
        let (given, total) = (gib(given.into()), gib(total.into()));
        Some(format!("{given} of device memory were given, and {} has {total}: the plan is for a card of its kind with more", self.id))
    }

    fn amount(&self, bytes: u64) -> Amount {
        Amount { bytes, source: Source::Catalog, by: Some(self.id.clone()), at: None }
    }

    /// Device memory: what was given of the device, or all that the catalog says is usable.
    fn vram_pool(&self, given: Option<u64>, pool: Pool) -> Pool {
        let total = self.total.map(|bytes| self.amount(bytes)).filter(|total| total.bytes >= pool.free.bytes);
        match self.vram.filter(|_| given.is_none()) {
            Some(bytes) => Pool { free: self.amount(bytes), total, ..pool },
            None => Pool { total, ..pool },
        }
    }

    fn ram_pool(&self, given: Option<u64>, pool: Pool) -> Pool {
        match self.ram.filter(|_| given.is_none()) {
            Some(bytes) => Pool { free: self.amount(bytes), total: None, ..pool },
            None => pool,
        }
    }
}

/// A pool in the terms of plans. A total that was only assumed says nothing.
fn pool(pool: &capacities::Pool) -> Pool {
    let amount = |amount: &capacities::Amount| Amount {
        bytes: amount.bytes,
        source: match amount.origin {
            Origin::Given => Source::Given,
            Origin::Probed => Source::Probed,
            Origin::Assumed => Source::Assumed,
        },
        by: amount.by.map(str::to_owned),
        at: amount.at.clone(),
    };
    Pool {
        total: Some(&pool.total).filter(|total| total.origin != Origin::Assumed).map(amount),
        free: amount(&pool.free),
        cap: pool.cap.as_ref().map(amount),
        cgroup_limit: pool.cgroup_limit.as_ref().map(amount),
        reserve_bytes: None,
    }
}
