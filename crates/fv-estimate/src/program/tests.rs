//! Random programs: the ways to run one agree.

use super::*;

static SITE: Site = Site { name: "tensor", kind: BufferKind::Activation, rule: "test" };
static WORKSPACE: Site = Site { name: "workspace", kind: BufferKind::Workspace, rule: "test" };

/// Loops inside of loops. Opaque ones are in no other.
const DEPTH: u32 = 2;

/// Knuth's MMIX generator: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Few sizes, from each power of two, so that some fit exactly and others do not.
    fn size(&mut self) -> u64 {
        let low = 1 << self.below(30);
        low + self.below(4) * low / 4
    }

    fn site(&mut self) -> &'static Site {
        if self.below(4) == 0 { &WORKSPACE } else { &SITE }
    }

    fn count(&mut self, skips: bool) -> u64 {
        1 + self.below(if skips { 9 } else { 3 })
    }

    /// Steps that leave nothing alive but what is in `list`. `skips`: loops may be longer than what is executed of them.
    fn steps(&mut self, p: &mut Builder, list: List, depth: u32, skips: bool) {
        let mut tensors: Vec<Tensor> = Vec::new();
        let mut carried = p.alloc(&SITE, &[("bytes", self.size())], 1);
        for _ in 0..self.below(30) {
            match self.below(16) {
                0..=4 => tensors.push(p.alloc(self.site(), &[("bytes", self.size())], 1)),
                5..=8 if !tensors.is_empty() => {
                    let at = usize::try_from(self.below(tensors.len() as u64)).expect("few");
                    p.release(tensors.swap_remove(at));
                }
                9 | 10 => p.touch(self.site(), &[("bytes", self.size())], 1),
                11 => {
                    let kept = p.alloc(&SITE, &[("bytes", self.size())], 1);
                    p.keep(list, kept);
                }
                12 => p.phase(["one", "two", "three"][usize::try_from(self.below(3)).expect("few")]),
                13 => {
                    let next = p.alloc(&SITE, &[("bytes", self.size())], 1);
                    p.replace(carried, next);
                }
                14 if depth > 0 => {
                    let (count, size, growth) = (self.count(skips), self.size(), self.size());
                    let grown = p.alloc(&SITE, &[("bytes", size)], 1);
                    p.repeat(count, |p| {
                        self.steps(p, list, depth - 1, skips);
                        let next = p.alloc_growing(&SITE, &[("bytes", size)], 1, &[("bytes", growth)]);
                        p.replace(grown, next);
                    });
                    p.release(grown);
                }
                15 => match self.below(6) {
                    0 => p.empty_cache(),
                    1 => p.release_list(list),
                    2 => p.aside(|p| {
                        let aside = p.alloc(&SITE, &[("bytes", self.size())], 1);
                        p.keep(list, aside);
                    }),
                    3 if skips && depth == DEPTH => p.repeat_opaque(self.count(true), |p| {
                        let kept = p.alloc(&SITE, &[("bytes", self.size())], 1);
                        p.keep(list, kept);
                    }),
                    _ => {}
                },
                _ => {}
            }
        }
        carried = p.retain(carried);
        tensors.extend([carried, carried]);
        for tensor in tensors {
            p.release(tensor);
        }
    }

    fn program(&mut self, details: bool, skips: bool) -> Program {
        let mut p = Builder::new(details);
        p.stage(StageName::Load);
        p.phase("one");
        let list = p.list();
        for _ in 0..3 {
            self.steps(&mut p, list, DEPTH, skips);
        }
        p.finish().expect("a program of small sizes")
    }
}

#[test]
fn the_allocator_at_its_defaults_is_the_whole_one() {
    let config = Config::default();
    for seed in 0..300 {
        let program = Random(seed).program(false, true);
        let mut machine = Machine::new(&program, Cached::new(Full { replay: Replay::new(config.clone()), failed: false }), false);
        machine.execute(Sampling::Ends);
        assert_eq!(program.run(&Model::Caching(config.clone()), Sampling::Ends), machine.timeline, "seed {seed}");
    }
}

#[test]
fn what_is_too_large_for_the_defaults_is_left_to_the_whole_allocator() {
    let mut p = Builder::new(false);
    p.phase("one");
    for bytes in [1 << 30, 1 << 40, 1 << 41, 1 << 42] {
        let tensor = p.alloc(&SITE, &[("bytes", bytes)], 1);
        p.touch(&SITE, &[("bytes", bytes)], 1);
        p.release(tensor);
    }
    let program = p.finish().expect("a program");
    let peak = program.run(&Model::Caching(Config::default()), Sampling::Ends).phases[0];
    assert_eq!((peak.allocated, peak.reserved), (1 << 43, (1 << 31) + (1 << 41) + (1 << 42) + (1 << 43)));
}

#[test]
fn what_is_alive_at_a_peak_adds_up_to_it() {
    for seed in 0..300 {
        let program = Random(seed).program(true, false);
        let timeline = program.run(&Model::Caching(Config::default()), Sampling::Ends);
        let mut highest = (0, 0);
        for (phase, peak) in timeline.phases.iter().enumerate() {
            let [alive] = &program.alive(&timeline, &[phase])[..] else { panic!("one list for a phase") };
            let sum = alive.iter().map(|alive| alive.bytes).sum::<u64>();
            // A phase that never rises above its start names what was alive at the last allocation before it.
            assert!(sum >= peak.live, "seed {seed}, phase {phase}: {sum} below {}", peak.live);
            highest = highest.max((peak.live, u64::MAX - sum));
        }
        assert_eq!(highest.0, u64::MAX - highest.1, "seed {seed}");
    }
}

#[test]
fn a_program_with_details_runs_as_one_without() {
    for seed in 0..100 {
        let [plain, detailed] = [false, true].map(|details| Random(seed).program(details, true));
        for model in [Model::None, Model::TensorsOnly, Model::Caching(Config::default())] {
            let [a, b] = [&plain, &detailed].map(|program| program.run(&model, Sampling::Ends));
            assert_eq!((a.phases, a.largest), (b.phases, b.largest), "seed {seed}");
        }
    }
}

#[test]
fn a_touch_is_an_allocation_and_a_free() {
    let mut p = Builder::new(false);
    p.phase("one");
    let tensor = p.alloc(&SITE, &[("bytes", 700)], 1);
    p.touch(&WORKSPACE, &[("bytes", 600)], 1);
    p.release(tensor);
    let program = p.finish().expect("a program");
    let events = [Event::Alloc(0, 700), Event::Alloc(1, 600), Event::Free(1), Event::Free(0)];
    assert_eq!(program.events(), events);
    assert_eq!(program.tensor_events(), [Event::Alloc(0, 700), Event::Free(0)]);
    let peak = |model| program.run(&model, Sampling::All).phases[0];
    assert_eq!((peak(Model::None).live, peak(Model::TensorsOnly).live), (1300, 700));
    assert_eq!(peak(Model::Caching(Config::default())).allocated, 2048);
}
