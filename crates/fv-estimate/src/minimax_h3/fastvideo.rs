//! A request through FastVideo's MiniMax H3.
//!
//! The code is in no released version. Two states of it are known, and each is a rule; what is neither is `unknown` by name.
//!
//! * [`fastvideo_plain`](super::fastvideo_plain): checkpoints in plain types, with the code of the public repository.
//! * Here: the FP8 checkpoint with streamed blocks and encoder, from published notes on an RTX 4090 (October 2026; the rows are in
//!   `tests/data/fasth3_rtx4090.csv`, what they say in `docs/fasth3-runs.md`). Nothing is fitted to the published peaks.
//!
//! A block of the notes is stored as FP8 matrices, a bf16 gate, and its factored modulation in two bytes: 0.4337 GiB, the difference
//! that they show for each resident block. Two more pass by: the one at work and the next. Tile-first attention scatters its input
//! into tiles of 64 rows before the projections. Query, key, value and gate are as long as the tiles, and so are copies of the first
//! three in the kernel's order, its output, the coarse branch at full length, that times the gate, and their sum. The decoder is the
//! light one with matrices in int8, which the checkpoint carries; with all tiles in one call it takes more than denoising.

use fv_spec::authored::Role;
use fv_spec::compiled::Model;
use fv_spec::estimate::{HostBytes, Reason, StageName};
use fv_spec::request::Request;

use super::audio_vae::{self, Decode};
use super::diffusers_dit::{TILE, tiles};
use super::fastvideo_plain;
use super::geometry::{LATENT, Latent, ROTARY, Rows, TEXT, audio_latents};
use super::model::H3;
use super::video_vae::{Coder, streamed::Int8};
use super::weights::{QWEN, QWEN_FFN};
use crate::family::Lowered;
use crate::modules::FP32;
use crate::modules::parameter::Parameter;
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::{Attention, Placement, Settings};

sites! { "minimax_h3.fastvideo.weights":
    OUTSIDE "transformer weights outside the blocks" Weights;
    BLOCK "resident block" Weights;
    STREAMED "streamed block" Staging;
    LAYER "streamed encoder layer" Staging;
    EXPANDED "expanded encoder matrix" Staging;
    VAE "vae weights" Weights;
    AUDIO_VAE "audio_vae weights" Weights;
}
sites! { "minimax_h3.fastvideo.encoder":
    STATES "encoder states" Activation;
    HIDDEN_FFN "encoder feed-forward hidden" Activation;
}
sites! { "minimax_h3.fastvideo.attention":
    EMBEDDED "embedded rows" Activation;
    ROTARY_TABLE "rotary table" Cache;
    TILED "rows in tiles" Activation;
    PROJECTED "query, key, value and gate in tiles" Activation;
    ORDERED "query, key and value in the kernel's order" Activation;
    NARROW "query and key in int8" Activation;
    SELECTED "mask and places of chosen tiles" Activation;
    FINE "attention output in tiles" Activation;
    COARSE "coarse attention at full length" Activation;
    GATED "gated coarse attention" Activation;
    SUM "attention of both branches" Activation;
}
sites! { "minimax_h3.fastvideo.feed_forward":
    ROWS "hidden rows" Activation;
    CHUNK "feed-forward hidden of a chunk" Activation;
}
sites! { "minimax_h3.fastvideo.decoding":
    LATENTS "latents" Activation;
}

/// Bytes of a value in bf16 or fp16.
const HALF: u64 = 2;

/// Scales the sums of the decoder's int8 products in one kernel.
const FUSED_DEQUANT: &str = "FASTVIDEO_H3_VAE_INT8_FUSED_DEQUANT";

/// Bytes of one parameter of a block as the checkpoint stores it: matrices that quantisation covers in FP8, the rest in halves.
fn stored(parameter: &Parameter) -> u64 {
    parameter.elements * if parameter.rows > 0 { 1 } else { HALF }
}

/// A variable as it was resolved.
pub(super) fn variable<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
    settings.reported.iter().find(|setting| setting.key == name).and_then(|setting| setting.value.as_str())
}

/// Spatial tiles in a call of the decoder.
pub(super) fn tiles_per_call(settings: &Settings) -> u64 {
    variable(settings, "FASTVIDEO_H3_VAE_TILE_BATCH").and_then(|text| text.trim().parse().ok()).unwrap_or(1)
}

