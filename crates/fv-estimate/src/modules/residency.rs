//! Where each component's weights are, stage by stage, and what moves when.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::estimate::{HostBytes, Reason, StageName};

use super::encoder::Encoder;
use super::parameter::{Parameter, Weights};
use super::{bytes_of, fastvideo_text, transformers_text, vision};
use crate::family::Lowered;
use crate::pinned;
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::{Component, Placement, Settings};
use crate::storage::{Storage, element_bytes};

sites! { "weights":
    TRANSFORMER "transformer weights" Weights;
    TRANSFORMER_2 "transformer_2 weights" Weights;
    TEXT_ENCODER "text_encoder weights" Weights;
    TEXT_ENCODER_2 "text_encoder_2 weights" Weights;
    IMAGE_ENCODER "image_encoder weights" Weights;
    VAE "vae weights" Weights;
    AUDIO_VAE "audio_vae weights" Weights;
}
sites! { "weights.quantised":
    SCALES "quantisation scales" Weights;
    QUANTISING "matrix being quantised" Staging;
}
sites! { "weights.streamed":
    STREAMED "streamed block" Staging;
    LEAF "streamed layer" Staging;
}
sites! { "weights.gathered":
    GATHERED "gathered unit" Staging;
    ARRIVED "weights of all ranks" Staging;
}
sites! { "library.workspace":
    LIBRARY "matrix library workspace" Workspace;
}

/// The order in which pipelines run their modules, and in which diffusers moves them out (`model_cpu_offload_seq`).
pub const ORDER: [Role; 7] =
    [Role::TextEncoder, Role::TextEncoder2, Role::ImageEncoder, Role::Transformer, Role::Transformer2, Role::Vae, Role::AudioVae];

fn site(role: Role) -> &'static Site {
    match role {
        Role::Transformer2 => &TRANSFORMER_2,
        Role::TextEncoder => &TEXT_ENCODER,
        Role::TextEncoder2 => &TEXT_ENCODER_2,
        Role::ImageEncoder => &IMAGE_ENCODER,
        Role::Vae => &VAE,
        Role::AudioVae => &AUDIO_VAE,
        Role::Transformer => &TRANSFORMER,
    }
}

/// One stored tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    elements: u64,
    /// Bytes of an element.
    size: u64,
    /// fp32 scales beside it.
    scales: u64,
}

impl Stored {
    /// A parameter in a plain type of `size` bytes.
    fn plain(parameter: &Parameter, size: u64, keep_fp32: bool) -> Self {
        Self { elements: parameter.elements, size: parameter.element(size, keep_fp32), scales: 0 }
    }

    fn bytes(self) -> u64 {
        self.elements.saturating_mul(self.size).saturating_add(self.scales * 4)
    }
}

/// Like blocks: how many, and the tensors of one.
type Groups = Vec<(u64, Vec<Stored>)>;

/// A component with its tensors as stored.
#[derive(Debug)]
struct Module {
    role: Role,
    component: Component,
    groups: Groups,
    rest: Vec<Stored>,
    /// How many at the start of `rest` are buffers.
    buffers: usize,
    /// Ranks over which each tensor is divided while it rests.
    shard: u64,
    /// What a runtime loads before it quantises: blocks and the rest.
    unquantised: Option<(Groups, Vec<Stored>)>,
    /// Whether every tensor is placed in the allocator: where weights come and go among what it has cached.
    placed_one_by_one: bool,
    /// Its weights on the device.
    weights: List,
    present: bool,
}

impl Module {
    /// A tensor as it rests on one rank.
    fn resting(&self, tensor: Stored) -> Stored {
        Stored { elements: tensor.elements.div_ceil(self.shard), ..tensor }
    }

    /// Places so many blocks of `block` in `list`.
    fn place_blocks(&self, p: &mut Builder, blocks: u64, block: &[Stored], list: List) {
        let one = |p: &mut Builder| {
            for tensor in block {
                place(p, site(self.role), *tensor, list);
            }
        };
        if self.placed_one_by_one {
            p.repeat_sampled(blocks, 1, 0, one);
        } else {
            p.repeat_opaque(blocks, one);
        }
    }

