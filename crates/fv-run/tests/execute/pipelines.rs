//! Whole pipelines, from token ids to latents and pixels.

use fv_program::build::Builder;
use fv_program::wan::choice::{Decode, Residency, Tiling};
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::tiny as models;
use fv_program::wan::vae;
use fv_run::execute::inputs::Given;
use fv_run::execute::outputs::{Clip, Files, Kept};
use fv_run::execute::{World, execute};
use fv_spec::program::kernel::{Input, Output};
use fv_spec::program::{Element, Formats, Kernel, Program, Sampler, Schedule};

use crate::files::{Golden, near};
use crate::tiny;

/// Latents after each step, and colours where they are known.
fn pipeline(file: &str, model: &Model, request: &Request, transformers: [&str; 2], vae: &str) {
    let golden = Golden::open(file);
    let program = tiny::lower(model, request, &tiny::plain(model));
    let weights = tiny::weights(transformers, vae);
    let mut states = Vec::new();
    let (kept, _) = tiny::run(&program, &weights, &tiny::inputs(&golden, vae), tiny::CAREFUL, &mut |progress| {
        if progress.op.kernel == Kernel::Sample {
            states.push(progress.written[0].bytes.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word)).collect::<Vec<_>>());
        }
    });
    let expected = golden.get("latents");
    assert_eq!(states.len(), expected.shape[0]);
    for (at, state) in states.iter().enumerate() {
        near(&format!("{file}, step {at}"), state, expected.part(at), 1e-10);
    }
    near(file, &tiny::latent(&kept), expected.part(states.len() - 1), 1e-10);
    if let Some(pixels) = golden.find("pixels") {
        let found = video(&kept);
        let different = found.iter().zip(&pixels.numbers).filter(|(a, b)| a != b).count();
        println!("{file}: {different} of {} bytes of colours differ", pixels.numbers.len());
        assert_eq!((found.len(), different), (pixels.numbers.len(), 0));
    }
}

#[test]
fn dense() {
    pipeline("pipeline-dense.safetensors", &models::dense(), &tiny::request(48, 64, 9), ["dit", "dit2"], "vae21");
}

/// The same as files: raw video has the bytes of the golden file.
#[test]
fn a_clip_is_written() {
    let (golden, model, request) = (Golden::open("pipeline-dense.safetensors"), models::dense(), tiny::request(48, 64, 9));
    let program = tiny::lower(&model, &request, &tiny::plain(&model));
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = Files::create(folder.path(), Clip { height: 48, width: 64, rate: 16 }).expect("files are created");
    let (weights, inputs) = (tiny::weights(["dit", "dit2"], "vae21"), tiny::inputs(&golden, "vae21"));
    let mut world = World { weights: &weights, inputs: &inputs, outputs: &mut files };
    execute(&program, &mut world, tiny::CAREFUL, &mut |_| {}).expect("it runs");
    assert_eq!(files.finish().expect("it is written"), 9);

    let raw = std::fs::read(folder.path().join("video.rgb")).expect("it was written");
    assert_eq!(raw.iter().map(|byte| f64::from(*byte)).collect::<Vec<_>>(), golden.get("pixels").numbers);
    let video = std::fs::read(folder.path().join("video.y4m")).expect("it was written");
    let mut video = y4m::decode(&video[..]).expect("a video");
    let mut frames = 0;
    while let Ok(frame) = video.read_frame() {
        assert_eq!(frame.get_y_plane().len(), 48 * 64);
        frames += 1;
    }
    assert_eq!(frames, 9);
    assert!(folder.path().join("frame-0008.png").is_file());
}

#[test]
fn two_experts() {
    let request = Request { guidance: [4.0, 3.0], ..tiny::request(48, 64, 9) };
    pipeline("pipeline-experts.safetensors", &models::two_experts(), &request, ["dit", "dit2"], "vae21");
}

#[test]
fn sparse_and_distilled() {
    let schedule = Schedule { sampler: Sampler::Dmd, steps: 3, shift: 8.0, timesteps: vec![1000, 757, 522] };
    let request = Request { schedule, guidance: [1.0, 1.0], ..tiny::request(96, 160, 17) };
    pipeline("pipeline-fast.safetensors", &models::sparse(), &request, ["dit-vsa", "dit-vsa"], "vae21");
}

#[test]
fn patched() {
    pipeline("pipeline-ti2v.safetensors", &models::patched(), &tiny::request(64, 96, 5), ["dit-ti2v", "dit-ti2v"], "vae22");
}

/// A program that decodes a latent.
fn decoder(model: &Model, request: &Request, decode: Decode) -> Program {
    let formats = Formats { compute: Element::F64, exact: Element::F64, block_weights: Element::F64 };
    let mut builder = Builder::new(&model.id, formats, request.schedule.clone());
    let blocks = vae::blocks::blocks(&model.vae).len() as u64;
    vae::alone(&mut builder, &model.vae, request, &Residency::resident(blocks), &decode);
    tiny::placed(builder.finish())
}

/// All pixels of a clip, frame by frame, row by row, colours innermost.
fn video(kept: &Kept) -> Vec<f64> {
    kept.values.iter().filter(|((what, _), _)| *what == Output::Video).flat_map(|(_, values)| values.numbers()).collect()
}

/// `[colours, frames, height, width]` as pixels, clamped.
fn pixels(frames: &[f64]) -> Vec<f64> {
    let size = frames.len() / 3;
    (0..size).flat_map(|at| (0..3).map(move |colour| frames[colour * size + at].clamp(-1.0, 1.0))).collect()
}

fn decode(file: &str, latents: &str, vae: &str, model: &Model, request: &Request, tiles: Option<Tiling>) {
    for together in [1, 2, 4] {
        let program = decoder(model, request, Decode { tiles, frames: together, pixels: Element::F64 });
        let mut given = Given::default();
        tiny::statistics(&mut given, vae);
        given.numbers.insert((Input::Latent, 0), Golden::open(latents).get("latents").numbers.clone());
        let (kept, _) = tiny::run(&program, &tiny::weights(["dit", "dit"], vae), &given, tiny::CAREFUL, &mut |_| {});
        near(&format!("{file}, {together} frames together"), &video(&kept), &pixels(&Golden::open(file).get("frames").numbers), 1e-12);
    }
}

#[test]
fn the_decoder_of_wan_2_1() {
    decode("vae21.safetensors", "vae21.safetensors", "vae21", &models::dense(), &tiny::request(48, 64, 9), None);
}

#[test]
fn the_decoder_of_wan_2_1_in_tiles() {
    let tiles = Tiling { height: 32, width: 48, stride_height: 24, stride_width: 40 };
    decode("vae21-tiled.safetensors", "vae21.safetensors", "vae21", &models::dense(), &tiny::request(48, 64, 9), Some(tiles));
}

#[test]
fn the_decoder_of_wan_2_2() {
    decode("vae22.safetensors", "vae22.safetensors", "vae22", &models::patched(), &tiny::request(48, 64, 5), None);
}
