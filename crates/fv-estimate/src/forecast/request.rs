//! A request of MiniMax H3 under `FreeVideo`, from its plan: every pass, and the stages that there is a figure for.

use fv_spec::compiled::RulesFile;
use fv_spec::estimate::{Reason, StageName, Tier};
use fv_spec::forecast::{PassTime, StageTime, TimeBasis, TimeForecast, TimeInterval};
use fv_spec::plan::forecast as planned;
use fv_spec::plan::{AttentionBackend, BlockCache, Compute, Decoder, EncoderProcess, Pass, Placement, Plan, PolicyName, Role, Source};

use super::coefficients::Coefficients;
use super::freevideo::{BLOCKS, Law, PREFIX, Rows, Step, StepRates, disk, is_hopper, real, step};
use super::interval::Seconds;
use super::rates::{GIGA, Rates, TERA, used};
use super::workload::{sum, unknown};
use crate::minimax_h3::geometry::{audio_latents, latent_frames};
use fv_spec::authored::{Accumulate, Dtype};

/// Rows at which steps were measured, and groups of heads.
const MEASURED_ROWS: u64 = 72_576;
const MEASURED_GROUPS: [u64; 3] = [4, 8, 16];
/// The decoder: width, blocks, parameters of a block (its FP32 bytes are four times that), rows of a tile of 256 x 256 pixels and
/// seven latent frames with its registers, and pixels from one tile to the next.
const DECODER_WIDTH: u64 = 2048;
const DECODER_BLOCKS: u64 = 36;
const DECODER_BLOCK_PARAMETERS: u64 = 67_143_680;
const TILE_ROWS: u64 = 16 * 16 * 7 + 5;
const TILE: u32 = 256;
const STRIDE: u32 = 192;
/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// What a request does, apart from the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Passes over the steps: name, steps, and one of them.
    pub passes: Vec<(String, u32, Step)>,
    /// Whether latents are scaled up between two passes.
    pub upscales: bool,
    /// Whether the text is encoded.
    pub encodes: bool,
    /// Bytes that are page-locked for blocks.
    pub pin_bytes: u64,
    /// The video decoder.
    pub decoder: Option<DecodeWork>,
}

/// What the video decoder does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeWork {
    /// Clips, each of which passes every block.
    pub clips: u64,
    /// Tiles of a clip.
    pub tiles: u64,
    /// Blocks that are copied for every clip.
    pub copied: u64,
    /// Bytes of one.
    pub block_bytes: u64,
    /// Whether they come from disk.
    pub from_disk: bool,
    /// Whether a block is copied while the one before is computed.
    pub ahead: bool,
}

/// Tiles along one axis.
fn tiles(pixels: u32) -> u64 {
    if pixels <= TILE { 1 } else { u64::from((pixels - (TILE - STRIDE)).div_ceil(STRIDE)).max(2) }
}

impl DecodeWork {
    /// The decoder of a plan.
    fn of(plan: &Plan, decoder: &Decoder) -> Self {
        let placement = plan.placements.iter().find(|placement| placement.component == decoder.component);
        let blocks = placement.map_or(DECODER_BLOCKS, |placement| u64::from(placement.block_count));
        let on_device = placement.map_or(blocks, |placement| placement.count(Tier::Device));
        let planned = decoder.tiles.map(|tiles| u64::from(tiles.columns) * u64::from(tiles.rows));
        Self {
            clips: decoder.clips.into(),
            tiles: planned.unwrap_or_else(|| tiles(plan.request.width) * tiles(plan.request.height)),
            copied: blocks.saturating_sub(on_device),
            block_bytes: placement.map_or(4 * DECODER_BLOCK_PARAMETERS, |placement| placement.block_bytes),
            from_disk: placement.is_some_and(|placement| placement.disk_streaming),
            ahead: placement.is_some_and(|placement| placement.slots > 1),
        }
    }

    /// Operations: linear layers of every row of every tile, and attention within tiles.
    fn operations(&self) -> u128 {
        let linear = 2 * u128::from(TILE_ROWS) * u128::from(DECODER_BLOCK_PARAMETERS);
        let attention = 4 * u128::from(TILE_ROWS) * u128::from(TILE_ROWS * DECODER_WIDTH);
        (linear + attention) * u128::from(DECODER_BLOCKS) * self.visits()
    }