    fn load(&mut self, p: &mut Builder) {
        for tensor in &self.rest {
            place(p, site(self.role), self.resting(*tensor), self.weights);
        }
        for (count, block) in &self.groups {
            let block: Vec<Stored> = block.iter().map(|tensor| self.resting(*tensor)).collect();
            self.place_blocks(p, *count, &block, self.weights);
        }
        self.present = true;
    }

    /// What loading an unquantised transformer and quantising it in place takes before it is there: all of it in its own type,
    /// and two copies of a matrix on the way.
    fn load_unquantised(&self, p: &mut Builder) {
        let Some((groups, rest)) = &self.unquantised else { return };
        let all = p.list();
        for tensor in rest {
            place(p, site(self.role), *tensor, all);
        }
        for (count, block) in groups {
            self.place_blocks(p, *count, block, all);
        }
        if let Some(matrix) = groups.iter().flat_map(|(_, block)| block).max_by_key(|t| t.elements) {
            p.touch(&QUANTISING, &[("copies", 2), ("parameters", matrix.elements)], matrix.size);
        }
        p.release_list(all);
        p.empty_cache();
    }

    fn unload(&mut self, p: &mut Builder) {
        p.release_list(self.weights);
        self.present = false;
    }

    /// Blocks, and the tensors of the largest.
    fn blocks(&self) -> (u64, &[Stored]) {
        let bytes = |block: &[Stored]| block.iter().map(|t| t.bytes()).sum::<u64>();
        let largest = self.groups.iter().map(|(_, block)| block.as_slice()).max_by_key(|block| bytes(block));
        (self.groups.iter().map(|(count, _)| count).sum(), largest.unwrap_or(&[]))
    }

    /// The blocks after the first `resident` in each group, or those before.
    fn split(&self, resident: u64, stay: bool) -> impl Iterator<Item = (u64, &[Stored])> {
        let mut left = resident;
        self.groups.iter().map(move |(count, block)| {
            let staying = left.min(*count);
            left -= staying;
            (if stay { staying } else { count - staying }, block.as_slice())
        })
    }

    /// Host bytes of the weights without the first `resident` blocks, and of what is outside them: page-locked or not.
    fn host_of(&self, resident: u64, rest: bool, pinned: bool, rounding: bool) -> HostBytes {
        let rest = if rest { self.rest.as_slice() } else { &[] };
        let blocks = self.split(resident, false).flat_map(|(count, block)| block.iter().map(move |t| (*t, count)));
        let sizes = rest.iter().map(|t| (*t, 1)).chain(blocks);
        let mut sizes = sizes.map(|(tensor, count)| (self.resting(tensor).bytes(), count));
        if !pinned {
            let bytes = sizes.fold(0_u64, |sum, (bytes, count)| sum.saturating_add(bytes.saturating_mul(count)));
            return HostBytes { pageable_bytes: bytes, ..HostBytes::default() };
        }
        let bytes = if rounding { pinned::pinned_bytes(&mut sizes) } else { pinned::registered_bytes(&mut sizes) };
        HostBytes { pinned_bytes: bytes.unwrap_or(u64::MAX >> 12), ..HostBytes::default() }
    }

    fn host(&self, pinned: bool, rounding: bool) -> HostBytes {
        self.host_of(0, true, pinned, rounding)
    }

    /// The units that FSDP gathers a text encoder in.
    fn text_units(&self) -> fastvideo_text::Units {
        let unit = |list: &[Stored]| list.iter().map(|t| (t.elements, t.size)).collect::<Vec<_>>();
        fastvideo_text::Units::of(&unit(self.blocks().1), &unit(&self.rest))
    }
}

fn place(p: &mut Builder, site: &'static Site, tensor: Stored, list: List) {
    let weights = p.alloc(site, &[("parameters", tensor.elements)], tensor.size);
    p.keep(list, weights);
    if tensor.scales > 0 {
        let scales = p.alloc(&SCALES, &[("scales", tensor.scales)], 4);
        p.keep(list, scales);
    }
}

