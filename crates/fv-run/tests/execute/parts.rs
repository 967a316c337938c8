//! Weights, samplers and single components.

use fv_device::reference::{Operand, Update, compute};
use fv_program::wan::geometry::Model;
use fv_program::wan::schedule::Table;
use fv_program::wan::tiny as models;
use fv_run::execute::weights::{Synthetic, Weights, fnv1a64};
use fv_run::execute::{Progress, sampler};
use fv_spec::program::kernel::Input;
use fv_spec::program::{Element, Group, Kernel, Order, Program, Role, Sampler, Schedule, StageName, Tensor};

use crate::files::{Golden, json, near};
use crate::tiny;

fn bytes(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word)).collect()
}

#[test]
fn weights_are_those_of_the_golden_models() {
    let cases = json("weights.json");
    for case in cases.as_array().expect("a list") {
        let name = case["name"].as_str().expect("a name");
        let shape: Vec<u64> = case["shape"].as_array().expect("a list").iter().map(|x| x.as_u64().expect("an extent")).collect();
        let count = usize::try_from(shape.iter().product::<u64>()).expect("few");
        assert_eq!(fnv1a64(name), case["fnv1a64"].as_u64().expect("a hash"), "{name}");
        let tensor = Tensor { name: name.to_owned(), shape, element: Element::F64, offset_bytes: 0, order: Order::Checkpoint };
        let group = Group { component: Role::Transformer, block: None, bytes: 0, tensors: vec![tensor] };
        let mut found = vec![0; count * 8];
        let weights = Synthetic { seed: case["seed"].as_u64().expect("a seed"), ..Synthetic::default() };
        weights.read(&group, 0, &mut found).expect("weights are made");
        let found = numbers(&found);
        let first: Vec<f64> = case["first"].as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect();
        assert_eq!(found[..8], first[..], "{name}");
        assert_eq!(found.last().copied(), case["last"].as_f64(), "{name}");
    }
}

fn schedule(name: &str, steps: u32, shift: f64) -> Schedule {
    let (sampler, timesteps) = match name {
        "unipc" => (Sampler::UniPc, Vec::new()),
        "euler" => (Sampler::Euler, Vec::new()),
        _ => (Sampler::Dmd, vec![1000, 757, 522]),
    };
    Schedule { sampler, steps, shift, timesteps }
}

#[test]
fn tables_of_schedules_are_the_published_ones() {
    let golden = Golden::open("samplers.safetensors");
    let mut cases = vec![("dmd".to_owned(), schedule("dmd", 3, 8.0))];
    for name in ["unipc", "euler"] {
        cases.extend([4, 5].map(|steps| (format!("{name}{steps}"), schedule(name, steps, 3.0))));
        cases.extend([3, 5, 8].map(|shift| (format!("{name}50-shift{shift}"), schedule(name, 50, f64::from(shift)))));
    }
    for (name, schedule) in cases {
        let table = Table::new(&schedule);
        let sigmas = golden.get(&format!("{name}.sigmas"));
        assert_eq!(table.sigmas[..sigmas.numbers.len()], sigmas.numbers[..], "{name}");
        assert_eq!(table.timesteps, golden.get(&format!("{name}.timesteps")).numbers, "{name}");
    }
}

#[test]
fn samplers_walk_as_the_published_ones() {
    let golden = Golden::open("samplers.safetensors");
    for (name, schedule) in [
        ("unipc4", schedule("unipc", 4, 3.0)),
        ("unipc5", schedule("unipc", 5, 3.0)),
        ("euler5", schedule("euler", 5, 3.0)),
        ("dmd", schedule("dmd", 3, 8.0)),
    ] {
        let states = golden.get(&format!("{name}.states"));
        // Nothing was written to the sampler's states yet.
        let nothing = vec![0xFF; bytes(states.part(0)).len()];
        let mut kept = vec![bytes(&golden.get("latents").numbers)];
        if schedule.sampler == Sampler::UniPc {
            kept.extend([nothing.clone(), nothing.clone(), nothing]);
        }
        for (at, step) in sampler::steps(&schedule).iter().enumerate() {
            let output = bytes(golden.get("outputs").part(at));
            let noise = matches!(step.update, Update::Renoise { next, .. } if next > 0.0).then(|| bytes(golden.get("noises").part(at)));
            let operands = [&kept[0], &output].into_iter().chain(&kept[1..]).chain(noise.as_ref());
            let operand = |bytes| Operand { bytes, element: Element::F64, rows: 4, columns: 144, pitch: 144 };
            let reads: Vec<_> = operands.map(|bytes| operand(bytes)).collect();
            let writes: Vec<_> = kept.iter().map(|bytes| operand(bytes)).collect();
            let written = compute(&Kernel::Sample, step, &reads, &writes).expect("operands fit");
            assert!(written.iter().all(|written| !written.has_nan), "{name} read what nobody wrote");
            kept = written.into_iter().map(|written| written.bytes).collect();
            near(&format!("{name}, step {at}"), &numbers(&kept[0]), states.part(at), 1e-13);
        }
    }
}