    /// Tiles of all clips.
    fn visits(&self) -> u128 {
        u128::from(self.clips) * u128::from(self.tiles)
    }
}

impl Request {
    /// Of a plan. Nothing where the plan is for another family than MiniMax H3.
    pub fn of(plan: &Plan) -> Option<Self> {
        let placement = plan.placements.iter().find(|placement| placement.component == Role::Transformer)?;
        let passes = plan.passes.iter().map(|pass| {
            let compute = pass.compute.iter().find(|compute| compute.component == Role::Transformer)?;
            Some((pass.name.clone(), pass.steps, step_of(plan, placement, pass, compute)))
        });
        Some(Self {
            passes: passes.collect::<Option<_>>()?,
            upscales: plan.two_pass.as_ref().is_some_and(|between| between.upscale.is_some()),
            encodes: plan.encoders.iter().any(|encoder| encoder.process != EncoderProcess::Skipped),
            pin_bytes: placement.pin_bytes,
            decoder: plan.decoders.iter().find(|decoder| decoder.component == Role::Vae).map(|decoder| DecodeWork::of(plan, decoder)),
        })
    }
}

/// A step of a pass.
fn step_of(plan: &Plan, placement: &Placement, pass: &Pass, compute: &Compute) -> Step {
    let request = &plan.request;
    let (mut pinned, mut pageable, mut from_disk) =
        (placement.count(Tier::Pinned), placement.count(Tier::Pageable), placement.count(Tier::Disk));
    // A pass's cache takes blocks from disk first, then those in ordinary memory.
    let on_device = placement.count(Tier::Device);
    let mut cached = pass.block_cache.as_ref().map_or(0, |cache| cached(cache, placement.block_bytes, on_device));
    for left in [&mut from_disk, &mut pageable, &mut pinned] {
        let taken = cached.min(*left);
        *left -= taken;
        cached -= taken;
    }
    let latent = u64::from(request.latent_frames).max(1);
    Step {
        rows: Rows {
            video: pass.video_tokens,
            frame: pass.video_tokens / latent,
            references: request.reference_video_tokens + request.reference_audio_tokens,
            text: request.text_tokens.value,
            audio: 2 * audio_latents(request.frames.into()),
        },
        head_group: compute.head_group.into(),
        gemm: compute.gemm,
        attention: compute.attention.window.unwrap_or(compute.attention.global),
        slots: compute.slots,
        block_bytes: placement.block_bytes,
        pinned,
        pageable,
        disk: from_disk,
        outputs_on_host: compute.outputs_on_host,
        residual_on_host: compute.residual_on_host,
        recompute: compute.feed_forward_recompute,
    }
}

/// Blocks that a pass's cache adds to those on the device.
fn cached(cache: &BlockCache, block_bytes: u64, on_device: u64) -> u64 {
    let room = cache.allowance_bytes / block_bytes.max(1);
    cache.most_blocks.map_or(room, |most| room.min(u64::from(most).saturating_sub(on_device)))
}

/// How far figures may lie off, and on what they rest.
struct Trust {
    basis: TimeBasis,
    /// Factors of steps without and with reads from disk.
    ends: [[f64; 2]; 2],
    /// Factors of the other stages.
    other: [f64; 2],
}

impl Trust {
    fn of(request: &Request, rates: &Rates, c: &Coefficients<'_>) -> Result<Self, Reason> {
        let ends =
            |name: &str| -> Result<[f64; 2], Reason> { Ok([c.positive(&format!("{name}-low"))?, c.positive(&format!("{name}-high"))?]) };
        let same_device = c
            .find("passes")
            .and_then(|passes| passes.range.get("memory_bandwidth_gbps").copied())
            .is_some_and(|[low, high]| is_hopper(rates) && rates.memory.is_some_and(|memory| (low..=high).contains(&memory.value)));
        let inside = request.passes.iter().all(|(_, _, step)| {
            step.rows.video == MEASURED_ROWS
                && step.rows.references == 0
                && MEASURED_GROUPS.contains(&step.head_group)
                && !(step.outputs_on_host || step.residual_on_host || step.recompute)
                && step.attention == AttentionBackend::Sage2
        });
        let basis = match (same_device, inside) {
            (true, true) => TimeBasis::Measured,
            (true, false) => TimeBasis::Extrapolated,
            (false, _) => TimeBasis::Scaled,
        };
        let wide = if same_device { ends("extrapolated")? } else { ends("scaled")? };
        let measured = [ends("measured")?, ends("measured-disk")?];
        Ok(Self { basis, ends: if basis == TimeBasis::Measured { measured } else { [wide; 2] }, other: wide })
    }

