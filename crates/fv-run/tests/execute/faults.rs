//! Faults in the program of a whole pipeline: each is found by the checker before anything runs, or does no harm in any order
//! (many waits follow from others); most of what the checker finds, an execution that nobody checked runs into.

use fv_program::arena::{Effort, pack};
use fv_program::check::check_places;
use fv_program::wan;
use fv_program::wan::choice::{Choices, Compute, Decode, Residency, TextKeys};
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::tiny as models;
use fv_run::execute::inputs::Given;
use fv_run::execute::outputs::Kept;
use fv_run::execute::queue::Order;
use fv_run::execute::weights::Synthetic;
use fv_run::execute::{Options, World, execute};
use fv_spec::program::{Element, OpIndex, Program, Sampler, Tier};

use crate::placements::{Dice, formats, given, narrow, small_request};
use crate::tiny;

/// A pipeline with everything that streams: blocks of all tiers, activations in host memory, pieces.
struct Pipeline {
    /// Without places.
    program: Program,
    weights: Synthetic,
    inputs: Given,
    expected: Kept,
}

fn mixed(blocks: u64, slots: u32) -> Residency {
    let tiers = [Tier::Device, Tier::Pinned, Tier::Disk, Tier::Disk];
    Residency { tiers: tiers.into_iter().cycle().take(usize::try_from(blocks).expect("few")).collect(), slots, ring: 1 }
}

impl Pipeline {
    fn new() -> Self {
        let model: Model = narrow(models::dense());
        let request: Request = small_request(Sampler::UniPc);
        let plain = models::choices(&model, Element::F32);
        let compute = Compute {
            head_group: 2,
            feed_forward_chunk: 5,
            projection_chunk: 6,
            outputs_on_host: true,
            residual_on_host: true,
            text_keys: TextKeys::Recomputed,
            paired_guidance: true,
        };
        let choices = Choices {
            formats: formats(Element::F32, Element::F32),
            text: mixed(model.text.layers, 1),
            transformers: vec![mixed(model.transformer.blocks, 2)],
            compute,
            vae: mixed(plain.vae.tiers.len() as u64, 2),
            decode: Decode { frames: 2, pixels: Element::F32, ..plain.decode },
        };
        let program = wan::lower(&model, &request, &choices).expect("it can be lowered");
        let weights = tiny::weights(["dit", "dit2"], "vae21");
        let inputs = given(&request, usize::try_from(model.vae.latent).expect("few"));
        let mut pipeline = Self { program, weights, inputs, expected: Kept::default() };
        let placed = placed(pipeline.program.clone());
        assert_eq!(check_places(&placed, &[]), []);
        pipeline.expected = pipeline.run(&placed, Order::Issued).expect("it is right");
        pipeline
    }

    fn run(&self, program: &Program, order: Order) -> Result<Kept, String> {
        let mut outputs = Kept::default();
        let mut world = World { weights: &self.weights, inputs: &self.inputs, outputs: &mut outputs };
        execute(program, &mut world, Options { order, check_gaps: true }, &mut |_| {}).map_err(|failure| failure.to_string())?;
        Ok(outputs)
    }

    /// Whether some order fails or gives another output.
    fn goes_wrong(&self, program: &Program, orders: u64) -> bool {
        (0..orders).any(|seed| self.run(program, Order::Random { seed }).map_or(true, |kept| kept != self.expected))
    }

    /// The checker's opinion, and that of executions. What the checker has nothing to say against must not go wrong.
    fn judge(&self, what: &str, program: &Program, tally: &mut Tally) {
        let refused = !check_places(program, &[]).is_empty();
        let wrong = self.goes_wrong(program, if refused { 6 } else { 3 });
        assert!(refused || !wrong, "{what} goes wrong, and the checker says nothing");
        tally.all += 1;
        tally.refused += u32::from(refused);
        tally.wrong += u32::from(wrong);
    }
}

#[derive(Debug, Default)]
struct Tally {
    all: u32,
    refused: u32,
    wrong: u32,
}

fn placed(mut program: Program) -> Program {
    pack(&mut program, Effort::default());
    program
}

/// So many of these, at random.
fn some<T>(mut all: Vec<T>, count: usize) -> Vec<T> {
    let mut dice = Dice::new(11);
    while all.len() > count {
        let at = usize::try_from(dice.below(all.len() as u64)).expect("few");
        all.swap_remove(at);
    }
    all
}