/// What each operation of a stage wrote to buffers of a name, as numbers.
fn trace(
    name: &'static str,
    stage: StageName,
    program: &Program,
    run: impl FnOnce(&mut dyn FnMut(&Progress<'_>)),
) -> Vec<(Option<u16>, Kernel, Vec<f64>)> {
    let mut found = Vec::new();
    run(&mut |progress| {
        if progress.stage == stage {
            for (view, written) in progress.op.writes.iter().zip(progress.written) {
                if program.buffers[view.buffer as usize].name == name {
                    found.push((progress.op.block, progress.op.kernel, numbers(&written.bytes)));
                }
            }
        }
    });
    found
}

#[test]
fn the_text_encoder_is_that_of_transformers() {
    let golden = Golden::open("umt5.safetensors");
    let model = models::dense();
    let program = tiny::lower(&model, &tiny::request(48, 64, 9), &tiny::plain(&model));
    let pipeline = Golden::open("pipeline-dense.safetensors");
    let weights = tiny::weights(["dit", "dit2"], "vae21");
    let inputs = tiny::inputs(&pipeline, "vae21");
    let written = trace("residual", StageName::Encoding, &program, |look| {
        tiny::run(&program, &weights, &inputs, tiny::CAREFUL, look);
    });
    for name in ["prompt", "negative"] {
        let hidden = golden.get(&format!("{name}.hidden"));
        assert_eq!(golden.get(&format!("{name}.ids")).numbers, pipeline.get(&format!("{name}.ids")).numbers);
        let size = hidden.part(0).len();
        let states: Vec<_> = written.iter().filter(|(_, _, numbers)| numbers.len() == size).collect();
        near(&format!("{name}, embedding"), &states[0].2, hidden.part(0), 1e-13);
        for block in [0, 1] {
            let after = states.iter().rfind(|(of, ..)| *of == Some(block)).expect("blocks write");
            near(&format!("{name}, block {block}"), &after.2, hidden.part(usize::from(block) + 1), 1e-13);
        }
        near(&format!("{name}, last"), &states.last().expect("the norm").2, hidden.part(3), 1e-13);
    }
}

/// One pass of a transformer at a given timestep over a given latent and given text. The program is one of a pipeline with a
/// single step, whose text comes from outside.
fn forward(file: &str, component: &str, model: &Model, [height, width, frames]: [u64; 3]) {
    let golden = Golden::open(file);
    let timestep = golden.get("timestep").numbers[0];
    let timesteps = vec![(1..=1000).find(|at| f64::from(*at) == timestep).expect("a whole number")];
    let mut request = tiny::request(height, width, frames);
    request.schedule = Schedule { sampler: Sampler::Dmd, steps: 1, shift: 1.0, timesteps };
    request.guidance = [1.0, 1.0];
    let mut program = fv_program::wan::lower(model, &request, &tiny::plain(model)).expect("it can be lowered");
    let text = program.buffers.iter().position(|buffer| buffer.name == "prompt_embedding").expect("text is handed over");
    for op in program.segments.iter_mut().flat_map(|segment| &mut segment.ops) {
        for view in op.writes.iter().filter(|view| view.buffer as usize == text) {
            // Rows of the prompt's tokens; zeros are written behind them.
            if view.offset_bytes == 0 {
                op.kernel = Kernel::Input { what: Input::Latent, index: 0 };
                op.reads.clear();
            }
        }
    }
    fv_program::arena::pack(&mut program, fv_program::arena::Effort::default());
    let mut inputs = tiny::inputs(&golden, "vae21");
    inputs.numbers.insert((Input::Prompt, 0), vec![1.0; 11]);
    inputs.numbers.insert((Input::Latent, 0), golden.get("text").numbers[..11 * 32].to_vec());
    inputs.numbers.insert((Input::Noise, 0), golden.get("latent").numbers.clone());
    let mut prediction = Vec::new();
    let weights = tiny::weights([component, component], "vae21");
    let written = trace("residual", StageName::Denoising, &program, |look| {
        tiny::run(&program, &weights, &inputs, tiny::CAREFUL, &mut |progress| {
            if matches!(progress.op.kernel, Kernel::Unpatch { .. }) {
                prediction = numbers(&progress.written[0].bytes);
            }
            look(progress);
        });
    });
    let stream = golden.get("stream");
    near(&format!("{component}, patches"), &written[0].2, stream.part(0), 1e-12);
    for block in 0..4 {
        let after = written.iter().rfind(|(of, ..)| *of == Some(block)).expect("blocks write");
        near(&format!("{component}, block {block}"), &after.2, stream.part(usize::from(block) + 1), 1e-12);
    }
    near(&format!("{component}, prediction"), &prediction, &golden.get("output").numbers, 1e-12);
}

#[test]
fn the_dense_transformer_is_that_of_diffusers() {
    forward("dit.safetensors", "dit", &models::dense(), [48, 64, 9]);
}

#[test]
fn the_sparse_transformer_is_that_of_fastvideo() {
    forward("dit-vsa.safetensors", "dit-vsa", &models::sparse(), [96, 160, 17]);
}
