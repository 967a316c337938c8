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

fn key(configurations: &[Configuration], index: usize, counts: Counts, ns: u64) -> Key {
    let configuration = &configurations[index];
    (bucket(ns), configuration.effect, configuration.moved_bytes(counts), index, [counts.slots, counts.ring])
}

impl Solution {
    /// Its place in the order.
    pub fn key(&self, configurations: &[Configuration]) -> Key {
        key(configurations, self.configuration, self.counts, self.ns)
    }
}

/// Configurations among which the best is, whatever the budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared<'a> {
    configurations: &'a [Configuration],
    /// Indices of those that are no worse than another in everything, in the order of what computing alone takes.
    order: Vec<usize>,
}

impl<'a> Prepared<'a> {
    /// Leaves out what can never be the best.
    pub fn new(configurations: &'a [Configuration]) -> Self {
        let mut order: Vec<usize> = (0..configurations.len()).collect();
        order.sort_by_key(|index| (configurations[*index].computing_ns(), *index));
        let mut kept: Vec<usize> = Vec::with_capacity(order.len());
        for index in order {
            if !kept.iter().any(|other| no_worse(configurations, *other, index)) {
                kept.push(index);
            }
        }
        Self { configurations, order: kept }
    }

    /// The best of all configurations with all placements that fit; nothing where none does.
    pub fn solve(&self, budgets: &Budgets) -> Option<Solution> {
        self.solve_among(budgets, &|_, _| true)
    }

    /// The best of those that are allowed, by the index of their configuration and by their counts. Configurations that are left out
    /// since they can never be the best are left out here too.
    pub fn solve_among(&self, budgets: &Budgets, allowed: &dyn Fn(usize, &Counts) -> bool) -> Option<Solution> {
        let timeline = Timeline::default();
        let mut search = Search { configurations: self.configurations, budgets, allowed, timeline, best: None };
        for index in &self.order {
            // No later configuration is in an earlier bucket than what computing alone takes.
            let computing = bucket(self.configurations[*index].computing_ns());
            if search.best.as_ref().is_some_and(|(best, _)| computing > best.0) {
                break;
            }
            search.configuration(*index);
        }
        search.best.map(|(_, solution)| solution)
    }
}

/// Whether the first configuration has at least the placements of the second, no slower, and comes before it where they are alike.
fn no_worse(configurations: &[Configuration], a: usize, b: usize) -> bool {
    let (first, second) = (&configurations[a], &configurations[b]);
    let moves = |staged: Option<Staged>| staged.map_or(0, |staged| staged.bytes);
    let no_more = first.blocks == second.blocks
        && first.device_bytes <= second.device_bytes
        && first.host_bytes <= second.host_bytes
        && first.loading_bytes <= second.loading_bytes
        && (first.sweeps, first.rounds) == (second.sweeps, second.rounds)
        && first.set_up.block_ns.is_some() <= second.set_up.block_ns.is_some()
        && first.set_up.block_ns <= second.set_up.block_ns
        && first.set_up.ns <= second.set_up.ns
        && first.sweep_ns <= second.sweep_ns
        && first.round_ns <= second.round_ns
        && first.block_ns <= second.block_ns
        && (first.staged.is_none() || first.staged == second.staged)
        && first.effect <= second.effect;
    no_more && (a < b || first.effect < second.effect || moves(first.staged) < moves(second.staged))
}

/// The best of all configurations with all placements that fit; nothing where none does.
pub fn solve(configurations: &[Configuration], budgets: &Budgets) -> Option<Solution> {
    Prepared::new(configurations).solve(budgets)
}

struct Search<'a> {
    configurations: &'a [Configuration],
    budgets: &'a Budgets,
    allowed: &'a dyn Fn(usize, &Counts) -> bool,
    timeline: Timeline,
    best: Option<(Key, Solution)>,
}