/// Operation and wait, of every wait.
fn waits(program: &Program) -> Vec<(usize, usize, usize)> {
    let segments = program.segments.iter().enumerate();
    let ops = segments.flat_map(|(segment, content)| content.ops.iter().enumerate().map(move |(at, op)| (segment, at, op.waits.len())));
    ops.flat_map(|(segment, at, waits)| (0..waits).map(move |wait| (segment, at, wait))).collect()
}

#[test]
fn buffers_that_are_256_bytes_smaller_are_refused() {
    let pipeline = Pipeline::new();
    let placed_once = placed(pipeline.program.clone());
    for at in 0..placed_once.buffers.len() {
        let mut program = placed_once.clone();
        program.buffers[at].bytes -= 256;
        let findings = check_places(&program, &[]);
        assert!(!findings.is_empty(), "{} shrinks and nobody notices", program.buffers[at].name);
    }
    // And executed all the same, with others in the room that was gained.
    let mut tally = Tally::default();
    for at in some((0..pipeline.program.buffers.len()).collect(), 40) {
        let mut program = pipeline.program.clone();
        program.buffers[at].bytes -= 256;
        if program.buffers[at].bytes > 0 {
            pipeline.judge(&format!("smaller {}", program.buffers[at].name), &placed(program), &mut tally);
        }
    }
    println!("smaller buffers: {tally:?}");
    assert_eq!(tally.refused, tally.all);
    assert!(tally.wrong * 4 > tally.all * 3, "{tally:?}");
}

#[test]
fn waits_that_are_lost_are_refused_or_do_no_harm() {
    let pipeline = Pipeline::new();
    let program = placed(pipeline.program.clone());
    let mut tally = Tally::default();
    for (segment, at, wait) in some(waits(&program), 60) {
        let mut program = program.clone();
        program.segments[segment].ops[at].waits.remove(wait);
        pipeline.judge(&format!("operation {at} of {} without a wait", program.segments[segment].name), &program, &mut tally);
    }
    println!("lost waits: {tally:?}");
    assert!(tally.refused * 4 > tally.all && tally.wrong * 2 > tally.refused, "{tally:?}");
}

#[test]
fn waits_that_change_places_are_refused_or_do_no_harm() {
    let pipeline = Pipeline::new();
    let program = placed(pipeline.program.clone());
    let mut tally = Tally::default();
    // Neighbours of one segment, so that it is a slip rather than chaos.
    let waits = waits(&program);
    let event = |(segment, at, wait): (usize, usize, usize)| program.segments[segment].ops[at].waits[wait];
    let pairs = waits.windows(2).filter(|pair| pair[0].0 == pair[1].0 && event(pair[0]) != event(pair[1]));
    for pair in some(pairs.map(<[_]>::to_vec).collect(), 60) {
        let mut program = program.clone();
        for (one, other) in [(pair[0], pair[1]), (pair[1], pair[0])] {
            program.segments[one.0].ops[one.1].waits[one.2] = event(other);
        }
        pipeline.judge(&format!("swapped waits {pair:?} of {}", program.segments[pair[0].0].name), &program, &mut tally);
    }
    println!("swapped waits: {tally:?}");
    assert!(tally.refused * 4 > tally.all && tally.wrong * 2 > tally.refused, "{tally:?}");
}

#[test]
fn buffers_that_are_freed_early_are_refused() {
    let pipeline = Pipeline::new();
    let placed_once = placed(pipeline.program.clone());
    let mut tally = Tally::default();
    let mut cases = Vec::new();
    for (at, buffer) in pipeline.program.buffers.iter().enumerate() {
        let uses = (0..)
            .zip(pipeline.program.ops())
            .filter(|(_, (_, op))| op.reads.iter().chain(&op.writes).any(|view| view.buffer as usize == at));
        let last: OpIndex = uses.map(|(index, _)| index).last().expect("it is used");
        if last > buffer.first {
            cases.push((at, last - 1));
        }
    }
    for (at, last) in &cases {
        let mut program = placed_once.clone();
        program.buffers[*at].last = *last;
        assert!(!check_places(&program, &[]).is_empty(), "{} is freed early", program.buffers[*at].name);
    }
    for (at, last) in some(cases, 30) {
        let mut program = pipeline.program.clone();
        program.buffers[at].last = last;
        pipeline.judge(&format!("{} freed early", program.buffers[at].name), &placed(program), &mut tally);
    }
    println!("freed early: {tally:?}");
    assert_eq!((tally.refused, tally.wrong), (tally.all, tally.all));
}
