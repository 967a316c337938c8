//! The rules of the caching allocator one by one, and what holds after any sequence of operations.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use fv_estimate::caching::{Action, BlockId, Config, Event, LARGE_SEGMENT, Replay, SMALL_SEGMENT, Stats};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Knuth's MMIX generator: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// As many from each power of two.
    fn size(&mut self, largest_log2: u64) -> u64 {
        let low = 1 << self.below(largest_log2);
        low + self.below(low)
    }
}

fn segments(replay: &mut Replay) -> Vec<u64> {
    replay.take_events().iter().filter(|e| e.action == Action::SegmentAlloc).map(|e| e.size).collect()
}

fn recording(config: Config) -> Replay {
    let mut replay = Replay::new(config);
    replay.record_events();
    replay
}

#[test]
fn sizes_round_up_to_512_bytes() {
    let config = Config::default();
    for (size, rounded) in [(0, 512), (1, 512), (511, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)] {
        assert_eq!(config.round(size), Some(rounded), "{size}");
    }
    assert_eq!(config.round(u64::MAX), None);
}

#[test]
fn sizes_round_up_to_a_division_of_a_power_of_two() {
    let config = Config { power2_divisions: [4; 16], ..Config::default() };
    // PyTorch's own example: between 1024 and 2048 the steps are 1280, 1536 and 1792; but only above 4 x 512 bytes.
    for (size, rounded) in [(1200, 1536), (2048, 2048), (2049, 2560), (5 * KIB + 1, 6 * KIB), (MIB + 1, MIB + MIB / 4), (3 * GIB, 3 * GIB)]
    {
        assert_eq!(config.round(size), Some(rounded), "{size}");
    }
    let mut divisions = [0; 16];
    divisions[3] = 2; // 8 to 16 MiB
    let config = Config { power2_divisions: divisions, ..Config::default() };
    assert_eq!(config.round(9 * MIB), Some(12 * MIB));
    assert_eq!(config.round(17 * MIB), Some(17 * MIB));
}

#[test]
fn segments_have_three_sizes() {
    let config = Config::default();
    let table = [
        (512, SMALL_SEGMENT),
        (MIB, SMALL_SEGMENT),
        (MIB + 512, LARGE_SEGMENT),
        (10 * MIB - 512, LARGE_SEGMENT),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (64 * MIB + 512, 66 * MIB),
    ];
    for (size, segment) in table {
        assert_eq!(config.segment_for(size), Some(segment), "{size}");
    }
}

#[test]
fn the_rest_of_a_block_is_kept_if_large_enough() {
    let mut replay = recording(Config::default());
    // 64 MiB less exactly 1 MiB: the rest is not more than 1 MiB, so the whole block goes.
    let whole = replay.alloc(64 * MIB, 0).unwrap();
    replay.free(whole).unwrap();
    let most = replay.alloc(63 * MIB, 0).unwrap();
    assert_eq!(replay.size(most), Ok(64 * MIB));
    replay.free(most).unwrap();
    let less = replay.alloc(63 * MIB - 512, 0).unwrap();
    assert_eq!(replay.size(less), Ok(63 * MIB - 512));
    assert_eq!(replay.stats().all.inactive_split.current, MIB + 512);
    // The small pool keeps 512 bytes.
    let first = replay.alloc(MIB, 0).unwrap();
    let second = replay.alloc(MIB - 512, 0).unwrap();
    assert_eq!((replay.size(first), replay.size(second)), (Ok(MIB), Ok(MIB - 512)));
    assert_eq!(segments(&mut replay), [64 * MIB, SMALL_SEGMENT]);
}

#[test]
fn the_smallest_block_that_fits_is_taken_and_the_lowest_among_equals() {
    let mut replay = Replay::new(Config::default());
    let held: Vec<BlockId> = [(8, 40), (4, 30), (2, 30), (0, 50)]
        .map(|(address, size)| {
            replay.place_next(address * GIB);
            replay.alloc(size * MIB, 0).unwrap()
        })
        .into();
    for id in held {
        replay.free(id).unwrap();
    }
    let taken = replay.alloc(29 * MIB + 512 * KIB, 0).unwrap();
    assert_eq!(replay.address(taken), Ok(2 * GIB));
}

#[test]
fn streams_do_not_share() {
    let mut replay = recording(Config::default());
    let first = replay.alloc(30 * MIB, 1).unwrap();
    replay.free(first).unwrap();
    replay.alloc(30 * MIB, 2).unwrap();
    assert_eq!(segments(&mut replay), [30 * MIB, 30 * MIB]);
    replay.alloc(30 * MIB, 1).unwrap();
    assert_eq!(segments(&mut replay), [0_u64; 0]);
}

