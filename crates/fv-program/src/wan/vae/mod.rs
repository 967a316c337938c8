//! The Wan video decoder, as `AutoencoderKLWan` of diffusers computes it: one latent frame after another, of which the first becomes
//! one frame and each later one four, every causal convolution remembering its last two input frames.
//!
//! * [`blocks`]: what it consists of and its weights.
//! * `cache`: what convolutions remember. `layers`, `ops`: what is computed.
//! * [`tiles`]: parts of a frame that are decoded one after another. `screen`, `strips`: colours, blending, host memory.

pub mod blocks;
mod cache;
mod layers;
mod ops;
mod screen;
mod strips;
#[cfg(test)]
mod tests;
pub mod tiles;

use fv_spec::program::kernel::{Grid, Input};
use fv_spec::program::{BufferKind, Element, EventId, Kernel, StageName, Stream, Tier, View};

use self::layers::{Decoder, Layers};
use self::screen::{PIECE, Screen};
use self::tiles::Tile;
use super::choice::{Decode, Residency, Tiling};
use super::geometry::{Request, Vae};
use crate::build::Builder;
use crate::refused::Refused;
use crate::stream::{self, Regions, Weights};

/// A latent that waits to be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// The host region in which it lies, and in which the video will lie.
    pub region: u32,
    /// Where: a row for each channel.
    pub view: View,
    /// The event after which it is there.
    pub ready: Option<EventId>,
}

/// Extents of the latent of a request.
pub fn latent(vae: &Vae, request: &Request) -> Grid {
    let frames = 1 + request.frames.saturating_sub(1) / vae.temporal();
    Grid { frames, height: request.height / vae.spatial(), width: request.width / vae.spatial() }
}

/// Decodes a latent. Its means and deviations come from outside, its video goes there.
///
/// # Panics
/// When [`check`] refuses something.
pub fn lower(builder: &mut Builder, vae: &Vae, request: &Request, weights: &Residency, decode: &Decode, given: Latent) {
    assert!(check(vae, request, weights, decode).is_empty(), "requests and choices are checked before");
    let grid = latent(vae, request);
    let tiles = tiles::tiles(vae, [grid.height, grid.width], decode.tiles);
    let blocks = blocks::blocks(vae);
    builder.segment(StageName::Decoding, "decode", 1, 0);
    let regions = Regions::new(builder, "vae");
    let element = builder.formats().compute;
    let together = usize::try_from(decode.frames).unwrap_or(usize::MAX);
    let orders = [true, false].map(|first| blocks::order(vae, together, first));
    let passes: Vec<&[usize]> = tiles.iter().flat_map(|_| (0..grid.frames).map(|frame| &*orders[usize::from(frame > 0)])).collect();
    let mut weights = Weights::load(builder, &blocks::component(vae, element), weights, regions);
    weights.prepare(builder, &orders[0]);
    let source = Source::new(builder, grid, regions.device, given);
    let video = Grid { frames: request.frames, height: request.height, width: request.width };
    let mut screen = Screen::new(builder, vae, video, decode.pixels, [regions.device, given.region], &tiles);
    let mut decoder = Decoder { builder, vae, blocks: &blocks, weights, region: regions.device, element, together };
    let mut next = passes.iter().copied().skip(1);
    for tile in tiles {
        screen.begin(decoder.builder, tile);
        let mut layers = Layers::new(&mut decoder, tile.extent, grid.frames);
        for frame in 0..grid.frames {
            layers.decoder.pass(&orders[usize::from(frame > 0)], next.next().unwrap_or_default());
            screen.expect(layers.decoder.builder, if frame == 0 { 1 } else { PIECE });
            layers.decode(&mut screen, frame == 0, |builder, rows| source.rows(builder, frame, tile, rows));
            screen.put_out(layers.decoder.builder);
        }
        layers.finish();
        screen.end(decoder.builder);
    }
    let Decoder { builder, weights, .. } = decoder;
    screen.finish(builder);
    weights.free(builder);
    source.free(builder);
}

/// A program that decodes a latent from outside.
///
/// # Panics
/// When [`check`] refuses something.
pub fn alone(builder: &mut Builder, vae: &Vae, request: &Request, weights: &Residency, decode: &Decode) {
    let region = builder.region("request", Tier::Pinned);
    let (element, positions) = (builder.formats().exact, latent(vae, request).len());
    builder.segment(StageName::Load, "latent", 1, 0);
    let buffer = builder.buffer(region, "latent", BufferKind::Output, vae.latent * positions * element.bytes());
    let view = View::matrix(buffer, element, vae.latent, positions);
    let ready = builder.event();
    builder.op(Stream::Disk, Kernel::Input { what: Input::Latent, index: 0 }, Vec::new(), vec![view]);
    builder.record(ready);
    lower(builder, vae, request, weights, decode, Latent { region, view, ready: Some(ready) });
    builder.free(buffer);
}

