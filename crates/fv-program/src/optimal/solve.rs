//! The fastest configuration and placement within both budgets.

use fv_spec::questions::OutputEffect;

use super::bucket::bucket;
use super::instance::{Budgets, Configuration, Counts, MOST_RING, MOST_SLOTS, Need, Staged};
use super::spread::{Placed, place};
use super::timeline::{Place, Timeline};

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// Index of the configuration.
    pub configuration: usize,
    /// How many blocks live where.
    pub counts: Counts,
    /// Where each block lives.
    pub places: Vec<Place>,
    /// All sweeps.
    pub ns: u64,
    /// Bytes that are moved.
    pub moved_bytes: u64,
    /// Memory that is needed.
    pub need: Need,
}

/// The order of plans, the best first: forecast in buckets, effect on the output, bytes moved, place in the list, places for blocks.
/// No two plans that are compared share the last three.
pub type Key = (u32, OutputEffect, u64, usize, [u32; 2]);

fn key(index: usize, configuration: &Configuration, counts: Counts, ns: u64) -> Key {
    (bucket(ns), configuration.effect, configuration.moved_bytes(counts), index, [counts.slots, counts.ring])
}

impl Solution {
    /// Its place in the order.
    pub fn key(&self, configurations: &[Configuration]) -> Key {
        key(self.configuration, &configurations[self.configuration], self.counts, self.ns)
    }
}

/// The best of all configurations with all placements that fit; nothing where none does.
pub fn solve(configurations: &[Configuration], budgets: &Budgets) -> Option<Solution> {
    let mut search = Search::new(budgets, &|_| true);
    configurations.iter().enumerate().for_each(|(index, configuration)| search.look_at(index, configuration));
    search.best.map(|(_, solution)| solution)
}

/// No placement of this configuration, or of one that needs no less and takes no less time, has a place in the order before this
/// one; nothing where none fits.
pub fn promise(budgets: &Budgets, allowed: &dyn Fn(&Counts) -> bool, index: usize, configuration: &Configuration) -> Option<Key> {
    let mut search = Search { timeline: None, ..Search::new(budgets, allowed) };
    search.look_at(index, configuration);
    search.best.map(|(key, _)| key)
}

/// Looks at one configuration after another and keeps the best.
pub struct Search<'a> {
    budgets: &'a Budgets,
    /// Which numbers of blocks may be chosen.
    allowed: &'a dyn Fn(&Counts) -> bool,
    /// Without one a placement counts as fast as none can be.
    timeline: Option<Timeline>,
    /// The best yet.
    pub best: Option<(Key, Solution)>,
}

impl<'a> Search<'a> {
    /// Nothing is found yet.
    pub fn new(budgets: &'a Budgets, allowed: &'a dyn Fn(&Counts) -> bool) -> Self {
        Self { budgets, allowed, timeline: Some(Timeline::default()), best: None }
    }

    /// Looks at all placements of a configuration.
    pub fn look_at(&mut self, index: usize, configuration: &Configuration) {
        let way = Way { index, configuration };
        let resident = Counts::RESIDENT;
        if self.budgets.hold(configuration.need(resident)) && (self.allowed)(&resident) && !self.beaten(way, resident) {
            self.consider(way, resident);
        }
        for slots in 1..=MOST_SLOTS.min(configuration.blocks.count.saturating_sub(1)) {
            for ring in 0..=MOST_RING {
                self.streamed(way, slots, ring);
            }
        }
    }

    /// Considers all numbers of blocks that pass through so many slots, some of them from disk where there is a ring. What is no more
    /// than the slots need not be copied, and what is no more than the ring need not be read.
    fn streamed(&mut self, way: Way<'_>, slots: u32, ring: u32) {
        let count = way.configuration.blocks.count;
        let Some(from) = self.least_streamed(way.configuration, slots, ring) else { return };
        let (mut streams, from) = (0, from.max(slots + 1).max(ring + 1));
        for streamed in from..=count {
            let disk = if ring == 0 { 0 } else { ring + 1 };
            // More blocks that are copied, or read, are no faster and move no fewer bytes, unless slots or ring divide them better.
            if streams > slots || self.beaten(way, Counts { streamed, disk, slots, ring }) {
                return;
            }
            let Some(least) = self.least_disk(way.configuration, streamed, ring) else { return };
            let disks = least.max(disk)..=if ring == 0 { 0 } else { streamed };
            let (budgets, configuration) = (self.budgets, way.configuration);
            let counts = disks.map(|disk| Counts { streamed, disk, slots, ring });
            let mut fitting = counts.filter(|counts| budgets.hold(configuration.need(*counts))).take(ring as usize + 1).peekable();
            streams += u32::from(fitting.peek().is_some());
            for counts in fitting {
                if self.beaten(way, counts) {
                    break;
                }
                if (self.allowed)(&counts) {
                    self.consider(way, counts);
                }
            }
        }
    }

