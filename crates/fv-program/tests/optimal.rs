//! The solver against trying everything, on instances that are small enough for that.

use fv_program::optimal::instance::{Counts, Need};
use fv_program::optimal::solve::{Key, bound};
use fv_program::optimal::timeline::{Place, Timeline};
use fv_program::optimal::{Blocks, Budgets, Configuration, SetUp, Solution, Staged, bucket::bucket, least, solve};
use fv_spec::questions::OutputEffect;

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + (self.0 >> 11) % (high - low + 1)
    }

    fn small(&mut self, low: u64, high: u64) -> u32 {
        u32::try_from(self.between(low, high)).expect("small")
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.between(0, choices.len() as u64 - 1)).expect("small")]
    }
}

/// Configurations of one component: the less memory one takes, the longer it computes, mostly.
fn configurations(numbers: &mut Numbers, most_blocks: u64) -> Vec<Configuration> {
    let count = numbers.small(1, most_blocks);
    let bytes = 256 * numbers.between(1, 40);
    let [copy_ns, read_ns] = [numbers.between(1_000, 400_000), numbers.between(2_000, 900_000)];
    let [block_ns, round_ns] = [numbers.between(40_000, 200_000), numbers.between(0, 150_000)];
    let sweeps = numbers.of(&[[1, 0], [2, 0], [3, 0], [10, 0], [50, 0], [3, 4]]);
    let configuration = |index: u64, numbers: &mut Numbers| Configuration {
        blocks: Blocks { count, bytes, copy_ns, read_ns },
        device_bytes: 256 * numbers.between(1, 80) / (index + 1),
        host_bytes: 256 * numbers.between(0, 2) * index,
        loading_bytes: 0,
        sweeps,
        rounds: numbers.of(&[1, 1, 2]),
        set_up: SetUp { ns: numbers.between(0, 9_000), block_ns: numbers.of(&[None, Some(1_000)]) },
        sweep_ns: numbers.between(0, 9_000),
        round_ns,
        block_ns: block_ns + block_ns * numbers.between(0, 30) * index / 100,
        staged: (index > 0 && numbers.between(0, 3) == 0).then(|| staged(numbers, index)),
        effect: numbers.of(&[OutputEffect::None, OutputEffect::None, OutputEffect::Quantised]),
    };
    (0..numbers.between(1, 4)).map(|index| configuration(index, numbers)).collect()
}

fn staged(numbers: &mut Numbers, index: u64) -> Staged {
    Staged { before_ns: numbers.between(0, 20_000), after_ns: numbers.between(0, 20_000), bytes: 256 * numbers.between(0, 3) * index }
}

fn budgets(numbers: &mut Numbers, configurations: &[Configuration]) -> Budgets {
    let all = configurations[0].blocks.bytes * u64::from(configurations[0].blocks.count);
    Budgets {
        device_bytes: numbers.between(0, 256 * 60 + all),
        host_bytes: numbers.between(0, all + 256 * 4),
        // A large share, so that it decides something here.
        per_pinned_gib_bytes: numbers.of(&[0, 2 << 20, 1 << 28]),
    }
}

/// The best of every placement with every number of places.
fn every(configurations: &[Configuration], budgets: &Budgets) -> Option<Key> {
    let mut timeline = Timeline::default();
    let mut best: Option<Key> = None;
    for (index, configuration) in configurations.iter().enumerate() {
        for number in 0..3_u32.pow(configuration.blocks.count) {
            let places: Vec<Place> = (0..configuration.blocks.count)
                .map(|block| [Place::Device, Place::Pinned, Place::Disk][(number / 3_u32.pow(block) % 3) as usize])
                .collect();
            for (counts, need) in places_for(configuration, &places) {
                if budgets.hold(need) {
                    let ns = timeline.total(configuration, &places, counts.slots, counts.ring);
                    assert!(ns >= bound(configuration, counts), "{configuration:?} {places:?} {counts:?}: {ns}");
                    let moved = configuration.moved_bytes(counts);
                    let key = (bucket(ns), configuration.effect, moved, index, [counts.slots, counts.ring]);
                    best = Some(best.map_or(key, |best| best.min(key)));
                }
            }
        }
    }
    best
}