/// What is wrong with a request or with choices for the decoder.
pub fn check(vae: &Vae, request: &Request, weights: &Residency, decode: &Decode) -> Vec<Refused> {
    let mut refused = stream::check(weights, "vae", blocks::blocks(vae).len() as u64);
    for (name, pixels) in [("height", request.height), ("width", request.width)] {
        if pixels == 0 || pixels % vae.spatial() > 0 {
            let message = format!("{pixels} pixels; it has to be a multiple of {} and not zero", vae.spatial());
            refused.push(Refused::new("request.extent", name, message));
        }
    }
    if request.frames % vae.temporal() != 1 {
        let message = format!("{} frames; it has to be one more than a multiple of {}", request.frames, vae.temporal());
        refused.push(Refused::new("request.frames", "frames", message));
    }
    if ![1, 2, PIECE].contains(&decode.frames) {
        let message = format!("{} frames of a level together; 1, 2 and 4 are allowed", decode.frames);
        refused.push(Refused::new("decode.frames", "decode.frames", message));
    }
    if !matches!(decode.pixels, Element::U8 | Element::F32 | Element::F64) {
        let message = "colours leave as bytes or as numbers of 32 or 64 bits".to_owned();
        refused.push(Refused::new("decode.pixels", "decode.pixels", message));
    }
    refused.extend(decode.tiles.into_iter().flat_map(|tiling| check_tiling(vae.spatial(), tiling)));
    refused
}

fn check_tiling(unit: u64, tiling: Tiling) -> Vec<Refused> {
    let mut refused = Vec::new();
    let sides = [("height", tiling.height, tiling.stride_height), ("width", tiling.width, tiling.stride_width)];
    for (name, length, stride) in sides {
        let field = format!("decode.tiles.{name}");
        if length == 0 || stride == 0 || length % unit > 0 || stride % unit > 0 {
            let message = format!("tiles of {length} pixels every {stride}; both have to be multiples of {unit} and not zero");
            refused.push(Refused::new("decode.tiles", field, message));
        } else if stride > length {
            let message = format!("tiles of {length} pixels every {stride} leave gaps; the distance can be {length} at most");
            refused.push(Refused::new("decode.tiles", field, message));
        }
    }
    refused
}

/// The latent on the device, and what its channels are scaled with.
#[derive(Debug)]
struct Source {
    grid: Grid,
    views: [View; 3],
    ready: EventId,
}

impl Source {
    fn new(builder: &mut Builder, grid: Grid, region: u32, given: Latent) -> Self {
        given.ready.into_iter().for_each(|event| builder.wait(event));
        let latent = bring(builder, region, "latent", given.view);
        let [mean, deviation] = [("latent_mean", Input::LatentMean), ("latent_deviation", Input::LatentDeviation)].map(|(name, what)| {
            let (element, channels, read) = (given.view.element, given.view.rows, builder.event());
            let buffer = builder.buffer(given.region, name, BufferKind::Staging, channels * element.bytes());
            let view = View::matrix(buffer, element, 1, channels);
            builder.op(Stream::Disk, Kernel::Input { what, index: 0 }, Vec::new(), vec![view]);
            builder.record(read);
            builder.wait(read);
            let here = bring(builder, region, name, view);
            builder.free(buffer);
            here
        });
        let ready = builder.event();
        builder.record(ready);
        Self { grid, views: [latent, mean, deviation], ready }
    }

    /// Rows of a tile of one frame.
    fn rows(&self, builder: &mut Builder, frame: u64, tile: Tile, rows: View) {
        let window = Grid { frames: 1, height: tile.extent[0], width: tile.extent[1] };
        let first = [frame, tile.first[0], tile.first[1]];
        builder.wait(self.ready);
        builder.op(Stream::Compute, Kernel::LatentRows { latent: self.grid, first, window }, self.views.to_vec(), vec![rows]);
    }

    fn free(self, builder: &mut Builder) {
        self.views.into_iter().for_each(|view| builder.free(view.buffer));
    }
}

/// Copies something to the device.
fn bring(builder: &mut Builder, region: u32, name: &str, source: View) -> View {
    let buffer = builder.buffer(region, name, BufferKind::Activation, source.bytes());
    let target = View::matrix(buffer, source.element, source.rows, source.columns);
    builder.op(Stream::CopyIn, Kernel::Copy, vec![source], vec![target]);
    target
}
