//! A request through `FreeVideo`: what its planner's published table says of denoising, and nothing else.
//!
//! The runtime decides about memory from what it finds free, so there is no arrangement to follow. What it would decide is
//! [the planner's](crate::planner::freevideo) matter; here its table stands for a plan whose choices are given.
//! The text encoder runs in a process of its own and the decoder streams by what is free: their peaks are not published.

use fv_spec::estimate::{HostBytes, Reason, StageName};
use fv_spec::request::Request;

use super::geometry::Rows;
use crate::family::Lowered;
use crate::planner::freevideo::activation::{decoder_workspace, need};
use crate::planner::freevideo::{BLOCK, NEEDS, ROWS};
use crate::program::{Builder, sites};
use crate::settings::Settings;

sites! { "minimax_h3.freevideo.planner":
    WORKING_SET "measured working set of the whole device" Activation;
    BLOCKS "resident blocks" Weights;
    DECODER "decoder's smallest workspace" Activation;
}

/// A whole number of the plan's own settings.
fn setting(settings: &Settings, name: &str) -> Option<u64> {
    settings.reported.iter().find(|setting| setting.key == name)?.value.as_u64()
}

/// Lowers a request of a model with so many transformer blocks.
///
/// # Errors
/// A group of heads that the table does not have.
pub fn lower(blocks: u64, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
    let rows = Rows::of(request.height.into(), request.width.into(), request.num_frames.into(), 0, request.references.into()).visual();
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
    let asked = setting(settings, "head_chunk");
    let Some((heads, _)) = NEEDS.into_iter().find(|(group, _)| asked.is_none_or(|asked| asked == u64::from(*group))) else {
        let found = asked.unwrap_or(0);
        let message = format!("FreeVideo's table has groups of 4, 8 and 16 heads, not of {found}");
        return Err(vec![Reason::new("uncovered-arrangement", message)]);
    };
    let resident = setting(settings, "resident_blocks").unwrap_or(0).min(blocks);
    let mut p = Builder::new(details);
    p.stage(StageName::Denoising);
    p.phase("denoising");
    let weights = p.alloc(&BLOCKS, &[("blocks", resident), ("bytes", bytes(BLOCK))], 1);
    p.touch(&WORKING_SET, &[("bytes", bytes(need(heads, signed(rows))))], 1);
    p.release(weights);
    p.stage(StageName::Decoding);
    p.phase("decoding");
    let area = i64::from(request.height) * i64::from(request.width);
    p.touch(&DECODER, &[("bytes", bytes(decoder_workspace(area)))], 1);
    let program = p.finish().map_err(|reason| vec![reason])?;
    let extrapolated = if (ROWS[0]..=ROWS[2]).contains(&signed(rows)) { "" } else { ", extrapolated" };
    let uncovered = |code: &'static str, text: &str| Reason::new(code, text);
    Ok(Lowered {
        program,
        host: [StageName::Load, StageName::Encoding, StageName::Denoising, StageName::Decoding].map(|stage| HostBytes {
            pageable_bytes: if stage == StageName::Denoising { (blocks - resident) * bytes(BLOCK) } else { 0 },
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
            "denoising is FreeVideo's own table at {rows} rows with groups of {heads} heads and {resident} resident blocks{extrapolated}: \
             whole-device bytes, which hold the process's fixed cost already; head_chunk and resident_blocks set the plan's choice"
        )],
    })
}
