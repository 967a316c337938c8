//! A grid of plans as a picture: SVG without scripts, fonts or anything else from elsewhere.
//!
//! Every cell holds its figure as text and has a title, disk is a dot and refusal a cross, so nothing is said by colour alone.
//! Cells carry dark text on light fills in either colour scheme; the page around them follows the scheme.

use std::fmt::Write;

use super::Names;
use super::grid::{seconds, summary};
use crate::grid::{Cell, Grid, MilliGib};

/// Pixels of a cell, of what stands left of and above a panel, and between panels.
const CELL: [usize; 2] = [34, 20];
const EDGE: usize = 12;
const LEFT: usize = 52;
const TOP: usize = 64;
const PANEL_TOP: usize = 44;
const GAP: usize = 34;
const LEGEND: usize = 46;

/// Pixels of a letter of the small and of the large text, as wide as fonts make them.
const LETTER: [usize; 2] = [7, 9];
const NO_FIT: &str = "does not fit";
/// What the legend takes: a fill, and the words before fills, dot and cross.
const FILL: usize = 18;
const LEGEND_WORDS: [usize; 3] = [80, 140, 210];

/// Fills from little to much, light enough for dark text everywhere.
const FILLS: [&str; 6] = ["#eef4fb", "#d9e8f6", "#bfd9ef", "#a3c9e6", "#86b6dc", "#fbd9a5"];
/// Cells of the last kind are slower than this multiple of the fastest, in hundredths.
const SLOWEST_HUNDREDTHS: u64 = 150;

const STYLE: &str = "text{font:11px system-ui,sans-serif;fill:#14202b}\
.page{fill:#ffffff}.around{fill:#14202b}.big{font-size:15px;font-weight:600}.name{font-size:12px;font-weight:600}.mid{text-anchor:middle}\
.end{text-anchor:end}.cell{stroke:#5c6f80;stroke-width:.5}.none{fill:#f3e3e3}.cross{stroke:#7a1f1f;stroke-width:1}\
@media (prefers-color-scheme:dark){.page{fill:#10161c}.around{fill:#e6edf3}.cell{stroke:#10161c}}";

/// The grid as SVG: blocks on the device, then seconds a step where there is a forecast. `about` says what was planned.
pub fn grid_svg(grid: &Grid, names: &Names<'_>, about: &str) -> String {
    let timed = grid.cells.iter().any(|cell| matches!(cell, Cell::Planned { step_ns: Some(_), .. }));
    let panels = if timed { 2 } else { 1 };
    let title = format!("Plans of {} by device and host memory", names.model);
    let size = Size::of(grid, panels, [about, &title]);
    let (width, height) = (size.width, size.height);
    let title = escaped(&title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"desc\">{}. {}. Rows are host memory, columns device memory, both in GiB. \
         A dot marks blocks that are read from disk at every step, a cross what does not fit.</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n",
        escaped(&summary(grid)),
        escaped(about),
    );
    text(&mut svg, "around big", EDGE, 24, &title);
    text(&mut svg, "around", EDGE, 44, &escaped(about));
    let panel = Panel { grid, size: &size, top: TOP };
    panel.draw(&mut svg, "Blocks on the device", &|cell| match cell {
        Cell::Planned { resident_blocks, .. } => resident_blocks.to_string(),
        Cell::Refused => String::new(),
        Cell::Unknown => "?".to_owned(),
    });
    if timed {
        let panel = Panel { top: TOP + size.panel + GAP, ..panel };
        panel.draw(&mut svg, "Seconds a step", &|cell| match cell {
            Cell::Planned { step_ns, .. } => step_ns.map_or_else(|| "-".to_owned(), seconds),
            Cell::Refused => String::new(),
            Cell::Unknown => "?".to_owned(),
        });
    }
    legend(&mut svg, height - LEGEND + 18, timed);
    svg.push_str("</svg>\n");
    svg
}

struct Size {
    width: usize,
    height: usize,
    panel: usize,
}

impl Size {
    /// Wide enough for the cells, for the texts above them and for the legend below.
    fn of(grid: &Grid, panels: usize, above: [&str; 2]) -> Self {
        let panel = PANEL_TOP + grid.axes.ram.len() * CELL[1];
        let texts = above.iter().zip(LETTER).map(|(text, letter)| 2 * EDGE + text.chars().count() * letter);
        let width = texts.fold(LEFT + grid.axes.vram.len() * CELL[0] + EDGE, usize::max).max(legend_width());
        Self { width, height: TOP + panels * panel + (panels - 1) * GAP + LEGEND, panel }
    }
}

struct Panel<'a> {
    grid: &'a Grid,
    size: &'a Size,
    top: usize,
}

impl Panel<'_> {
    fn draw(&self, svg: &mut String, name: &str, shown: &dyn Fn(&Cell) -> String) {
        let grid = self.grid;
        let fills = Fills::of(grid);
        let below = self.top + PANEL_TOP;
        svg.push_str("<g>\n");
        text(svg, "around name", EDGE, self.top + 14, &format!("{name}; rows RAM, columns VRAM, in GiB"));
        for (column, vram) in grid.axes.vram.iter().enumerate() {
            text(svg, "around mid", LEFT + column * CELL[0] + CELL[0] / 2, below - 6, &vram.to_string());
        }
        for (place, (ram, row)) in grid.rows().enumerate() {
            let top = below + place * CELL[1];
            text(svg, "around end", LEFT - 8, top + 14, &ram.to_string());
            for (column, (vram, cell)) in grid.axes.vram.iter().zip(row).enumerate() {
                one(svg, LEFT + column * CELL[0], top, &said(*vram, ram, cell), fills.fill(cell), cell, &shown(cell));
            }
        }
        svg.push_str("</g>\n");
        debug_assert!(below + grid.axes.ram.len() * CELL[1] <= self.size.height, "a panel lies within the picture");
    }
}