/// How a transformer's weights pass by while it runs.
#[derive(Debug)]
pub struct Streams {
    site: &'static Site,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// They do not: everything needed is there.
    Whole,
    Blocks {
        block: Vec<Stored>,
        rest: Vec<Stored>,
        rest_list: List,
        current: List,
        next: List,
        prefetch: bool,
        group: u64,
        /// Blocks that never leave.
        resident: u64,
        /// Whether the first block is back before the forward pass ends, and stays.
        kept: bool,
    },
    Leaf {
        size: u64,
        /// Whether the cache is emptied each time.
        empties: bool,
    },
    /// Sharded weights, gathered block by block; what is outside the blocks is gathered once and stays.
    Sharded {
        block: Vec<Stored>,
        rest: Vec<Stored>,
        shard: u64,
        /// Whether shards rest on the host.
        from_host: bool,
        /// The last block as it was gathered, which is dropped once the next is there.
        gathered: List,
        next: List,
        /// The block at work, and what stays.
        used: List,
        root: List,
    },
}

impl Kind {
    /// Blocks that come and go as a [`Placement::Streamed`] says; what is outside them goes along unless it is resident.
    fn streamed(p: &mut Builder, placement: Placement, block: Vec<Stored>, rest: Vec<Stored>, kept: bool) -> Self {
        let Placement::Streamed { resident, prefetch, group, rest_resident, .. } = placement else { return Self::Whole };
        Self::Blocks {
            block,
            rest: if rest_resident { Vec::new() } else { rest },
            rest_list: p.list(),
            current: p.list(),
            next: p.list(),
            prefetch: prefetch > 0,
            group: u64::from(group.max(1)),
            resident: resident.into(),
            kept,
        }
    }
}

impl Streams {
    /// Weights that stay where they are.
    pub fn whole() -> Self {
        Self { site: &TRANSFORMER, kind: Kind::Whole }
    }

    /// Brings a group of blocks in; `aside` where a stream of their own copies them ahead.
    fn fetch(p: &mut Builder, block: &[Stored], group: u64, list: List, aside: bool) {
        let all = |p: &mut Builder| {
            p.repeat(group, |p| {
                for tensor in block {
                    place(p, &STREAMED, *tensor, list);
                }
            });
        };
        if aside { p.aside(all) } else { all(p) }
    }

    /// Before the first forward pass: where blocks follow each other in a circle, the first is fetched once.
    pub fn prime(&mut self, p: &mut Builder) {
        match &self.kind {
            Kind::Blocks { block, current, group, kept: true, prefetch, .. } => {
                Self::fetch(p, block, *group, *current, *prefetch);
            }
            Kind::Sharded { rest, root, next, .. } => {
                for tensor in rest {
                    place(p, &ARRIVED, *tensor, *next);
                }
                for tensor in rest {
                    place(p, &GATHERED, *tensor, *root);
                }
                p.release_list(*next);
            }
            _ => {}
        }
    }

    /// A forward pass begins.
    pub fn begin(&mut self, p: &mut Builder) {
        if let Kind::Blocks { rest, rest_list, block, current, prefetch, group, kept, .. } = &self.kind {
            for tensor in rest {
                place(p, self.site, *tensor, *rest_list);
            }
            if *prefetch && !*kept {
                Self::fetch(p, block, *group, *current, true);
            }
        }
    }

    /// Streamed blocks run in groups: how many blocks one group has.
    pub fn group(&self) -> u64 {
        if let Kind::Blocks { group, .. } = &self.kind { *group } else { 1 }
    }

    /// Blocks that never leave the device and so run before the groups.
    pub fn resident(&self) -> u64 {
        if let Kind::Blocks { resident, .. } = &self.kind { *resident } else { 0 }
    }

    /// A group of blocks begins.
    pub fn begin_group(&self, p: &mut Builder) {
        match &self.kind {
            Kind::Blocks { block, current, next, prefetch, group, .. } => {
                Self::fetch(p, block, *group, if *prefetch { *next } else { *current }, *prefetch);
            }
            Kind::Sharded { block, shard, from_host, gathered, next, used, .. } => {
                let shards = p.list();
                if *from_host {
                    for tensor in block {
                        place(p, &STREAMED, Stored { elements: tensor.elements.div_ceil(*shard), ..*tensor }, shards);
                    }
                }
                for tensor in block {
                    place(p, &ARRIVED, *tensor, *next);
                }
                p.release_list(shards);
                p.release_list(*gathered);
                p.move_list(*next, *gathered);
                for tensor in block {
                    place(p, &GATHERED, *tensor, *used);
                }
            }
            _ => {}
        }
    }