#[test]
fn a_block_waits_for_the_streams_that_used_it() {
    let mut replay = Replay::new(Config::default());
    let id = replay.alloc(30 * MIB, 0).unwrap();
    replay.record_use(id, 0).unwrap(); // its own stream does not count
    replay.record_use(id, 7).unwrap();
    replay.free(id).unwrap();
    let stats = replay.stats().all;
    assert_eq!((stats.allocated.current, stats.active.current), (0, 30 * MIB));
    assert!(replay.free(id).is_err());
    replay.alloc(30 * MIB, 0).unwrap();
    assert_eq!(replay.stats().all.segments.current, 2);
    replay.complete(id).unwrap();
    assert!(replay.complete(id).is_err());
    replay.alloc(30 * MIB, 0).unwrap();
    assert_eq!(replay.stats().all.segments.current, 2);
}

#[test]
fn what_is_cached_is_given_back_before_a_request_fails() {
    let mut replay = recording(Config { allowed: Some(100 * MIB), ..Config::default() });
    let a = replay.alloc(60 * MIB, 0).unwrap();
    let small = replay.alloc(1, 0).unwrap();
    replay.free(a).unwrap();
    replay.alloc(80 * MIB, 0).unwrap();
    let stats = replay.stats();
    assert_eq!((stats.retries, stats.ooms, stats.all.reserved.current), (1, 0, 82 * MIB));
    let error = replay.alloc(20 * MIB, 0).unwrap_err();
    assert_eq!((error.requested, error.allocated, error.reserved), (20 * MIB, 80 * MIB + 512, 82 * MIB));
    assert_eq!((replay.stats().retries, replay.stats().ooms), (2, 1));
    replay.free(small).unwrap();
    replay.alloc(20 * MIB, 0).unwrap();
    assert!(replay.alloc(u64::MAX, 0).is_err());
    replay.check().unwrap();
}

#[test]
fn oversize_blocks_stay_whole() {
    let config = Config { max_split_size: Some(64 * MIB), ..Config::default() };
    let mut replay = recording(config);
    let big = replay.alloc(100 * MIB, 0).unwrap();
    replay.free(big).unwrap();
    replay.alloc(30 * MIB, 0).unwrap(); // may not split the block of 100 MiB
    replay.alloc(80 * MIB, 0).unwrap(); // 20 MiB smaller: too small for it
    assert_eq!(segments(&mut replay), [100 * MIB, 30 * MIB, 80 * MIB]);
    let close = replay.alloc(81 * MIB, 0).unwrap();
    assert_eq!(replay.size(close), Ok(100 * MIB));
    assert_eq!(segments(&mut replay), [0_u64; 0]);
}

#[test]
fn old_segments_are_collected_above_the_threshold() {
    let config = Config { allowed: Some(GIB), gc_threshold: Some(100 * MIB), ..Config::default() };
    let mut replay = recording(config);
    let ids: Vec<BlockId> = [50, 60, 70].map(|size| replay.alloc(size * MIB, 0).unwrap()).into();
    for id in ids {
        replay.free(id).unwrap();
    }
    replay.take_events();
    replay.alloc(200 * MIB, 0).unwrap();
    let freed: Vec<u64> = replay.take_events().iter().filter(|e| e.action == Action::SegmentFree).map(|e| e.size / MIB).collect();
    assert_eq!(freed, [50, 60, 70]);
}

#[test]
fn an_expandable_segment_grows_and_shrinks_by_pages() {
    let mut replay = recording(Config { expandable: true, ..Config::default() });
    let a = replay.alloc(30 * MIB, 0).unwrap();
    let b = replay.alloc(30 * MIB, 0).unwrap();
    let sizes = |events: Vec<Event>| -> Vec<(Action, u64)> { events.iter().map(|e| (e.action, e.size / MIB)).collect() };
    // The second takes the 10 MiB left over by the first.
    assert_eq!(sizes(replay.take_events()), [(Action::Map, 40), (Action::Map, 20)]);
    assert_eq!(replay.address(b).unwrap(), replay.address(a).unwrap() + 30 * MIB);
    replay.free(a).unwrap();
    replay.empty_cache();
    // Of its 30 MiB, the page that the other also lies in stays.
    assert_eq!(sizes(replay.take_events()), [(Action::Unmap, 20)]);
    replay.check().unwrap();
    replay.free(b).unwrap();
    replay.empty_cache();
    assert_eq!(sizes(replay.take_events()), [(Action::Unmap, 40)]);
    assert_eq!(replay.stats().all.reserved.current, 0);
    assert_eq!(replay.stats().all.segments.peak, 0);
}

#[test]
fn peaks_start_again() {
    let mut replay = Replay::new(Config::default());
    let id = replay.alloc(64 * MIB, 0).unwrap();
    replay.free(id).unwrap();
    replay.reset_peaks();
    let stats = replay.stats().all;
    assert_eq!((stats.allocated.peak, stats.reserved.peak), (0, 64 * MIB));
}

