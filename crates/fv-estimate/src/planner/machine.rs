//! A machine to plan for, from a device of the catalog and from what was given or measured of its memory.

use fv_spec::authored::{Backend, MemoryType, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::plan::budget::Amount;
use fv_spec::plan::{Architecture, AttentionBackend, OperatingSystem, Precision, Source, Sourced};
use fv_spec::probe::Probe;

use super::freevideo::{AttentionAsked, Machine, Pool};
use crate::budget::Asked;
use crate::capacities::{self, Capacities, Given, Origin, Purpose, capacities};
use crate::device::{BackendName, DeviceSpec};
use crate::error::{InputError, gib};
use crate::place;

/// Whose rules count where no card is named: the published grid's.
const ASSUMED: Architecture = Architecture::Hopper;

/// What somebody says of a machine, apart from its device and how much memory there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The operating system.
    pub os: Option<OperatingSystem>,
    /// The GPU's generation.
    pub architecture: Option<Architecture>,
    /// CUDA compute capability, such as `8.9`.
    pub compute_capability: Option<String>,
    /// The format of the transformer's weights.
    pub precision: Option<Precision>,
    /// Attention implementations that work; without any, all.
    pub attention_backends: Vec<AttentionBackend>,
    /// Which of them to use: one, or one for everything and one for windows.
    pub attention: Vec<AttentionBackend>,
    /// Device memory to keep back, in bytes.
    pub vram_reserve_bytes: Option<u64>,
    /// Host memory to keep back, in bytes.
    pub ram_reserve_bytes: Option<u64>,
}

/// Memory that was given, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Of the device.
    pub vram: Option<u64>,
    /// Of the host.
    pub ram: Option<u64>,
}

/// A machine before anything is measured.
#[derive(Debug)]
pub struct Stated<'a> {
    device: Option<&'a DeviceSpec>,
    memory: Memory,
    wishes: &'a Wishes,
    offered: Option<Offered>,
    os: Option<Sourced<OperatingSystem>>,
}

/// What is neither given nor known of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// How much device memory is free.
    pub vram: bool,
    /// How much host memory is free.
    pub ram: bool,
}

impl<'a> Stated<'a> {
    /// A machine as it was described: `device` and what of it may be used, memory that was given, and the rest.
    ///
    /// # Errors
    /// For devices that no plan is made for, and for figures that cannot be used.
    pub fn new(
        device: Option<&'a DeviceSpec>,
        asked: &Asked,
        memory: Memory,
        wishes: &'a Wishes,
        rules: &RulesFile,
    ) -> Result<Self, Vec<InputError>> {
        let said = memory.vram.is_some() && memory.ram.is_some();
        let offered = device.map(|device| Offered::of(device, asked, said, rules)).transpose()?;
        let os = wishes.os.map(Sourced::given).or(offered.as_ref().and_then(|offered| offered.os));
        Ok(Self { device, memory, wishes, offered, os })
    }

    fn vram(&self) -> Option<u64> {
        self.memory.vram.or(self.offered.as_ref().and_then(|offered| offered.vram))
    }

    fn ram(&self) -> Option<u64> {
        self.memory.ram.or(self.offered.as_ref().and_then(|offered| offered.ram))
    }

    /// What has to be measured, or cannot be planned without.
    pub fn missing(&self) -> Missing {
        let shared = self.os.is_some_and(|os| os.value == OperatingSystem::Macos);
        Missing { vram: self.vram().is_none() && !shared, ram: self.ram().is_none() }
    }

