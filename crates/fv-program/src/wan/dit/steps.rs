//! A transformer's part of a request: it is loaded, told the text once, and denoises for some steps.

use fv_spec::authored::Role;
use fv_spec::program::kernel::{Grid, Input};
use fv_spec::program::{BufferKind, Kernel, Sampler, StageName, Stream, View};

use super::block::Text;
use super::ends::{Time, rotary_table};
use super::{Residual, Transformer, weights};
use crate::build::Builder;
use crate::stream::{Regions, Weights};
use crate::wan::choice::{Compute, Residency, TextKeys};
use crate::wan::geometry::Dit;
use crate::wan::staged::Parcel;

/// A transformer and the steps that it takes.
pub(in crate::wan) struct Expert<'a> {
    pub(in crate::wan) role: Role,
    pub(in crate::wan) model: &'a Dit,
    pub(in crate::wan) residency: &'a Residency,
    pub(in crate::wan) compute: Compute,
    /// Extents of the latent.
    pub(in crate::wan) latent: Grid,
    /// Its first step, and the one after its last.
    pub(in crate::wan) steps: (u32, u32),
    /// The guidance scale; absent where predictions without the prompt are not needed.
    pub(in crate::wan) guidance: Option<f64>,
    /// Prompt embeddings; with guidance also of the negative prompt.
    pub(in crate::wan) texts: &'a [Parcel],
    /// Whether one chunk and one head group stand for all others of the same size.
    pub(in crate::wan) sketch: bool,
}

/// What goes from step to step: the latent, then the sampler's states.
pub(in crate::wan) struct Sampling {
    pub(in crate::wan) sampler: Sampler,
    /// Steps of the whole request.
    pub(in crate::wan) steps: u32,
    /// Region `request`.
    pub(in crate::wan) request: u32,
    /// Where they lie in host memory; empty before the first step.
    pub(in crate::wan) handed: Vec<Parcel>,
}

impl Sampling {
    /// Matrices beside the latent that a sampler keeps.
    fn states(&self) -> usize {
        match self.sampler {
            Sampler::UniPc => 3,
            Sampler::Euler | Sampler::Dmd => 0,
        }
    }
}

/// What is alive through all steps of an expert.
struct Steps<'a> {
    transformer: Transformer<'a>,
    guidance: Option<f64>,
    /// What to attend to, for each prediction.
    texts: Vec<Text>,
    /// The latent, then states.
    state: Vec<View>,
    /// With distribution matching: room for noise in host memory.
    noise: Option<View>,
    /// Blocks in the order of a step.
    order: Vec<usize>,
}

/// All steps of an expert. The latent and states are handed over in host memory.
pub(in crate::wan) fn lower(builder: &mut Builder, expert: &Expert<'_>, sampling: &mut Sampling) {
    let (name, model) = (expert.role.word(), expert.model);
    let regions = Regions::new(builder, name);
    builder.segment(StageName::Load, &format!("load_{name}"), 1, 0);
    let component = weights::component(model, expert.role, builder.formats());
    let weights = Weights::load(builder, &component, expert.residency, regions);
    let mut steps = Steps::set_up(builder, expert, (weights, regions), sampling);
    let (first, end) = expert.steps;
    if end - first > 1 {
        builder.segment(StageName::Denoising, "step", end - first - 1, first);
        steps.step(builder, sampling, first, true);
    }
    builder.segment(StageName::Denoising, "last_step", 1, end - 1);
    steps.step(builder, sampling, end - 1, false);
    steps.hand_over(builder, sampling, end);
}