/// Every number of slots and of places in the ring with which a placement can run.
fn places_for<'a>(configuration: &'a Configuration, places: &[Place]) -> impl Iterator<Item = (Counts, Need)> + use<'a> {
    let count = |wanted: &[Place]| u32::try_from(places.iter().filter(|place| wanted.contains(place)).count()).expect("small");
    let [streamed, disk] = [count(&[Place::Pinned, Place::Disk]), count(&[Place::Disk])];
    let slots = if streamed == 0 { 0..=0 } else { 1..=3 };
    slots.flat_map(move |slots| {
        let rings = if disk == 0 { 0..=0 } else { 1..=3 };
        rings.map(move |ring| {
            let counts = Counts { streamed, disk, slots, ring };
            (counts, configuration.need(counts))
        })
    })
}

fn check(configurations: &[Configuration], budgets: &Budgets, solution: &Solution) {
    let configuration = &configurations[solution.configuration];
    assert!(budgets.hold(solution.need), "within both budgets");
    assert_eq!(solution.need, configuration.need(solution.counts));
    let count = |wanted: Place| solution.places.iter().filter(|place| **place == wanted).count();
    assert_eq!(count(Place::Disk), solution.counts.disk as usize);
    assert_eq!(count(Place::Pinned) + count(Place::Disk), solution.counts.streamed as usize);
    let ns = Timeline::default().total(configuration, &solution.places, solution.counts.slots, solution.counts.ring);
    assert_eq!(ns, solution.ns);
}

#[test]
fn nothing_that_fits_is_better_than_what_is_chosen() {
    let mut numbers = Numbers(0x0bad_5eed);
    let mut refused = 0;
    for case in 0..1_500 {
        let configurations = configurations(&mut numbers, 6);
        let budgets = budgets(&mut numbers, &configurations);
        let solution = solve(&configurations, &budgets);
        let found = solution.as_ref().map(|solution| solution.key(&configurations));
        assert_eq!(found, every(&configurations, &budgets), "case {case}: {configurations:#?} {budgets:?} {solution:?}");
        match &solution {
            Some(solution) => check(&configurations, &budgets, solution),
            None => refused += 1,
        }
    }
    assert!((150..900).contains(&refused), "both answers occur: {refused} refused");
}

/// Configurations as they are of a large model: activations of some GiB, forty blocks of half a GiB.
fn large(numbers: &mut Numbers) -> Vec<Configuration> {
    let bytes = numbers.between(90 << 20, 700 << 20).next_multiple_of(256);
    let configuration = |index: u64, numbers: &mut Numbers| Configuration {
        blocks: Blocks { count: 40, bytes, copy_ns: bytes / 20, read_ns: bytes / 3 },
        device_bytes: numbers.between(1 << 30, 8 << 30),
        host_bytes: numbers.between(0, 1 << 30),
        loading_bytes: 0,
        sweeps: [20, 0],
        rounds: numbers.of(&[1, 2]),
        set_up: SetUp { ns: 0, block_ns: numbers.of(&[None, Some(1_000_000)]) },
        sweep_ns: 1_000_000,
        round_ns: numbers.between(0, 10_000_000),
        block_ns: numbers.between(5_000_000, 100_000_000),
        staged: index.is_multiple_of(3).then_some(Staged { before_ns: 1_000_000, after_ns: 1_000_000, bytes: 1 << 20 }),
        effect: OutputEffect::None,
    };
    (0..12).map(|index| configuration(index, numbers)).collect()
}

#[test]
fn more_memory_never_makes_a_forecast_slower() {
    let mut numbers = Numbers(0xfeed_beef);
    for _ in 0..25 {
        let configurations = if numbers.between(0, 1) == 0 { configurations(&mut numbers, 9) } else { large(&mut numbers) };
        let most = configurations[0].blocks.bytes * u64::from(configurations[0].blocks.count);
        let most = most + configurations.iter().map(|found| found.device_bytes).max().unwrap_or(0);
        let mut rows: Vec<Option<u32>> = vec![None; 13];
        for device in 0..=12 {
            let mut before: Option<u32> = None;
            for (host, above) in (0..).zip(&mut rows) {
                let [device_bytes, host_bytes] = [most * device / 12, most * host / 12];
                let budgets = Budgets { device_bytes, host_bytes, per_pinned_gib_bytes: 2 << 20 };
                let found = solve(&configurations, &budgets);
                let now = found.as_ref().map(|found| found.key(&configurations).0);
                if let Some(found) = &found {
                    check(&configurations, &budgets, found);
                }
                for less in [before, *above].into_iter().flatten() {
                    assert!(now.is_some_and(|now| now <= less), "{now:?} after {less} with {budgets:?} for {configurations:#?}");
                }
                (before, *above) = (now, now);
            }
        }
    }
}

