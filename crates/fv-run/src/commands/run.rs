//! `run`: executes a plan: on a CUDA device, on a simulated one or on the processor.

mod device;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use fv_cli::{plan::Session, stop::Stop};
use fv_data::Store;
use fv_estimate::{
    forecast::rates::Rates,
    planner::optimal::rates::{Speed, speed},
};
use fv_program::{
    arena::Packed,
    check,
    optimal::{Budgets, Least},
    rates::costs,
    simulate::replay,
    wan::{
        geometry::{Model, Request},
        options::{MOST_OPERATIONS, Options, Unsettled, Unsolved},
        planned, tiny,
    },
};
use fv_run::execute::{
    self, Measured, World,
    inputs::Given,
    outputs::{Clip, Files},
    queue::Order,
    weights::Synthetic,
};
use fv_spec::{
    plan::Precision,
    program::{Program, kernel::Input},
};

use super::program::{read, summary, times};
use crate::cli::{Context, Done};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A plan for this runtime, as `fv-run plan --out` writes it
    #[arg(long, value_name = "FILE", required_unless_present = "tiny")]
    plan: Option<PathBuf>,
    /// A tiny model with random weights in place of one of the catalog: it is planned, executed and compared with its plan
    #[arg(long, value_enum, conflicts_with = "plan")]
    tiny: Option<Tiny>,
    /// What executes it
    #[arg(long, value_enum, default_value_t = Backend::Cpu)]
    backend: Backend,
    #[command(flatten)]
    device: device::DeviceArguments,
    #[command(flatten)]
    small: TinyArguments,
}

/// What a tiny model is run with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Tiny models")]
struct TinyArguments {
    /// Device memory in KiB (2^10 bytes) that its plan may use
    #[arg(long, value_name = "KIB", default_value_t = 1 << 20, conflicts_with = "plan", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    vram_kib: u64,
    /// Host memory in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1 << 20, conflicts_with = "plan", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    ram_kib: u64,
    /// Where random weights, noise and the order of streams begin
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "plan")]
    seed: u64,
    /// A folder for the video: raw, as YUV4MPEG2, and a picture for each frame
    #[arg(long, value_name = "DIR", conflicts_with = "plan")]
    out: Option<PathBuf>,
}

/// Tiny models, each with everything that its large relative has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tiny {
    /// Like Wan 2.1
    Dense,
    /// Like `FastWan`: sparse attention, three steps without guidance
    Sparse,
    /// Like Wan 2.2 A14B: two experts
    Experts,
    /// Like Wan 2.2 TI2V: a decoder that works on patches
    Patched,
}

/// What executes a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// The simulator: how long everything takes
    Sim,
    /// The processor, in single precision
    Cpu,
    /// A CUDA device
    Cuda,
}

pub(crate) fn run(context: &mut Context, arguments: &RunArgs) -> Done {
    match (&arguments.plan, arguments.tiny) {
        (Some(plan), _) => planned_run(context, plan, arguments),
        (None, tiny) => tiny_run(context, tiny.unwrap_or(Tiny::Dense), arguments),
    }
}

fn planned_run(context: &mut Context, path: &Path, arguments: &RunArgs) -> Done {
    let (lowered, speed) = read(context, path)?;
    match arguments.backend {
        Backend::Cuda => device::run(context, path, &lowered, &arguments.device),
        Backend::Cpu => {
            let message =
                "models of the catalog are too large for the processor: use --backend cuda or sim, or --tiny for a model that is not";
            Err(Stop::Usage(format!("{}: {message}", path.display())))
        }
        Backend::Sim => {
            let costs = costs(&lowered.program, &speed.rates).map_err(|unknown| Stop::Usage(unknown.to_string()))?;
            let simulated = replay(&lowered.program, &costs, |_| {});
            Ok(context.out.write_all(times(&simulated, &speed).trim_start().as_bytes())?)
        }
    }
}

fn tiny_run(context: &mut Context, which: Tiny, arguments: &RunArgs) -> Done {
    if arguments.backend == Backend::Cuda {
        let message = "tiny models are executed by the processor: use --backend cpu or sim, or --plan for a model of the catalog";
        return Err(Stop::Usage(message.to_owned()));
    }
    let TinyArguments { vram_kib, ram_kib, seed, out } = &arguments.small;
    let (model, request) = match which {
        Tiny::Dense => (tiny::dense(), tiny::request()),
        Tiny::Sparse => (tiny::sparse(), tiny::distilled()),
        Tiny::Experts => (tiny::two_experts(), tiny::request()),
        Tiny::Patched => (tiny::patched(), tiny::request()),
    };
    let speed = reference(context)?;
    let budgets = Budgets { device_bytes: vram_kib << 10, host_bytes: ram_kib << 10, per_pinned_gib_bytes: 0 };
    let (program, packed) = fastest(&model, &request, &speed, &budgets)?;
    context.out.write_all(summary(&program, &packed).as_bytes())?;
    let costs = costs(&program, &speed.rates).map_err(|unknown| Stop::Usage(unknown.to_string()))?;
    context.out.write_all(times(&replay(&program, &costs, |_| {}), &speed).as_bytes())?;
    if arguments.backend == Backend::Sim {
        return Ok(());
    }
    let folder = out.as_deref().map_or_else(|| PathBuf::from("target/tiny"), Path::to_owned);
    let (measured, frames) = executed(&program, &model, &request, *seed, &folder).map_err(Stop::Usage)?;
    Ok(context.out.write_all(compared(&measured, frames, &folder).as_bytes())?)
}

