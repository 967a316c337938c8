//! Ways to compute a transformer.

use std::collections::BTreeMap;

use fv_spec::authored::Role;
use fv_spec::program::{Formats, Op, Program, Stream};
use fv_spec::questions::OutputEffect;

use super::{Compute, Configuration, Model, Request, TextKeys, blocks, loading_bytes};
use crate::optimal::{Blocks, SetUp, Staged};
use crate::rates::{Rates, UnknownRate, cost};
use crate::wan::dit;
use crate::wan::summary::{Counted, Summary};

/// Rows of a chunk that are tried, beside all at once.
const CHUNKS: [u64; 2] = [8_192, 2_048];

/// Whether attention's operands, and the residual stream, are kept in host memory: what moves least first.
const ON_HOST: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// All ways to compute, fewest pieces first: for each place of activations and each size of pieces, so many variants.
pub(super) struct All {
    pub(super) ways: Vec<Compute>,
    /// Numbers of head groups, of chunks of projections and of chunks of the feed-forward layer that are tried.
    pub(super) sizes: [usize; 3],
    /// Guidance in pairs or not, keys of the text kept or not.
    pub(super) variants: usize,
}

/// How often all variants of all sizes come: in each place of activations.
pub(super) const KINDS: usize = ON_HOST.len();

/// All ways to compute.
pub(super) fn ways(model: &Model, request: &Request) -> All {
    let tokens = model.tokens(request);
    let groups = groups(model.transformer.heads);
    let chunks: Vec<u64> = std::iter::once(tokens).chain(CHUNKS.into_iter().filter(|chunk| *chunk < tokens)).collect();
    let paired = if request.guided() { &[true, false][..] } else { &[true] };
    let mut ways = Vec::with_capacity(864);
    for [outputs_on_host, residual_on_host] in ON_HOST {
        for &head_group in &groups {
            for &projection_chunk in &chunks {
                for &feed_forward_chunk in &chunks {
                    for &paired_guidance in paired {
                        ways.extend([TextKeys::Kept, TextKeys::Recomputed].map(|text_keys| Compute {
                            head_group,
                            feed_forward_chunk,
                            projection_chunk,
                            outputs_on_host,
                            residual_on_host,
                            text_keys,
                            paired_guidance,
                        }));
                    }
                }
            }
        }
    }
    All { ways, sizes: [groups.len(), chunks.len(), chunks.len()], variants: 2 * paired.len() }
}

/// Groups of heads that are tried: each at most half as wide as the one before.
fn groups(heads: u64) -> Vec<u64> {
    let mut groups = vec![heads];
    for group in (1..heads).rev().filter(|group| heads.is_multiple_of(*group)) {
        if group * 2 <= groups[groups.len() - 1] {
            groups.push(group);
        }
    }
    groups
}

/// What one way needs and takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sketched {
    pub(super) configuration: Configuration,
    /// What a block computes, activations at hand.
    pub(super) computing_ns: u64,
    /// Operations of all steps that are written out.
    pub(super) operations: u64,
}

/// Operations of a step and of the last one, of each transformer.
pub(super) fn operations(model: &Model, summary: &Summary) -> u64 {
    let of_block: u64 = summary.block.iter().map(|counted| counted.times).sum();
    let experts = if model.boundary.is_some() { 2 } else { 1 };
    of_block.saturating_mul(2 * model.transformer.blocks * summary.sweeps * experts)
}

/// What all ways have in common.
#[derive(Debug)]
pub(super) struct Transformer<'a> {
    model: &'a Model,
    request: &'a Request,
    formats: Formats,
    rates: &'a Rates,
    sweeps: [u32; 2],
    blocks: Blocks,
    loading_bytes: u64,
}

impl<'a> Transformer<'a> {
    pub(super) fn new(model: &'a Model, request: &'a Request, formats: Formats, rates: &'a Rates) -> Result<Self, UnknownRate> {
        let component = dit::weights::component(&model.transformer, Role::Transformer, formats);
        let turn = model.steps_of_first(&request.schedule);
        Ok(Self {
            sweeps: [turn, request.schedule.steps - turn],
            blocks: blocks(&component, rates)?,
            loading_bytes: loading_bytes(&component),
            model,
            request,
            formats,
            rates,
        })
    }

