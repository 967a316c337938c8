//! Tiles of a frame, decoded one after another and blended where they overlap, as `AutoencoderKLWan.tiled_decode` does it.

use crate::wan::choice::Tiling;
use crate::wan::geometry::Vae;

/// A tile, or all of a frame. Extents are those of the latent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Its row and column among tiles.
    pub at: [usize; 2],
    /// Its first row and column.
    pub first: [u64; 2],
    /// Rows and columns that are decoded.
    pub extent: [u64; 2],
    /// Rows and columns of those, from the first on, that are part of the video.
    pub kept: [u64; 2],
    /// Rows that are blended with the end of the tile above, and columns with that of the tile on the left.
    pub blended: [u64; 2],
    /// Rows at its end that the tile below is blended with, and columns that the one on the right is.
    pub lent: [u64; 2],
}

/// Tiles along one side.
struct Span {
    first: u64,
    extent: u64,
    kept: u64,
    blended: u64,
    lent: u64,
}

/// All tiles, row by row; one where the frame is not larger than a tile. The frame is that of the latent, the tiling in pixels.
pub fn tiles(vae: &Vae, frame: [u64; 2], tiling: Option<Tiling>) -> Vec<Tile> {
    let whole = [(frame[0], frame[0]), (frame[1], frame[1])];
    let sides = tiling.map_or(whole, |tiling| {
        let unit = vae.spatial();
        let (height, width) = (tiling.height / unit, tiling.width / unit);
        if frame[0] <= height && frame[1] <= width {
            return whole;
        }
        [(height, tiling.stride_height / unit), (width, tiling.stride_width / unit)]
    });
    let (rows, columns) = (spans(frame[0], sides[0]), spans(frame[1], sides[1]));
    let tile = |(row, y): (usize, &Span), (column, x): (usize, &Span)| Tile {
        at: [row, column],
        first: [y.first, x.first],
        extent: [y.extent, x.extent],
        kept: [y.kept, x.kept],
        blended: [y.blended, x.blended],
        lent: [y.lent, x.lent],
    };
    rows.iter().enumerate().flat_map(|y| columns.iter().enumerate().map(move |x| tile(y, x))).collect()
}

fn spans(frame: u64, (length, stride): (u64, u64)) -> Vec<Span> {
    let starts = (0..frame).step_by(usize::try_from(stride).unwrap_or(usize::MAX));
    let mut spans: Vec<Span> = Vec::new();
    for first in starts {
        let extent = length.min(frame - first);
        let blended = spans.last().map_or(0, |before| (length - stride).min(before.extent).min(extent));
        if let Some(before) = spans.last_mut() {
            before.lent = blended;
        }
        spans.push(Span { first, extent, kept: stride.min(extent), blended, lent: 0 });
    }
    spans
}