/// Operations are taken to be as fast as on the device that rates were measured on.
fn reference(context: &mut Context) -> Result<Speed, Stop> {
    let store = Store::embedded()?;
    let Context { out, err, .. } = context;
    let session = Session { store: &store, out, err, json: false, paints: false, measure: None };
    let rates: Rates = fv_cli::plan::reference(&session)?;
    speed(&rates, &rates, &store.rules()?).map_err(|reason| Stop::Usage(reason.message))
}

/// The fastest plan's program, with its buffers in their places.
fn fastest(model: &Model, request: &Request, speed: &Speed, budgets: &Budgets) -> Result<(Program, Vec<Packed>), Stop> {
    let all = |lines: Vec<String>| Stop::Usage(lines.join("\nerror: "));
    let formats = planned::formats(Precision::Fp32).ok_or_else(|| Stop::Usage("single precision has no program".to_owned()))?;
    let mut options = Options::new(model, request, formats, &speed.rates).map_err(|unknown| Stop::Usage(unknown.to_string()))?;
    let settled = options.settle(budgets).map_err(|unsettled| match unsettled {
        Unsettled::Unsolved(Unsolved::Part(role, needs)) | Unsettled::Over(role, needs) => short(role.word(), &needs, budgets),
        Unsettled::Unsolved(Unsolved::Rate(unknown)) => Stop::Usage(unknown.to_string()),
        Unsettled::Refused(refused) => all(refused.iter().map(ToString::to_string).collect()),
        Unsettled::TooLong(operations) => {
            Stop::Usage(format!("the program would have about {operations} operations; {MOST_OPERATIONS} are written out"))
        }
    })?;
    let findings = check::check_places(&settled.program, &[]);
    if findings.is_empty() { Ok((settled.program, settled.packed)) } else { Err(all(findings.iter().map(ToString::to_string).collect())) }
}

/// The ways with the least of the device and with the least of the host: what lies between them takes more of one.
fn short(part: &str, needs: &[Least], limit: &Budgets) -> Stop {
    let device = needs.iter().min_by_key(|least| (least.device_bytes, least.host_bytes));
    let host = needs.iter().min_by_key(|least| (least.host_bytes, least.device_bytes)).filter(|host| Some(*host) != device);
    let needs: Vec<String> = device.into_iter().chain(host).map(|least| both(least.device_bytes, least.host_bytes)).collect();
    Stop::Short(format!("{part} needs {}; given are {}", needs.join(", or "), both(limit.device_bytes, limit.host_bytes)))
}

fn both(device_bytes: u64, host_bytes: u64) -> String {
    format!("{} of device memory with {} of host memory", kib(device_bytes), kib(host_bytes))
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes.div_ceil(1 << 10))
}

/// Executes a program, streams in an order drawn from the seed; words for what went wrong.
fn executed(program: &Program, model: &Model, request: &Request, seed: u64, folder: &Path) -> Result<(Measured, u32), String> {
    let at = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(at)?;
    let side = |pixels: u64| u32::try_from(pixels).unwrap_or(u32::MAX);
    let mut outputs = Files::create(folder, Clip { height: side(request.height), width: side(request.width), rate: 16 }).map_err(at)?;
    let (prompt, negative) = (request.prompt_tokens, request.negative_tokens);
    // Token ids are any of the vocabulary; the last one ends the text.
    #[expect(clippy::cast_precision_loss, reason = "a tiny vocabulary")]
    let ids =
        |tokens: u64| (0..tokens).map(|at| if at + 1 == tokens { 1.0 } else { ((at * 37 + 11) % model.text.vocabulary) as f64 }).collect();
    let channels = usize::try_from(model.vae.latent).unwrap_or(0);
    let numbers = BTreeMap::from([
        ((Input::Prompt, 0), ids(prompt)),
        ((Input::NegativePrompt, 0), ids(negative)),
        ((Input::LatentMean, 0), vec![0.0; channels]),
        ((Input::LatentDeviation, 0), vec![1.0; channels]),
    ]);
    let weights = Synthetic { seed, seeds: BTreeMap::new() };
    let mut world = World { weights: &weights, inputs: &Given { numbers, seed }, outputs: &mut outputs };
    let options = execute::Options { order: Order::Random { seed }, check_gaps: true };
    let measured = execute::execute(program, &mut world, options, &mut |_| {}).map_err(|failure| failure.to_string())?;
    Ok((measured, outputs.finish().map_err(at)?))
}

/// What was planned beside what was measured.
fn compared(measured: &Measured, frames: u32, folder: &Path) -> String {
    let mut text = format!("\nexecuted {} operations on the processor\n\n", measured.operations);
    let _ = writeln!(text, "{:<28}{:<12}{:>16}{:>16}{:>16}", "region", "memory", "planned bytes", "reached", "in use at once");
    for region in measured.regions.iter().filter(|region| region.planned_bytes > 0) {
        let (name, tier) = (&region.region, region.tier.word());
        let _ = writeln!(text, "{name:<28}{tier:<12}{:>16}{:>16}{:>16}", region.planned_bytes, region.reached_bytes, region.live_bytes);
    }
    let _ = writeln!(text, "\n{frames} frames in {}: video.y4m, video.rgb, frame-0000.png and so on", folder.display());
    text
}