/// Whether a switch is on.
fn switch(settings: &Settings, name: &str) -> bool {
    variable(settings, name).is_some_and(|text| matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true"))
}

/// Whether the checkpoint is the notes' own kind.
fn is_fp8(model: &Model) -> bool {
    model.model_id.to_ascii_uppercase().contains("FP8")
}

/// Why this is not the arrangement that the notes describe.
fn missing(model: &Model, h3: &H3, settings: &Settings, request: &Request) -> Vec<Reason> {
    let switch = |name: &str| switch(settings, name);
    let sparse = matches!(settings.attention, Attention::VideoSparse { tile: 64, .. });
    let streamed = settings.component(Role::Transformer).is_some_and(|c| matches!(c.placement, Placement::Streamed { .. }));
    [
        (is_fp8(model) && h3.dit.rank.is_some() && h3.dit.sparse_gate, "a checkpoint in FP8 with gates and factored modulation"),
        (streamed, "layerwise offloading of the transformer"),
        (sparse, "sparse attention with tiles of 64 rows"),
        (switch("FASTVIDEO_H3_VSA_TILE_FIRST"), "FASTVIDEO_H3_VSA_TILE_FIRST=1"),
        (switch("FASTVIDEO_H3_ENCODER_LAYERWISE"), "FASTVIDEO_H3_ENCODER_LAYERWISE=1"),
        (settings.gpu_count == 1, "a single device"),
        (request.references == 0, "text alone"),
        (!settings.compile, "eager execution"),
    ]
    .into_iter()
    .filter(|(there, _)| !there)
    .map(|(_, what)| {
        let text = format!("FastVideo's code for MiniMax H3 is not released, and what its notes describe needs {what}");
        Reason::new("uncovered-arrangement", text)
    })
    .collect()
}

/// Lowers a request.
///
/// # Errors
/// Why it is neither arrangement.
pub fn lower(model: &Model, h3: &H3, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    if !is_fp8(model) {
        return fastvideo_plain::lower(h3, settings, request, details);
    }
    let missing = missing(model, h3, settings, request);
    if !missing.is_empty() {
        return Err(missing);
    }
    let Some(Placement::Streamed { resident, .. }) = settings.component(Role::Transformer).map(|c| c.placement) else {
        return Err(vec![Reason::new("unresolved-component", "no settings were resolved for the transformer")]);
    };
    let (height, width, frames) = (u64::from(request.height), u64::from(request.width), u64::from(request.num_frames));
    let rows = Rows::of(height, width, frames, request.text_tokens.into(), 0);
    let resident = u64::from(resident).min(h3.dit.blocks);
    let block: u64 = h3.dit.block_tensors().iter().map(stored).sum();
    let mut p = Builder::new(details);
    let place = |p: &mut Builder, site: &'static Site, bytes: u64, list: List| {
        let weights = p.alloc(site, &[("bytes", bytes)], 1);
        p.keep(list, weights);
    };

    p.stage(StageName::Load);
    p.phase("weights");
    let weights = p.list();
    // Serialised FP8: blocks come from the file as they are stored.
    for parameter in h3.dit.other_tensors() {
        place(&mut p, &OUTSIDE, parameter.elements * HALF, weights);
    }
    for _ in 0..resident {
        place(&mut p, &BLOCK, block, weights);
    }

    p.stage(StageName::Encoding);
    p.phase("encoder_layers");
    let layer = h3.text.tensors().groups.first().map_or(0, |group| {
        // Two values a byte, a scale byte for sixteen, and norms in halves.
        group.block.iter().map(|t| if t.rows > 0 { t.elements / 2 + t.elements / 16 } else { t.elements * HALF }).sum::<u64>()
    });
    let text = ("tokens", rows.text);
    let passing = p.list();
    for _ in 0..2 {
        place(&mut p, &LAYER, layer, passing);
    }
    let states = p.alloc(&STATES, &[("copies", 4), text, ("width", QWEN)], HALF);
    let hidden = p.alloc(&HIDDEN_FFN, &[("copies", 3), text, ("ffn", QWEN_FFN)], HALF);
    p.touch(&EXPANDED, &[("inputs", QWEN), ("outputs", QWEN_FFN)], HALF);
    for tensor in [hidden, states] {
        p.release(tensor);
    }
    p.release_list(passing);
    let prompt = p.alloc(&STATES, &[text, ("width", TEXT)], HALF);

    p.stage(StageName::Denoising);
    let chunk = variable(settings, "FASTVIDEO_H3_FFN_CHUNK_TOKENS").and_then(|text| text.trim().parse().ok()).filter(|n| *n > 0);
    let (kernel, sparsity) = (variable(settings, "FASTVIDEO_H3_VSA_SM89_KERNEL"), settings.attention);
    let tiles = tiles(height, width, frames, &rows);
    // Builds that know of the decoder's fused scaling have a kernel that needs no copies (commits 7a0d7d33b and 3c0668f6c of the notes).
    let direct = kernel == Some("int8") && switch(settings, FUSED_DEQUANT);
    let forward =
        Forward { h3, rows, tiles, direct, chunk: chunk.unwrap_or(rows.all()).min(rows.all()), int8: kernel == Some("int8"), sparsity };
    for _ in 0..if resident < h3.dit.blocks { 2 } else { 0 } {
        place(&mut p, &STREAMED, block, passing);
    }
    forward.block(&mut p);

    p.stage(StageName::Decoding);
    // The next request's first block stays fetched.
    p.release_list(passing);
    decode(&mut p, h3, settings, Latent::of(1, frames, height, width), frames);
    p.release(prompt);
    p.release_list(weights);

    let program = p.finish().map_err(|reason| vec![reason])?;
    // Blocks that pass by and the encoder are in page-locked arenas of their exact size.
    let encoder = h3.text.layers * layer;
    let host = HostBytes { pinned_bytes: (h3.dit.blocks - resident) * block + encoder, ..HostBytes::default() };
    Ok(Lowered {
        program,
        host: [host; 4],
        uncovered: Vec::new(),
        notes: vec![
            "derived from FastVideo's published RTX 4090 notes and from an earlier state of its code, since the code is not released: \
             storage and streaming from the notes, live tensors of attention from the order of operations they describe, decoding \
             from the decoder's public code with matrices in int8"
                .to_owned(),
        ],
    })
}

