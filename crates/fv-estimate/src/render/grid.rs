//! A grid of plans as text and as a file.

use std::fmt::Write;

use fv_spec::plan::PolicyName;

use super::plan::unforecast;
use super::text::{Line, Text, Tone};
use super::words::{decimal, plural};
use super::{Names, bounded};
use crate::grid::{Cell, Grid, Way};

/// The columns of a grid's file.
pub(super) const COLUMNS: &str = "vram_gib,ram_gib,seconds_per_step,resident_blocks,disk_streaming";

/// What is written behind them of plans for our own runtime.
const WAY_COLUMNS: &str =
    "pinned_blocks,disk_blocks,slots,head_group,projection_chunk,feed_forward_chunk,outputs_on_host,residual_on_host,vae_tiled";
const WAYS: usize = 9;

/// Seconds with three significant digits, as measured grids are published.
pub(super) fn seconds(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let parts = |of_one: u64| {
        let unit = SECOND / of_one;
        ns / unit + u64::from(ns % unit >= unit / 2)
    };
    match (parts(1000), parts(100), parts(10)) {
        (milli, ..) if milli < 1_000 => decimal(milli, 1000, ""),
        (_, hundredths, _) if hundredths < 1_000 => decimal(hundredths, 100, ""),
        (.., tenths) if tenths < 1_000 => decimal(tenths, 10, ""),
        _ => parts(1).to_string(),
    }
}

/// Blocks on the device, with a dot where others are read from disk; a cross where nothing fits.
pub(super) fn blocks(cell: &Cell) -> String {
    match cell {
        Cell::Planned { resident_blocks, disk_streaming, .. } => format!("{resident_blocks}{}", if *disk_streaming { "·" } else { " " }),
        Cell::Refused => "x ".to_owned(),
        Cell::Unknown => "? ".to_owned(),
    }
}

fn step(cell: &Cell) -> String {
    match cell {
        Cell::Planned { step_ns: Some(ns), .. } => seconds(*ns),
        Cell::Planned { step_ns: None, .. } => "-".to_owned(),
        Cell::Refused => "x".to_owned(),
        Cell::Unknown => "?".to_owned(),
    }
}

/// What a grid comes to: cells, those that stream, those that are refused, and the range of seconds.
pub(super) fn summary(grid: &Grid) -> String {
    let planned = grid.cells.iter().filter(|cell| matches!(cell, Cell::Planned { .. })).count();
    let streamed = grid.cells.iter().filter(|cell| matches!(cell, Cell::Planned { disk_streaming: true, .. })).count();
    let times = || grid.cells.iter().filter_map(|cell| if let Cell::Planned { step_ns, .. } = cell { *step_ns } else { None });
    let unknown = grid.cells.iter().filter(|cell| **cell == Cell::Unknown).count();
    let unknown = if unknown > 0 { format!(", {unknown} are not known") } else { String::new() };
    let range = times().min().zip(times().max());
    let range = range.map_or(String::new(), |(least, most)| format!(", {} to {} s a step", seconds(least), seconds(most)));
    format!(
        "{planned} of {} fit, {streamed} read blocks from disk at every step{unknown}{range}",
        plural(grid.cells.len() as u64, "combination")
    )
}

/// Two tables, rows of host memory and columns of device memory: blocks on the device, and seconds of a step. Tables wider
/// than `width` continue below. `about` says what was planned.
pub fn grid(grid: &Grid, names: &Names<'_>, about: &str, width: usize) -> Text {
    let width = bounded(width);
    let mut text = Text::default();
    text.line(Line::new().add(Tone::Strong, names.model).plain(&format!(": {}", summary(grid))));
    text.wrapped(Line::new(), Line::new().quiet(about), width);
    let mark = if grid.unknown.is_empty() { "" } else { ", ? is not known" };
    let title = format!("blocks on the device  · others are read from disk at every step, x does not fit{mark}");
    table(&mut text, grid, &title, true, width, &|cell| (tone(cell), blocks(cell)));
    if grid.cells.iter().any(|cell| matches!(cell, Cell::Planned { step_ns: Some(_), .. })) {
        table(&mut text, grid, &format!("seconds a step  x does not fit{mark}"), false, width, &|cell| (tone(cell), step(cell)));
    } else {
        text.blank();
        let why = unforecast(&grid.unforecast).unwrap_or_else(|| "there is no forecast for this engine on this device".to_owned());
        text.wrapped(Line::new().add(Tone::Strong, "seconds a step").quiet("  "), Line::new().quiet(&format!("none: {why}")), width);
    }
    if !grid.unknown.is_empty() {
        text.blank();
        text.wrapped(Line::new().add(Tone::Strong, "not known").quiet("  "), Line::new().quiet(&grid.why_unknown()), width);
    }
    text
}