    /// No fewer of the blocks that are copied can be on disk: the others, and the ring, have to fit in host memory.
    fn least_disk(&self, configuration: &Configuration, streamed: u32, ring: u32) -> Option<u32> {
        let room = self.budgets.host_bytes.checked_sub(configuration.host_bytes)?;
        let places = room / configuration.blocks.bytes.max(1);
        Some(u32::try_from(u64::from(streamed + ring).saturating_sub(places)).unwrap_or(u32::MAX))
    }

    /// No fewer blocks can pass through so many slots: all others have to fit on the device.
    fn least_streamed(&self, configuration: &Configuration, slots: u32, ring: u32) -> Option<u32> {
        let count = configuration.blocks.count;
        let least = configuration.need(Counts { streamed: count, disk: if ring == 0 { 0 } else { count }, slots: 0, ring });
        let registered = if ring == 0 { 0 } else { self.budgets.registered(least.host_bytes) };
        let room = self.budgets.device_bytes.checked_sub(configuration.device_bytes)?.checked_sub(registered)?;
        let places = room / configuration.blocks.bytes.max(1);
        let resident = places.checked_sub(u64::from(slots))?;
        Some(count.saturating_sub(u32::try_from(resident).unwrap_or(u32::MAX)))
    }

    /// Whether these counts cannot be the best, wherever blocks live.
    fn beaten(&self, way: Way<'_>, counts: Counts) -> bool {
        let best = self.best.as_ref().map(|(best, _)| *best);
        best.is_some_and(|best| best <= key(way.index, way.configuration, counts, bound(way.configuration, counts)))
    }

    /// Keeps the fastest placement of so many blocks, if it is the best yet.
    fn consider(&mut self, way: Way<'_>, counts: Counts) {
        let Way { index, configuration } = way;
        let ns = bound(configuration, counts);
        let least = bucket(ns);
        let Placed { ns, places } = match &mut self.timeline {
            Some(timeline) => place(timeline, configuration, counts, |ns| bucket(ns) <= least),
            None => Placed { ns, places: Vec::new() },
        };
        let key = key(index, configuration, counts, ns);
        if self.best.as_ref().is_none_or(|(best, _)| key < *best) {
            let (moved_bytes, need) = (configuration.moved_bytes(counts), configuration.need(counts));
            self.best = Some((key, Solution { configuration: index, counts, places, ns, moved_bytes, need }));
        }
    }
}

/// A configuration and its place in the list.
#[derive(Clone, Copy)]
struct Way<'a> {
    index: usize,
    configuration: &'a Configuration,
}

/// No faster than this, whatever the placement: each queue, each slot and each place in the ring works through what it has, one
/// thing after another.
pub fn bound(configuration: &Configuration, counts: Counts) -> u64 {
    let Configuration { blocks, set_up, sweep_ns, round_ns, .. } = *configuration;
    // Where every block is copied, the first one is waited for.
    let first = |before: u64| if counts.streamed == blocks.count { blocks.copy_ns.saturating_sub(before) } else { 0 };
    let of_run = |sweeps: u32| match set_up.block_ns {
        None => {
            let before = set_up.ns + sweep_ns + round_ns;
            let sweeps = Stage::sweeps(configuration, sweeps);
            (set_up.ns + sweeps.computing(configuration) + first(before)).max(sweeps.moving(configuration, counts, 0))
        }
        Some(block_ns) => {
            let pass = Stage { passes: 1, rounds: 1, once_ns: set_up.ns, round_ns: 0, block_ns, staged: None };
            let sweeps = Stage::sweeps(configuration, sweeps);
            let pass = (pass.computing(configuration) + first(set_up.ns)).max(pass.moving(configuration, counts, 0));
            // Before the first sweep no more is copied than there are slots.
            pass + sweeps.computing(configuration).max(sweeps.moving(configuration, counts, 1))
        }
    };
    configuration.runs().map(of_run).sum()
}

/// What goes through the blocks in the same way.
#[derive(Debug, Clone, Copy)]
struct Stage {
    passes: u64,
    rounds: u64,
    once_ns: u64,
    round_ns: u64,
    block_ns: u64,
    staged: Option<Staged>,
}