/// Both VAEs in turn, each moved in for its stage (`FASTVIDEO_H3_PARK_MODULES`). Nothing else of a VAE's own is published, so its
/// arithmetic is that of the public code, which keeps it in fp32 beside the int8 matrices.
fn decode(p: &mut Builder, h3: &H3, settings: &Settings, latent: Latent, frames: u64) {
    p.phase("weights");
    let kept = p.list();
    let weights = p.alloc(&VAE, &[("bytes", h3.vae.int8_bytes())], 1);
    let z = [("channels", LATENT), ("frames", latent.frames), ("height", latent.height), ("width", latent.width)];
    let latents = p.alloc(&LATENTS, &z, FP32);
    let int8 = Some(Int8 { fused: switch(settings, FUSED_DEQUANT) });
    let coder = Coder { vae: h3.vae, act: FP32, keep_fp32: false, tiling: settings.tiling, slicing: false, int8 };
    coder.decode_to_host(p, latent, tiles_per_call(settings));
    for tensor in [latents, weights] {
        p.release(tensor);
    }
    p.phase("weights");
    let weights = p.alloc(&AUDIO_VAE, &[("parameters", audio_vae::tensors().parameters())], FP32);
    let waveform = Decode { batch: 2, frames: audio_latents(frames), warm: false }.emit(p, kept);
    for tensor in [waveform, weights] {
        p.release(tensor);
    }
    p.release_list(kept);
}

/// One block of the transformer.
struct Forward<'a> {
    h3: &'a H3,
    rows: Rows,
    /// Tiles of text and sound, and of the video.
    tiles: u64,
    /// Rows of the feed-forward layer at a time.
    chunk: u64,
    int8: bool,
    /// Whether the kernel reads query, key and value where they are.
    direct: bool,
    sparsity: Attention,
}

