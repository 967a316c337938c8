//! How long runs over blocks take, given where each block lives.
//!
//! The rules are those of [`crate::stream`]: computing, copying and reading are queues. The `j`-th block of a sweep that is not on the
//! device has slot `j mod slots`; blocks are copied in their order, each as soon as its slot's last user was computed, over the end of
//! a sweep into the next one. The `k`-th block on disk has place `k mod ring` in host memory, which is free once its last user was
//! copied; reads need nothing else.

use super::instance::{Configuration, MOST_RING, MOST_SLOTS};

/// Where a block lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// On the device.
    Device,
    /// In page-locked host memory.
    Pinned,
    /// On disk.
    Disk,
}

/// When each queue and each place is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Clocks {
    compute: u64,
    copy: u64,
    read: u64,
    ready: [u64; MOST_SLOTS as usize],
    free: [u64; MOST_SLOTS as usize],
    copied: [u64; MOST_RING as usize],
}

impl Clocks {
    /// The same, counted from when computing is done. Copies begin later than that, so that what is over holds nothing back; reads
    /// may have begun before.
    fn relative(mut self) -> Self {
        let now = std::mem::take(&mut self.compute);
        self.copy = self.copy.saturating_sub(now);
        for clock in self.ready.iter_mut().chain(&mut self.free) {
            *clock = clock.saturating_sub(now);
        }
        self.read = self.read.wrapping_sub(now);
        for clock in &mut self.copied {
            *clock = clock.wrapping_sub(now);
        }
        self
    }

    /// The same later.
    fn later(&mut self, ns: u64) {
        let all = [&mut self.compute, &mut self.copy, &mut self.read].into_iter();
        all.chain(&mut self.ready).chain(&mut self.free).chain(&mut self.copied).for_each(|clock| *clock += ns);
    }
}

/// A stretch of blocks on the device, and one after it that passes through a slot.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    resident: u32,
    slot: u8,
    /// Its place in the ring, where it is on disk.
    ring: Option<u8>,
}

/// Going through all blocks, in some rounds.
#[derive(Debug, Default)]
struct Pass {
    /// Of all rounds, in order.
    stretches: Vec<Stretch>,
    rounds: u32,
    /// Blocks on the device after a round's last stretch.
    tail: u32,
}

/// What a pass computes.
#[derive(Debug, Clone, Copy)]
struct Times {
    once: u64,
    round: u64,
    block: u64,
    /// Before activations come, and after the last of them came.
    staged: Option<(u64, u64)>,
}

/// Room for what is worked out.
#[derive(Debug, Default)]
pub struct Timeline {
    set_up: Pass,
    sweep: Pass,
}

/// Sweeps after which the same state is recognised.
const PERIOD: usize = 4;

impl Timeline {
    /// Nanoseconds of all runs, each from when its first copies are issued until its last block is computed.
    pub fn total(&mut self, configuration: &Configuration, places: &[Place], slots: u32, ring: u32) -> u64 {
        self.set_up.prepare(places, slots as usize, ring as usize, 1);
        self.sweep.prepare(places, slots as usize, ring as usize, configuration.rounds);
        configuration.runs().map(|sweeps| self.run(configuration, sweeps)).sum()
    }

    fn run(&self, configuration: &Configuration, sweeps: u32) -> u64 {
        let Configuration { blocks, set_up, sweep_ns: once, round_ns: round, block_ns: block, .. } = *configuration;
        let mut queues = Queues::new(blocks.copy_ns, blocks.read_ns);
        let staged = configuration.staged.map(|staged| (staged.before_ns, staged.after_ns));
        let sweep = Times { once, round, block, staged };
        if let Some(block) = set_up.block_ns {
            queues.advance(&self.set_up.stretches, &[]);
            queues.pass(&self.set_up, &self.sweep.stretches, Times { once: set_up.ns, round: 0, block, staged: None });
        } else {
            queues.clocks.compute = set_up.ns;
            queues.advance(&self.sweep.stretches, &[]);
        }
        let mut history = [(u64::MAX, queues.clocks); PERIOD];
        let mut done = 1;
        while done < sweeps {
            queues.pass(&self.sweep, &self.sweep.stretches, sweep);
            let (now, relative) = (queues.clocks.compute, queues.clocks.relative());
            let period = (1..=PERIOD.min(done as usize)).find(|back| {
                let (compute, state) = &history[(done as usize - back) % PERIOD];
                *compute != u64::MAX && *state == relative
            });
            if let Some(period) = period {
                // The same state again: what was since then comes again and again.
                let then = history[(done as usize - period) % PERIOD].0;
                let period = u32::try_from(period).unwrap_or(1);
                let times = (sweeps - 1 - done) / period;
                queues.clocks.later(u64::from(times) * (now - then));
                done += times * period;
                history = [(u64::MAX, queues.clocks); PERIOD];
            } else {
                history[done as usize % PERIOD] = (now, relative);
            }
            done += 1;
        }
        queues.pass(&self.sweep, &[], sweep);
        queues.clocks.compute
    }
}

