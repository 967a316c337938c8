//! How VAEs cut a video into tiles.

use fv_spec::estimate::Reason;

use crate::program::Builder;
use crate::settings::Tiling;

/// The extents of tiles along one axis and how many there are of each: `tile` long, `stride` apart, cut off at the end.
pub(crate) fn spans(extent: u64, tile: u64, stride: u64) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < extent {
        let size = tile.min(extent - at);
        match spans.last_mut() {
            Some((last, many)) if *last == size => *many += 1,
            _ => spans.push((size, 1)),
        }
        at += stride.max(1);
    }
    spans
}

/// Tiles that are placed one by one. Of more, rows that are alike are counted: the allocator's figure for the rest is the average
/// of the first, and what is alive stays exact.
const PLACED: u64 = 1 << 14;
/// Tiles that make an average, since small ones share segments, and rows that they are taken from.
const AVERAGED: u64 = 1 << 12;
const LEAST_ROWS: u16 = 5;
const MOST_ROWS: u16 = 512;
/// Different tiles that are evaluated. Each takes a pass of its own; tiles of one size and stride that divide come in four.
const DIFFERENT: usize = 256;

/// Tiles in rows and columns: extents along each axis, and how many there are of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tiles {
    pub(crate) rows: Vec<(u64, u64)>,
    pub(crate) columns: Vec<(u64, u64)>,
}

impl Tiles {
    /// The tiles of so many rows and columns, a `unit`th of the pixels that sizes are given in.
    pub(crate) fn new([height, width]: [u64; 2], tiling: &Tiling, unit: u64) -> Self {
        let along = |axis: usize, extent: u64| spans(extent, u64::from(tiling.tile[axis]) / unit, u64::from(tiling.stride[axis]) / unit);
        Self { rows: along(0, height), columns: along(1, width) }
    }

    /// Whether so many rows and columns are more than one tile: otherwise nothing is cut.
    pub(crate) fn several([height, width]: [u64; 2], tiling: &Tiling, unit: u64) -> bool {
        height > u64::from(tiling.tile[0]) / unit || width > u64::from(tiling.tile[1]) / unit
    }

    fn count(&self) -> u64 {
        let along = |spans: &[(u64, u64)]| spans.iter().map(|(_, many)| many).sum::<u64>();
        along(&self.rows) * along(&self.columns)
    }

    /// Whether there are too many to place each.
    pub(crate) fn is_counted(&self) -> bool {
        self.count() > PLACED
    }

    /// Runs `body` for so many rows that are alike.
    pub(crate) fn repeat_rows(&self, p: &mut Builder, many: u64, body: impl FnOnce(&mut Builder)) {
        if self.is_counted() {
            let row = self.columns.iter().map(|(_, many)| many).sum::<u64>().max(1);
            let rows = (AVERAGED / row).clamp(LEAST_ROWS.into(), MOST_ROWS.into());
            p.repeat_counted(many, u16::try_from(rows).unwrap_or(MOST_ROWS), body);
        } else {
            p.repeat_sampled(many, 1, 1, body);
        }
    }

    /// These tiles where they are evaluated. Otherwise the program is refused, and one tile stands for all.
    pub(crate) fn admitted(self, p: &mut Builder, in_time: usize) -> Self {
        let Some(reason) = self.refusal(in_time) else { return self };
        p.refuse(reason);
        let first = |spans: &[(u64, u64)]| spans.iter().take(1).map(|(size, _)| (*size, 1)).collect();
        Self { rows: first(&self.rows), columns: first(&self.columns) }
    }

    /// All rows but the last one, and that one.
    pub(crate) fn but_the_last_row(&self) -> [Vec<(u64, u64)>; 2] {
        let mut before = self.rows.clone();
        let last = before.last_mut().map(|(size, many)| {
            *many -= 1;
            (*size, 1)
        });
        [before, last.into_iter().collect()]
    }

    /// What rows and columns come to where only `stride` of each counts, scaled.
    pub(crate) fn joined(spans: &[(u64, u64)], stride: u64, scale: impl Fn(u64) -> u64) -> u64 {
        spans.iter().map(|(size, many)| scale((*size).min(stride)) * many).sum()
    }

    /// Why tiles cut like this, in so many ways along time, are not evaluated.
    pub(crate) fn refusal(&self, in_time: usize) -> Option<Reason> {
        let different = self.rows.len().saturating_mul(self.columns.len()).saturating_mul(in_time.max(1));
        let text = if different > DIFFERENT {
            format!("the tiles overlap so far that {different} of different sizes are left at the edges; at most {DIFFERENT} are evaluated")
        } else if in_time > 1 && self.is_counted() {
            return Some(beyond_placed(self.count()));
        } else {
            return None;
        };
        Some(Reason::new("too-many-tiles", text))
    }
}

fn beyond_placed(tiles: u64) -> Reason {
    Reason::new("too-many-tiles", format!("there are {tiles} tiles to each part of the frames; at most {PLACED} are evaluated"))
}

/// Whether so many tiles are placed one by one where they cannot be counted. If not, the program is refused.
pub(crate) fn placed(p: &mut Builder, tiles: u64) -> bool {
    if tiles > PLACED {
        p.refuse(beyond_placed(tiles));
    }
    tiles <= PLACED
}
