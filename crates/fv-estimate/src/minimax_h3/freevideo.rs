//! A request through `FreeVideo`: what its planner's published table says of denoising, and nothing else.
//!
//! The runtime decides about memory from what it finds free, so there is no arrangement to follow. Its planner holds measured
//! whole-device bytes beside resident blocks, by group of attention heads, at three lengths, and a block's size; both are taken
//! as data (FlashML-org/FreeVideo, adaptive planner, as read on 2026-11-30). The table was measured on one H200 with FP8 on Linux.
//! The text encoder runs in a process of its own and the decoder streams by what is free: their peaks are not published.

use fv_spec::estimate::{HostBytes, Reason, StageName};
use fv_spec::request::Request;

use super::geometry::Rows;
use crate::family::Lowered;
use crate::program::{Builder, sites};
use crate::settings::Settings;

sites! { "minimax_h3.freevideo.planner":
    WORKING_SET "measured working set of the whole device" Activation;
    BLOCKS "resident blocks" Weights;
    DECODER "decoder's smallest workspace" Activation;
}

/// Rows of video and references that were measured.
const ROWS: [u64; 3] = [41_472, 72_576, 102_816];
/// Heads that one group takes, and hundredths of a GiB at these rows.
const NEEDS: [(u64, [u64; 3]); 3] = [(4, [611, 769, 997]), (8, [611, 803, 1053]), (16, [675, 1005, 1421])];
/// Bytes of a block in its eight-bit cache, and blocks.
const BLOCK: u64 = 432_500_000;
const COUNT: u64 = 50;
/// The decoder's workspace in hundredths of a GiB on the canvas it was measured on, and that canvas.
const DECODER_NEED: u64 = 325;
const CANVAS: u64 = 1344 * 768;

fn hundredths(value: u128) -> u64 {
    u64::try_from((value << 30) / 100).unwrap_or(u64::MAX >> 12)
}

/// The working set for groups of `heads` heads: between the measured rows on straight lines, outside on the nearest, and never
/// less than a narrower group needs.
fn need(heads: u64, rows: u64) -> u64 {
    let rows = i128::from(rows);
    let line = |values: [u64; 3]| {
        let at = usize::from(rows > i128::from(ROWS[1]));
        let [x0, x1, y0, y1] = [ROWS[at], ROWS[at + 1], values[at], values[at + 1]].map(i128::from);
        // In millionths of the table's unit, so that rounding stays far below what was measured.
        let value = y0 * 1_000_000 + (y1 - y0) * 1_000_000 * (rows - x0) / (x1 - x0);
        u128::try_from(value).unwrap_or(0)
    };
    let most = NEEDS.iter().filter(|(group, _)| *group <= heads).map(|(_, values)| line(*values)).max().unwrap_or(0);
    hundredths(most) / 1_000_000
}

/// A whole number of the plan's own settings.
fn setting(settings: &Settings, name: &str) -> Option<u64> {
    settings.reported.iter().find(|setting| setting.key == name)?.value.as_u64()
}

/// Lowers a request.
///
/// # Errors
/// A group of heads that the table does not have.
pub fn lower(settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let rows = Rows::of(request.height.into(), request.width.into(), request.num_frames.into(), 0, request.references.into());
    let heads = setting(settings, "head_chunk").unwrap_or(NEEDS[0].0);
    if !NEEDS.iter().any(|(group, _)| *group == heads) {
        return Err(vec![Reason::new(
            "uncovered-arrangement",
            format!("FreeVideo's table has groups of 4, 8 and 16 heads, not of {heads}"),
        )]);
    }
    let resident = setting(settings, "resident_blocks").unwrap_or(0).min(COUNT);
    let mut p = Builder::new(details);
    p.stage(StageName::Denoising);
    p.phase("denoising");
    let blocks = p.alloc(&BLOCKS, &[("blocks", resident), ("bytes", BLOCK)], 1);
    p.touch(&WORKING_SET, &[("bytes", need(heads, rows.visual()))], 1);
    p.release(blocks);
    p.stage(StageName::Decoding);
    p.phase("decoding");
    let area = u128::from(request.height) * u128::from(request.width);
    let canvas = u128::from(CANVAS);
    p.touch(&DECODER, &[("bytes", hundredths(u128::from(DECODER_NEED) * area.max(canvas) / canvas))], 1);
    let program = p.finish().map_err(|reason| vec![reason])?;
    let extrapolated = if rows.visual() > ROWS[2] || rows.visual() < ROWS[0] { ", extrapolated" } else { "" };
    let uncovered = |code: &'static str, text: &str| Reason::new(code, text);
    Ok(Lowered {
        program,
        host: [StageName::Load, StageName::Encoding, StageName::Denoising, StageName::Decoding].map(|stage| HostBytes {
            pageable_bytes: if stage == StageName::Denoising { (COUNT - resident) * BLOCK } else { 0 },
            ..HostBytes::default()
        }),
        uncovered: vec![
            uncovered("uncovered-encoding", "FreeVideo encodes text in a process of its own, whose peak on the device is not published"),
            uncovered(
                "uncovered-decoding",
                "FreeVideo's decoder keeps as many blocks as fit: beyond its smallest workspace nothing is published",
            ),
        ],
        notes: vec![format!(
            "denoising is FreeVideo's own table at {} rows with groups of {heads} heads and {resident} resident blocks{extrapolated}: \
             whole-device bytes, which hold the process's fixed cost already; head_chunk and resident_blocks set the plan's choice",
            rows.visual()
        )],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_and_what_is_derived_from_it() {
        let gib = |hundredths: u64| hundredths * (1 << 30) / 100;
        for (heads, values) in NEEDS {
            for (rows, value) in ROWS.into_iter().zip(values) {
                assert_eq!(need(heads, rows), gib(value), "{heads} heads, {rows} rows");
            }
        }
        // Figures of the planner at other lengths, as rounded there.
        for (rows, values) in [(18_144, [493, 493, 493]), (107_856, [1035, 1095, 1490]), (215_424, [1846, 1984, 2970])] {
            for ((heads, _), value) in NEEDS.into_iter().zip(values) {
                assert!(need(heads, rows).abs_diff(gib(value)) <= gib(1), "{heads} heads, {rows} rows: {}", need(heads, rows));
            }
        }
    }
}