impl Pass {
    fn prepare(&mut self, places: &[Place], slots: usize, ring: usize, rounds: u32) {
        self.stretches.clear();
        self.rounds = rounds;
        let mut on_disk = 0;
        for _ in 0..rounds {
            self.tail = 0;
            for place in places {
                if *place == Place::Device {
                    self.tail += 1;
                    continue;
                }
                let small = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
                let slot = small(self.stretches.len() % slots);
                let ring = (*place == Place::Disk).then(|| {
                    on_disk += 1;
                    small((on_disk - 1) % ring)
                });
                self.stretches.push(Stretch { resident: std::mem::take(&mut self.tail), slot, ring });
            }
        }
    }
}

/// The three queues on the way.
struct Queues {
    clocks: Clocks,
    copy_ns: u64,
    read_ns: u64,
    /// Copies of this pass, and then of the next one, that were issued.
    issued: usize,
    busy: [bool; MOST_SLOTS as usize],
}

impl Queues {
    fn new(copy_ns: u64, read_ns: u64) -> Self {
        Self { clocks: Clocks::default(), copy_ns, read_ns, issued: 0, busy: Default::default() }
    }

    /// Goes through all blocks; `next` is what is gone through after that.
    fn pass(&mut self, pass: &Pass, next: &[Stretch], times: Times) {
        self.clocks.compute += times.once;
        let of_round = pass.stretches.len() / pass.rounds.max(1) as usize;
        let mut stretches = pass.stretches.iter();
        for _ in 0..pass.rounds {
            self.clocks.compute += times.round;
            for stretch in stretches.by_ref().take(of_round) {
                self.compute(stretch.resident, times);
                let slot = usize::from(stretch.slot);
                self.clocks.compute = self.clocks.compute.max(self.clocks.ready[slot]);
                self.compute(1, times);
                (self.clocks.free[slot], self.busy[slot]) = (self.clocks.compute, false);
                self.advance(&pass.stretches, next);
            }
            self.compute(pass.tail, times);
        }
        self.issued -= pass.stretches.len();
    }

    /// Computes some blocks. Staged activations of each come after what was to be copied before.
    fn compute(&mut self, blocks: u32, times: Times) {
        let Some((before, after)) = times.staged else {
            self.clocks.compute += u64::from(blocks) * times.block;
            return;
        };
        for _ in 0..blocks {
            let first = (self.clocks.compute + before).max(self.clocks.copy);
            self.clocks.compute = first + times.block - before;
            self.clocks.copy = self.clocks.compute - after;
        }
    }

    /// Issues all copies whose slots are free, in order.
    fn advance(&mut self, pass: &[Stretch], next: &[Stretch]) {
        while let Some(stretch) = pass.get(self.issued).or_else(|| next.get(self.issued - pass.len())) {
            let slot = usize::from(stretch.slot);
            if std::mem::replace(&mut self.busy[slot], true) {
                return;
            }
            let clocks = &mut self.clocks;
            let mut start = clocks.copy.max(clocks.free[slot]);
            if let Some(place) = stretch.ring.map(usize::from) {
                clocks.read = clocks.read.max(clocks.copied[place]) + self.read_ns;
                start = start.max(clocks.read);
            }
            clocks.copy = start + self.copy_ns;
            clocks.ready[slot] = clocks.copy;
            if let Some(place) = stretch.ring.map(usize::from) {
                clocks.copied[place] = clocks.copy;
            }
            self.issued += 1;
        }
    }
}