impl Stage {
    fn sweeps(configuration: &Configuration, sweeps: u32) -> Self {
        let Configuration { rounds, sweep_ns: once_ns, round_ns, block_ns, staged, .. } = *configuration;
        Self { passes: sweeps.into(), rounds: rounds.into(), once_ns, round_ns, block_ns, staged }
    }

    fn computing(&self, configuration: &Configuration) -> u64 {
        self.passes * (self.once_ns + self.rounds * (self.round_ns + u64::from(configuration.blocks.count) * self.block_ns))
    }

    /// What copying and reading take. `ahead`: how often all slots and places in the ring are filled before.
    fn moving(&self, configuration: &Configuration, counts: Counts, ahead: u64) -> u64 {
        if counts.streamed == 0 {
            return 0;
        }
        let Self { passes, rounds, block_ns, .. } = *self;
        let blocks = configuration.blocks;
        let [streamed, disk, slots, ring] = [counts.streamed, counts.disk, counts.slots, counts.ring].map(u64::from);
        let copies = (passes * rounds * streamed).saturating_sub(ahead * slots);
        let reads = (passes * rounds * disk).saturating_sub(ahead * (slots + ring));
        // The first slot, and the first place in the ring, have the most users in each pass.
        let users = |blocks: u64, places: u64| (passes * (rounds * blocks).div_ceil(places.max(1))).saturating_sub(ahead);
        let places = users(disk, ring).saturating_sub(ahead * slots) * (blocks.copy_ns + blocks.read_ns);
        let one = if slots == 1 { passes * rounds * one_slot(configuration, self, streamed) } else { 0 };
        let all = [
            // The last one that is copied is still to be computed.
            copies * blocks.copy_ns + block_ns - self.staged.map_or(0, |staged| staged.before_ns.min(block_ns)),
            if disk == 0 { 0 } else { (reads * blocks.read_ns).max(places.saturating_sub(blocks.copy_ns)) },
            users(streamed, slots) * (blocks.copy_ns + block_ns),
            one.saturating_sub(ahead * blocks.copy_ns),
            self.waiting(configuration, counts).saturating_sub(ahead * slots * blocks.copy_ns),
        ];
        all.into_iter().max().unwrap_or(0)
    }

    /// Staged activations have the queue of copies for themselves from the first to the last; blocks are copied between them.
    fn waiting(&self, configuration: &Configuration, counts: Counts) -> u64 {
        let Some(staged) = self.staged else { return 0 };
        let [streamed, count] = [counts.streamed, configuration.blocks.count].map(u64::from);
        let free = (staged.before_ns + staged.after_ns).min(self.block_ns);
        let copied = streamed * configuration.blocks.copy_ns.max(free);
        (self.passes * self.rounds * (count * (self.block_ns - free) + (count - streamed) * free + copied)).saturating_sub(free)
    }
}

/// With one slot a copy has the time from one streamed block to the next. The least that this makes of a round: all gaps alike, but
/// that between rounds, in which something else is computed too.
fn one_slot(configuration: &Configuration, stage: &Stage, streamed: u64) -> u64 {
    let Stage { round_ns, block_ns, .. } = *stage;
    let blocks = configuration.blocks;
    let resident = u64::from(blocks.count) - streamed;
    let gap = |between: u64, more: u64| (between * block_ns + more).max(blocks.copy_ns);
    let gaps = |others: u64| match streamed - 1 {
        0 => 0,
        inner => (inner - others % inner) * gap(others / inner, 0) + others % inner * gap(others / inner + 1, 0),
    };
    let last = if streamed == 1 { resident } else { 0 };
    let round = (last..=resident).map(|between| gap(between, round_ns) + gaps(resident - between)).min().unwrap_or(0);
    round + streamed * block_ns
}

/// The least memory with which there is any plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Least {
    /// Of the device, what the driver takes for page-locked memory included.
    pub device_bytes: u64,
    /// Of the host.
    pub host_bytes: u64,
}

/// The smallest needs of all configurations: every block on the device, or all but one place for them on disk. Whatever fits, one of
/// these does.
pub fn least(configurations: &[Configuration], budgets: &Budgets) -> Vec<Least> {
    let needs = configurations.iter().flat_map(|configuration| {
        let count = configuration.blocks.count;
        let streamed = Counts { streamed: count, disk: count, slots: 1, ring: 1 };
        [Some(Counts::RESIDENT), (count > 1).then_some(streamed)].into_iter().flatten().map(|counts| configuration.need(counts))
    });
    needs
        .map(|need| Least {
            device_bytes: need.device_bytes.saturating_add(budgets.registered(need.host_bytes)),
            host_bytes: need.host_bytes,
        })
        .collect()
}