fn tone(cell: &Cell) -> Tone {
    match cell {
        Cell::Planned { disk_streaming: true, .. } => Tone::Unsure,
        Cell::Planned { .. } => Tone::Plain,
        Cell::Refused => Tone::Bad,
        Cell::Unknown => Tone::Quiet,
    }
}

fn table(text: &mut Text, grid: &Grid, title: &str, ends_with_mark: bool, width: usize, shown: &dyn Fn(&Cell) -> (Tone, String)) {
    let (name, rest) = title.split_once("  ").unwrap_or((title, ""));
    let label = grid.axes.ram.iter().map(|ram| ram.to_string().len()).max().unwrap_or(0).max("RAM".len());
    let cells = grid.cells.iter().map(|cell| shown(cell).1.chars().count());
    let longest = cells.chain(grid.axes.vram.iter().map(|vram| vram.to_string().len())).max().unwrap_or(0);
    // Cells that end with a mark or its place need no gap, where that saves a second table below.
    let close = ends_with_mark && label + 1 + longest * grid.axes.vram.len() <= width;
    let cell = longest + usize::from(!close || label + 1 + (longest + 1) * grid.axes.vram.len() <= width);
    let columns = ((width - label - 1) / cell).max(1);
    text.blank();
    text.line(Line::new().add(Tone::Strong, name).quiet(&format!("  {rest}; rows RAM GiB, columns VRAM GiB")));
    for start in (0..grid.axes.vram.len()).step_by(columns) {
        if start > 0 {
            text.blank();
        }
        let end = (start + columns).min(grid.axes.vram.len());
        let place = |column: usize| label + (column - start + 1) * cell;
        let header = Line::new().right(Tone::Quiet, "RAM", label);
        text.line((start..end).fold(header, |line, column| line.right(Tone::Quiet, &grid.axes.vram[column].to_string(), place(column))));
        for (ram, row) in grid.rows() {
            let line = Line::new().right(Tone::Quiet, &ram.to_string(), label);
            text.line((start..end).fold(line, |line, column| {
                let (tone, words) = shown(&row[column]);
                line.right(tone, &words, place(column))
            }));
        }
    }
}

/// A grid as CSV: the columns of published grids, and behind them, for our own runtime, how it is computed. What is not known, and what
/// does not fit, is an empty field.
pub fn grid_csv(grid: &Grid) -> String {
    let own = grid.policy == PolicyName::Optimal;
    let more = if own { format!(",{WAY_COLUMNS}") } else { String::new() };
    let mut text = format!("{COLUMNS}{more}\n");
    for (ram, row) in grid.rows() {
        for (vram, cell) in grid.axes.vram.iter().zip(row) {
            let (seconds, blocks, disk, way) = match cell {
                Cell::Planned { resident_blocks, disk_streaming, step_ns, way } => {
                    (step_ns.map(seconds).unwrap_or_default(), resident_blocks.to_string(), u8::from(*disk_streaming).to_string(), *way)
                }
                Cell::Refused | Cell::Unknown => Default::default(),
            };
            let way = if own { format!(",{}", way_fields(way).join(",")) } else { String::new() };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{vram},{ram},{seconds},{blocks},{disk}{way}");
        }
    }
    text
}

fn way_fields(way: Option<Way>) -> [String; WAYS] {
    way.map_or_else(Default::default, |way| {
        let [outputs, residual, tiled] = [way.outputs_on_host, way.residual_on_host, way.tiled].map(u64::from);
        let [slots, heads, projection, feed_forward] =
            [way.slots, way.head_group, way.projection_chunk, way.feed_forward_chunk].map(u64::from);
        [way.pinned_blocks, way.disk_blocks, slots, heads, projection, feed_forward, outputs, residual, tiled]
            .map(|field| field.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_three_digits() {
        const MS: u64 = 1_000_000;
        for (ns, text) in [
            (0, "0.000"),
            (999 * MS, "0.999"),
            (9_234 * MS, "9.23"),
            (9_996 * MS, "10.0"),
            (12_749 * MS, "12.7"),
            (99_960 * MS, "100"),
            (603_000 * MS, "603"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }
}