    /// The basis of a stage that no run on this device established.
    fn derived(&self) -> TimeBasis {
        if self.basis == TimeBasis::Scaled { TimeBasis::Scaled } else { TimeBasis::Extrapolated }
    }
}

/// How long a request takes on a device.
pub fn forecast(request: &Request, rates: &Rates, rules: &RulesFile) -> TimeForecast {
    let mut answer = TimeForecast::default();
    let c = Coefficients::new(rules, PREFIX);
    let known = Law::of(rules).and_then(|law| Ok((law, Trust::of(request, rates, &c)?)));
    match known {
        Ok((law, trust)) => {
            let ranges = disk_range(rates, &c);
            sampling(request, rates, &law, &trust, ranges, &mut answer);
            others(request, rates, &law, &trust, ranges, &c, &mut answer);
        }
        Err(reason) => answer.unknown.push(reason),
    }
    finish(request, &mut answer);
    answer
}

/// Slowest and fastest disk where nobody says how fast it is.
fn disk_range(rates: &Rates, c: &Coefficients<'_>) -> Option<[f64; 2]> {
    if rates.disk.is_some() {
        return None;
    }
    Some([c.positive("disk-rate-low").ok()?, c.positive("disk-rate-high").ok()?])
}

/// The passes over the steps.
fn sampling(request: &Request, rates: &Rates, law: &Law, trust: &Trust, ranges: Option<[f64; 2]>, answer: &mut TimeForecast) {
    let mut all = Seconds::default();
    let mut operations = 0_u128;
    for (name, steps, one) in &request.passes {
        let found = match StepRates::of(one, rates, law) {
            Ok(found) => found,
            Err(reasons) => {
                answer.unknown.extend(reasons.into_iter().filter(|reason| !answer.unknown.contains(reason)).collect::<Vec<_>>());
                return;
            }
        };
        let ends = trust.ends[usize::from(one.disk > 0)];
        let parts = step(one, &found, law);
        let mut seconds = Seconds::within(parts.total(), ends);
        if trust.basis != TimeBasis::Measured {
            // Where computing takes longer than on the measured device, it may hide what is moved to host memory and back.
            let computing = parts.products + parts.attention + parts.passes;
            seconds.low = seconds.low.min((parts.total() - parts.staging.min(computing)) * ends[0]);
        }
        // Of the measured host the assumed rate is the measured one.
        if let (true, Some([slow, fast])) = (one.disk > 0 && trust.basis != TimeBasis::Measured, ranges) {
            let at = |rate: f64| {
                let mut other = found;
                other.disk.value = rate;
                step(one, &other, law).total()
            };
            seconds.low = seconds.low.min(at(fast) * ends[0]);
            seconds.high = seconds.high.max(at(slow) * ends[1]);
        }
        all = all.plus(seconds.times(f64::from(*steps)));
        operations = operations.max(one.products().saturating_add(one.attention()));
        for rate in found.used(one) {
            if !answer.rates.contains(&rate) {
                answer.rates.push(rate);
            }
        }
        answer.passes.push(PassTime { name: name.clone(), steps: *steps, step: seconds.nanoseconds() });
    }
    answer.step_tflop = Some(tflop(operations));
    answer.stages.push(StageTime { name: StageName::Denoising, time: all.nanoseconds(), basis: trust.basis });
    if request.passes.iter().any(|(_, _, one)| one.disk > 0) && rates.disk.is_none() {
        answer.notes.push(format!(
            "the disk is taken to read {} GB/s, as the measured host's did: a probe with the weights' folder says how fast this one is",
            law.disk
        ));
    }
}