#[test]
fn whatever_fits_one_of_the_least_does() {
    let mut numbers = Numbers(0x0dd_ba11);
    for _ in 0..1_500 {
        let configurations = configurations(&mut numbers, 6);
        let budgets = budgets(&mut numbers, &configurations);
        let fits = least(&configurations, &budgets)
            .iter()
            .any(|least| least.device_bytes <= budgets.device_bytes && least.host_bytes <= budgets.host_bytes);
        assert_eq!(fits, solve(&configurations, &budgets).is_some(), "{configurations:#?} {budgets:?}");
    }
}

/// One block of a millisecond, whose copy takes two and whose reading takes five.
fn millisecond(count: u32, sweeps: u32) -> Configuration {
    Configuration {
        blocks: Blocks { count, bytes: 256, copy_ns: 2_000_000, read_ns: 5_000_000 },
        device_bytes: 0,
        host_bytes: 0,
        loading_bytes: 0,
        sweeps: [sweeps, 0],
        rounds: 1,
        set_up: SetUp::default(),
        sweep_ns: 0,
        round_ns: 0,
        block_ns: 1_000_000,
        staged: None,
        effect: OutputEffect::None,
    }
}

#[test]
fn times_that_can_be_worked_out_by_hand() {
    use Place::{Device as D, Disk as S, Pinned as P};
    let ms = |sweeps, places: &[Place], slots, ring| {
        let count = u32::try_from(places.len()).expect("small");
        Timeline::default().total(&millisecond(count, sweeps), places, slots, ring) / 1_000_000
    };
    // Nothing is copied.
    assert_eq!(ms(2, &[D, D, D], 0, 0), 6);
    // One slot: copied and computed in turn.
    assert_eq!(ms(1, &[P, P], 1, 0), 6);
    // Two slots: the copies follow each other, and the last block is computed.
    assert_eq!(ms(1, &[P, P, P], 2, 0), 7);
    // The copy of a block hides behind two others, in each sweep, the first one included.
    assert_eq!(ms(3, &[D, D, P], 1, 0), 9);
    assert_eq!(ms(3, &[P, D, D], 1, 0), 11);
    // With one place a block is read once the one before is copied; with two it is read meanwhile.
    assert_eq!(ms(2, &[S, S], 1, 1), 4 * 7 + 1);
    assert_eq!(ms(2, &[S, S], 2, 2), 4 * 5 + 2 + 1);
    // Activations that share the queue of copies wait for them.
    let staged = Configuration { staged: Some(Staged { before_ns: 0, after_ns: 0, bytes: 0 }), ..millisecond(2, 2) };
    assert_eq!(Timeline::default().total(&staged, &[P, P], 2, 0) / 1_000_000, 2 * 2 + 1 + 1 + 2 + 1 + 2 + 1);
    // Half of each block is computed before the first of them is needed, while a block is copied.
    let staged = Configuration { staged: Some(Staged { before_ns: 500_000, after_ns: 0, bytes: 0 }), ..millisecond(2, 2) };
    assert_eq!(Timeline::default().total(&staged, &[P, P], 2, 0) / 500_000, 8 + 1 + 4 + 1 + 4 + 1 + 2);
}

#[test]
fn passes_before_the_first_sweep_and_several_rounds_take_their_time() {
    use Place::{Device as D, Pinned as P};
    let ms = |configuration: &Configuration, places: &[Place]| Timeline::default().total(configuration, places, 1, 0) / 1_000_000;
    let once = millisecond(2, 3);
    assert_eq!(ms(&once, &[D, P]), 3 * 3 + 1 - 1);
    // Two rounds of a sweep are as two sweeps, with what a sweep computes once in every other one only.
    let twice = Configuration { rounds: 2, sweep_ns: 4_000_000, ..once };
    assert_eq!(ms(&twice, &[D, P]), 3 * (4 + 1 + 1 + 3));
    // Another run begins anew.
    let runs = Configuration { sweeps: [3, 3], ..once };
    assert_eq!(ms(&runs, &[D, P]), 2 * ms(&once, &[D, P]));
    // A set-up that goes through the blocks copies them once more.
    let set_up = Configuration { set_up: SetUp { ns: 0, block_ns: Some(0) }, ..once };
    assert_eq!(ms(&set_up, &[D, P]), 2 + ms(&once, &[D, P]));
}
