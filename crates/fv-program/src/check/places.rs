//! Places of buffers: within their regions, apart from what is in use at the same time, regions within budgets.

use fv_spec::program::ALIGNMENT;

use super::finding::{Code, Report};
use crate::{
    arena::{Conflicts, Lives, by_region},
    order::Order,
};

/// What a region may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Index of the region.
    pub region: u32,
    /// At most so many bytes.
    pub bytes: u64,
}

pub(super) fn check(report: &mut Report<'_>, order: &Order, budgets: &[Budget]) {
    for budget in budgets {
        match report.program.regions.get(budget.region as usize) {
            Some(region) if region.bytes > budget.bytes => {
                let (name, tier) = (&region.name, region.tier.word());
                let message = format!("region `{name}` ({tier}) has {} bytes; {} may be used", region.bytes, budget.bytes);
                report.add(Code::OverBudget, message);
            }
            Some(_) => {}
            None => {
                let count = report.program.regions.len();
                report.add(Code::NoSuchEntry, format!("a budget is given for region {}, and there are {count}", budget.region));
            }
        }
    }
    places(report);
    overlaps(report, order);
}

fn places(report: &mut Report<'_>) {
    for (at, buffer) in (0..).zip(&report.program.buffers) {
        let region = &report.program.regions[buffer.region as usize];
        match buffer.offset_bytes {
            None => report.at_buffer(Code::NoPlace, at, "it has no offset"),
            Some(offset) if !offset.is_multiple_of(ALIGNMENT) => {
                report.at_buffer(Code::NoPlace, at, &format!("its offset {offset} is not a multiple of {ALIGNMENT}"));
            }
            Some(offset) if offset.checked_add(buffer.bytes).is_none_or(|end| end > region.bytes) => {
                let (name, bytes) = (&region.name, region.bytes);
                let found = format!("{} bytes from byte {offset} on do not lie in region `{name}` of {bytes} bytes", buffer.bytes);
                report.at_buffer(Code::OutsideRegion, at, &found);
            }
            Some(_) => {}
        }
    }
}

fn overlaps(report: &mut Report<'_>, order: &Order) {
    let program = report.program;
    let lives = Lives::of(program, order);
    for buffers in by_region(program) {
        let conflicts = Conflicts::among(&lives, order, &buffers);
        let range = |at: u32| {
            let buffer = &program.buffers[at as usize];
            buffer.offset_bytes.map(|offset| (offset, offset.saturating_add(buffer.bytes)))
        };
        for (at, buffer) in (0..).zip(&buffers) {
            for other in conflicts.of(at).iter().filter(|other| **other < at).map(|other| buffers[*other as usize]) {
                let (Some(mine), Some(theirs)) = (range(*buffer), range(other)) else { continue };
                if mine.0 < theirs.1 && theirs.0 < mine.1 {
                    let other = report.buffer_name(other);
                    let found = format!(
                        "bytes {} to {} overlap bytes {} to {} of {other}, and uses of both meet",
                        mine.0, mine.1, theirs.0, theirs.1
                    );
                    report.at_buffer(Code::Overlap, *buffer, &found);
                }
            }
        }
    }
}