/// Loading, encoding and decoding.
fn others(
    request: &Request,
    rates: &Rates,
    law: &Law,
    trust: &Trust,
    ranges: Option<[f64; 2]>,
    c: &Coefficients<'_>,
    answer: &mut TimeForecast,
) {
    let rate = disk(rates, law);
    let read = |bytes: f64| {
        let at = |rate: f64| bytes / (rate * GIGA);
        let slowest = ranges.map_or(rate.value, |[slow, _]| slow);
        // At best everything is in the system's cache already.
        let value = at(rate.value);
        Seconds { low: at(law.host).min(value), value, high: at(slowest).max(value) * trust.other[1] }
    };
    let basis = trust.derived();
    let mut push = |name: StageName, seconds: Seconds| answer.stages.push(StageTime { name, time: seconds.nanoseconds(), basis });
    if let (Some((_, _, one)), Ok(pin)) = (request.passes.first(), c.value("pin-seconds-per-gib")) {
        let pinning = Seconds::within(real(request.pin_bytes.into()) / GIB * pin, trust.other);
        push(StageName::Load, read(real(u128::from(one.block_bytes) * u128::from(BLOCKS))).plus(pinning));
    }
    if let (true, Ok(bytes)) = (request.encodes, c.value("encoder-bytes")) {
        push(StageName::Encoding, read(bytes));
    }
    if rate.source == Source::Assumed && !answer.rates.iter().any(|used| used.name == "disk") {
        answer.rates.push(used("disk", rate, "GB/s"));
    }
    let Some(work) = &request.decoder else { return };
    match decoding(work, rates, law, c) {
        Ok((computing, copies)) => {
            let mut seconds = Seconds::within(computing + copies, trust.other);
            if let (true, Some([slow, fast])) = (work.from_disk, ranges) {
                let copies = |other: f64| copies * rate.value / other;
                seconds.low = seconds.low.min((computing + copies(fast)) * trust.other[0]);
                seconds.high = seconds.high.max((computing + copies(slow)) * trust.other[1]);
            }
            answer.stages.push(StageTime { name: StageName::Decoding, time: seconds.nanoseconds(), basis });
        }
        Err(reasons) => {
            let new: Vec<Reason> = reasons.into_iter().filter(|reason| !answer.unknown.contains(reason)).collect();
            answer.unknown.extend(new);
        }
    }
}

/// Seconds in which the decoder computes, and in which it waits for its blocks.
fn decoding(work: &DecodeWork, rates: &Rates, law: &Law, c: &Coefficients<'_>) -> Result<(f64, f64), Vec<Reason>> {
    let one = |reason: Reason| vec![reason];
    let dense = rates.products(Dtype::Fp16, Accumulate::Fp32).map_err(one)?;
    let memory = rates.memory().map_err(one)?;
    let efficiency = c.positive("decoder-efficiency").map_err(one)?;
    let passes = c.value("decoder-passes").map_err(one)?;
    let row = real(u128::from(DECODER_WIDTH * 2 * DECODER_BLOCKS) * u128::from(TILE_ROWS) * work.visits());
    let computing = real(work.operations()) / (dense.value * TERA * efficiency) + row * passes / (memory.value * GIGA);
    let visits = real(u128::from(work.copied) * u128::from(work.clips));
    if work.copied == 0 {
        return Ok((computing, 0.0));
    }
    let bytes = real(work.block_bytes.into());
    if work.from_disk {
        return Ok((computing, visits * bytes / (disk(rates, law).value.min(law.host) * GIGA)));
    }
    let copy = bytes / (rates.copies(law.link).map_err(one)?.value * GIGA);
    let beside = if work.ahead { computing / real((DECODER_BLOCKS * work.clips.max(1)).into()) } else { 0.0 };
    Ok((computing, visits * (copy - beside).max(0.0)))
}

/// Sums up, and names what has no figure.
fn finish(request: &Request, answer: &mut TimeForecast) {
    answer.stages.sort_by_key(|stage| stage.name);
    let has = |answer: &TimeForecast, name: StageName| answer.stages.iter().any(|stage| stage.name == name);
    if has(answer, StageName::Denoising) {
        answer.request = Some(sum(answer.stages.iter().map(|stage| stage.time)));
    }
    for name in StageName::ALL {
        let wanted = name != StageName::Encoding || request.encodes;
        if wanted && !has(answer, name) {
            answer.leaves_out.push(name.word().to_owned());
        }
    }
    if request.upscales {
        answer.leaves_out.push("scaling latents up between the passes".to_owned());
    }
    answer.leaves_out.push("sound, and writing the file".to_owned());
}