impl Forward<'_> {
    fn block(&self, p: &mut Builder) {
        let dit = &self.h3.dit;
        let (all, hidden) = (("rows", self.rows.all()), ("hidden", dit.hidden));
        let tiled = ("rows in tiles", self.tiles * TILE);
        let inner = ("inner width", dit.inner());
        p.phase("embedding");
        // Kept by the forward pass, whatever block runs: the rows before they were packed, and the rotary tables.
        let embedded = p.alloc(&EMBEDDED, &[all, hidden], HALF);
        let table = p.alloc(&ROTARY_TABLE, &[("tables", 2), all, ("rotated", ROTARY)], HALF);
        let x = p.alloc(&ROWS, &[all, hidden], HALF);

        p.phase("attention");
        let scattered = p.alloc(&TILED, &[tiled, hidden], HALF);
        let projected = [(); 4].map(|()| p.alloc(&PROJECTED, &[tiled, inner], HALF));
        let ordered: Vec<Tensor> = (0..if self.direct { 0 } else { 3 }).map(|_| p.alloc(&ORDERED, &[tiled, inner], HALF)).collect();
        // Each head's choice of tiles for each tile: a byte and a 32-bit place.
        let pairs = [("heads", dit.heads), ("tiles", self.tiles), ("chosen from", self.tiles), ("mask and place", 5)];
        let selected = matches!(self.sparsity, Attention::VideoSparse { .. }).then(|| p.alloc(&SELECTED, &pairs, 1));
        let narrow = self.int8.then(|| [(); 2].map(|()| p.alloc(&NARROW, &[tiled, inner], 1)));
        let fine = p.alloc(&FINE, &[tiled, inner], HALF);
        for tensor in narrow.into_iter().flatten() {
            p.release(tensor);
        }
        let coarse = p.alloc(&COARSE, &[tiled, inner], HALF);
        let gated = p.alloc(&GATED, &[tiled, inner], HALF);
        let sum = p.alloc(&SUM, &[tiled, inner], HALF);
        for tensor in [gated, coarse, fine].into_iter().chain(selected).chain(ordered).chain(projected).chain([scattered]) {
            p.release(tensor);
        }
        let out = p.alloc(&ROWS, &[all, hidden], HALF);
        p.release(sum);
        p.phase("residual");
        let residual = p.alloc(&ROWS, &[("copies", 2), all, hidden], HALF);
        p.release(out);

        p.phase("feed_forward");
        let normed = p.alloc(&ROWS, &[("copies", 2), all, hidden], HALF);
        p.touch(&CHUNK, &[("rows of a chunk", self.chunk), ("gate, up, active and product", 4), ("ffn", dit.ffn)], HALF);
        for tensor in [normed, residual, x, table, embedded] {
            p.release(tensor);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use fv_spec::request::PartialRequest;

    use super::*;
    use crate::program::{Model as Allocator, Sampling};
    use crate::resolve::{Overrides, resolve};

    /// Peak of all stages, of the deployment of the notes with some variables changed.
    fn lowered(height: u32, width: u32, frames: u32, env: &[(&str, &str)]) -> Lowered {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data/models/fasth3-trim.json");
        let text = std::fs::read_to_string(path).expect("the compiled catalog");
        let model: Model = serde_json::from_str(&text).expect("a model");
        let example = model.examples.iter().find(|example| example.id == "rtx4090-12gib-cap").expect("a deployment").clone();
        let request = PartialRequest { height: Some(height), width: Some(width), num_frames: Some(frames), ..PartialRequest::default() };
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (settings, request) = resolve(&model, &example, &request, &Overrides { env, ..Overrides::default() }).expect("settings");
        let h3 = H3::read(&model, &example).expect("a model of the family");
        lower(&model, &h3, &settings, &request, false).expect("the arrangement of the notes")
    }

    fn peak(lowered: &Lowered) -> u64 {
        lowered.program.run(&Allocator::None, Sampling::Ends).phases.iter().map(|phase| phase.live).max().unwrap_or(0)
    }

    const RESIDENT: &str = "FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS";
    const FUSED: &str = FUSED_DEQUANT;

    /// Rows of `tests/data/fasth3_rtx4090.csv`, in hundredths of a GiB: height, width, frames, resident blocks, whether the decoder's
    /// products were scaled in one kernel.
    #[test]
    fn the_published_peaks() {
        for (size, resident, fused, published) in [
            ([480, 832, 243], "0", "0", 868),
            ([480, 832, 243], "6", "0", 1128),
            ([480, 832, 243], "30", "0", 2169),
            ([768, 1344, 243], "12", "0", 2119),
            ([480, 832, 243], "30", "1", 2029),
            ([480, 832, 124], "34", "1", 2201),
        ] {
            let derived = peak(&lowered(size[0], size[1], size[2], &[(RESIDENT, resident), (FUSED, fused)]));
            let published = published * (1 << 30) / 100;
            assert!(derived.abs_diff(published) * 100 <= published * 4, "{size:?}, {resident} blocks: {derived}, published {published}");
        }
        let [none, one] = ["0", "1"].map(|resident| peak(&lowered(480, 832, 243, &[(RESIDENT, resident)])));
        // 0.4337 GiB.
        assert!((one - none).abs_diff(465_734_144) < 1 << 20, "{}", one - none);
    }

    #[test]
    fn all_of_the_notes_arrangement_is_covered() {
        let notes = lowered(480, 832, 243, &[]);
        assert!(notes.uncovered.is_empty(), "{:?}", notes.uncovered);
        // Fewer tiles in a call take less while decoding, and one kernel for the scales less than four.
        let decoding = |env: &[(&str, &str)]| {
            let lowered = lowered(480, 832, 243, env);
            let peaks = lowered.program.run(&Allocator::None, Sampling::Ends).phases;
            let of_decoding = lowered.program.phases().iter().zip(peaks).filter(|(phase, _)| phase.stage == StageName::Decoding);
            of_decoding.map(|(_, peak)| peak.live).max().unwrap_or(0)
        };
        let batch = "FASTVIDEO_H3_VAE_TILE_BATCH";
        let peaks = [decoding(&[(batch, "1")]), decoding(&[(batch, "4")]), decoding(&[(FUSED, "1")]), decoding(&[])];
        assert!(peaks.windows(2).all(|pair| pair[0] < pair[1]), "{peaks:?}");
        // More than there are is all of them.
        assert_eq!(decoding(&[(batch, "12")]), decoding(&[(batch, "28")]));
    }
}
