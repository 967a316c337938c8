//! What must hold of decoder programs, whatever is chosen.

mod contents;

use std::collections::BTreeMap;

use fv_spec::program::kernel::Output;
use fv_spec::program::{BufferKind, Element, Formats, Kernel, Program, Sampler, Schedule, Stream, Tier, View};
use proptest::prelude::*;

use super::blocks::{blocks, component, order};
use super::tiles::{Tile, tiles};
use super::{check, latent};
use crate::arena;
use crate::build::Builder;
use crate::check::check_places;
use crate::wan::choice::{Decode, Residency, Tiling};
use crate::wan::geometry::{Request, Vae};

const WAN21: Vae = Vae { latent: 16, width: 96, residual_blocks: 2, output: 3, patch: 1, residual: false };
const WAN22: Vae = Vae { latent: 48, width: 256, residual_blocks: 2, output: 12, patch: 2, residual: true };
const PLAIN: Decode = Decode { tiles: None, frames: 4, pixels: Element::U8 };

fn request(width: u64, height: u64, frames: u64) -> Request {
    let schedule = Schedule { sampler: Sampler::UniPc, steps: 1, shift: 1.0, timesteps: Vec::new() };
    Request { height, width, frames, schedule, guidance: [1.0, 1.0], prompt_tokens: 1, negative_tokens: 1, text_rows: 512 }
}

fn tiled(size: u64, stride: u64) -> Decode {
    Decode { tiles: Some(Tiling { height: size, width: size, stride_height: stride, stride_width: stride }), ..PLAIN }
}

fn program(vae: &Vae, request: &Request, decode: &Decode) -> Program {
    let residency = Residency::resident(blocks(vae).len() as u64);
    placed(vae, request, &residency, decode)
}

fn placed(vae: &Vae, request: &Request, residency: &Residency, decode: &Decode) -> Program {
    let formats = Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 };
    let mut builder = Builder::new("test", formats, request.schedule.clone());
    super::alone(&mut builder, vae, request, residency, decode);
    builder.finish()
}

/// Blocks in all kinds of places, or on the device where there are no slots.
fn mixed(slots: u32, ring: u32) -> Residency {
    let mut residency = Residency { slots, ring, ..Residency::resident(18) };
    for (block, tier) in residency.tiers.iter_mut().enumerate().filter(|_| slots > 0) {
        *tier = [Tier::Pinned, Tier::Disk, Tier::Device][block % 3];
    }
    residency
}

/// The largest sum of bytes that live together in memory of a tier, of kinds that are asked for.
fn peak(program: &Program, tier: Tier, wanted: impl Fn(BufferKind) -> bool) -> u64 {
    let mut changes = BTreeMap::<u32, i64>::new();
    for buffer in program.buffers.iter().filter(|buffer| program.regions[buffer.region as usize].tier == tier && wanted(buffer.kind)) {
        let bytes = i64::try_from(buffer.bytes).unwrap_or(i64::MAX);
        *changes.entry(buffer.first).or_default() += bytes;
        *changes.entry(buffer.last + 1).or_default() -= bytes;
    }
    let mut live = 0;
    let largest = changes.into_values().map(|change| {
        live += change;
        live
    });
    u64::try_from(largest.max().unwrap_or(0)).unwrap_or(0)
}

/// Sizes of a decode that are quick to look at, each with what it is for.
fn cases() -> Vec<(&'static str, Vae, Request, Decode)> {
    let thin = |vae: Vae| Vae { width: 8, latent: 4, ..vae };
    let few = |frames| Decode { frames, ..PLAIN };
    vec![
        ("real, 2.1", WAN21, request(64, 48, 9), PLAIN),
        ("real, 2.2", WAN22, request(64, 48, 9), PLAIN),
        ("one frame", thin(WAN21), request(32, 32, 1), PLAIN),
        ("one frame, 2.2", thin(WAN22), request(32, 32, 1), few(1)),
        ("two pieces", thin(WAN22), request(32, 32, 5), few(2)),
        ("frame by frame", thin(WAN21), request(32, 48, 17), few(1)),
        ("frame by frame, 2.2", thin(WAN22), request(32, 48, 17), few(1)),
        ("pairs", thin(WAN22), request(32, 48, 13), few(2)),
        ("tiles", thin(WAN21), request(80, 56, 9), tiled(32, 24)),
        ("tiles, 2.2", thin(WAN22), request(160, 112, 9), Decode { frames: 1, ..tiled(64, 48) }),
        ("wide overlap", thin(WAN21), request(72, 40, 5), tiled(32, 8)),
        ("no overlap", thin(WAN21), request(72, 40, 5), tiled(32, 32)),
        ("one row of tiles", thin(WAN21), request(80, 16, 5), tiled(32, 24)),
        ("colours as numbers", thin(WAN22), request(80, 64, 5), Decode { pixels: Element::F32, ..tiled(32, 16) }),
    ]
}