/// TFLOP with four significant digits.
pub fn tflop(operations: u128) -> f64 {
    let mut unit = 1_u128;
    while operations / unit >= 10_000 {
        unit *= 10;
    }
    let digits = (operations + unit / 2) / unit * unit;
    real(digits) / TERA
}

/// How long a plan takes. Estimates show this, and plans carry it.
pub fn of_plan(plan: &Plan, rates: &Rates, rules: &RulesFile) -> TimeForecast {
    if plan.policy == PolicyName::Optimal {
        return carried(plan);
    }
    match Request::of(plan) {
        Some(request) => forecast(&request, rates, rules),
        None => unknown(Reason::new("uncovered-model", format!("no law of time covers plans of {}", plan.model))),
    }
}

/// Writes into a plan how long it takes, and why where there is no figure.
pub fn time(plan: &mut Plan, rates: &Rates, rules: &RulesFile) {
    let answer = of_plan(plan, rates, rules);
    plan.forecast = in_plan(&answer);
    plan.unforecast = answer.unknown;
}

/// The forecast of a plan whose own simulation times it, in the form of estimates.
fn carried(plan: &Plan) -> TimeForecast {
    let mut answer = TimeForecast { unknown: plan.unforecast.clone(), ..TimeForecast::default() };
    let Some(forecast) = &plan.forecast else { return answer };
    let interval = |time: planned::Interval| TimeInterval { low_ns: time.low_ns, value_ns: time.value_ns, high_ns: time.high_ns };
    let basis = match forecast.coverage {
        planned::Coverage::Measured => TimeBasis::Measured,
        planned::Coverage::Extrapolated => TimeBasis::Extrapolated,
        planned::Coverage::Derived => TimeBasis::Scaled,
    };
    let pass = |pass: &planned::PassTime| PassTime { name: pass.name.clone(), steps: pass.steps, step: interval(pass.step) };
    answer.passes = forecast.passes.iter().map(pass).collect();
    answer.stages = forecast.stages.iter().map(|stage| StageTime { name: stage.name, time: interval(stage.time), basis }).collect();
    answer.request = forecast.request.map(interval);
    answer.leaves_out.push("writing the file".to_owned());
    answer.notes.push(forecast.basis.clone());
    answer.notes.extend(forecast.notes.iter().cloned());
    answer
}

/// A forecast in a plan's own form. Nothing where there is no figure for sampling.
fn in_plan(answer: &TimeForecast) -> Option<planned::Forecast> {
    let sampling = answer.stages.iter().find(|stage| stage.name == StageName::Denoising)?;
    let interval = |time: TimeInterval| planned::Interval { low_ns: time.low_ns, value_ns: time.value_ns, high_ns: time.high_ns };
    let (basis, coverage) = match sampling.basis {
        TimeBasis::Measured => ("the published capacity grid of one H200", planned::Coverage::Measured),
        TimeBasis::Extrapolated => ("the published capacity grid of one H200, outside its range", planned::Coverage::Extrapolated),
        TimeBasis::Scaled => ("this device's rates, with the efficiencies of an H200", planned::Coverage::Derived),
    };
    let mut notes = answer.notes.clone();
    if !answer.leaves_out.is_empty() {
        notes.push(format!("the request's time leaves out: {}", answer.leaves_out.join(", ")));
    }
    Some(planned::Forecast {
        basis: basis.to_owned(),
        coverage,
        passes: answer
            .passes
            .iter()
            .map(|pass| planned::PassTime { name: pass.name.clone(), steps: pass.steps, step: interval(pass.step) })
            .collect(),
        stages: answer.stages.iter().map(|stage| planned::StageTime { name: stage.name, time: interval(stage.time) }).collect(),
        request: answer.request.map(interval),
        notes,
    })
}

/// The rows of a canvas: for questions that have no plan.
pub fn rows(height: u32, width: u32, frames: u32, text: u32) -> Rows {
    let frame = u64::from(height / 32) * u64::from(width / 32);
    Rows { video: latent_frames(frames.into()) * frame, frame, references: 0, text: text.into(), audio: 2 * audio_latents(frames.into()) }
}
