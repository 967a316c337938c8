//! From the decoder's features to colours in host memory, some frames at a time, so that the video is never on the device. Where
//! there are tiles, what neighbours are blended with waits in host memory, and so does the video until its last tile is there.

use fv_spec::program::kernel::{Grid, Output};
use fv_spec::program::{BufferId, BufferKind, Element, EventId, Kernel, Stream, View};

use super::strips::Strips;
use super::tiles::Tile;
use crate::build::Builder;
use crate::wan::geometry::Vae;

/// Frames of the video that one latent frame becomes at most.
pub(super) const PIECE: u64 = 4;
/// Colours of a pixel.
const COLOURS: u64 = 3;

/// Where colours are collected.
#[derive(Debug)]
pub(super) struct Screen {
    /// Of features.
    element: Element,
    /// Features of a pixel, all of its patch.
    features: u64,
    /// Pixels of a patch's side.
    patch: u64,
    /// Patches to one position of the latent.
    scale: u64,
    video: Video,
    /// What comes from the last convolution, and what of it is seen.
    buffers: [BufferId; 2],
    strips: Strips,
    tile: Tile,
    /// Frames before the piece, and of it so far.
    frames: [u64; 2],
    /// Whether a piece has left the device.
    begun: bool,
    /// Colours are there; they are in host memory.
    made: EventId,
    taken: EventId,
}

/// The video in host memory: all of it if there are tiles, else a piece.
#[derive(Debug)]
struct Video {
    buffer: BufferId,
    element: Element,
    /// Frames, rows and columns.
    extent: Grid,
    tiled: bool,
    /// A piece was put out.
    written: EventId,
}

impl Screen {
    /// For a video of these extents; `regions` are those of the device and the host.
    pub(super) fn new(builder: &mut Builder, vae: &Vae, video: Grid, pixels: Element, regions: [u32; 2], tiles: &[Tile]) -> Self {
        let (element, scale) = (builder.formats().compute, vae.spatial() / vae.patch);
        let several = tiles.len() > 1;
        let largest = tiles.iter().map(|tile| tile.extent[0] * tile.extent[1]).max().unwrap_or(0) * scale * scale;
        let frames = PIECE.min(video.frames);
        let bytes = [(vae.output, element), (vae.patch * vae.patch * COLOURS, pixels)]
            .map(|(features, element)| frames * largest * features * element.bytes());
        let buffers =
            [("colours", bytes[0]), ("pixels", bytes[1])].map(|(name, bytes)| builder.buffer(regions[0], name, BufferKind::Output, bytes));
        let extent = Grid { frames: if several { video.frames } else { frames }, ..video };
        let buffer = builder.buffer(regions[1], "video", BufferKind::Output, extent.len() * COLOURS * pixels.bytes());
        let video = Video { buffer, element: pixels, extent, tiled: several, written: builder.event() };
        let strips = Strips::new(builder, regions, vae.output, scale, video.extent.frames);
        let (made, taken) = (builder.event(), builder.event());
        Self {
            element,
            features: vae.output,
            patch: vae.patch,
            scale,
            video,
            buffers,
            strips,
            tile: tiles[0],
            frames: [0, 0],
            begun: false,
            made,
            taken,
        }
    }

    /// Another tile from its first frame on.
    pub(super) fn begin(&mut self, builder: &mut Builder, tile: Tile) {
        self.tile = tile;
        self.frames = [0, 0];
        self.strips.begin(builder, tile);
    }

    /// So many frames are next: what they are blended with is fetched.
    pub(super) fn expect(&mut self, builder: &mut Builder, frames: u64) {
        self.strips.fetch(builder, [self.frames[0], frames], self.taken);
    }

    /// Where the next frame belongs.
    pub(super) fn next_frame(&mut self, builder: &mut Builder) -> View {
        if self.frames[1] == 0 && self.begun {
            builder.wait(self.taken);
        }
        self.frames[1] += 1;
        let pixels = self.grid(1).len();
        self.piece().row_range((self.frames[1] - 1) * pixels, pixels)
    }

