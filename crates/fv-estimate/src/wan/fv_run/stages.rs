//! What a plan's program says of each stage: its parts, what lies in its regions when most is alive, and how much the regions take.
//!
//! A stage runs in the regions of one part; of two experts, which take turns, those of the larger one are shown. Weights are brought to
//! the device inside the regions that they stay in, so that loading takes no more than what follows it.

use std::collections::BTreeMap;

use fv_spec::estimate::{Buffer, BufferKind, HostBytes, Interval, PeakBytes, Phase, StageName, Tier};
use fv_spec::plan::{Plan, Role};
use fv_spec::program::{ALIGNMENT, Buffer as Placed, Op, Program, Segment, View};

use crate::family::PlannedStage;

/// The stage that a part runs in.
pub(super) fn stage_of(role: Role) -> StageName {
    match role {
        Role::TextEncoder => StageName::Encoding,
        Role::Vae => StageName::Decoding,
        _ => StageName::Denoising,
    }
}

/// The stages of a plan.
pub(super) fn stages(plan: &Plan, program: &Program) -> Vec<PlannedStage> {
    let uses = uses(program);
    let parts: Vec<Role> = plan.placements.iter().map(|placement| placement.component).collect();
    let of = |name: StageName| {
        let parts = parts.iter().copied().filter(|role| stage_of(*role) == name);
        let larger = parts.rev().max_by_key(|role| bytes(program, *role, Tier::Device))?;
        Some(Stage::new(plan, program, &uses, name, larger).shown())
    };
    let others: Vec<PlannedStage> = [StageName::Encoding, StageName::Denoising, StageName::Decoding].into_iter().filter_map(of).collect();
    std::iter::once(load(program, &others)).chain(others).collect()
}

/// Loading, in the regions of the stages that follow: as large as the larger of those that weights are brought to before their stage.
fn load(program: &Program, others: &[PlannedStage]) -> PlannedStage {
    let phases = loading(program);
    let alive = phases.iter().map(|phase| phase.allocated_bytes).max().unwrap_or(0);
    let before = others.iter().filter(|stage| stage.name != StageName::Decoding);
    let largest = before.max_by_key(|stage| stage.peaks.map(|peaks| peaks.device.value));
    PlannedStage {
        name: StageName::Load,
        phases,
        peaks: largest.and_then(|stage| stage.peaks).map(|peaks| PeakBytes { allocated: Interval::exact(alive), ..peaks }),
        host: largest.map_or_else(HostBytes::default, |stage| stage.host),
        buffers: Vec::new(),
    }
}

/// The region of a part in one memory.
fn region(program: &Program, role: Role, tier: Tier) -> Option<u32> {
    let at = program.regions.iter().position(|region| region.name == role.word() && region.tier == tier)?;
    u32::try_from(at).ok()
}

fn bytes(program: &Program, role: Role, tier: Tier) -> u64 {
    region(program, role, tier).map_or(0, |at| program.regions[at as usize].bytes)
}

/// Bytes of a region that are alive while each operation runs, in the order of issue.
fn alive(program: &Program, region: Option<u32>) -> Vec<u64> {
    let mut changes = vec![(0_u64, 0_u64); program.ops().count() + 1];
    for buffer in program.buffers.iter().filter(|buffer| Some(buffer.region) == region) {
        changes[buffer.first as usize].0 += buffer.bytes;
        changes[buffer.last as usize + 1].1 += buffer.bytes;
    }
    changes.pop();
    let sum = changes.into_iter().scan(0, |alive, (begin, end)| {
        *alive = *alive + begin - end;
        Some(*alive)
    });
    sum.collect()
}

/// Parts of a stage in order: runs of operations of one phase, put together by their names.
fn phases<'a>(program: &Program, ops: impl Iterator<Item = (&'a Segment, &'a Op, u64)>) -> Vec<Phase> {
    let mut found: Vec<Phase> = Vec::new();
    let mut last: Option<(*const Segment, u16, Option<u16>)> = None;
    for (segment, op, alive) in ops {
        let name = &program.phases[usize::from(op.phase)];
        let at = found.iter().position(|phase| phase.name == *name).unwrap_or_else(|| {
            found.push(Phase { name: name.clone(), repeat: 0, allocated_bytes: 0 });
            found.len() - 1
        });
        let run = Some((std::ptr::from_ref(segment), op.phase, op.block));
        if run != last {
            found[at].repeat += u64::from(segment.repeat);
            last = run;
        }
        found[at].allocated_bytes = found[at].allocated_bytes.max(alive);
    }
    found
}

