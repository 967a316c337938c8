//! What is left of a tile for its neighbours: its last rows for the tile below, its last columns for the one on the right. They
//! wait in host memory, in frames of the whole video, and come back piece by piece.

use fv_spec::program::kernel::Grid;
use fv_spec::program::{BufferId, BufferKind, Element, EventId, Kernel, Stream, View};

use super::screen::PIECE;
use super::tiles::Tile;
use crate::build::Builder;

/// Strips of neighbours.
#[derive(Debug)]
pub(super) struct Strips {
    element: Element,
    features: u64,
    /// Patches to one position of the latent.
    scale: u64,
    /// Of the video.
    frames: u64,
    /// Of the device and the host.
    regions: [u32; 2],
    tile: Option<Tile>,
    /// In host memory: for each column of tiles the last rows of the one above, and the last columns of the tile on the left.
    above: Vec<Option<Kept>>,
    left: Option<Kept>,
    /// A piece of both on the device, for the current tile.
    here: [Option<BufferId>; 2],
    /// Those are on the device.
    fetched: EventId,
}

/// A strip in host memory, line after line: a frame's rows, or one row of a frame's columns.
#[derive(Debug, Clone, Copy)]
struct Kept {
    buffer: BufferId,
    /// Elements of a line.
    pitch: u64,
}

/// How a strip lies.
#[derive(Debug, Clone, Copy)]
struct Lines {
    /// Of each frame.
    frame: u64,
    /// Elements of a line.
    elements: u64,
}

impl Strips {
    pub(super) fn new(builder: &mut Builder, regions: [u32; 2], features: u64, scale: u64, frames: u64) -> Self {
        let (element, fetched) = (builder.formats().compute, builder.event());
        Self { element, features, scale, frames, regions, tile: None, above: Vec::new(), left: None, here: [None, None], fetched }
    }

    /// Another tile.
    pub(super) fn begin(&mut self, builder: &mut Builder, tile: Tile) {
        self.tile = Some(tile);
        if self.above.len() <= tile.at[1] {
            self.above.resize(tile.at[1] + 1, None);
        }
        for (side, name) in ["above", "left"].into_iter().enumerate() {
            if tile.blended[side] > 0 {
                let bytes = PIECE.min(self.frames) * self.lines(tile, side, tile.blended[side]).bytes(self.element);
                self.here[side] = Some(builder.buffer(self.regions[0], name, BufferKind::Staging, bytes));
            }
            if tile.lent[side] > 0 && self.kept(side).is_none() {
                let lines = self.lines(tile, side, tile.lent[side]);
                let buffer = builder.buffer(self.regions[1], name, BufferKind::Staging, self.frames * lines.bytes(self.element));
                let kept = if side == 0 { &mut self.above[tile.at[1]] } else { &mut self.left };
                *kept = Some(Kept { buffer, pitch: lines.elements });
            }
        }
    }

    /// Brings strips of some frames, from the first of two numbers on, to the device once the piece before them has left.
    pub(super) fn fetch(&mut self, builder: &mut Builder, [first, frames]: [u64; 2], taken: EventId) {
        let Some(tile) = self.tile else { return };
        let views: Vec<(View, View)> = (0..2).filter_map(|side| self.pair(tile, side, [first, frames])).collect();
        let last = views.len();
        for (index, (source, target)) in (1..).zip(views) {
            if index == 1 {
                builder.wait(taken);
            }
            builder.op(Stream::CopyIn, Kernel::Copy, vec![source], vec![target]);
            if index == last {
                builder.record(self.fetched);
            }
        }
    }

    /// Blends a piece with them.
    pub(super) fn blend(&self, builder: &mut Builder, piece: View, grid: Grid) {
        let Some(tile) = self.tile.filter(|tile| tile.blended != [0, 0]) else { return };
        let strips = (0..2).filter_map(|side| {
            let lines = self.lines(tile, side, tile.blended[side]);
            let pixels = grid.frames * lines.frame * lines.elements / self.features;
            Some(View::matrix(self.here[side]?, self.element, pixels, self.features))
        });
        let reads = std::iter::once(piece).chain(strips).collect();
        let [above, left] = tile.blended.map(|latent| latent * self.scale);
        builder.wait(self.fetched);
        builder.op(Stream::Compute, Kernel::Blend { tile: grid, above, left }, reads, vec![piece]);
    }

    /// Keeps those of a piece, whose first frame has this number.
    pub(super) fn keep(&self, builder: &mut Builder, piece: View, grid: Grid, first: u64) {
        let Some(tile) = self.tile else { return };
        for side in (0..2).filter(|side| tile.lent[*side] > 0) {
            let lines = self.lines(tile, side, tile.lent[side]);
            let source = match side {
                0 => View { rows: grid.frames, columns: lines.elements, pitch: grid.height * grid.width * self.features, ..piece },
                _ => View { columns: lines.elements, rows: grid.frames * grid.height, pitch: grid.width * self.features, ..piece },
            };
            let end = if side == 0 { source.pitch } else { grid.width * self.features };
            let source = View { offset_bytes: piece.offset_bytes + (end - lines.elements) * self.element.bytes(), ..source };
            if let Some(target) = self.host(side, lines, [first, grid.frames]) {
                builder.op(Stream::CopyOut, Kernel::Copy, vec![source], vec![target]);
            }
        }
    }

    /// The tile is complete: frees what nobody will read.
    pub(super) fn end(&mut self, builder: &mut Builder) {
        let Some(tile) = self.tile.take() else { return };
        self.here.iter_mut().filter_map(Option::take).for_each(|buffer| builder.free(buffer));
        for side in 0..2 {
            if tile.lent[side] == 0 {
                let kept = if side == 0 { self.above[tile.at[1]].take() } else { self.left.take() };
                if let Some(kept) = kept {
                    builder.free(kept.buffer);
                }
            }
        }
    }

    /// A strip of a tile, so many positions of the latent wide.
    fn lines(&self, tile: Tile, side: usize, latent: u64) -> Lines {
        let [height, width, strip] = [tile.extent[0], tile.extent[1], latent].map(|latent| latent * self.scale);
        let (frame, pixels) = if side == 0 { (1, strip * width) } else { (height, strip) };
        Lines { frame, elements: pixels * self.features }
    }

    fn kept(&self, side: usize) -> Option<Kept> {
        if side == 0 { self.above[self.tile?.at[1]] } else { self.left }
    }

    /// A strip in host memory.
    fn host(&self, side: usize, lines: Lines, [first, frames]: [u64; 2]) -> Option<View> {
        let Kept { buffer, pitch } = self.kept(side)?;
        let all = View { pitch, ..View::matrix(buffer, self.element, self.frames * lines.frame, lines.elements) };
        Some(all.row_range(first * lines.frame, frames * lines.frame))
    }

    /// What the current tile is blended with: in host memory and on the device.
    fn pair(&self, tile: Tile, side: usize, [first, frames]: [u64; 2]) -> Option<(View, View)> {
        let lines = self.lines(tile, side, tile.blended[side]);
        let device = View::matrix(self.here[side]?, self.element, frames * lines.frame, lines.elements);
        Some((self.host(side, lines, [first, frames])?, device))
    }
}

impl Lines {
    /// Of one frame.
    fn bytes(self, element: Element) -> u64 {
        self.frame * self.elements * element.bytes()
    }
}