impl<'a> Steps<'a> {
    fn set_up(builder: &mut Builder, expert: &Expert<'a>, loaded: (Weights, Regions), sampling: &mut Sampling) -> Self {
        let (mut weights, regions) = loaded;
        let (model, choices, latent, [frames, height, width]) = (expert.model, expert.compute, expert.latent, expert.model.patch);
        let blocks: Vec<_> = (0..expert.residency.tiers.len()).collect();
        let predictions = if expert.guidance.is_some() { 2 } else { 1 };
        let passes = if choices.paired_guidance { 1 } else { predictions };
        let order = blocks.repeat(passes);
        let kept = choices.text_keys == TextKeys::Kept;
        weights.prepare(builder, if kept { &blocks } else { &order });

        builder.segment(StageName::Denoising, &format!("set_up_{}", expert.role.word()), 1, expert.steps.0);
        let grid = Grid { frames: latent.frames / frames, height: latent.height / height, width: latent.width / width };
        let rotary = rotary_table(builder, regions.device, grid, model.hidden / model.heads);
        let mut transformer = Transformer { model, choices, regions, weights, latent, grid, rotary, sketch: expert.sketch };
        let (state, noise) = first_state(builder, &transformer, sampling);
        let embedded: Vec<_> = expert.texts[..predictions].iter().map(|text| receive_text(builder, &transformer, text)).collect();
        let texts = if kept {
            transformer.weights.pass(builder, &blocks, &order);
            keep_text_keys(builder, &mut transformer, &blocks, &embedded)
        } else {
            embedded.into_iter().map(Text::Embedded).collect()
        };
        Self { transformer, guidance: expert.guidance, texts, state, noise, order }
    }

    /// One step; `again` where it is followed by another one of the same expert.
    fn step(&mut self, builder: &mut Builder, sampling: &Sampling, step: u32, again: bool) {
        let time = self.transformer.time(builder);
        let next = if again { &self.order[..] } else { &[] };
        self.transformer.weights.pass(builder, &self.order, next);
        let predictions = if self.transformer.choices.paired_guidance {
            self.paired(builder, time)
        } else {
            (0..self.texts.len()).map(|at| self.single(builder, at, time)).collect()
        };
        time.free(builder);
        builder.phase("sampler");
        if let (Some(scale), [with, without]) = (self.guidance, &predictions[..]) {
            builder.compute(Kernel::Guide { scale }, vec![*with, *without], *with);
            builder.free(without.buffer);
        }
        let last_of_all = step + 1 == sampling.steps;
        let latent = self.state[0];
        let noise = self.noise.filter(|_| !last_of_all).map(|host| {
            let target = self.transformer.exact(builder, "noise", latent.rows, latent.columns);
            draw(builder, host, step + 1, target);
            target
        });
        let reads = [latent, predictions[0]].into_iter().chain(self.state[1..].iter().copied()).chain(noise);
        builder.op(Stream::Compute, Kernel::Sample, reads.collect(), self.state.clone());
        builder.free(predictions[0].buffer);
        if let Some(noise) = noise {
            builder.free(noise.buffer);
        }
    }

    /// Both predictions, block by block.
    fn paired(&mut self, builder: &mut Builder, time: Time) -> Vec<View> {
        let transformer = &mut self.transformer;
        let mut streams: Vec<Residual> = self.texts.iter().map(|_| transformer.embed_patches(builder, self.state[0])).collect();
        for &block in &self.order {
            transformer.weights.enter(builder, block);
            let modulation = transformer.modulation(builder, time.projected);
            for (x, text) in streams.iter_mut().zip(&self.texts) {
                transformer.block(builder, block, x, modulation, text);
            }
            builder.free(modulation.buffer);
            transformer.weights.leave(builder);
        }
        streams.into_iter().map(|x| transformer.head(builder, x, time.embedding)).collect()
    }

    /// One prediction.
    fn single(&mut self, builder: &mut Builder, at: usize, time: Time) -> View {
        let transformer = &mut self.transformer;
        let mut x = transformer.embed_patches(builder, self.state[0]);
        for &block in &self.order[..self.order.len() / self.texts.len()] {
            transformer.weights.enter(builder, block);
            let modulation = transformer.modulation(builder, time.projected);
            transformer.block(builder, block, &mut x, modulation, &self.texts[at]);
            builder.free(modulation.buffer);
            transformer.weights.leave(builder);
        }
        transformer.head(builder, x, time.embedding)
    }

