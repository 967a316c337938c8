//! A second opinion on order and places that shares no code with the first: every repetition is written out, happens-before is
//! the transitive closure of a graph, and pairs of accesses to the same bytes of a region are compared one by one.

use std::collections::{BTreeMap, BTreeSet};

use fv_spec::program::{Op, Program, View};

/// One operation in one repetition.
struct Node<'a> {
    op: &'a Op,
    index: u32,
    repetition: u32,
}

/// A buffer between one allocation and the next free.
type Owner = (u32, u32);

#[derive(Clone, Copy)]
struct Access {
    node: usize,
    writes: bool,
    owner: Owner,
}

/// The first thing that is wrong, if anything is.
pub(crate) fn verify(program: &Program) -> Result<(), String> {
    let nodes = unroll(program);
    let reach = closure(&nodes, program.events as usize);
    for region in 0..program.regions.len() {
        for (byte, accesses) in cells(program, &nodes, region)? {
            cell(&nodes, &reach, &accesses).map_err(|fault| format!("region {region}, byte {byte}: {fault}"))?;
        }
    }
    Ok(())
}

fn unroll(program: &Program) -> Vec<Node<'_>> {
    let mut nodes = Vec::new();
    let mut first = 0;
    for segment in &program.segments {
        for repetition in 0..segment.repeat {
            nodes.extend((first..).zip(&segment.ops).map(|(index, op)| Node { op, index, repetition }));
        }
        first += u32::try_from(segment.ops.len()).expect("few operations");
    }
    nodes
}

/// `closure[b]` holds every `a` that is over before `b` begins.
fn closure(nodes: &[Node<'_>], events: usize) -> Vec<Vec<bool>> {
    let mut before = vec![vec![false; nodes.len()]; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let queued = (0..at).rev().find(|earlier| nodes[*earlier].op.stream == node.op.stream);
        let mut held: Vec<usize> = queued.into_iter().collect();
        for event in &node.op.waits {
            assert!((*event as usize) < events);
            held.extend((0..at).rev().find(|earlier| nodes[*earlier].op.records == Some(*event)));
        }
        for earlier in held {
            let known = before[earlier].clone();
            for (mine, theirs) in before[at].iter_mut().zip(known) {
                *mine |= theirs;
            }
            before[at][earlier] = true;
        }
    }
    before
}

/// A buffer that begins and ends within a repeated segment is another one in each repetition.
fn owner(program: &Program, buffer: u32, repetition: u32) -> Owner {
    let found = &program.buffers[buffer as usize];
    let mut start = 0;
    for segment in &program.segments {
        let end = start + u32::try_from(segment.ops.len()).expect("few operations");
        if (start..end).contains(&found.first) && (start..end).contains(&found.last) {
            return (buffer, repetition);
        }
        start = end;
    }
    (buffer, 0)
}

/// Rows of a view as bytes of its region.
fn rows(program: &Program, view: &View) -> Result<Vec<(u64, u64)>, String> {
    let buffer = &program.buffers[view.buffer as usize];
    let offset = buffer.offset_bytes.ok_or("no offset")?;
    let bytes = view.element.bytes();
    let mut rows = Vec::new();
    for row in 0..view.rows {
        let start = view.offset_bytes + row * view.pitch * bytes;
        let end = start + view.columns * bytes;
        if end > buffer.bytes {
            return Err(format!("{} is left", buffer.name));
        }
        rows.push((offset + start, offset + end));
    }
    if offset + buffer.bytes > program.regions[buffer.region as usize].bytes {
        return Err(format!("{} leaves its region", buffer.name));
    }
    Ok(rows)
}

/// Accesses to each piece of a region that no access divides.
fn cells(program: &Program, nodes: &[Node<'_>], region: usize) -> Result<BTreeMap<u64, Vec<Access>>, String> {
    let mut spans = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let reads = node.op.reads.iter().map(|view| (view, false));
        for (view, writes) in reads.chain(node.op.writes.iter().map(|view| (view, true))) {
            let buffer = &program.buffers[view.buffer as usize];
            if buffer.region as usize != region {
                continue;
            }
            if node.index < buffer.first || node.index > buffer.last {
                return Err(format!("{} is used outside its life", buffer.name));
            }
            let access = Access { node: at, writes, owner: owner(program, view.buffer, node.repetition) };
            spans.extend(rows(program, view)?.into_iter().map(|span| (span, access)));
        }
    }
    let mut borders: Vec<u64> = spans.iter().flat_map(|((start, end), _)| [*start, *end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut cells: BTreeMap<u64, Vec<Access>> = BTreeMap::new();
    for ((start, end), access) in spans {
        for border in borders.iter().filter(|border| (start..end).contains(border)) {
            cells.entry(*border).or_default().push(access);
        }
    }
    Ok(cells)
}

fn cell(nodes: &[Node<'_>], reach: &[Vec<bool>], accesses: &[Access]) -> Result<(), String> {
    let before = |a: &Access, b: &Access| reach[b.node][a.node];
    let name = |access: &Access| format!("operation {} in repetition {}", nodes[access.node].index, nodes[access.node].repetition);
    for (at, one) in accesses.iter().enumerate() {
        for other in &accesses[..at] {
            let matters = one.writes || other.writes || one.owner != other.owner;
            if matters && one.node != other.node && !before(one, other) && !before(other, one) {
                return Err(format!("{} and {} are not in order", name(one), name(other)));
            }
            if one.node == other.node && one.owner != other.owner {
                return Err(format!("{} uses two buffers at one place", name(one)));
            }
        }
    }
    let owners: BTreeSet<Owner> = accesses.iter().map(|access| access.owner).collect();
    let of = |owner: &Owner| accesses.iter().filter(move |access| access.owner == *owner).collect::<Vec<_>>();
    for one in &owners {
        for other in owners.range(..one) {
            let all = |first: &Owner, second: &Owner| of(first).iter().all(|a| of(second).iter().all(|b| before(a, b)));
            if !all(one, other) && !all(other, one) {
                return Err(format!("buffers {one:?} and {other:?} are used in turns"));
            }
        }
    }
    for read in accesses.iter().filter(|access| !access.writes) {
        let writes = accesses.iter().filter(|access| access.writes && before(access, read));
        let last = writes.reduce(|last, write| if before(last, write) { write } else { last });
        match last {
            None => return Err(format!("{} reads what nothing wrote", name(read))),
            Some(write) if write.owner != read.owner => {
                return Err(format!(
                    "{} reads buffer {:?}, and {} wrote buffer {:?} there",
                    name(read),
                    read.owner,
                    name(write),
                    write.owner
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