    /// The piece is complete: blends it, makes colours of it and puts them out.
    pub(super) fn put_out(&mut self, builder: &mut Builder) {
        let [first, frames] = self.frames;
        let (piece, grid) = (self.piece(), self.grid(frames));
        self.strips.blend(builder, piece, grid);
        let pixels = self.pixels(frames);
        builder.op(Stream::Compute, Kernel::Pixels { input: grid, patch: self.patch }, vec![piece], vec![pixels]);
        builder.record(self.made);
        builder.wait(self.made);
        self.strips.keep(builder, piece, grid, first);
        if self.video.tiled {
            (0..frames).for_each(|frame| self.place(builder, frame));
            builder.record(self.taken);
        } else {
            self.stream_out(builder, pixels);
        }
        self.begun = true;
        self.frames = [first + frames, 0];
    }

    /// The tile is complete.
    pub(super) fn end(&mut self, builder: &mut Builder) {
        self.strips.end(builder);
    }

    /// All tiles are complete.
    pub(super) fn finish(self, builder: &mut Builder) {
        self.buffers.into_iter().for_each(|buffer| builder.free(buffer));
        if self.video.tiled {
            let Video { buffer, element, extent, .. } = self.video;
            builder.wait(self.taken);
            let all = View::matrix(buffer, element, extent.len(), COLOURS);
            builder.op(Stream::Disk, Kernel::Output { what: Output::Video, index: 0 }, vec![all], Vec::new());
        }
        builder.free(self.video.buffer);
    }

    /// The tile's features.
    fn grid(&self, frames: u64) -> Grid {
        Grid { frames, height: self.tile.extent[0] * self.scale, width: self.tile.extent[1] * self.scale }
    }

    fn piece(&self) -> View {
        View::matrix(self.buffers[0], self.element, self.grid(self.frames[1]).len(), self.features)
    }

    fn pixels(&self, frames: u64) -> View {
        View::matrix(self.buffers[1], self.video.element, self.grid(frames).len() * self.patch * self.patch, COLOURS)
    }

    /// A frame's piece of the tile into the video.
    fn place(&self, builder: &mut Builder, frame: u64) {
        let side = self.scale * self.patch;
        let [width, kept_rows, kept_columns] = [self.tile.extent[1], self.tile.kept[0], self.tile.kept[1]].map(|latent| latent * side);
        let [top, left] = self.tile.first.map(|latent| latent * side);
        let Grid { height: rows, width: columns, .. } = self.video.extent;
        let window = |buffer, first_pixel: u64, row: u64| View {
            buffer,
            offset_bytes: first_pixel * COLOURS * self.video.element.bytes(),
            element: self.video.element,
            rows: kept_rows,
            columns: kept_columns * COLOURS,
            pitch: row * COLOURS,
        };
        let source = window(self.buffers[1], frame * self.tile.extent[0] * side * width, width);
        let target = window(self.video.buffer, ((self.frames[0] + frame) * rows + top) * columns + left, columns);
        builder.op(Stream::CopyOut, Kernel::Copy, vec![source], vec![target]);
    }

    /// Whole frames to the outside.
    fn stream_out(&self, builder: &mut Builder, pixels: View) {
        let piece = View { buffer: self.video.buffer, ..pixels };
        if self.begun {
            builder.wait(self.video.written);
        }
        builder.op(Stream::CopyOut, Kernel::Copy, vec![pixels], vec![piece]);
        builder.record(self.taken);
        let index = u32::try_from(self.frames[0]).unwrap_or(u32::MAX);
        builder.wait(self.taken);
        builder.op(Stream::Disk, Kernel::Output { what: Output::Video, index }, vec![piece], Vec::new());
        builder.record(self.video.written);
    }
}