/// Parts of loading: one for each part of the model, with what of it is on the device.
fn loading(program: &Program) -> Vec<Phase> {
    let on_device: Vec<Vec<u64>> = (0_u32..)
        .zip(&program.regions)
        .filter(|(_, region)| region.tier == Tier::Device)
        .map(|(region, _)| alive(program, Some(region)))
        .collect();
    let mut found = Vec::new();
    let mut at = 0;
    for segment in &program.segments {
        let ops = at..at + segment.ops.len();
        at = ops.end;
        if segment.stage == StageName::Load {
            let most = on_device.iter().flat_map(|alive| &alive[ops.clone()]).max();
            let allocated_bytes = most.copied().unwrap_or(0);
            found.push(Phase { name: segment.name.clone(), repeat: segment.repeat.into(), allocated_bytes });
        }
    }
    found
}

/// A stage in the regions of one part.
struct Stage<'a> {
    plan: &'a Plan,
    program: &'a Program,
    name: StageName,
    role: Role,
    /// By operation.
    alive: Vec<u64>,
    /// By buffer.
    uses: &'a [Option<Use>],
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan, program: &'a Program, uses: &'a [Option<Use>], name: StageName, role: Role) -> Self {
        let alive = alive(program, region(program, role, Tier::Device));
        Self { plan, program, name, role, alive, uses }
    }

    fn shown(&self) -> PlannedStage {
        let ops = || (0_u32..).zip(self.program.ops().zip(&self.alive)).filter(|(_, ((segment, _), _))| segment.stage == self.name);
        let phases = phases(self.program, ops().map(|(_, ((segment, op), alive))| (segment, op, *alive)));
        // Of operations at which as much is alive the first.
        let highest = ops().map(|(at, (_, alive))| (at, *alive)).reduce(|best, next| if next.1 > best.1 { next } else { best });
        let (at, allocated) = highest.unwrap_or((0, 0));
        let peak = |tier| self.plan.peaks.iter().filter(|peak| peak.stage == self.name && peak.tier == tier).map(|peak| peak.bytes).max();
        let reserved = bytes(self.program, self.role, Tier::Device);
        let placement = self.plan.placements.iter().find(|placement| placement.component == self.role);
        let disk_bytes = placement.map_or(0, |placement| placement.count(Tier::Disk) * placement.block_bytes);
        PlannedStage {
            name: self.name,
            phases,
            peaks: peak(Tier::Device).map(|device| super::peaks(allocated, reserved, device)),
            host: HostBytes { pinned_bytes: peak(Tier::Pinned).unwrap_or(0), pageable_bytes: 0, disk_bytes },
            buffers: self.buffers(at),
        }
    }

    /// What lies on the device when an operation runs, largest first; then what lies in host memory.
    fn buffers(&self, at: u32) -> Vec<Buffer> {
        let mut found = Vec::new();
        for tier in [Tier::Device, Tier::Pinned] {
            let region = region(self.program, self.role, tier);
            let there = (0_u32..).zip(&self.program.buffers).filter(|(_, buffer)| Some(buffer.region) == region);
            let there = there.filter(|(_, buffer)| (buffer.first..=buffer.last).contains(&at));
            let mut buffers = self.put_together(tier, there);
            buffers.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
            found.append(&mut buffers);
        }
        found
    }

    /// Buffers of one name, numbers of blocks and places apart, are one.
    fn put_together<'b>(&self, tier: Tier, buffers: impl Iterator<Item = (u32, &'b Placed)>) -> Vec<Buffer> {
        let mut groups: Vec<Alike<'_, 'b>> = Vec::new();
        for (id, buffer) in buffers {
            let name = unnumbered(&buffer.name);
            match groups.iter_mut().find(|(known, kind, _)| *known == name && *kind == buffer.kind) {
                Some((.., all)) => all.push((id, buffer)),
                None => groups.push((name, buffer.kind, vec![(id, buffer)])),
            }
        }
        let one = |(name, kind, all): Alike<'_, 'b>| {
            let first = all.first().and_then(|(id, _)| self.uses[*id as usize]);
            let phase = first.map_or("", |used| &self.program.phases[usize::from(used.phase)]);
            Buffer {
                name: name.replace('_', " "),
                kind,
                tier,
                bytes: all.iter().map(|(_, buffer)| buffer.bytes).sum(),
                count: u32::try_from(all.len()).unwrap_or(u32::MAX),
                formula: if kind == BufferKind::Weights { self.weights(&all) } else { self.formula(&all) },
                rule: format!("wan.fv_run.{}.{phase}", self.role.word()),
            }
        };
        groups.into_iter().map(one).collect()
    }

    /// `30 blocks: 1404000000 x 2 B + 3840 x 4 B`, with what starts of tensors take; a place for blocks is as large as the largest of them.
    fn weights(&self, all: &[(u32, &Placed)]) -> String {
        let group = |name: &str| {
            let block = name.rsplit_once('.').and_then(|(_, number)| number.parse::<u32>().ok());
            let own = name == "root" || name.starts_with("blocks.");
            self.program.groups.iter().find(|group| own && group.component == self.role && group.block == block)
        };
        let mut elements: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, buffer) in all {
            let Some(group) = group(&buffer.name) else {
                return format!("{} B, as the largest block that passes through", buffer.bytes);
            };
            for tensor in &group.tensors {
                *elements.entry(tensor.element.bytes()).or_default() += tensor.shape.iter().product::<u64>();
            }
        }
        let counts = elements.iter().rev().map(|(bytes, count)| format!("{count} parameters x {bytes} B"));
        let sum: u64 = elements.iter().map(|(bytes, count)| bytes * count).sum();
        rounded(&counts.collect::<Vec<_>>().join(" + "), sum, all.iter().map(|(_, buffer)| buffer.bytes).sum())
    }

    /// `rows 32760 x columns 1536 x 2 B`, of the widest view that an operation has of it.
    fn formula(&self, all: &[(u32, &Placed)]) -> String {
        let [Some(least), Some(most)] = [all.iter().map(|(_, b)| b.bytes).min(), all.iter().map(|(_, b)| b.bytes).max()] else {
            return String::new();
        };
        if least != most {
            return format!("from {least} to {most} B each");
        }
        let Some(used) = all.first().and_then(|(id, _)| self.uses[*id as usize]) else { return format!("{most} B") };
        let View { rows, columns, element, .. } = used.view;
        let words = |rows| format!("rows {rows} x columns {columns} x {} B", element.bytes());
        let (whole, row) = (used.view.bytes(), columns * element.bytes());
        if whole.next_multiple_of(ALIGNMENT) == most {
            return rounded(&words(rows), whole, most);
        }
        // No operation sees it whole: rows are written a chunk at a time.
        if row > 0 && most.is_multiple_of(row) { words(most / row) } else { format!("{most} B") }
    }
}