impl Search<'_> {
    fn configuration(&mut self, index: usize) {
        let count = self.configurations[index].blocks.count;
        let resident = Counts::RESIDENT;
        let holds = self.budgets.hold(self.configurations[index].need(resident));
        if holds && (self.allowed)(index, &resident) && !self.beaten(index, resident) {
            self.consider(index, resident);
        }
        for slots in 1..=MOST_SLOTS.min(count.saturating_sub(1)) {
            for ring in 0..=MOST_RING {
                self.streamed(index, slots, ring);
            }
        }
    }

    /// Considers all numbers of blocks that pass through so many slots, some of them from disk where there is a ring. What is no more
    /// than the slots need not be copied, and what is no more than the ring need not be read.
    fn streamed(&mut self, index: usize, slots: u32, ring: u32) {
        let count = self.configurations[index].blocks.count;
        let Some(from) = self.least_streamed(index, slots, ring) else { return };
        let (mut streams, from) = (0, from.max(slots + 1).max(ring + 1));
        for streamed in from..=count {
            let disk = if ring == 0 { 0 } else { ring + 1 };
            // More blocks that are copied, or read, are no faster and move no fewer bytes, unless slots or ring divide them better.
            if streams > slots || self.beaten(index, Counts { streamed, disk, slots, ring }) {
                return;
            }
            let Some(least) = self.least_disk(index, streamed, ring) else { return };
            let disks = least.max(disk)..=if ring == 0 { 0 } else { streamed };
            let counts = disks.map(|disk| Counts { streamed, disk, slots, ring });
            let configuration = &self.configurations[index];
            let mut fitting = counts.filter(|counts| self.budgets.hold(configuration.need(*counts))).take(ring as usize + 1).peekable();
            streams += u32::from(fitting.peek().is_some());
            let fitting: Vec<Counts> = fitting.collect();
            for counts in fitting {
                if self.beaten(index, counts) {
                    break;
                }
                if (self.allowed)(index, &counts) {
                    self.consider(index, counts);
                }
            }
        }
    }

    /// No fewer of the blocks that are copied can be on disk: the others, and the ring, have to fit in host memory.
    fn least_disk(&self, index: usize, streamed: u32, ring: u32) -> Option<u32> {
        let configuration = &self.configurations[index];
        let room = self.budgets.host_bytes.checked_sub(configuration.host_bytes)?;
        let places = room / configuration.blocks.bytes.max(1);
        Some(u32::try_from(u64::from(streamed + ring).saturating_sub(places)).unwrap_or(u32::MAX))
    }

    /// No fewer blocks can pass through so many slots: all others have to fit on the device.
    fn least_streamed(&self, index: usize, slots: u32, ring: u32) -> Option<u32> {
        let configuration = &self.configurations[index];
        let count = configuration.blocks.count;
        let least = configuration.need(Counts { streamed: count, disk: if ring == 0 { 0 } else { count }, slots: 0, ring });
        let registered = if ring == 0 { 0 } else { self.budgets.registered(least.host_bytes) };
        let room = self.budgets.device_bytes.checked_sub(configuration.device_bytes)?.checked_sub(registered)?;
        let places = room / configuration.blocks.bytes.max(1);
        let resident = places.checked_sub(u64::from(slots))?;
        Some(count.saturating_sub(u32::try_from(resident).unwrap_or(u32::MAX)))
    }

    /// Whether these counts cannot be the best, wherever blocks live.
    fn beaten(&self, index: usize, counts: Counts) -> bool {
        let least = bound(&self.configurations[index], counts);
        self.best.as_ref().is_some_and(|(best, _)| *best <= key(self.configurations, index, counts, least))
    }

    /// Keeps the fastest placement of so many blocks, if it is the best yet.
    fn consider(&mut self, index: usize, counts: Counts) {
        let configuration = &self.configurations[index];
        let least = bucket(bound(configuration, counts));
        let Placed { ns, places } = place(&mut self.timeline, configuration, counts, |ns| bucket(ns) <= least);
        let key = key(self.configurations, index, counts, ns);
        if self.best.as_ref().is_none_or(|(best, _)| key < *best) {
            let (moved_bytes, need) = (configuration.moved_bytes(counts), configuration.need(counts));
            self.best = Some((key, Solution { configuration: index, counts, places, ns, moved_bytes, need }));
        }
    }
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