    /// Everything goes but the latent and, before another expert, the sampler's states.
    fn hand_over(self, builder: &mut Builder, sampling: &mut Sampling, end: u32) {
        let mut state = self.state;
        if end == sampling.steps {
            state.drain(1..).for_each(|gone| builder.free(gone.buffer));
        }
        builder.phase("latent");
        for view in state {
            sampling.handed.push(Parcel::send(builder, sampling.request, "latent", view));
            builder.free(view.buffer);
        }
        for text in self.texts {
            match text {
                Text::Embedded(view) => builder.free(view.buffer),
                Text::Kept(kept) => kept.into_iter().flat_map(|(k, v)| [k, v]).for_each(|view| builder.free(view.buffer)),
            }
        }
        if let Some(noise) = self.noise {
            builder.free(noise.buffer);
        }
        builder.free(self.transformer.rotary.buffer);
        self.transformer.weights.free(builder);
    }
}

/// Draws noise in host memory and copies it to the device. Computations waited for the copy of what lay there before.
fn draw(builder: &mut Builder, host: View, index: u32, target: View) {
    builder.wait_for_compute(Stream::Disk);
    builder.op(Stream::Disk, Kernel::Input { what: Input::Noise, index }, vec![], vec![host]);
    let written = builder.done(Stream::Disk).into_iter().collect();
    Parcel { view: host, written }.receive(builder, target);
}

/// The latent and the sampler's states before an expert's first step: noise and zeros, or what the expert before left. With
/// distribution matching the room for noise stays.
fn first_state(builder: &mut Builder, transformer: &Transformer, sampling: &mut Sampling) -> (Vec<View>, Option<View>) {
    builder.phase("latent");
    let (channels, positions, element) = (transformer.model.out_channels, transformer.latent.len(), builder.formats().exact);
    let names = std::iter::once("latent").chain(std::iter::repeat_n("sampler_state", sampling.states()));
    let state: Vec<_> = names.map(|name| transformer.exact(builder, name, channels, positions)).collect();
    let stays = sampling.sampler == Sampler::Dmd;
    let first = sampling.handed.is_empty();
    let noise = (first || stays).then(|| builder.matrix(sampling.request, "noise", BufferKind::Staging, element, channels, positions));
    if let (true, Some(host)) = (first, noise) {
        draw(builder, host, 0, state[0]);
        state[1..].iter().for_each(|&zeros| builder.compute(Kernel::Zero, vec![], zeros));
    }
    for (parcel, &view) in sampling.handed.drain(..).zip(&state) {
        parcel.receive_last(builder, view);
    }
    if let (false, Some(host)) = (stays, noise) {
        builder.free(host.buffer);
    }
    (state, noise.filter(|_| stays))
}

/// A prompt's embedding as the transformer sees it.
fn receive_text(builder: &mut Builder, transformer: &Transformer, text: &Parcel) -> View {
    builder.phase("text_embedding");
    let received = transformer.activation(builder, "text", text.view.rows, text.view.columns);
    text.receive(builder, received);
    let embedded = transformer.embed_text(builder, received);
    builder.free(received.buffer);
    embedded
}

/// Keys and values of the text for all blocks.
fn keep_text_keys(builder: &mut Builder, transformer: &mut Transformer, blocks: &[usize], embedded: &[View]) -> Vec<Text> {
    let mut kept = vec![Vec::new(); embedded.len()];
    for &block in blocks {
        transformer.weights.enter(builder, block);
        for (kept, &text) in kept.iter_mut().zip(embedded) {
            kept.push(transformer.text_keys(builder, text, BufferKind::Cache));
        }
        transformer.weights.leave(builder);
    }
    for text in embedded {
        builder.free(text.buffer);
    }
    kept.into_iter().map(Text::Kept).collect()
}
