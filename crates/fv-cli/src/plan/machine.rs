//! From arguments, the catalog and a probe to the machine that is planned for.

use std::path::Path;

use fv_data::Store;
use fv_estimate::{
    budget::Asked,
    capacities::Capacities,
    device::{DeviceSpec, gib_to_bytes, reserve_to_bytes},
    error::InputError,
    forecast::rates::{Rate, Rates},
    planner::freevideo::Machine,
    planner::machine::{Memory as Given, Missing, Stated, Wishes},
};
use fv_spec::{
    compiled::Device,
    plan::Source,
    probe::{PageCache, Probe},
};

use super::{
    Session,
    arguments::{MachineArguments, MemoryArguments},
    text_of,
};
use crate::{lookup, stop::Stop};

/// A machine, what people call its device, and how fast that is.
pub(super) struct Described {
    pub(super) machine: Machine,
    pub(super) name: Option<String>,
    pub(super) rates: Rates,
}

/// What somebody said of memory.
#[derive(Default)]
pub(super) struct Memory {
    given: Given,
    probe: Option<Probe>,
}

impl Memory {
    /// Reads arguments; what is wrong is added to `errors`.
    pub(super) fn read(arguments: &MemoryArguments, errors: &mut Vec<InputError>) -> Result<Self, Stop> {
        let probe = arguments.probe.as_deref().map(probe_file).transpose()?;
        let vram = bytes("`--vram-gib`", arguments.vram_gib, errors);
        let ram = bytes("`--ram-gib`", arguments.ram_gib, errors);
        Ok(Self { given: Given { vram, ram }, probe })
    }

    /// So much of both, for cells of a grid.
    pub(super) fn given(vram: u64, ram: u64) -> Self {
        Self { given: Given { vram: Some(vram), ram: Some(ram) }, probe: None }
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
    let Memory { given, probe } = memory;
    let spec = device.as_ref().map(DeviceSpec::from);
    let wishes = wishes(arguments, reserves);
    let stated = Stated::new(spec.as_ref(), &Asked::default(), given, &wishes, &session.store.rules()?).map_err(Stop::wrong)?;
    let Missing { vram, ram } = stated.missing();
    let wanted = Wanted { gpus: vram, host: ram };
    if let Some(gpu) = session.gpu().filter(|_| probe.is_none() && !wanted.gpus) {
        let message =
            format!("`--gpu {gpu}` names a GPU to measure, and none is measured where its memory is given: leave one of them out");
        return Err(Stop::wrong([InputError::new("conflict", message)]));
    }
    let probe = match (probe, &session.measure) {
        (None, Some(here)) if wanted.gpus || wanted.host => Some((here.probe)(wanted)?),
        (probe, _) => probe,
    };
    if probe.is_none() {
        missing(wanted, session.measure.is_some())?;
    }
    let here = session.measure.as_ref().map(|here| here.system);
    let (machine, found) = stated.machine(probe.as_ref(), here, session.gpu()).map_err(refused)?;
    let name = device.as_ref().map(|device| device.name.clone()).or_else(|| found.gpu.and_then(|gpu| gpu.name.clone()));
    let rates = rates(session.store, device.as_ref(), &found, probe.as_ref())?;
    Ok(Described { machine, name, rates })
}

fn wishes(arguments: &MachineArguments, [vram_reserve_bytes, ram_reserve_bytes]: [Option<u64>; 2]) -> Wishes {
    Wishes {
        os: arguments.system,
        architecture: arguments.architecture,
        compute_capability: arguments.compute_capability.clone(),
        precision: arguments.precision,
        attention_backends: arguments.attention_backends.clone(),
        attention: arguments.attention.clone(),
        vram_reserve_bytes,
        ram_reserve_bytes,
    }
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
fn missing(wanted: Wanted, measures: bool) -> Result<(), Stop> {
    let mut errors = Vec::new();
    let why = if measures { "" } else { "; this program measures nothing" };
    if wanted.gpus {
        let message = format!("how much device memory is free was not said: give `--vram-gib`, `--hardware` or `--probe`{why}");
        errors.push(InputError::new("missing-capacity", message));
    }
    if wanted.host {
        let message = format!("how much host memory is free was not said: give `--ram-gib` or `--probe`{why}");
        errors.push(InputError::new("missing-capacity", message));
    }
    if errors.is_empty() { Ok(()) } else { Err(Stop::wrong(errors)) }
}

fn refused(errors: Vec<InputError>) -> Stop {
    match &errors[..] {
        [only] if only.code == "no-device" => {
            let hint = "for a card that is not here, give `--vram-gib N` with `--architecture NAME`, or `--hardware ID`";
            Stop::NoDevice(format!("{}\n{hint}", only.message))
        }
        _ => Stop::wrong(errors),
    }
}