    /// A group of blocks ends.
    pub fn end_group(&self, p: &mut Builder) {
        match &self.kind {
            Kind::Blocks { current, next, prefetch, .. } => {
                p.release_list(*current);
                if *prefetch {
                    p.move_list(*next, *current);
                }
            }
            Kind::Sharded { used, .. } => p.release_list(*used),
            _ => {}
        }
    }

    /// Runs so many like blocks, group by group where their weights pass by, and ends the forward pass.
    pub fn run(&mut self, p: &mut Builder, blocks: u64, block: impl Fn(&mut Builder, &Self)) {
        let resident = self.resident().min(blocks);
        p.repeat_sampled(resident, 2, 0, |p| block(p, self));
        p.repeat_sampled((blocks - resident).div_ceil(self.group()), 2, 0, |p| {
            p.phase("weights_in");
            self.begin_group(p);
            p.repeat_sampled(self.group(), 2, 0, |p| block(p, self));
            self.end_group(p);
        });
        self.end(p);
    }

    /// [`run`](Self::run) where the first block does something else than the others: it is told so.
    pub fn run_first(&mut self, p: &mut Builder, blocks: u64, block: impl Fn(&mut Builder, &Self, bool)) {
        let all = |p: &mut Builder, streams: &Self, count: u64, first: bool| {
            if first && count > 0 {
                block(p, streams, true);
            }
            p.repeat_sampled(count.saturating_sub(first.into()), 2, 0, |p| block(p, streams, false));
        };
        let resident = self.resident().min(blocks);
        all(p, self, resident, true);
        let group = |p: &mut Builder, first: bool| {
            p.phase("weights_in");
            self.begin_group(p);
            all(p, self, self.group(), first);
            self.end_group(p);
        };
        let mut groups = (blocks - resident).div_ceil(self.group());
        if resident == 0 && groups > 0 {
            group(p, true);
            groups -= 1;
        }
        p.repeat_sampled(groups, 2, 0, |p| group(p, false));
        self.end(p);
    }

    /// The forward pass ends. Where blocks follow each other in a circle, the first is already back.
    pub fn end(&mut self, p: &mut Builder) {
        if let Kind::Blocks { rest_list, current, kept, .. } = &self.kind {
            if !*kept {
                p.release_list(*current);
            }
            p.release_list(*rest_list);
        }
    }

    /// All weights pass by once, and nothing is computed with them.
    pub fn pass(&mut self, p: &mut Builder) {
        self.prime(p);
        self.begin(p);
        let blocks = match &self.kind {
            Kind::Blocks { .. } | Kind::Sharded { .. } => 2,
            Kind::Whole | Kind::Leaf { .. } => 0,
        };
        for _ in 0..blocks {
            self.begin_group(p);
            self.end_group(p);
        }
        self.end(p);
    }

    /// A layer of `inputs` x `outputs` weights and a bias runs: what it brings to the device for its own duration.
    pub fn leaf(&self, p: &mut Builder, inputs: u64, outputs: u64) -> Option<Tensor> {
        match self.kind {
            Kind::Leaf { size, empties } => {
                if empties {
                    p.empty_cache();
                }
                Some(p.alloc(&LEAF, &[("inputs and bias", inputs + 1), ("outputs", outputs)], size))
            }
            _ => None,
        }
    }
}

/// The components of a request and where they are.
#[derive(Debug)]
pub struct Residency<'a> {
    settings: &'a Settings,
    modules: Vec<Module>,
    host: [HostBytes; 4],
    uncovered: Vec<Reason>,
    notes: Vec<String>,
}