/// A cell in words, for whoever cannot see it.
fn said(vram: MilliGib, ram: MilliGib, cell: &Cell) -> String {
    let place = format!("{vram} GiB VRAM, {ram} GiB RAM");
    match cell {
        Cell::Refused => format!("{place}: does not fit"),
        Cell::Unknown => format!("{place}: not known"),
        Cell::Planned { resident_blocks, disk_streaming, step_ns, .. } => {
            let time = step_ns.map_or(String::new(), |ns| format!(", {} s a step", seconds(ns)));
            let disk = if *disk_streaming { ", reads from disk" } else { "" };
            format!("{place}: {resident_blocks} blocks on the device{time}{disk}")
        }
    }
}

fn one(svg: &mut String, left: usize, top: usize, said: &str, fill: Option<&str>, cell: &Cell, shown: &str) {
    let [width, height] = CELL;
    let class = if fill.is_some() { "cell" } else { "cell none" };
    let fill = fill.map_or(String::new(), |fill| format!(" fill=\"{fill}\""));
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<g><title>{said}</title><rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"{fill}/>"
    );
    match cell {
        Cell::Refused => {
            let (x, y) = (left + width / 2, top + height / 2);
            let _ = write!(svg, "<path class=\"cross\" d=\"M{} {}l8 8m0 -8l-8 8\"/>", x - 4, y - 4);
        }
        Cell::Planned { .. } | Cell::Unknown => {
            let _ = write!(svg, "<text class=\"mid\" x=\"{}\" y=\"{}\">{shown}</text>", left + width / 2, top + 14);
            if matches!(cell, Cell::Planned { disk_streaming: true, .. }) {
                let _ = write!(svg, "<circle cx=\"{}\" cy=\"{}\" r=\"2\" fill=\"#14202b\"/>", left + width - 4, top + 4);
            }
        }
    }
    svg.push_str("</g>\n");
}

/// Which fill a cell has: by time where times are known, otherwise by blocks.
struct Fills {
    fastest: Option<u64>,
    most: u64,
}

impl Fills {
    fn of(grid: &Grid) -> Self {
        let planned = || {
            grid.cells.iter().filter_map(|cell| {
                if let Cell::Planned { resident_blocks, step_ns, .. } = cell { Some((*resident_blocks, *step_ns)) } else { None }
            })
        };
        Self { fastest: planned().filter_map(|(_, ns)| ns).min(), most: planned().map(|(blocks, _)| blocks).max().unwrap_or(0) }
    }

    fn fill(&self, cell: &Cell) -> Option<&'static str> {
        let Cell::Planned { resident_blocks, step_ns, .. } = cell else { return None };
        let last = FILLS.len() as u64 - 1;
        let at = match (self.fastest, step_ns) {
            (Some(fastest), Some(ns)) => {
                let hundredths = u128::from(*ns) * 100 / u128::from(fastest.max(1));
                let above = u64::try_from(hundredths).unwrap_or(u64::MAX).saturating_sub(100);
                (above * last / (SLOWEST_HUNDREDTHS - 100)).min(last)
            }
            _ => (resident_blocks * (last - 1)).checked_div(self.most).unwrap_or(0),
        };
        usize::try_from(at).ok().and_then(|at| FILLS.get(at)).copied()
    }
}

fn legend(svg: &mut String, top: usize, timed: bool) {
    let (light, dark) = if timed { ("fastest", "half as long again") } else { ("few blocks", "many blocks") };
    let shown = if timed { &FILLS[..] } else { &FILLS[..FILLS.len() - 1] };
    let mut left = EDGE;
    text(svg, "around", left, top + 10, light);
    let [before_fills, before_dot, before_cross] = LEGEND_WORDS;
    left += before_fills;
    for fill in shown {
        let _ = writeln!(svg, "<rect class=\"cell\" x=\"{left}\" y=\"{top}\" width=\"{FILL}\" height=\"12\" fill=\"{fill}\"/>");
        left += FILL;
    }
    text(svg, "around", left + 6, top + 10, dark);
    left += before_dot;
    let _ = writeln!(svg, "<circle class=\"around\" cx=\"{left}\" cy=\"{}\" r=\"3\"/>", top + 6);
    text(svg, "around", left + 8, top + 10, "read from disk at every step");
    left += before_cross;
    let _ = writeln!(
        svg,
        "<rect class=\"cell none\" x=\"{left}\" y=\"{top}\" width=\"{FILL}\" height=\"12\"/><path class=\"cross\" d=\"M{} {}l8 8m0 -8l-8 8\"/>",
        left + 5,
        top + 2
    );
    text(svg, "around", left + FILL + 6, top + 10, NO_FIT);
}

/// How far the legend reaches.
fn legend_width() -> usize {
    EDGE + LEGEND_WORDS.iter().sum::<usize>() + FILLS.len() * FILL + FILL + 6 + NO_FIT.len() * LETTER[0] + EDGE
}

/// Text that is escaped already.
fn text(svg: &mut String, class: &str, x: usize, y: usize, words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{words}</text>");
}

/// Text as it may stand in XML. What XML has no character for becomes a mark.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
