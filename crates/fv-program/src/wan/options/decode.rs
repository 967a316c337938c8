//! Ways to decode.

use fv_spec::program::{Element, Formats, Program, Tier};

use super::measure::Measured;
use super::{Decode, Model, Request, Residency, loading_bytes};
use crate::build::Builder;
use crate::optimal::bucket::bucket;
use crate::optimal::instance::Need;
use crate::rates::{Rates, UnknownRate};
use crate::stream::Component;
use crate::wan::choice::Tiling;
use crate::wan::geometry::Vae;
use crate::wan::vae;

/// One way to decode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoding {
    /// How.
    pub decode: Decode,
    /// Where blocks live.
    pub residency: Residency,
    /// What it needs.
    pub need: Need,
    /// No less than it takes.
    pub ns: u64,
    /// Whether its output differs from that of all others without tiles.
    pub tiled: bool,
}

/// Pixels of a tile's side, and from one tile to the next, as published pipelines have them.
const TILE: [u64; 2] = [256, 192];
/// Latent frames that show all that many do: a first one, one that finds little to remember, two of which one finds the other's
/// colours on their way out, and a last one that leaves nothing behind.
const STEADY: u64 = 5;

/// Latent frames that go on together, as far as it is a choice.
const FRAMES: [u64; 3] = [4, 2, 1];
/// Operations for each visit of a block, about.
const OPERATIONS_OF_A_VISIT: u64 = 12;

/// About how many operations decoding so has.
pub(super) fn operations(model: &Model, request: &Request, decode: &Decode) -> u64 {
    let latent = model.latent(request);
    let tiles = vae::tiles::tiles(&model.vae, [latent.height, latent.width], decode.tiles).len() as u64;
    let together = usize::try_from(decode.frames).unwrap_or(1);
    let visits = vae::blocks::order(&model.vae, together, false).len() as u64;
    OPERATIONS_OF_A_VISIT.saturating_mul(visits).saturating_mul(tiles).saturating_mul(latent.frames)
}

/// The same of the way without tiles that has the fewest.
pub(super) fn fewest_operations(model: &Model, request: &Request) -> u64 {
    let of = |frames| operations(model, request, &Decode { tiles: None, frames, pixels: Element::U8 });
    FRAMES.into_iter().map(of).min().unwrap_or(0)
}

/// All ways with tiles or without, the fastest first, and what lies in the memory that parts hand over in.
pub(super) fn ways(
    model: &Model,
    request: &Request,
    formats: Formats,
    rates: &Rates,
    tiled: bool,
) -> Result<(Vec<Decoding>, u64), UnknownRate> {
    let tiling = Tiling { height: TILE[0], width: TILE[0], stride_height: TILE[1], stride_width: TILE[1] };
    let component = vae::blocks::component(&model.vae, formats.compute);
    let mut found = Vec::new();
    let mut handed = 0;
    for frames in FRAMES {
        let decode = Decode { tiles: tiled.then_some(tiling), frames, pixels: Element::U8 };
        let shape = Shape::new(model, request, formats, rates, decode)?;
        handed = handed.max(shape.request_bytes);
        found.extend(placements(&component, &model.vae, &shape, rates)?);
    }
    found.sort_by_key(|way: &Decoding| (bucket(way.ns), way.residency.slots, way.residency.ring, way.need.host_bytes));
    Ok((found, handed))
}

/// What decoding needs beside blocks.
struct Shape {
    decode: Decode,
    device_bytes: u64,
    host_bytes: u64,
    request_bytes: u64,
    computing_ns: u64,
    /// Passes: the first latent frame of each tile, and the others.
    passes: [u64; 2],
}