impl<'a> Residency<'a> {
    /// Takes every component as it is stored. Blocks that are streamed must be alike.
    ///
    /// # Errors
    /// What the rules do not cover.
    pub fn new(weights: Vec<Weights>, settings: &'a Settings, p: &mut Builder) -> Result<Self, Vec<Reason>> {
        let streamed =
            |role: Role| settings.component(role).is_some_and(|c| matches!(c.placement, Placement::Streamed { .. } | Placement::Gathered));
        let unlike = weights.iter().filter(|weights| weights.groups.len() > 1 && streamed(weights.role));
        let refused =
            |weights: &Weights| Reason::new("uncovered-placement", format!("no rule streams a {} of unlike blocks", weights.role.word()));
        let refused: Vec<Reason> = unlike.map(refused).collect();
        if !refused.is_empty() {
            return Err(refused);
        }
        Self::with_unlike(weights, settings, p)
    }

    /// [`new`](Self::new), where blocks that pass by may differ: the largest stands for all of them.
    pub(super) fn with_unlike(weights: Vec<Weights>, settings: &'a Settings, p: &mut Builder) -> Result<Self, Vec<Reason>> {
        let mut modules = Vec::new();
        let mut missing = Vec::new();
        let fastvideo = settings.runtime == Runtime::FastVideo;
        for Weights { role, groups, rest, buffers } in weights {
            let transformer = matches!(role, Role::Transformer | Role::Transformer2);
            let Some(component) = settings.component(role) else {
                missing.push(Reason::new("unresolved-component", format!("no settings were resolved for the {}", role.word())));
                continue;
            };
            let stored = |list: &[Parameter]| list.iter().map(|parameter| stored(*parameter, component)).collect::<Option<Vec<_>>>();
            let stored_groups = groups.iter().map(|group| Some((group.count, stored(&group.block)?))).collect::<Option<Vec<_>>>();
            let (Some(mut stored_groups), Some(mut stored_rest)) = (stored_groups, stored(&rest)) else {
                missing.push(Reason::new(
                    "uncovered-storage",
                    format!("the rules do not cover {:?} for the {}", component.precision.stored, role.word()),
                ));
                continue;
            };
            let quantised = fastvideo && transformer && !matches!(component.precision.stored, Storage::Plain(_));
            let unquantised = quantised.then(|| {
                let plain = |list: &[Parameter]| list.iter().map(|t| Stored { elements: t.elements, size: 2, scales: 0 }).collect();
                (groups.iter().map(|group| (group.count, plain(&group.block))).collect(), plain(&rest))
            });
            if quantised && matches!(component.placement, Placement::Streamed { .. }) {
                // Quantised matrices are buffers, which the hook that moves a block's parameters leaves where they are.
                for (count, block) in &mut stored_groups {
                    let (matrices, others): (Vec<Stored>, Vec<Stored>) = block.iter().partition(|t| t.scales > 0);
                    *block = others;
                    stored_rest.extend((0..*count).flat_map(|_| matrices.iter().copied()));
                }
            }
            modules.push(Module {
                role,
                component: *component,
                groups: stored_groups,
                rest: stored_rest,
                buffers,
                shard: if fastvideo && transformer { settings.shard.max(1).into() } else { 1 },
                unquantised,
                placed_one_by_one: fastvideo,
                weights: p.list(),
                present: false,
            });
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        Ok(Self { settings, modules, host: [HostBytes::default(); 4], uncovered: Vec::new(), notes: Vec::new() })
    }

    fn module(&mut self, role: Role) -> Option<&mut Module> {
        self.modules.iter_mut().find(|m| m.role == role)
    }

    /// Brings the component in `role` to the device for its stage, the way the runtime does it.
    pub fn enter(&mut self, p: &mut Builder, role: Role) {
        let diffusers = self.settings.runtime == Runtime::Diffusers;
        if diffusers {
            // Only the module before it in the pipeline's order is moved out.
            let at = ORDER.iter().position(|r| *r == role).unwrap_or(0);
            let before = ORDER[..at].iter().rev().find(|r| self.modules.iter().any(|m| m.role == **r)).copied();
            let moves = self.modules.iter().any(|m| m.role == role && matches!(m.component.placement, Placement::Moved { .. }));
            if let (Some(before), true) = (before, moves) {
                // The stage begins with the module before it still there.
                p.phase("move_out");
                self.leave(p, before);
            }
        }
        // FastVideo also brings back what it moved out although it was to stay.
        if let Some(module) = self.module(role)
            && matches!(module.component.placement, Placement::Moved { .. } | Placement::Resident)
            && !module.present
        {
            p.phase("move_in");
            module.load(p);
        }
    }

    /// Moves a component to the host whatever its placement says.
    pub(crate) fn evict(&mut self, p: &mut Builder, role: Role) {
        if let Some(module) = self.module(role)
            && module.present
        {
            module.unload(p);
        }
    }

    /// Moves a component that is only there for its stage back to the host.
    pub fn leave(&mut self, p: &mut Builder, role: Role) {
        let empties = self.settings.runtime == Runtime::Diffusers;
        if let Some(module) = self.module(role)
            && matches!(module.component.placement, Placement::Moved { .. })
            && module.present
        {
            module.unload(p);
            if empties {
                p.empty_cache();
            }
        }
    }

    /// How the transformer in `role` gets its weights.
    pub fn streams(&mut self, p: &mut Builder, role: Role) -> Streams {
        let Some(module) = self.modules.iter().find(|m| m.role == role) else { return Streams::whole() };
        let kind = match module.component.placement {
            Placement::Streamed { resident, .. } if u64::from(resident) >= module.blocks().0 => Kind::Whole,
            Placement::Streamed { .. } => {
                let kept = self.settings.runtime == Runtime::FastVideo;
                Kind::streamed(p, module.component.placement, module.blocks().1.to_vec(), module.rest.clone(), kept)
            }
            Placement::Leaf { .. } => {
                let size = module.rest.iter().map(|t| t.size).min().unwrap_or(2);
                Kind::Leaf { size, empties: self.settings.empties_cache() }
            }
            placement if module.shard > 1 || placement == Placement::Gathered => Kind::Sharded {
                block: module.blocks().1.to_vec(),
                rest: module.rest.clone(),
                shard: module.shard,
                from_host: placement == Placement::Gathered,
                gathered: p.list(),
                next: p.list(),
                used: p.list(),
                root: p.list(),
            },
            _ => Kind::Whole,
        };
        Streams { site: site(role), kind }
    }

    /// Runs the encoder in `role` over `tokens` tokens; its last hidden states are the result.
    pub fn encode(&mut self, p: &mut Builder, role: Role, encoder: &Encoder, batch: u64, tokens: u64) -> Result<Tensor, Vec<Reason>> {
        let Some(module) = self.modules.iter().find(|m| m.role == role) else {
            return Err(vec![Reason::new("missing-component", format!("the model has no {}", role.word()))]);
        };
        let act = bytes_of(module.component.precision.computed);
        let embedding = module.rest.first().copied().map_or((0, 1), |t| (t.elements, t.size));
        if !encoder.geometry {
            self.uncovered.push(Reason::new(
                "missing-geometry",
                format!("the {} has no geometry in the catalog and no rule gives an allowance: its activations are unknown", role.word()),
            ));
        }
        if self.settings.runtime == Runtime::Diffusers {
            let leaf = matches!(module.component.placement, Placement::Leaf { .. }).then_some(transformers_text::Leaf {
                site: &LEAF,
                embedding,
                empties: self.settings.empties_cache(),
            });
            let fp16 = module.component.precision.computed == Dtype::Fp16;
            return Ok(transformers_text::Forward { encoder, batch, tokens, act, fp16, leaf }.emit(p));
        }
        let gathered = module.component.placement == Placement::Gathered;
        if !encoder.geometry {
            let states = [("batch", batch), ("tokens", tokens), ("width", encoder.hidden)];
            return Ok(vision::embed(p, gathered.then_some((&GATHERED, embedding.0, embedding.1)), &states, act));
        }
        if role == Role::ImageEncoder {
            return Ok(vision::forward(p, encoder, batch, act));
        }
        let gathered = gathered.then(|| module.text_units());
        let ranks = self.settings.tensor_parallel.into();
        Ok(fastvideo_text::forward(p, encoder, gathered.as_ref(), tokens, act, ranks))
    }

    /// Remembers what the host holds during `stage`.
    pub fn host_during(&mut self, stage: StageName) {
        let at = StageName::ALL.iter().position(|s| *s == stage).unwrap_or(0);
        let mut sum = HostBytes::default();
        for module in &self.modules {
            let rounding = self.settings.pinned_rounding;
            let bytes = match module.component.placement {
                Placement::Resident | Placement::Moved { .. } if module.present => HostBytes::default(),
                Placement::Resident => module.host(false, rounding),
                Placement::Moved { pinned } | Placement::Leaf { pinned } => module.host(pinned, rounding),
                Placement::Streamed { pinned, resident, rest_resident, .. } => {
                    module.host_of(resident.into(), !rest_resident, pinned, rounding)
                }
                Placement::Gathered => module.host(self.settings.pinned_host, rounding),
                Placement::Host => module.host(self.settings.pinned_host, false),
            };
            sum.pinned_bytes = sum.pinned_bytes.saturating_add(bytes.pinned_bytes);
            sum.pageable_bytes = sum.pageable_bytes.saturating_add(bytes.pageable_bytes);
        }
        self.host[at] = HostBytes {
            pinned_bytes: self.host[at].pinned_bytes.max(sum.pinned_bytes),
            pageable_bytes: self.host[at].pageable_bytes.max(sum.pageable_bytes),
            disk_bytes: 0,
        };
    }

    /// The host holds so many pageable bytes more during `stage`.
    pub(crate) fn host_also(&mut self, stage: StageName, pageable_bytes: u64) {
        let at = StageName::ALL.iter().position(|s| *s == stage).unwrap_or(0);
        self.host[at].pageable_bytes = self.host[at].pageable_bytes.saturating_add(pageable_bytes);
    }

    /// Something that the rules do not cover.
    pub(crate) fn uncovered(&mut self, reason: Reason) {
        self.uncovered.push(reason);
    }

    /// A remark for the reader.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The finished program.
    pub fn finish(self, p: Builder) -> Result<Lowered, Vec<Reason>> {
        let program = p.finish().map_err(|reason| vec![reason])?;
        Ok(Lowered { program, host: self.host, uncovered: self.uncovered, notes: self.notes })
    }
}

/// A parameter as `component` stores it. `None` where the rules do not cover the storage.
fn stored(parameter: Parameter, component: &Component) -> Option<Stored> {
    let elements = parameter.elements;
    let rest = element_bytes(component.precision.computed)?;
    match component.precision.stored {
        Storage::Plain(dtype) => Some(Stored::plain(&parameter, element_bytes(dtype)?, component.precision.keep_fp32)),
        _ if parameter.rows == 0 => Some(Stored { elements, size: rest, scales: 0 }),
        Storage::Fp8PerTensor => Some(Stored { elements, size: 1, scales: 1 }),
        Storage::Fp8PerChannel | Storage::Int8PerChannel | Storage::Int8PerRow => {
            Some(Stored { elements, size: 1, scales: parameter.rows })
        }
        Storage::Fp8Blockwise { block } => {
            let columns = elements / parameter.rows;
            Some(Stored { elements, size: 1, scales: parameter.rows.div_ceil(block[0].into()) * columns.div_ceil(block[1].into()) })
        }
        // Two values a byte, one scale byte for sixteen values, one fp32 scale: elements counts half-bytes in pairs.
        Storage::Nvfp4 => Some(Stored { elements: elements / 2 + elements / 16, size: 1, scales: 1 }),
    }
}

/// What cuBLAS and cuBLASLt keep from their first product on: 32 MiB and 1 MiB, seen on an H200 with torch 2.11
/// (`tests/data/wan/fixed.json`). Other architectures get less.
const LIBRARY_WORKSPACES: [u64; 2] = [32 << 20, 1 << 20];

/// The matrix library's workspaces, which live from the first product to the end of the process.
pub(crate) fn library_workspace(p: &mut Builder, list: List) {
    product_workspace(p, list);
    bias_workspace(p, list);
}

/// The workspace of plain products.
pub(crate) fn product_workspace(p: &mut Builder, list: List) {
    let workspace = p.alloc(&LIBRARY, &[("bytes", LIBRARY_WORKSPACES[0])], 1);
    p.keep(list, workspace);
}

/// The workspace of products with a bias.
pub(crate) fn bias_workspace(p: &mut Builder, list: List) {
    let workspace = p.alloc(&LIBRARY, &[("bytes", LIBRARY_WORKSPACES[1])], 1);
    p.keep(list, workspace);
}

/// Places a component on its own: `size` bytes an element, and whether what the class keeps in fp32 is kept.
pub(crate) fn load_alone(p: &mut Builder, weights: &Weights, size: u64, keep_fp32: bool, list: List) {
    let stored = |parameter: &Parameter| Stored::plain(parameter, size, keep_fp32);
    for parameter in &weights.rest {
        place(p, site(weights.role), stored(parameter), list);
    }
    for group in &weights.groups {
        p.repeat_opaque(group.count, |p| {
            for parameter in &group.block {
                place(p, site(weights.role), stored(parameter), list);
            }
        });
    }
}

/// The streams of a transformer on its own.
pub(crate) fn alone(p: &mut Builder, weights: &Weights, size: u64, keep_fp32: bool, placement: Placement) -> Streams {
    let stored = |list: &[Parameter]| list.iter().map(|t| Stored::plain(t, size, keep_fp32)).collect();
    let block = weights.groups.first().map_or(&[] as &[Parameter], |group| &group.block);
    let kind = match placement {
        Placement::Streamed { .. } => Kind::streamed(p, placement, stored(block), stored(&weights.rest[weights.buffers..]), false),
        Placement::Leaf { .. } => Kind::Leaf { size, empties: false },
        _ => Kind::Whole,
    };
    Streams { site: &TRANSFORMER, kind }
}

/// Loads what is resident before the first request.
pub fn load_stage(p: &mut Builder, residency: &mut Residency<'_>) {
    p.stage(StageName::Load);
    p.phase("weights");
    let fastvideo = residency.settings.runtime == Runtime::FastVideo;
    for module in &mut residency.modules {
        match module.component.placement {
            Placement::Resident => {
                module.load_unquantised(p);
                if module.shard > 1 {
                    pass_by(p, module);
                }
                module.load(p);
            }
            Placement::Streamed { resident, rest_resident, .. } => {
                module.load_unquantised(p);
                let passing = p.list();
                if rest_resident {
                    for tensor in &module.rest {
                        place(p, site(module.role), *tensor, module.weights);
                    }
                    for (count, block) in module.split(resident.into(), true) {
                        module.place_blocks(p, count, block, module.weights);
                    }
                }
                if fastvideo {
                    // The loader materialises the whole transformer on the device before its blocks are moved to the host.
                    for (count, block) in module.split(resident.into(), false) {
                        module.place_blocks(p, count, block, passing);
                    }
                    p.release_list(passing);
                }
            }
            Placement::Moved { .. } if fastvideo && matches!(module.role, Role::Transformer | Role::Transformer2) => {
                module.load_unquantised(p);
                module.load(p);
            }
            Placement::Gathered if module.role == Role::TextEncoder => module.text_units().wrap(p, module.blocks().0),
            Placement::Gathered => pass_by(p, module),
            // Accelerate moves parameters and leaves buffers where they are.
            Placement::Leaf { .. }
                if residency.settings.empties_cache() && matches!(module.role, Role::Transformer | Role::Transformer2) =>
            {
                for tensor in module.rest.iter().take(module.buffers) {
                    place(p, site(module.role), *tensor, module.weights);
                }
            }
            _ => {}
        }
    }
    residency.host_during(StageName::Load);
}

/// Each tensor is whole on the device before it is divided over the ranks.
fn pass_by(p: &mut Builder, module: &Module) {
    if let Some(largest) = module.rest.iter().chain(module.groups.iter().flat_map(|(_, block)| block)).max_by_key(|t| t.bytes()) {
        p.touch(&ARRIVED, &[("parameters", largest.elements)], largest.size);
    }
}