#[test]
fn parameters_are_those_of_the_class() {
    let count = |vae: &Vae, wanted: &str| -> u64 {
        let component = component(vae, Element::Bf16);
        let groups = (0..component.blocks.len()).map(|block| component.block_group(block));
        let tensors = groups.chain([component.root_group()]).flat_map(|group| group.tensors);
        tensors.filter(|tensor| tensor.name.starts_with(wanted)).map(|tensor| tensor.shape.iter().product::<u64>()).sum()
    };
    assert_eq!((count(&WAN21, "decoder."), count(&WAN21, "post_quant_conv.")), (73_295_331, 272));
    assert_eq!((count(&WAN22, "decoder."), count(&WAN22, "post_quant_conv.")), (555_049_228, 48 * 48 + 48));
}

/// Every pixel of every frame leaves once, and no buffer of the device holds the video.
#[test]
fn each_pixel_is_written_once_and_put_out() {
    for (name, vae, request, decode) in cases() {
        let program = program(&vae, &request, &decode);
        let row = request.width * 3;
        let mut left = 0;
        let mut written = BTreeMap::<(u32, u64), bool>::new();
        for (_, op) in program.ops() {
            match op.kernel {
                Kernel::Copy if program.buffers[op.writes[0].buffer as usize].name == "video" => {
                    for first in lines(&op.writes[0]) {
                        for element in 0..op.writes[0].columns {
                            let old = written.insert((op.writes[0].buffer, first + element), true);
                            assert_ne!(old, Some(true), "{name}: written twice");
                        }
                    }
                }
                Kernel::Output { what: Output::Video, index } => {
                    assert_eq!(u64::from(index) * request.height * row, left, "{name}: pieces follow each other");
                    left += op.reads[0].len();
                    for first in lines(&op.reads[0]) {
                        for element in 0..op.reads[0].columns {
                            let put = written.insert((op.reads[0].buffer, first + element), false);
                            assert_eq!(put, Some(true), "{name}: a pixel that was not written");
                        }
                    }
                }
                _ => {}
            }
        }
        assert_eq!(left, request.frames * request.height * row, "{name}");
    }
}

/// First elements of a view's rows.
fn lines(view: &View) -> impl Iterator<Item = u64> {
    let first = view.offset_bytes / view.element.bytes();
    (0..view.rows).map(move |row| first + row * view.pitch)
}

#[test]
fn frames_together_change_the_order_alone() {
    for vae in [WAN21, WAN22] {
        let work = |frames| {
            let program = program(&vae, &request(32, 32, 13), &Decode { frames, ..PLAIN });
            let mut work: Vec<String> = program.ops().map(|(_, op)| format!("{:?} {:?}", op.block, op.kernel)).collect();
            work.sort();
            work
        };
        assert!(work(1) == work(4) && work(2) == work(4));
    }
}

/// Live bytes beside weights, in thousandths of a GiB: the reference's, operation by operation (BF16), and ours with 4, 2 and 1
/// frames together.
#[test]
fn peaks_stay_below_those_of_the_reference() {
    const GIB: u64 = 1 << 30;
    let table = [
        (WAN21, 480, 832, 3947, [2489, 2311, 2190]),
        (WAN21, 720, 1280, 9108, [5745, 5333, 5055]),
        (WAN22, 480, 832, 3807, [2289, 2004, 1819]),
        (WAN22, 704, 1280, 8584, [5167, 4522, 4106]),
    ];
    for (vae, height, width, reference, ours) in table {
        let peaks = [4, 2, 1].map(|frames| {
            let program = program(&vae, &request(width, height, 81), &Decode { frames, ..PLAIN });
            peak(&program, Tier::Device, |kind| kind != BufferKind::Weights) * 1000 / GIB
        });
        assert_eq!(peaks, ours, "{width} x {height}, patch {}", vae.patch);
        assert!(peaks[0] < reference);
    }
}