impl Shape {
    fn new(model: &Model, request: &Request, formats: Formats, rates: &Rates, decode: Decode) -> Result<Self, UnknownRate> {
        let latent = vae::latent(&model.vae, request);
        let frames = latent.frames.min(STEADY);
        let few = |frames: u64| Request { frames: (frames - 1) * model.vae.temporal() + 1, ..request.clone() };
        let measured = Measured::new(program(model, &few(frames), formats, decode), rates)?;
        let of_frames = |frames: u64| model.vae.latent * frames * latent.height * latent.width * formats.exact.bytes();
        let more = of_frames(latent.frames) - of_frames(frames);
        let tiles = vae::tiles::tiles(&model.vae, [latent.height, latent.width], decode.tiles).len() as u64;
        let took = measured.computing_ns(None);
        // Every frame after the second is decoded as that one.
        let each =
            if frames < 2 { 0 } else { took - Measured::new(program(model, &few(frames - 1), formats, decode), rates)?.computing_ns(None) };
        Ok(Self {
            decode,
            device_bytes: measured.peak_of_all("vae", Tier::Device) + more,
            host_bytes: measured.peak_of_all("vae", Tier::Pinned),
            request_bytes: measured.peak_of_all("request", Tier::Pinned) + more,
            computing_ns: took + (latent.frames - frames) * each,
            passes: [tiles, tiles * (latent.frames - 1)],
        })
    }
}

/// A program that decodes with every block on the device.
fn program(model: &Model, request: &Request, formats: Formats, decode: Decode) -> Program {
    let mut builder = Builder::new(&model.id, formats, request.schedule.clone());
    let blocks = vae::blocks::blocks(&model.vae).len() as u64;
    vae::alone(&mut builder, &model.vae, request, &Residency::resident(blocks), &decode);
    builder.finish()
}

/// Every block on the device; then fewer and fewer of them, those first that are small for how often they are needed; the others
/// page-locked, or on disk.
fn placements(component: &Component, model: &Vae, shape: &Shape, rates: &Rates) -> Result<Vec<Decoding>, UnknownRate> {
    let count = component.blocks.len();
    let bytes: Vec<u64> = (0..count).map(|block| component.block_group(block).bytes).collect();
    let together = usize::try_from(shape.decode.frames).unwrap_or(usize::MAX);
    let mut uses = vec![0_u64; count];
    for (first, passes) in [true, false].into_iter().zip(shape.passes) {
        for block in vae::blocks::order(model, together, first) {
            uses[block] += passes;
        }
    }
    let mut order: Vec<usize> = (0..count).collect();
    // The most bytes for each use first: those leave the device first.
    order.sort_by_key(|block| std::cmp::Reverse((bytes[*block] * 1_000 / uses[*block].max(1), *block)));
    let (root, loading) = (component.root_group().bytes, loading_bytes(component));
    let mut found = Vec::new();
    for away in 0..=count {
        let streamed = &order[..away];
        let largest = streamed.iter().map(|block| bytes[*block]).max().unwrap_or(0);
        let moved: u64 = streamed.iter().map(|block| bytes[*block] * uses[*block]).sum();
        let resident: u64 = order[away..].iter().map(|block| bytes[*block]).sum();
        let pinned: u64 = streamed.iter().map(|block| bytes[*block]).sum();
        for (slots, tier) in [(0, Tier::Device), (2, Tier::Pinned), (1, Tier::Pinned), (2, Tier::Disk), (1, Tier::Disk)] {
            if (slots == 0) != (away == 0) || slots > away {
                continue;
            }
            let on_disk = tier == Tier::Disk;
            let host = if on_disk { largest } else { pinned };
            let moving = if away == 0 { 0 } else { rates.copy_in_ns(moved)? + if on_disk { rates.read_ns(moved)? } else { 0 } };
            let mut tiers = vec![Tier::Device; count];
            for block in streamed {
                tiers[*block] = tier;
            }
            let slots_u64 = slots as u64;
            found.push(Decoding {
                decode: shape.decode,
                residency: Residency { tiers, slots: u32::try_from(slots).unwrap_or(0), ring: u32::from(on_disk) },
                need: Need {
                    device_bytes: root + shape.device_bytes + resident + slots_u64 * largest,
                    host_bytes: loading.max(shape.host_bytes + host),
                },
                ns: if slots == 1 { shape.computing_ns + moving } else { shape.computing_ns.max(moving) },
                tiled: shape.decode.tiles.is_some(),
            });
        }
    }
    Ok(found)
}