/// A formula, and whether anything is added so that the next buffer or tensor starts where it may.
fn rounded(formula: &str, bytes: u64, taken: u64) -> String {
    if bytes == taken { formula.to_owned() } else { format!("{formula}, rounded up") }
}

/// Buffers that are shown as one, by name and kind, with their numbers.
type Alike<'n, 'b> = (&'n str, BufferKind, Vec<(u32, &'b Placed)>);

/// A name without the number of a block or place.
fn unnumbered(name: &str) -> &str {
    name.rsplit_once('.').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit())).map_or(name, |(name, _)| name)
}

/// How operations use a buffer.
#[derive(Clone, Copy)]
struct Use {
    /// The phase that writes it first, or reads it where nothing does.
    phase: u16,
    /// The view with the most elements.
    view: View,
}

/// By buffer; nothing for one that no operation uses.
fn uses(program: &Program) -> Vec<Option<Use>> {
    let mut found: Vec<Option<Use>> = vec![None; program.buffers.len()];
    for (_, op) in program.ops() {
        for view in op.writes.iter().chain(&op.reads) {
            let known = &mut found[view.buffer as usize];
            let used = known.get_or_insert(Use { phase: op.phase, view: *view });
            if view.bytes() > used.view.bytes() {
                used.view = *view;
            }
        }
    }
    found
}