    /// The machine, with what was measured of it: its capacities, and the system that it has. `gpu`: which of several is meant.
    ///
    /// # Errors
    /// When there is not enough to plan with.
    pub fn machine<'p>(
        &self,
        probe: Option<&'p Probe>,
        here: Option<OperatingSystem>,
        gpu: Option<&'p str>,
    ) -> Result<(Machine, Capacities<'p>), Vec<InputError>> {
        let probed = |value| Sourced { value, source: Source::Probed };
        let os = self.os.or(probe.map(|probe| probed(probe.system.name))).or(here.map(probed));
        let os = os.unwrap_or(Sourced::assumed(OperatingSystem::Linux));
        let shared = os.value == OperatingSystem::Macos;
        // On macOS device memory is the host's, and no device is looked for.
        let given = Given { vram_bytes: if shared { Some(1) } else { self.vram() }, ram_bytes: self.ram(), gpu };
        let found = capacities(probe, &given, Purpose::Plan)?;
        if found.unified && !shared {
            return Err(vec![no_shared_memory(found.gpu.and_then(|gpu| gpu.name.as_deref()).unwrap_or("this machine's GPU"))]);
        }
        let host = Pool { reserve_bytes: self.wishes.ram_reserve_bytes, ..pool(&found.ram) };
        let vram = Pool { reserve_bytes: self.wishes.vram_reserve_bytes, ..pool(&found.vram) };
        let (vram, host) = match &self.offered {
            Some(offered) => (offered.vram_pool(self.memory.vram, vram), offered.ram_pool(self.memory.ram, host)),
            None => (vram, host),
        };
        let vram = if shared { self.memory.vram.map(Pool::given) } else { Some(vram) };
        let mut machine = self.described(os, &found, vram, host);
        machine.notes.extend(self.offered.as_ref().zip(self.memory.vram).and_then(|(offered, vram)| offered.larger(vram)));
        Ok((machine, found))
    }

    fn described(&self, os: Sourced<OperatingSystem>, found: &Capacities<'_>, vram: Option<Pool>, host: Pool) -> Machine {
        let Self { device, wishes, .. } = self;
        let gpu = found.gpu;
        let sourced = |text: &String, source| Sourced { value: text.clone(), source };
        let catalog = device.and_then(|device| device.compute_capability.as_ref()).map(|text| sourced(text, Source::Catalog));
        let probed = gpu.and_then(|gpu| gpu.compute_capability.as_ref()).map(|text| sourced(text, Source::Probed));
        let compute_capability = wishes.compute_capability.clone().map(Sourced::given).or(catalog).or(probed);
        let unnamed = device.is_none() && gpu.is_none() && os.value != OperatingSystem::Macos;
        let assumed = (unnamed && compute_capability.is_none()).then_some(Sourced::assumed(ASSUMED));
        Machine {
            os,
            device: device.map(|device| device.id.clone()).or_else(|| gpu.and_then(|gpu| gpu.name.clone())),
            architecture: wishes.architecture.map(Sourced::given).or(assumed),
            compute_capability,
            geforce: match (device, gpu.and_then(|gpu| gpu.name.as_ref())) {
                (Some(device), _) => device.geforce().map(|value| Sourced { value, source: Source::Catalog }),
                (None, Some(name)) => Some(Sourced { value: super::freevideo::is_geforce(name), source: Source::Probed }),
                (None, None) => None,
            },
            precision: wishes.precision.map(Sourced::given),
            attention_backends: (!wishes.attention_backends.is_empty()).then(|| Sourced::given(wishes.attention_backends.clone())),
            attention: match wishes.attention[..] {
                [] => AttentionAsked::Auto,
                [one] => AttentionAsked::Pair(one, one),
                [global, window, ..] => AttentionAsked::Pair(global, window),
            },
            vram,
            host: Some(host),
            notes: Vec::new(),
        }
    }
}

fn no_shared_memory(device: &str) -> InputError {
    let message = format!(
        "{device} shares its memory with the host, and the policy has no rule for that outside macOS; say with `--vram-gib` and `--ram-gib` how much counts as which"
    );
    InputError::new("shared-memory", message)
}

/// What a device of the catalog offers.
#[derive(Debug)]
struct Offered {
    id: String,
    os: Option<Sourced<OperatingSystem>>,
    vram: Option<u64>,
    total: Option<u64>,
    ram: Option<u64>,
}

impl Offered {
    /// `said`: how much counts as device memory and how much as the host's was given.
    fn of(device: &DeviceSpec, asked: &Asked, said: bool, rules: &RulesFile) -> Result<Self, Vec<InputError>> {
        let id = device.id.clone();
        let apple = device.backend == BackendName::Known(Backend::Mps);
        if !apple && device.backend != BackendName::Known(Backend::Cuda) {
            let message = format!("{id} does not run CUDA, and the policy covers CUDA and macOS only");
            return Err(vec![InputError::new("uncovered-backend", message)]);
        }
        let budget = place::offer(Some(device), asked, Runtime::FreeVideo, rules)?;
        if apple {
            // The pool is one; the policy keeps its own reserve of it.
            let os = Some(Sourced { value: OperatingSystem::Macos, source: Source::Catalog });
            return Ok(Self { id, os, vram: None, total: None, ram: device.nominal });
        }
        if device.memory_type == Some(MemoryType::Unified) {
            if said {
                return Ok(Self { id, os: None, vram: None, total: None, ram: None });
            }
            return Err(vec![no_shared_memory(&id)]);
        }
        Ok(Self { os: None, vram: budget.budget_bytes, total: budget.capacity_bytes, ram: device.host_memory, id })
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
