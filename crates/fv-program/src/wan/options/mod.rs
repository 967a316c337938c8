//! What each way to compute a request needs and takes, and which of them is the best: [`crate::optimal`] for the Wan family.
//!
//! Transformers are sketched ([`super::summary`]), one block for all; the text encoder is lowered with one layer, the video decoder
//! with few frames. [`Chosen`] says what was decided for each part, and [`Options::choices`] what that means for lowering. The
//! program that this gives is packed before it is believed: [`Options::solve`] can be asked again with less.

mod decode;
mod measure;
mod settled;
mod transformer;
mod ways;

use fv_spec::authored::Role;
use fv_spec::program::{ALIGNMENT, Formats, Sampler, Tier};
use fv_spec::questions::OutputEffect;

use super::choice::{Choices, Compute, Decode, Residency, TextKeys};
use super::geometry::{Model, Request, Umt5};
use super::text;
use crate::build::Builder;
use crate::optimal::bucket::bucket;
use crate::optimal::instance::Counts;
use crate::optimal::timeline::Place;
use crate::optimal::{Blocks, Budgets, Configuration, Least, Search, SetUp, Solution, least, solve};
use crate::rates::{Rates, UnknownRate};
use crate::stream::{Component, PIECE_BYTES};
pub use decode::Decoding;
use measure::Measured;
pub use settled::{Known, Layout, MOST_OPERATIONS, Settled, Taken, Unsettled, roles};
use transformer::{KINDS, Transformer};
pub use ways::Ways;

/// Everything that can be chosen for a request.
#[derive(Debug)]
pub struct Options<'a> {
    model: &'a Model,
    request: &'a Request,
    formats: Formats,
    rates: &'a Rates,
    /// The text encoder.
    pub text: Configuration,
    /// Ways to compute transformers, fewest pieces first.
    pub ways: Ways<'a>,
    /// Whether the last solution was compared with ways that keep activations in host memory.
    pub staged: bool,
    /// How the video is decoded, and with which blocks on the device: the fastest first. Tiles come last, and are looked at when
    /// they are needed.
    pub decode: Vec<Decoding>,
    /// Page-locked memory in which parts hand over what they made; kept all the time.
    pub request_bytes: u64,
    /// What was found out on the way, for other budgets and other devices.
    pub known: Known,
    /// Operations of the decoding without tiles that has the fewest.
    fewest_of_decoding: u64,
}

/// What was chosen for all parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The text encoder.
    pub text: Solution,
    /// The transformer, or both experts. Its configuration is the index of a way.
    pub transformer: Solution,
    /// How the video is decoded.
    pub decode: Decoding,
}

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unsolved {
    /// A part does not fit, and the smallest needs of its ways, those of the request included.
    Part(Role, Vec<Least>),
    /// A rate is not known.
    Rate(UnknownRate),
}

impl From<UnknownRate> for Unsolved {
    fn from(rate: UnknownRate) -> Self {
        Self::Rate(rate)
    }
}

impl<'a> Options<'a> {
    /// What can be chosen for a request that can be lowered.
    ///
    /// # Errors
    /// The rate that is not known.
    pub fn new(model: &'a Model, request: &'a Request, formats: Formats, rates: &'a Rates) -> Result<Self, UnknownRate> {
        let (text, embeddings) = encoder(model, request, formats, rates)?;
        let (decode, handed) = decode::ways(model, request, formats, rates, false)?;
        let ways = Ways::new(model, request, Transformer::new(model, request, formats, rates)?);
        // The latent, and between two experts what the sampler keeps.
        let turn = model.steps_of_first(&request.schedule);
        let several = turn > 0 && turn < request.schedule.steps && request.schedule.sampler == Sampler::UniPc;
        let states = if several { 4 } else { 1 } * model.vae.latent * model.latent(request).len() * formats.exact.bytes();
        let request_bytes = embeddings + handed.max(states);
        let (known, fewest_of_decoding) = (Known::default(), decode::fewest_operations(model, request));
        Ok(Self { model, request, formats, rates, text, ways, staged: false, decode, request_bytes, known, fewest_of_decoding })
    }

