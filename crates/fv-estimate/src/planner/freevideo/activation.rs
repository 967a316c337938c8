//! The working set of activations: the measured table, thresholds that grow with rows, and the group of heads.

use fv_spec::plan::ReasonCode;

use super::constants::{
    DECODER, GIB, GROWTH, HOST_WORK, LARGE, NEEDS, REFERENCE_AREA, REFERENCE_ROWS, RESIDUAL, RESIDUAL_ADMITTED, ROWS, VRAM_MINIMUM,
    WINDOWS_WORKSPACE, hundredths, scaled,
};
use super::facts::Facts;

/// What the whole device shows beside resident blocks for groups of 4, 8 and 16 heads: between the measured rows on straight
/// lines, outside on the nearest, and never less than a narrower group needs.
pub fn needs(rows: i64) -> [i64; 3] {
    let line = |values: [i64; 3]| {
        let at = usize::from(rows > ROWS[1]);
        let [x0, x1, y0, y1] = [ROWS[at], ROWS[at + 1], values[at], values[at + 1]].map(i128::from);
        // Hundredths of a GiB times the distance of the rows, so that only the last step rounds.
        let exact = (y0 * (x1 - x0) + (y1 - y0) * (i128::from(rows) - x0)) * i128::from(GIB) / ((x1 - x0) * 100);
        i64::try_from(exact).unwrap_or(i64::MAX / 4).max(0)
    };
    let [four, eight, sixteen] = NEEDS.map(|(_, values)| line(values));
    [four, four.max(eight), four.max(eight).max(sixteen)]
}

/// The place of a group of heads in [`needs`]; of other widths, that of the next narrower.
fn place(group: u32) -> usize {
    NEEDS.iter().rposition(|(heads, _)| *heads <= group).unwrap_or(0)
}

/// The need of one group.
pub fn need(group: u32, rows: i64) -> i64 {
    needs(rows)[place(group)]
}

/// By how much figures of the reference request grow or shrink with rows.
pub(super) fn growth(rows: i64) -> i64 {
    scaled(GROWTH, rows - REFERENCE_ROWS, REFERENCE_ROWS)
}

/// The workspace of the decoder on a canvas of `area` pixels.
pub fn decoder_workspace(area: i64) -> i64 {
    scaled(DECODER, area.max(REFERENCE_AREA), REFERENCE_AREA)
}

/// What is compared with budgets before anything is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// The decoder's workspace.
    pub decoder: i64,
    /// What the way with the residual stream on the host is built with.
    pub residual: i64,
    /// What it is admitted with.
    pub residual_admitted: i64,
    /// The least budget of device memory.
    pub vram_minimum: i64,
}

impl Thresholds {
    /// Of a request.
    pub fn of(facts: &Facts) -> Self {
        let growth = growth(facts.rows);
        let decoder = decoder_workspace(facts.canvas.area());
        let residual = decoder.max(hundredths(RESIDUAL) + growth);
        let residual_admitted = if facts.windows() { residual } else { decoder.max(hundredths(RESIDUAL_ADMITTED) + growth) };
        let vram_minimum = decoder.max(hundredths(VRAM_MINIMUM).min(residual_admitted));
        Self { decoder, residual, residual_admitted, vram_minimum }
    }
}

/// Bytes of the feed-forward layer's wide activation in 16 bits, which the int8 path does not keep.
fn stash(facts: &Facts) -> i64 {
    facts.rows.saturating_mul(facts.shape.feed_forward * 2)
}

/// The workspace on Windows with groups of 8 heads and outputs on the device, and with the second slot if `slot`.
pub(super) fn windows_workspace(facts: &Facts, slot: bool) -> i64 {
    let [constant, growing] = WINDOWS_WORKSPACE;
    // One fraction, so that only the sum is rounded.
    let whole = scaled(1, constant * REFERENCE_ROWS + growing * facts.rows, REFERENCE_ROWS);
    let second = if slot { facts.block } else { 0 };
    let kept = if facts.precision == fv_spec::plan::Precision::Int8 { stash(facts) } else { 0 };
    whole + second - kept
}

/// The same with a group of `group` heads.
pub(super) fn windows_workspace_of(facts: &Facts, slot: bool, group: u32) -> i64 {
    windows_workspace(facts, slot) + (need(group, facts.rows) - need(8, facts.rows)).max(0)
}

/// Bytes of the residual stream on the host.
pub(super) fn residual_host(rows: i64) -> i64 {
    scaled(100, rows.max(REFERENCE_ROWS), REFERENCE_ROWS)
}

/// Host memory that the transformer works with.
pub(super) fn host_work(small_or_host_outputs: bool, residual_on_host: bool, rows: i64) -> i64 {
    let [small, plain] = HOST_WORK;
    let staged = if residual_on_host { residual_host(rows) } else { 0 };
    hundredths(if small_or_host_outputs { small } else { plain }) + staged
}

/// The group of heads with its reason, before little memory has its say.
pub(super) fn heads(facts: &Facts, budget: i64) -> (u32, ReasonCode) {
    if facts.windows() { windows_heads(facts, budget) } else { widest(facts, budget) }
}

fn widest(facts: &Facts, budget: i64) -> (u32, ReasonCode) {
    let needs = needs(facts.rows);
    let fits = NEEDS.iter().zip(needs).rev().find(|(_, need)| *need <= budget);
    fits.map_or((NEEDS[0].0, ReasonCode::NarrowestHeadGroup), |((heads, _), _)| (*heads, ReasonCode::WidestHeadGroup))
}

fn windows_heads(facts: &Facts, budget: i64) -> (u32, ReasonCode) {
    let mut group = if budget < hundredths(LARGE) { 8 } else { 16 };
    while group > 4 && need(group, facts.rows) > budget {
        group /= 2;
    }
    if facts.has_workspace() && !facts.small(budget) {
        while group > 8 && windows_workspace_of(facts, false, group) > budget {
            group /= 2;
        }
    }
    let fits = need(group, facts.rows) <= budget;
    (group, if fits { ReasonCode::WidestHeadGroup } else { ReasonCode::NarrowestHeadGroup })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_what_is_derived_from_it() {
        for (at, (heads, values)) in NEEDS.into_iter().enumerate() {
            for (rows, value) in ROWS.into_iter().zip(values) {
                assert_eq!(needs(rows)[at], hundredths(value), "{heads} heads, {rows} rows");
                assert_eq!(need(heads, rows), needs(rows)[at]);
            }
        }
        // Figures of the planner at other lengths, as rounded there.
        for (rows, values) in [(18_144, [493, 493, 493]), (107_856, [1035, 1095, 1490]), (215_424, [1846, 1984, 2970])] {
            for (found, value) in needs(rows).into_iter().zip(values) {
                assert!(found.abs_diff(hundredths(value)) <= 1 << 23, "{rows} rows: {found}");
            }
        }
    }

    #[test]
    fn a_wider_group_never_needs_less() {
        for rows in (0..400_000).step_by(997) {
            let [four, eight, sixteen] = needs(rows);
            assert!(four <= eight && eight <= sixteen, "{rows}");
        }
    }
}
