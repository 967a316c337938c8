//! What is decided about: ways to compute, and memory.

use fv_spec::questions::OutputEffect;

/// The most places on the device for blocks that do not live there.
pub const MOST_SLOTS: u32 = 3;
/// The most places in host memory for blocks that are read from disk.
pub const MOST_RING: u32 = 3;

/// Blocks of one size that are computed one after another, round by round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// How many.
    pub count: u32,
    /// Bytes of one.
    pub bytes: u64,
    /// Copying one to the device.
    pub copy_ns: u64,
    /// Reading one from disk.
    pub read_ns: u64,
}

/// One way to compute.
///
/// Each run begins with a set-up, which may go through all blocks once, and consists of sweeps; each sweep goes through all blocks in
/// one round or several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Configuration {
    /// What is placed.
    pub blocks: Blocks,
    /// Device memory for everything but blocks: activations packed, weights outside blocks.
    pub device_bytes: u64,
    /// Page-locked host memory for everything but blocks.
    pub host_bytes: u64,
    /// The least page-locked host memory: what is loaded passes through it before anything else lies there.
    pub loading_bytes: u64,
    /// Sweeps of each run; zero where there is none.
    pub sweeps: [u32; 2],
    /// Rounds of a sweep.
    pub rounds: u32,
    /// What is computed before the first sweep of a run.
    pub set_up: SetUp,
    /// What a sweep computes once.
    pub sweep_ns: u64,
    /// What each round computes outside blocks.
    pub round_ns: u64,
    /// What each round computes for a block, everything it needs at hand.
    pub block_ns: u64,
    /// Where activations come from host memory, through the queue in which blocks do.
    pub staged: Option<Staged>,
    /// What it does to the output.
    pub effect: OutputEffect,
}

/// What a run computes before its first sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetUp {
    /// Outside blocks.
    pub ns: u64,
    /// Of each block, where it goes through them.
    pub block_ns: Option<u64>,
}

/// How a block waits for activations, and keeps the queue of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staged {
    /// What it computes before the first of them.
    pub before_ns: u64,
    /// What it computes after the last of them was copied.
    pub after_ns: u64,
    /// Bytes that a round moves between host and device.
    pub bytes: u64,
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Of the device, its context and the like taken off.
    pub device_bytes: u64,
    /// Of the host.
    pub host_bytes: u64,
    /// Device memory that the driver takes for each GiB of page-locked host memory.
    pub per_pinned_gib_bytes: u64,
}

impl Budgets {
    /// Device memory that the driver takes for so much page-locked memory.
    pub fn registered(&self, pinned_bytes: u64) -> u64 {
        let bytes = u128::from(pinned_bytes) * u128::from(self.per_pinned_gib_bytes);
        u64::try_from(bytes.div_ceil(1 << 30)).unwrap_or(u64::MAX)
    }

    /// Whether so much of both fits.
    pub fn hold(&self, need: Need) -> bool {
        need.host_bytes <= self.host_bytes && need.device_bytes.saturating_add(self.registered(need.host_bytes)) <= self.device_bytes
    }
}

/// How many blocks live where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that pass through slots.
    pub streamed: u32,
    /// Those of them that are read from disk.
    pub disk: u32,
    /// Places on the device for streamed blocks.
    pub slots: u32,
    /// Places in host memory for blocks from disk.
    pub ring: u32,
}

impl Counts {
    /// Every block on the device.
    pub const RESIDENT: Self = Self { streamed: 0, disk: 0, slots: 0, ring: 0 };
}

/// Memory that is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// On the device, what the driver takes for page-locked memory apart.
    pub device_bytes: u64,
    /// Page-locked.
    pub host_bytes: u64,
}

impl Configuration {
    /// What so many blocks in each place need.
    pub fn need(&self, counts: Counts) -> Need {
        let on_device = u64::from(self.blocks.count - counts.streamed + counts.slots);
        let pinned = u64::from(counts.streamed - counts.disk + counts.ring);
        Need {
            device_bytes: self.device_bytes.saturating_add(on_device.saturating_mul(self.blocks.bytes)),
            host_bytes: self.host_bytes.saturating_add(pinned.saturating_mul(self.blocks.bytes)).max(self.loading_bytes),
        }
    }

    /// What computing alone takes.
    pub fn computing_ns(&self) -> u64 {
        let blocks = u64::from(self.blocks.count);
        let round = self.round_ns + blocks * self.block_ns;
        let set_up = self.set_up.ns + blocks * self.set_up.block_ns.unwrap_or(0);
        self.runs().map(|sweeps| set_up + u64::from(sweeps) * (self.sweep_ns + u64::from(self.rounds) * round)).sum()
    }

    /// Sweeps of each run.
    pub fn runs(&self) -> impl Iterator<Item = u32> + use<> {
        self.sweeps.into_iter().filter(|sweeps| *sweeps > 0)
    }

    /// Times that all blocks are gone through.
    pub fn rounds(&self) -> u64 {
        let set_up = u64::from(self.set_up.block_ns.is_some());
        self.runs().map(|sweeps| set_up + u64::from(sweeps) * u64::from(self.rounds)).sum()
    }

    /// Bytes that are moved between disk, host and device.
    pub fn moved_bytes(&self, counts: Counts) -> u64 {
        let blocks = u64::from(counts.streamed + counts.disk).saturating_mul(self.blocks.bytes);
        let sweeps: u64 = self.runs().map(u64::from).sum();
        let staged = self.staged.map_or(0, |staged| staged.bytes).saturating_mul(sweeps * u64::from(self.rounds));
        blocks.saturating_mul(self.rounds()).saturating_add(staged)
    }
}