    /// The best of each part within the budgets.
    ///
    /// # Errors
    /// The first part that does not fit, or a rate that is not known.
    pub fn solve(&mut self, budgets: &Budgets) -> Result<Chosen, Unsolved> {
        // What parts hand over is registered and kept all the time.
        let rest = self.beside_request(budgets);
        let transformer = self.solve_transformer(&rest)?;
        let text = solve(&[self.text], &rest);
        let compute = self.ways.all()[transformer.configuration];
        Ok(Chosen {
            text: text.ok_or_else(|| self.unsolved(Role::TextEncoder, least(&[self.text], budgets), budgets))?,
            transformer,
            decode: self.solve_decode(&rest, &compute)?,
        })
    }

    fn beside_request(&self, budgets: &Budgets) -> Budgets {
        Budgets {
            device_bytes: budgets.device_bytes.saturating_sub(budgets.registered(self.request_bytes)),
            host_bytes: budgets.host_bytes.saturating_sub(self.request_bytes),
            ..*budgets
        }
    }

    /// The best way to run the transformer of those that are allowed and that the last solution was compared with: by how they
    /// compute, and by how many blocks live where.
    pub fn alternative(&self, budgets: &Budgets, way: impl Fn(&Compute) -> bool, counts: impl Fn(&Counts) -> bool) -> Option<Solution> {
        let budgets = self.beside_request(budgets);
        let mut search = Search::new(&budgets, &counts);
        let kinds = 0..if self.staged { KINDS } else { 1 };
        self.ways.search(kinds, &budgets, self.most_of_steps(), &way, &counts, &mut search).ok()?;
        search.best.map(|(_, solution)| solution)
    }

    fn solve_transformer(&mut self, budgets: &Budgets) -> Result<Solution, Unsolved> {
        // What no program is written out for is taken only where there is nothing else.
        let found = self.best_of(budgets, self.most_of_steps())?;
        let (best, staged) = if found.0.is_some() { found } else { self.best_of(budgets, u64::MAX)? };
        self.staged = staged;
        match best {
            Some(solution) => Ok(solution),
            None => Err(self.unsolved(Role::Transformer, least(&self.ways.smallest()?, budgets), budgets)),
        }
    }

    /// Operations that the steps of a program may have, if it is to be written out.
    fn most_of_steps(&self) -> u64 {
        MOST_OPERATIONS.saturating_sub(self.fewest_of_decoding)
    }

    /// The best of the ways with so many operations, and whether it was compared with ways that keep activations in host memory.
    fn best_of(&self, budgets: &Budgets, most: u64) -> Result<(Option<Solution>, bool), UnknownRate> {
        let mut search = Search::new(budgets, &|_| true);
        self.ways.search(0..1, budgets, most, &|_| true, &|_| true, &mut search)?;
        // Nothing that moves more is faster than the fastest computing.
        let fastest = bucket(self.ways.fastest_ns()?);
        let staged = search.best.as_ref().is_none_or(|(best, _)| best.0 > fastest);
        if staged {
            self.ways.search(1..KINDS, budgets, most, &|_| true, &|_| true, &mut search)?;
        }
        Ok((search.best.map(|(_, solution)| solution), staged))
    }

    fn solve_decode(&mut self, budgets: &Budgets, compute: &Compute) -> Result<Decoding, Unsolved> {
        let left = MOST_OPERATIONS.saturating_sub(self.operations_of_steps(compute));
        let fits = |way: &&Decoding| budgets.hold(way.need);
        let short = |way: &&Decoding| fits(way) && decode::operations(self.model, self.request, &way.decode) <= left;
        if let Some(way) = self.decode.iter().find(short) {
            return Ok(way.clone());
        }
        if self.decode.iter().all(|way| !way.tiled) {
            let known = self.known.tiled.take().filter(|(rates, _)| rates == self.rates);
            let (rates, tiled) = match known {
                Some(known) => known,
                None => (*self.rates, decode::ways(self.model, self.request, self.formats, self.rates, true)?.0),
            };
            self.decode.extend(tiled.iter().cloned());
            self.known.tiled = Some((rates, tiled));
        }
        let found = self.decode.iter().find(fits).cloned();
        found.ok_or_else(|| {
            let needs = self.decode.iter().map(|way| Least {
                device_bytes: way.need.device_bytes.saturating_add(budgets.registered(way.need.host_bytes)),
                host_bytes: way.need.host_bytes,
            });
            self.unsolved(Role::Vae, needs.collect(), budgets)
        })
    }

