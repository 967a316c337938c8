//! Views within their buffers, buffers within their lives, and memory that streams reach.

use fv_spec::program::{Kernel, Op, OpIndex, Program, Stream, Tier, View};

use super::finding::{Code, Report, shape};

pub(super) fn check(report: &mut Report<'_>) {
    let program = report.program;
    let mut used = vec![false; program.buffers.len()];
    for (at, (_, op)) in (0..).zip(program.ops()) {
        stream(report, at, op);
        for (is_read, view) in op.reads.iter().map(|view| (true, view)).chain(op.writes.iter().map(|view| (false, view))) {
            used[view.buffer as usize] = true;
            bounds(report, at, view);
            tier(report, at, op, view, is_read);
            let buffer = &program.buffers[view.buffer as usize];
            if at < buffer.first || at > buffer.last {
                let life = format!("is used, and lives from operation {} to {}", buffer.first, buffer.last);
                report.at_use(Code::OutsideLife, at, view.buffer, &life);
            }
        }
    }
    for (at, _) in (0..).zip(&used).filter(|(_, used)| !**used) {
        report.at_buffer(Code::Unused, at, "no operation uses it");
    }
}

/// Whether all views lie within their buffers, so that their bytes can be told apart.
pub(super) fn sound(program: &Program) -> bool {
    program
        .ops()
        .flat_map(|(_, op)| op.reads.iter().chain(&op.writes))
        .all(|view| is_matrix(view) && !is_empty(view) && end(view).is_some_and(|end| end <= program.buffers[view.buffer as usize].bytes))
}

fn is_empty(view: &View) -> bool {
    view.rows == 0 || view.columns == 0
}

fn is_matrix(view: &View) -> bool {
    (view.rows <= 1 || view.pitch >= view.columns) && view.offset_bytes.is_multiple_of(view.element.bytes())
}

/// The byte after the last one, where that is a number.
fn end(view: &View) -> Option<u64> {
    let elements = view.rows.checked_sub(1)?.checked_mul(view.pitch)?.checked_add(view.columns)?;
    view.rows.checked_mul(view.columns)?;
    elements.checked_mul(view.element.bytes())?.checked_add(view.offset_bytes)
}

fn bounds(report: &mut Report<'_>, at: OpIndex, view: &View) {
    let bytes = report.program.buffers[view.buffer as usize].bytes;
    if is_empty(view) {
        report.at_use(Code::Empty, at, view.buffer, &format!("a view of {} has no element", shape(view)));
    } else if !is_matrix(view) {
        let found = format!(
            "a view of {} from byte {} has rows {} elements apart; rows may not overlap, and the first byte is a multiple of {}",
            shape(view),
            view.offset_bytes,
            view.pitch,
            view.element.bytes()
        );
        report.at_use(Code::BadView, at, view.buffer, &found);
    } else if end(view).is_none_or(|end| end > bytes) {
        let end = end(view).map_or_else(|| "beyond 2^64".to_owned(), |end| end.to_string());
        let found = format!("a view of {} from byte {} ends at {end}; the buffer has {bytes} bytes", shape(view), view.offset_bytes);
        report.at_use(Code::OutsideBuffer, at, view.buffer, &found);
    }
}

/// What a stream executes.
fn stream(report: &mut Report<'_>, at: OpIndex, op: &Op) {
    let host = matches!(op.kernel, Kernel::Read { .. } | Kernel::Lookup { .. } | Kernel::Input { .. } | Kernel::Output { .. });
    let allowed = match op.stream {
        Stream::Compute => !host,
        Stream::CopyIn | Stream::CopyOut => matches!(op.kernel, Kernel::Copy),
        Stream::Disk => host || matches!(op.kernel, Kernel::Copy | Kernel::Zero),
    };
    if !allowed {
        let does = match op.stream {
            Stream::Compute => "executes kernels on the device, not what the host does",
            Stream::CopyIn | Stream::CopyOut => "copies only",
            Stream::Disk => "reads files, and takes, hands out, copies and clears host memory only",
        };
        report.at_op(Code::WrongStream, at, &format!("{} {does}", op.stream.word()));
    }
}

fn tier(report: &mut Report<'_>, at: OpIndex, op: &Op, view: &View, is_read: bool) {
    let buffer = &report.program.buffers[view.buffer as usize];
    let found = report.program.regions[buffer.region as usize].tier;
    let (device, host) = (found == Tier::Device, matches!(found, Tier::Pinned | Tier::Pageable));
    let (allowed, wanted) = match (op.stream, is_read) {
        (Stream::Compute, _) | (Stream::CopyIn, false) | (Stream::CopyOut, true) => (device, "device"),
        (Stream::CopyIn, true) | (Stream::CopyOut, false) | (Stream::Disk, _) => (host, "host"),
    };
    if !allowed {
        let does = if is_read { "reads" } else { "writes" };
        let message = format!("{} {does} {wanted} memory here, and the buffer is {}", op.stream.word(), found.word());
        report.at_use(Code::WrongTier, at, view.buffer, &message);
    }
}