    /// What one way needs and takes. With two experts it is that of the one that needs more, guidance decides.
    pub(super) fn sketched(&self, compute: Compute) -> Result<Sketched, UnknownRate> {
        let guided = |expert: &usize| Request::guides(self.request.guidance[*expert]);
        let experts = (0..2).filter(|expert| self.sweeps[*expert] > 0);
        let expert = experts.max_by_key(|expert| (guided(expert), std::cmp::Reverse(*expert))).unwrap_or(0);
        let summary = Summary::new(self.model, self.request, self.formats, compute, expert);
        let program = summary.program();
        let ns = |counted: &[Counted]| -> Result<u64, UnknownRate> {
            let computed = counted.iter().filter(|counted| counted.op.stream == Stream::Compute);
            computed.map(|counted| Ok(cost(program, &counted.op, self.rates)?.ns.saturating_mul(counted.times))).sum()
        };
        let staged = self.staged(&summary)?;
        let rounds = u32::try_from(summary.sweeps).unwrap_or(1);
        let (once, round): (Vec<_>, Vec<_>) = summary.rest.iter().cloned().partition(|counted| is_once(program, &counted.op));
        let computing_ns = ns(&summary.block)?;
        let configuration = Configuration {
            blocks: self.blocks,
            device_bytes: summary.device_bytes,
            host_bytes: summary.host_bytes,
            loading_bytes: self.loading_bytes,
            sweeps: self.sweeps,
            rounds,
            set_up: self.set_up(program, compute)?,
            sweep_ns: ns(&once)?,
            round_ns: ns(&round)? / u64::from(rounds),
            block_ns: computing_ns + staged.map_or(0, |(_, waiting)| waiting),
            staged: staged.map(|(staged, _)| staged),
            effect: if self.formats.block_weights == self.formats.compute { OutputEffect::None } else { OutputEffect::Quantised },
        };
        Ok(Sketched { configuration, computing_ns, operations: operations(self.model, &summary) })
    }

    /// What is computed before the first step.
    fn set_up(&self, program: &Program, compute: Compute) -> Result<SetUp, UnknownRate> {
        let (mut ns, mut block_ns) = (0, 0);
        for (_, op) in program.ops().filter(|(segment, op)| segment.name.starts_with("set_up") && op.stream == Stream::Compute) {
            *(if op.block.is_some() { &mut block_ns } else { &mut ns }) += cost(program, op, self.rates)?.ns;
        }
        Ok(SetUp { ns, block_ns: (compute.text_keys == TextKeys::Kept).then_some(block_ns) })
    }

    /// How a block waits for activations: in each of its phases the longest of its queues decides, and the first piece is waited for.
    fn staged(&self, summary: &Summary) -> Result<Option<(Staged, u64)>, UnknownRate> {
        let program = summary.program();
        let mut phases: Vec<u16> = Vec::new();
        let mut queues: BTreeMap<u16, [u64; 3]> = BTreeMap::new();
        let mut pieces: BTreeMap<u16, u64> = BTreeMap::new();
        for Counted { op, times } in &summary.block {
            let each = cost(program, op, self.rates)?.ns;
            let queue = match op.stream {
                Stream::Compute => 0,
                Stream::CopyIn => 1,
                Stream::CopyOut => 2,
                Stream::Disk => continue,
            };
            if !phases.contains(&op.phase) {
                phases.push(op.phase);
            }
            queues.entry(op.phase).or_default()[queue] += each.saturating_mul(*times);
            if queue == 1 {
                let piece = pieces.entry(op.phase).or_default();
                *piece = (*piece).max(each);
            }
        }
        let copies = |phase: &u16| queues[phase][1] > 0;
        let (Some(first), Some(last)) = (phases.iter().position(copies), phases.iter().rposition(copies)) else { return Ok(None) };
        let computing = |phases: &[u16]| phases.iter().map(|phase| queues[phase][0]).sum::<u64>();
        let waiting = phases.iter().map(|phase| {
            let [compute, copy_in, copy_out] = queues[phase];
            pieces.get(phase).copied().unwrap_or(0) + copy_in.max(copy_out).saturating_sub(compute)
        });
        let bytes = summary.staged_bytes().iter().sum::<u64>() * u64::from(self.blocks.count);
        let staged = Staged { before_ns: computing(&phases[..first]), after_ns: computing(&phases[last + 1..]), bytes };
        Ok(Some((staged, waiting.sum())))
    }
}

/// Whether a step does it once, and not for each prediction.
fn is_once(program: &Program, op: &Op) -> bool {
    matches!(&*program.phases[usize::from(op.phase)], "time_embedding" | "sampler")
}