/// A longer video needs more memory on the device for its latent alone.
#[test]
fn memory_does_not_grow_with_frames() {
    for (vae, frames) in [(WAN21, 4), (WAN21, 1), (WAN22, 2)] {
        for decode in [PLAIN, tiled(64, 48)] {
            let bytes = |length| {
                let program = program(&vae, &request(128, 64, length), &Decode { frames, ..decode });
                let latent = program.buffers.iter().find(|buffer| buffer.name == "latent" && buffer.kind == BufferKind::Activation);
                peak(&program, Tier::Device, |_| true) - latent.map_or(0, |latent| latent.bytes)
            };
            assert_eq!(bytes(13), bytes(61));
        }
    }
}

/// Views, operands, lives, data flow and order across streams, and places.
#[test]
fn programs_are_sound() {
    for (at, (name, vae, request, decode)) in cases().into_iter().enumerate() {
        let (slots, ring) = [(0, 0), (1, 1), (3, 2)][at % 3];
        let mut program = placed(&vae, &request, &mixed(slots, ring), &decode);
        arena::pack(&mut program, arena::Effort::default());
        assert_eq!(check_places(&program, &[]), [], "{name}, {slots} slots");
    }
}

/// Blocks that live elsewhere: every operation finds its block's weights in the slot that was filled with them last, and the rest
/// of the program is the same.
#[test]
fn residency_moves_weights_alone() {
    let request = request(32, 48, 13);
    for (vae, together) in [(WAN21, 4), (WAN22, 1), (WAN22, 2)] {
        let vae = Vae { width: 8, latent: 4, ..vae };
        let decode = Decode { frames: together, ..tiled(32, 16) };
        let resident = program(&vae, &request, &decode);
        for (slots, ring) in [(1, 1), (2, 2), (3, 1)] {
            let streamed = placed(&vae, &request, &mixed(slots, ring), &decode);
            assert_eq!(computed(&streamed), computed(&resident));
            weights_are_there(&streamed);
        }
    }
}

/// What is computed on what, weights by block alone.
fn computed(program: &Program) -> Vec<String> {
    let ops = program.ops().filter(|(_, op)| op.stream == Stream::Compute);
    ops.map(|(_, op)| {
        let extents = op.reads.iter().chain(&op.writes).map(|view| (view.rows, view.columns, view.pitch));
        format!("{:?} {:?} {:?}", op.block, op.kernel, extents.collect::<Vec<_>>())
    })
    .collect()
}

fn weights_are_there(program: &Program) {
    let mut held = BTreeMap::new();
    for (_, op) in program.ops() {
        let weights = |view: &&View| program.buffers[view.buffer as usize].kind == BufferKind::Weights;
        match op.stream {
            Stream::CopyIn | Stream::Disk if op.block.is_some() => held.extend(op.writes.iter().map(|view| (view.buffer, op.block))),
            Stream::Compute => {
                let found = op.reads.iter().filter(weights).filter_map(|view| held.get(&view.buffer));
                found.for_each(|block| assert_eq!(*block, op.block, "{op:?}"));
            }
            _ => {}
        }
    }
}

/// The order of blocks that is announced is that of the operations.
#[test]
fn blocks_come_in_the_order_that_is_announced() {
    for (vae, together) in [(WAN21, 4), (WAN21, 2), (WAN22, 1)] {
        let program = program(&vae, &request(32, 32, 9), &Decode { frames: together, ..PLAIN });
        let ops = program.ops().filter(|(_, op)| op.stream == Stream::Compute).filter_map(|(_, op)| Some(usize::from(op.block?)));
        let mut found: Vec<usize> = ops.collect();
        found.dedup();
        let together = usize::try_from(together).unwrap_or(0);
        let announced: Vec<usize> = [true, false, false].into_iter().flat_map(|first| order(&vae, together, first)).collect();
        assert_eq!(found, announced);
    }
}

/// The arena finds room for activations within two hundredths of what lives at once.
#[test]
fn activations_pack_well() {
    let small = [(tiled(32, 16), 4), (PLAIN, 4), (PLAIN, 2), (PLAIN, 1)];
    for vae in [WAN21, WAN22] {
        for (decode, frames) in small {
            let mut program = program(&vae, &request(80, 64, 13), &Decode { frames, ..decode });
            for packed in arena::pack(&mut program, arena::Effort::default()) {
                assert!(packed.within(102), "{frames} frames together: {packed:?}");
            }
        }
    }
}

