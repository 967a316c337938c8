//! Numbers that refer to something, and what must not be empty.

use fv_spec::program::{Kernel, Op, OpIndex, Program, VERSION};

use super::finding::{Code, Report};

pub(super) fn check(report: &mut Report<'_>) {
    let program = report.program;
    if program.version != VERSION {
        report.add(Code::Version, format!("the program has version {}; version {VERSION} is read here", program.version));
        return;
    }
    for segment in &program.segments {
        if segment.repeat == 0 || segment.ops.is_empty() {
            let (name, ops, repeat) = (&segment.name, segment.ops.len(), segment.repeat);
            report.add(Code::Empty, format!("segment `{name}` has {ops} operations and is issued {repeat} times; both are 1 at least"));
        }
    }
    let ops = program.ops().count();
    if program.events as usize > ops {
        report.add(Code::NoSuchEntry, format!("{} events are declared, and {ops} operations record one each at most", program.events));
        return;
    }
    for (at, buffer) in (0..).zip(&program.buffers) {
        if buffer.region as usize >= program.regions.len() {
            report.at_buffer(Code::NoSuchEntry, at, &missing("region", buffer.region.into(), program.regions.len()));
        }
        if buffer.first > buffer.last || buffer.last as usize >= ops {
            let found = format!("lives from operation {} to {}, of {ops} operations", buffer.first, buffer.last);
            report.at_buffer(Code::NoSuchEntry, at, &found);
        }
    }
    for (at, (_, op)) in (0..).zip(program.ops()) {
        operation(report, program, at, op);
    }
    events(report, program);
}

fn missing(what: &str, found: u64, count: usize) -> String {
    format!("{what} {found} is asked for, and there are {count}")
}

fn operation(report: &mut Report<'_>, program: &Program, at: OpIndex, op: &Op) {
    let mut look = |what: &str, found: u64, count: usize| {
        if found >= count as u64 {
            report.at_op(Code::NoSuchEntry, at, &missing(what, found, count));
        }
    };
    look("phase", op.phase.into(), program.phases.len());
    for view in op.reads.iter().chain(&op.writes) {
        look("buffer", view.buffer.into(), program.buffers.len());
    }
    for event in op.waits.iter().chain(&op.records) {
        look("event", (*event).into(), program.events as usize);
    }
    let (Kernel::Read { group, .. } | Kernel::Lookup { group, .. }) = op.kernel else { return };
    look("group", group.into(), program.groups.len());
    if let (Kernel::Lookup { tensor, .. }, Some(group)) = (op.kernel, program.groups.get(group as usize)) {
        look("tensor", tensor.into(), group.tensors.len());
    }
}

/// Waits for events that nobody records. One that is recorded only later is allowed: it holds nothing back at first.
fn events(report: &mut Report<'_>, program: &Program) {
    let mut recorded = vec![false; program.events as usize];
    for event in program.ops().filter_map(|(_, op)| op.records) {
        if let Some(recorded) = recorded.get_mut(event as usize) {
            *recorded = true;
        }
    }
    for (at, (_, op)) in (0..).zip(program.ops()) {
        for event in op.waits.iter().filter(|event| recorded.get(**event as usize) == Some(&false)) {
            report.at_op(Code::NeverRecorded, at, &format!("waits for event {event}, which no operation records"));
        }
    }
}