fn settings() -> Vec<Config> {
    let plain = Config { capacity: Some(3 * GIB), device_total: 4 * GIB, ..Config::default() };
    let mut all = vec![plain.clone()];
    all.push(Config { allowed: Some(GIB), ..plain.clone() });
    all.push(Config { allowed: Some(GIB), max_split_size: Some(64 * MIB), ..plain.clone() });
    all.push(Config { allowed: Some(2 * GIB), gc_threshold: Some(GIB), ..plain.clone() });
    all.push(Config { allowed: Some(2 * GIB), gc_threshold: Some(GIB), max_split_size: Some(32 * MIB), ..plain.clone() });
    all.push(Config { power2_divisions: [8; 16], large_segment: 0, ..plain.clone() });
    all.push(Config { power2_divisions: [u64::MAX; 16], large_segment: 64 * MIB + 1, ..plain });
    let expandable: Vec<Config> = all.iter().map(|config| Config { expandable: true, ..config.clone() }).collect();
    all.extend(expandable);
    all
}

fn peaks(stats: &Stats) -> [u64; 6] {
    let all = &stats.all;
    [all.allocated, all.active, all.reserved, all.requested, all.blocks, all.segments].map(|level| level.peak)
}

/// One random program: its statistics, and everything that passed between allocator and driver.
fn random_program(config: &Config, seed: u64) -> (Stats, Vec<Event>) {
    let mut random = Random(seed);
    let mut replay = recording(config.clone());
    let (mut live, mut waiting): (Vec<BlockId>, Vec<BlockId>) = (Vec::new(), Vec::new());
    let mut events = Vec::new();
    let mut before = [0; 6];
    for step in 0..1500 {
        match random.below(100) {
            0..50 => {
                let (size, stream) = (random.size(28), u32::try_from(random.below(3)).unwrap());
                match replay.alloc(size, stream) {
                    Ok(id) => {
                        assert!(replay.size(id).unwrap() >= size);
                        live.push(id);
                    }
                    Err(error) => {
                        assert_eq!(error.requested, size);
                        waiting.clear(); // a failed request waits for everything
                    }
                }
            }
            50..97 if !live.is_empty() => {
                let at = usize::try_from(random.below(live.len() as u64)).unwrap();
                let id = live.swap_remove(at);
                let elsewhere = random.below(10) == 0;
                if elsewhere {
                    replay.record_use(id, 9).unwrap();
                    waiting.push(id);
                }
                replay.free(id).unwrap();
                assert!(replay.free(id).is_err());
            }
            97 => waiting.drain(..).for_each(|id| _ = replay.complete(id)), // a retried request may have done so before
            98 if random.below(10) == 0 => {
                replay.empty_cache();
                waiting.clear();
            }
            _ => {}
        }
        let now = replay.stats();
        let all = now.all;
        assert!(all.allocated.current <= all.active.current && all.active.current <= all.reserved.current);
        assert!(all.requested.current <= all.active.current);
        // The allowance is checked before a request is rounded up to pages: so it is exceeded there too.
        let page = if config.expandable { config.large_segment.max(LARGE_SEGMENT) } else { 0 };
        let allowed = config.allowed.map(|allowed| allowed + page);
        let limit = allowed.into_iter().chain(config.capacity).min().unwrap_or(u64::MAX);
        assert!(all.reserved.current <= limit, "{} of {limit}", all.reserved.current);
        let after = peaks(&now);
        assert!(before.iter().zip(&after).all(|(b, a)| b <= a), "a peak fell");
        before = after;
        if step % 10 == 0 {
            replay.check().unwrap_or_else(|error| panic!("step {step}, seed {seed}, {config:?}: {error}"));
        }
        events.extend(replay.take_events());
    }
    for id in live {
        replay.free(id).unwrap();
    }
    replay.synchronize();
    replay.check().unwrap();
    let freed = replay.stats().all;
    assert_eq!((freed.allocated.current, freed.active.current, freed.inactive_split.current), (0, 0, 0), "all merged");
    replay.empty_cache();
    replay.check().unwrap();
    let end = replay.stats();
    assert_eq!((end.all.reserved.current, end.small.reserved.current, end.large.reserved.current), (0, 0, 0));
    events.extend(replay.take_events());
    (end, events)
}

#[test]
fn invariants_hold_in_random_programs() {
    for config in settings() {
        for seed in 1..=6 {
            random_program(&config, seed);
        }
    }
}

#[test]
fn a_program_replays_the_same_twice() {
    for config in settings() {
        assert_eq!(random_program(&config, 42), random_program(&config, 42));
    }
}

#[test]
fn segments_never_overlap() {
    for config in settings().into_iter().filter(|config| !config.expandable) {
        let mut held: Vec<(u64, u64)> = Vec::new();
        for event in random_program(&config, 7).1 {
            if event.action == Action::SegmentFree {
                held.retain(|&(address, _)| address != event.address);
            } else {
                assert!(held.iter().all(|&(a, s)| a + s <= event.address || event.address + event.size <= a));
                held.push((event.address, event.size));
            }
        }
        assert!(held.is_empty());
    }
}
