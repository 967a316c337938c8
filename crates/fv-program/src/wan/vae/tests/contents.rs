//! What lies where: convolutions find the inputs that they had before, and buffers live as long as they are needed.

use std::collections::BTreeMap;

use fv_spec::program::{BufferId, BufferKind, Kernel, Program, View};

use super::{cases, program};

/// A number for each write of a matrix; copies have that of their source.
#[derive(Default)]
struct Contents {
    writes: u64,
    /// By buffer and offset.
    now: BTreeMap<(BufferId, u64), u64>,
}

impl Contents {
    fn of(&self, view: &View) -> u64 {
        self.now.get(&(view.buffer, view.offset_bytes)).copied().unwrap_or(0)
    }

    fn write(&mut self, view: &View, copied: Option<u64>) {
        self.writes += 1;
        self.now.insert((view.buffer, view.offset_bytes), copied.unwrap_or(self.writes));
    }
}

/// Every causal convolution finds as many earlier frames as there are, at most two, and they are what it read before.
#[test]
fn convolutions_remember_their_last_two_inputs() {
    for (name, vae, request, decode) in cases() {
        let program = program(&vae, &request, &decode);
        let mut contents = Contents::default();
        let mut seen = BTreeMap::<(BufferId, u64), Vec<u64>>::new();
        let mut rows = None;
        for (_, op) in program.ops() {
            if let Kernel::LatentRows { first: [0, ..], .. } = op.kernel {
                // Another tile: nothing of the last one is remembered.
                seen.clear();
                rows = Some(op.writes[0].rows);
            }
            if let Kernel::Convolve { kernel, cached, .. } = op.kernel {
                let before = seen.entry((op.reads[1].buffer, op.reads[1].offset_bytes)).or_default();
                let there = op.reads[3..].iter().take(usize::try_from(cached).unwrap_or(0)).map(|view| contents.of(view));
                let expected = if kernel.frames == 3 { before.len().saturating_sub(2) } else { before.len() };
                assert_eq!(there.collect::<Vec<_>>(), before[expected..], "{name}: {op:?}");
                before.push(contents.of(&op.reads[0]));
            }
            let copied = matches!(op.kernel, Kernel::Copy).then(|| contents.of(&op.reads[0]));
            op.writes.iter().for_each(|view| contents.write(view, copied));
        }
        assert!(rows.is_some(), "{name}");
        let depth = |vae: &super::Vae, doubled: u64| 1 + (request.frames - 1) / vae.temporal() * doubled;
        let longest = seen.values().map(Vec::len).max().unwrap_or(0) as u64;
        assert_eq!(longest, depth(&vae, 4), "{name}: the last convolution sees each frame");
    }
}

/// What was allocated was used, and everything on the device but weights is gone in the end.
#[test]
fn buffers_end_with_their_last_use() {
    for (name, vae, request, decode) in cases() {
        let program: Program = program(&vae, &request, &decode);
        let mut last = vec![None; program.buffers.len()];
        for (index, (_, op)) in (0_u32..).zip(program.ops()) {
            op.reads.iter().chain(&op.writes).for_each(|view| last[view.buffer as usize] = Some(index));
        }
        for (buffer, last) in program.buffers.iter().zip(last) {
            let last = last.unwrap_or_else(|| panic!("{name}: {} is never used", buffer.name));
            // The latent and its scales wait for each frame of each tile.
            if buffer.kind == BufferKind::Activation && !buffer.name.starts_with("latent") {
                assert_eq!(buffer.last, last, "{name}: {} lives on", buffer.name);
            }
        }
    }
}
