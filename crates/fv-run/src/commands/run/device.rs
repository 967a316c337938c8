//! A plan on a CUDA device.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Args, ValueEnum};
use fv_cli::{plan::Lowered, write};
use fv_device::cuda::{Device, Error};
use fv_run::execute::{
    World,
    cuda::{self, Options, Report},
    inputs::Given,
    outputs::{Kept, Values},
    weights::Synthetic,
};
use fv_spec::program::{Element, StageName, kernel::Output};
use safetensors::{Dtype, tensor::TensorView};
use sha2::{Digest, Sha256};

use crate::cli::{Context, Done, Stop};

/// What a plan on a device is run with.
#[derive(Debug, Args)]
#[command(next_help_heading = "CUDA devices")]
pub(super) struct DeviceArguments {
    /// Where weights come from
    #[arg(long, value_name = "SOURCE", conflicts_with = "tiny")]
    weights: Option<Source>,
    /// Execute this stage alone, on made-up inputs: for measuring, no video comes of it
    #[arg(long, value_enum, conflicts_with = "tiny")]
    stage: Option<Stage>,
    /// The number of the device
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "tiny")]
    device: u32,
    /// Write the latent to this file, as safetensors with one tensor `latent`
    #[arg(long, value_name = "FILE", conflicts_with = "tiny")]
    latent: Option<PathBuf>,
    /// Also say how long operations of each kind took
    #[arg(long, conflicts_with = "tiny")]
    profile: bool,
}

/// Where weights come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// Random numbers from this seed.
    Synthetic(u64),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seed = text.strip_prefix("synthetic:").and_then(|seed| seed.parse().ok());
        seed.map(Self::Synthetic).ok_or_else(|| "synthetic:SEED is allowed, such as synthetic:0, for random weights".to_owned())
    }
}

/// A stage that can be executed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// All steps of the transformer, from made-up prompt embeddings to a latent
    Denoising,
}

pub(super) fn run(context: &mut Context, path: &Path, lowered: &Lowered, arguments: &DeviceArguments) -> Done {
    let usage = |message: &str| Stop::Usage(format!("{}: {message}", path.display()));
    let Some(Source::Synthetic(seed)) = arguments.weights else {
        return Err(usage("weights of checkpoints are not read yet: use --weights synthetic:SEED for random ones"));
    };
    let Some(Stage::Denoising) = arguments.stage else {
        return Err(usage("a device executes one stage of a plan, yet: use --stage denoising"));
    };
    let device = Device::open(arguments.device).map_err(|error| no_device(&error))?;
    let weights = Synthetic { seed, seeds: BTreeMap::new() };
    let inputs = Given { numbers: BTreeMap::new(), seed };
    let mut outputs = Kept::default();
    let options = Options { stages: BTreeSet::from([StageName::Denoising]), seed, profile: arguments.profile };
    let mut world = World { weights: &weights, inputs: &inputs, outputs: &mut outputs };
    let report = cuda::execute(&lowered.program, &device, &mut world, &options, &mut |_| {});
    let report = report.map_err(|failure| Stop::Usage(failure.to_string()))?;
    let latent = outputs.values.get(&(Output::Latent, 0));
    if let (Some(file), Some(latent)) = (&arguments.latent, latent) {
        keep(file, latent).map_err(|why| Stop::Usage(format!("{}: {why}", file.display())))?;
    }
    Ok(context.out.write_all(told(&report, device.name(), latent).as_bytes())?)
}

/// A machine without a device is told apart from one whose device refuses.
fn no_device(error: &Error) -> Stop {
    let none = ["CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_INVALID_DEVICE"];
    match error {
        Error::Missing { .. } | Error::TooOld { .. } => Stop::NoDevice(error.to_string()),
        Error::Driver { code, .. } if none.contains(&code.as_str()) => Stop::NoDevice(error.to_string()),
        _ => Stop::Usage(error.to_string()),
    }
}

/// Writes a latent beside its place and moves it there.
fn keep(file: &Path, latent: &Values) -> Result<(), String> {
    let kind = match latent.element {
        Element::F32 => Dtype::F32,
        Element::F64 => Dtype::F64,
        Element::Bf16 => Dtype::BF16,
        _ => return Err(format!("a latent of {} is no tensor", latent.element.word())),
    };
    let side = |extent: u64| usize::try_from(extent).unwrap_or(usize::MAX);
    let shape = vec![side(latent.rows), side(latent.columns)];
    let view = TensorView::new(kind, shape, &latent.bytes).map_err(|error| error.to_string())?;
    let bytes = safetensors::serialize([("latent", view)], None).map_err(|error| error.to_string())?;
    write::replace_by(file, |file| file.write_all(&bytes)).map_err(|error: std::io::Error| error.to_string())
}

/// What was measured, for people.
fn told(report: &Report, device: &str, latent: Option<&Values>) -> String {
    let mut text = format!("executed {} operations on {device} in {:.3} s\n\n", report.operations, report.wall.as_secs_f64());
    let _ = writeln!(text, "{:<12}{:<28}{:>12}{:>14}{:>14}{:>18}", "stage", "segment", "repetition", "ms", "waiting, ms", "bytes in use");
    for timed in &report.segments {
        let (stage, name) = (timed.stage.word(), &timed.segment);
        let (repetition, ms, stall) = (timed.repetition, timed.milliseconds, timed.stall_milliseconds);
        let _ = writeln!(text, "{stage:<12}{name:<28}{repetition:>12}{ms:>14.3}{stall:>14.3}{:>18}", timed.used_bytes);
    }
    let [before, reserved, after] = report.used_bytes;
    let _ = writeln!(text, "\n{:<52}{:>18}", "arena on the device, bytes", report.device_bytes);
    let _ = writeln!(text, "{:<52}{:>18}", "arenas in host memory, bytes", report.host_bytes);
    let _ = writeln!(text, "{:<52}{:>18}", "device memory in use with a context, bytes", before);
    let _ = writeln!(text, "{:<52}{:>18}", "with everything reserved, bytes", reserved);
    let _ = writeln!(text, "{:<52}{:>18}", "at the end, bytes", after);
    for (what, bytes) in ["copied to the device, bytes", "copied to the host, bytes"].into_iter().zip(report.copied_bytes) {
        let _ = writeln!(text, "{what:<52}{bytes:>18}");
    }
    if !report.profile.is_empty() {
        let _ = writeln!(text, "\n{:<24}{:<24}{:>12}{:>14}", "phase", "kernel", "operations", "ms");
        for ((phase, kernel), spent) in &report.profile {
            let _ = writeln!(text, "{phase:<24}{kernel:<24}{:>12}{:>14.3}", spent.operations, spent.milliseconds);
        }
    }
    if let Some(latent) = latent {
        let digest = Sha256::digest(&latent.bytes).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let numbers = latent.numbers();
        let squares: f64 = numbers.iter().map(|number| number * number).sum();
        let _ = writeln!(
            text,
            "\nlatent: {} numbers, root of their mean square {:.6}, SHA-256 {digest}",
            numbers.len(),
            (squares / as_number(numbers.len())).sqrt()
        );
    }
    let _ = writeln!(text, "\nThis was one stage on random weights and made-up inputs ({}): no generation.", report.made_up.join(", "));
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "a count, for people")]
fn as_number(count: usize) -> f64 {
    count as f64
}