#[test]
fn the_whole_video_is_never_on_the_device() {
    for decode in [PLAIN, tiled(256, 192)] {
        let program = program(&WAN21, &request(832, 480, 81), &decode);
        let outputs = peak(&program, Tier::Device, |kind| matches!(kind, BufferKind::Output | BufferKind::Staging));
        assert!(outputs < 832 * 480 * 3 * 13, "{outputs}");
    }
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    let why = |request: Request, decode: Decode| {
        let refused = check(&WAN21, &request, &Residency::resident(18), &decode);
        refused.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let good = request(64, 64, 5);
    assert_eq!(why(good.clone(), PLAIN), [""; 0]);
    assert_eq!(why(request(60, 64, 5), PLAIN), ["width: 60 pixels; it has to be a multiple of 8 and not zero"]);
    assert_eq!(why(request(64, 0, 5), PLAIN), ["height: 0 pixels; it has to be a multiple of 8 and not zero"]);
    assert_eq!(why(request(64, 64, 4), PLAIN), ["frames: 4 frames; it has to be one more than a multiple of 4"]);
    let three = Decode { frames: 3, ..PLAIN };
    assert_eq!(why(good.clone(), three), ["decode.frames: 3 frames of a level together; 1, 2 and 4 are allowed"]);
    let odd = Decode { pixels: Element::Int8, ..PLAIN };
    assert_eq!(why(good.clone(), odd), ["decode.pixels: colours leave as bytes or as numbers of 32 or 64 bits"]);
    let both = |what: &str| ["height", "width"].map(|name| format!("decode.tiles.{name}: tiles of {what}"));
    assert_eq!(why(good.clone(), tiled(36, 24)), both("36 pixels every 24; both have to be multiples of 8 and not zero"));
    assert_eq!(why(good.clone(), tiled(32, 40)), both("32 pixels every 40 leave gaps; the distance can be 32 at most"));
    let few = check(&WAN21, &good, &Residency::resident(17), &PLAIN);
    assert_eq!(few.iter().map(|refused| refused.code).collect::<Vec<_>>(), ["residency.blocks"]);
}

#[test]
fn latents_have_the_extents_of_the_request() {
    let grid = latent(&WAN22, &request(1280, 704, 121));
    assert_eq!((grid.frames, grid.height, grid.width), (31, 44, 80));
}

proptest! {
    /// Tiles follow the loops of the reference, in pixels: begin at multiples of the stride, are cut off at the border, blend over
    /// the least of what is there, and keep at most a stride.
    #[test]
    fn tiles_are_those_of_the_reference(height in 1_u64..80, width in 1_u64..80, size in 1_u64..40, stride in 1_u64..40) {
        let stride = stride.min(size);
        let tiling = Tiling { height: size * 8, width: size * 8, stride_height: stride * 8, stride_width: stride * 8 };
        let all = tiles(&WAN21, [height, width], Some(tiling));
        if height <= size && width <= size {
            prop_assert_eq!(all.len(), 1);
            return Ok(());
        }
        let mut covered = vec![0_u8; usize::try_from(height * width).unwrap_or(0)];
        for tile in &all {
            for (side, extent) in [height, width].into_iter().enumerate() {
                prop_assert_eq!(tile.first[side], tile.at[side] as u64 * stride);
                prop_assert_eq!(tile.extent[side], size.min(extent - tile.first[side]));
                prop_assert_eq!(tile.kept[side], stride.min(tile.extent[side]));
                let before = neighbour(&all, tile, side).map(|before| before.extent[side]);
                let blended = before.map_or(0, |before| (size - stride).min(before).min(tile.extent[side]));
                prop_assert_eq!(tile.blended[side], blended);
                prop_assert_eq!(neighbour(&all, tile, side).map_or(0, |before| before.lent[side]), blended);
            }
            for row in 0..tile.kept[0] {
                for column in 0..tile.kept[1] {
                    covered[usize::try_from((tile.first[0] + row) * width + tile.first[1] + column).unwrap_or(usize::MAX)] += 1;
                }
            }
        }
        prop_assert!(covered.iter().all(|times| *times == 1));
    }
}

/// The tile above, or the one on the left.
fn neighbour<'t>(all: &'t [Tile], tile: &Tile, side: usize) -> Option<&'t Tile> {
    let mut at = tile.at;
    at[side] = at[side].checked_sub(1)?;
    all.iter().find(|other| other.at == at)
}