    fn unsolved(&self, role: Role, needs: Vec<Least>, budgets: &Budgets) -> Unsolved {
        let whole = needs.into_iter().map(|least| Least {
            device_bytes: least.device_bytes.saturating_add(budgets.registered(self.request_bytes)),
            host_bytes: least.host_bytes.saturating_add(self.request_bytes),
        });
        Unsolved::Part(role, whole.collect())
    }

    /// What was chosen, for lowering.
    pub fn choices(&self, chosen: &Chosen) -> Choices {
        let experts = if self.model.boundary.is_some() { 2 } else { 1 };
        Choices {
            formats: self.formats,
            text: residency(&chosen.text),
            transformers: vec![residency(&chosen.transformer); experts],
            compute: self.ways.all()[chosen.transformer.configuration],
            vae: chosen.decode.residency.clone(),
            decode: chosen.decode.decode,
        }
    }
}

/// Where blocks of a solution live.
pub fn residency(solution: &Solution) -> Residency {
    let tier = |place: &Place| match place {
        Place::Device => Tier::Device,
        Place::Pinned => Tier::Pinned,
        Place::Disk => Tier::Disk,
    };
    Residency { tiers: solution.places.iter().map(tier).collect(), slots: solution.counts.slots, ring: solution.counts.ring }
}

/// Blocks of a component that are all alike.
fn blocks(component: &Component, rates: &Rates) -> Result<Blocks, UnknownRate> {
    let bytes = component.block_group(0).bytes;
    Ok(Blocks {
        count: u32::try_from(component.blocks.len()).unwrap_or(u32::MAX),
        bytes,
        copy_ns: rates.copy_in_ns(bytes)?,
        read_ns: rates.read_ns(bytes)?,
    })
}

/// Page-locked places through which what lives on the device is loaded.
fn loading_bytes(component: &Component) -> u64 {
    let groups = std::iter::once(component.root_group().bytes).chain([component.block_group(0).bytes]);
    2 * groups.map(|bytes| bytes.min(PIECE_BYTES)).max().unwrap_or(0)
}

/// The text encoder, and the bytes of the embeddings that it makes.
fn encoder(model: &Model, request: &Request, formats: Formats, rates: &Rates) -> Result<(Configuration, u64), UnknownRate> {
    let mut builder = Builder::new(&model.id, formats, request.schedule.clone());
    let region = builder.region("request", Tier::Pinned);
    let small = Umt5 { layers: 1, ..model.text };
    let parcels = text::lower(&mut builder, &small, &Residency::resident(1), &super::prompts(request), request.text_rows, region);
    let embeddings = parcels.iter().map(|parcel| parcel.view.bytes().next_multiple_of(ALIGNMENT)).sum();
    let measured = Measured::new(builder.finish(), rates)?;
    let component = text::component(&model.text, formats.compute);
    let part = "text_encoder";
    let configuration = Configuration {
        blocks: blocks(&component, rates)?,
        device_bytes: component.root_group().bytes + measured.peak(part, Tier::Device, |_| true),
        host_bytes: measured.peak(part, Tier::Pinned, |segment| segment == "encode"),
        loading_bytes: loading_bytes(&component),
        sweeps: [1, 0],
        rounds: 1,
        set_up: SetUp::default(),
        sweep_ns: measured.computing_ns(Some(false)),
        round_ns: 0,
        block_ns: measured.computing_ns(Some(true)),
        staged: None,
        effect: OutputEffect::None,
    };
    Ok((configuration, embeddings))
}
