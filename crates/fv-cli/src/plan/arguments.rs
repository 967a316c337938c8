//! What the planner's commands are asked.

use std::path::PathBuf;

use clap::{
    Args, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use fv_estimate::{
    grid::{MilliGib, Span},
    planner::freevideo::{BACKENDS, Task},
};
use fv_spec::plan::{Architecture, AttentionBackend, OperatingSystem, PolicyName, Precision};

/// One of some words; others are refused with the one that was probably meant.
macro_rules! words {
    ($type:ty, $known:expr) => {
        PossibleValuesParser::new($known.map(|value: &$type| value.word()))
            .try_map(|word| <$type>::parse(&word).ok_or("the words are those of the type"))
    };
}

/// Plan how a request is executed with given memory, and say why.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct PlanArguments {
    #[command(subcommand)]
    pub(super) file: Option<PlanFile>,
    #[command(flatten)]
    pub(super) model: ModelArguments,
    #[command(flatten)]
    pub(super) memory: MemoryArguments,
    #[command(flatten)]
    pub(super) machine: MachineArguments,
    #[command(flatten)]
    pub(super) request: RequestArguments,
    /// Plan every row of a CSV file with the columns of docs/planner.md, and write the same rows with every decision
    #[arg(long, value_name = "FILE", conflicts_with_all = CONFLICTS_WITH_ROWS)]
    pub(super) requests: Option<PathBuf>,
    /// Write the answer as JSON to this file as well, be it a plan or a refusal; with --requests the rows go to this file only
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

/// What rows say for themselves.
const CONFLICTS_WITH_ROWS: [&str; 20] = [
    "vram_gib",
    "ram_gib",
    "probe",
    "gpu_reserve_gib",
    "ram_reserve_gib",
    "system",
    "architecture",
    "compute_capability",
    "precision",
    "attention_backends",
    "hardware",
    "width",
    "height",
    "frames",
    "seconds",
    "batch",
    "guidance",
    "steps",
    "task",
    "two_pass",
];

/// Plans that were written before.
#[derive(Debug, Subcommand)]
pub(super) enum PlanFile {
    /// Say every decision of a plan in words
    Explain {
        /// A plan
        file: PathBuf,
    },
    /// Say what two plans do differently; exit 1 when they differ
    Diff {
        /// A plan
        a: PathBuf,
        /// Another
        b: PathBuf,
    },
    /// Say whether a plan contradicts itself
    Check {
        /// A plan
        file: PathBuf,
    },
}

/// Which model, and whose rules.
#[derive(Debug, Args)]
pub(super) struct ModelArguments {
    /// A model, by id or checkpoint
    #[arg(long, value_name = "MODEL", default_value = "minimax-h3")]
    pub(super) model: String,
    /// Whose rules decide; without it those of our own runtime where it has a program for the model, and the published ones otherwise
    #[arg(long, value_name = "POLICY", value_parser = words!(PolicyName, PolicyName::ALL.iter()))]
    pub(super) policy: Option<PolicyName>,
}

/// How much memory there is, in GiB (2^30 bytes). What is not given is measured, where the program measures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Memory")]
pub(super) struct MemoryArguments {
    /// Free device memory
    #[arg(long, value_name = "GIB", value_parser = gib, allow_hyphen_values = true)]
    pub(super) vram_gib: Option<f64>,
    /// Free host memory
    #[arg(long, value_name = "GIB", value_parser = gib, allow_hyphen_values = true)]
    pub(super) ram_gib: Option<f64>,
    /// A file that `fv-run probe --json` wrote, in place of measuring
    #[arg(long, value_name = "FILE")]
    pub(super) probe: Option<PathBuf>,
    /// The host memory that an earlier complete run of the same request was seen to need
    #[arg(long, value_name = "GIB", value_parser = gib, allow_hyphen_values = true)]
    pub(super) demonstrated_ram_gib: Option<f64>,
}

/// The machine, apart from how much memory there is.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Machine")]
pub(super) struct MachineArguments {
    /// A device of the catalog: its memory, compute capability and whether it is a `GeForce` card
    #[arg(long, value_name = "ID")]
    pub(super) hardware: Option<String>,
    /// The operating system
    #[arg(long, value_name = "SYSTEM", value_parser = words!(OperatingSystem, OperatingSystem::ALL.iter()))]
    pub(super) system: Option<OperatingSystem>,
    /// The GPU's generation
    #[arg(long, value_name = "NAME", value_parser = words!(Architecture, Architecture::ALL.iter()))]
    pub(super) architecture: Option<Architecture>,
    /// CUDA compute capability, such as 8.9, in place of --architecture
    #[arg(long, value_name = "X.Y", conflicts_with = "architecture")]
    pub(super) compute_capability: Option<String>,
    /// The format of the transformer's weights; without it the card decides, and for our own runtime it is bf16
    #[arg(long, value_name = "FORMAT", value_parser = words!(Precision, [Precision::Int8, Precision::Fp8, Precision::Bf16].iter()))]
    pub(super) precision: Option<Precision>,
    /// Attention implementations that work, separated by commas; without it all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = words!(AttentionBackend, BACKENDS.iter()))]
    pub(super) attention_backends: Vec<AttentionBackend>,
    /// Which of them to use: one, or one for everything and one for windows; without it the first
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', value_parser = words!(AttentionBackend, BACKENDS.iter()))]
    pub(super) attention: Vec<AttentionBackend>,
    /// Device memory to keep back, in place of the policy's own reserve
    #[arg(long, value_name = "GIB", value_parser = gib, allow_hyphen_values = true)]
    pub(super) gpu_reserve_gib: Option<f64>,
    /// Host memory to keep back, in place of the policy's own reserve
    #[arg(long, value_name = "GIB", value_parser = gib, allow_hyphen_values = true)]
    pub(super) ram_reserve_gib: Option<f64>,
    /// As the last resort, try below the memory that the policy admits
    #[arg(long)]
    pub(super) capacity_trial: bool,
}

/// A request; what is left out comes from the model's deployment, then from the policy.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(super) struct RequestArguments {
    /// Pixel columns
    #[arg(long, value_name = "PIXELS", allow_negative_numbers = true)]
    pub(super) width: Option<u32>,
    /// Pixel rows
    #[arg(long, value_name = "PIXELS", allow_negative_numbers = true)]
    pub(super) height: Option<u32>,
    /// Frames of the video
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "seconds")]
    pub(super) frames: Option<u32>,
    /// Its duration in place of --frames
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(super) seconds: Option<f64>,
    /// Videos that are made at once; a plan is for one
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(super) batch: u32,
    /// The guidance scale of every transformer, 1 for none
    #[arg(long, value_name = "SCALE", allow_negative_numbers = true)]
    pub(super) guidance: Option<f64>,
    /// Sampling steps: of a single pass, or of the first of two
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) steps: Option<u32>,
    /// What is generated from what
    #[arg(long, value_name = "TASK", default_value = Task::default().word(), value_parser = task())]
    pub(super) task: Task,
    /// Rows that references' pictures and videos take
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) reference_video_tokens: u64,
    /// Rows that references' sound takes
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) reference_audio_tokens: u64,
    /// Rows of text
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) text_tokens: Option<u64>,
    /// The most that adapters (`LoRA`) add to one block
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(super) lora_max_block_bytes: Option<u64>,
    /// Modulation tables beyond those of eight steps; without it they follow from task and steps
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(super) table_bytes: Option<u64>,
    /// What adapters have outside blocks
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub(super) lora_root_bytes: Option<u64>,
    /// The text encoder's output is at hand, so that the encoder is not run
    #[arg(long)]
    pub(super) conditioning_at_hand: bool,
    #[command(flatten)]
    pub(super) passes: PassArguments,
}

/// One pass over the steps, or two.
#[derive(Debug, Args)]
#[command(next_help_heading = "Request")]
pub(super) struct PassArguments {
    /// A first pass at half the size, then one at full size; this is usual
    #[arg(long, conflicts_with = "no_two_pass")]
    pub(super) two_pass: bool,
    /// One pass at full size
    #[arg(long)]
    pub(super) no_two_pass: bool,
    /// Steps of the first pass
    #[arg(long, value_name = "N", conflicts_with = "no_two_pass", allow_negative_numbers = true)]
    pub(super) base_steps: Option<u32>,
    /// Steps of the second pass
    #[arg(long, value_name = "N", conflicts_with = "no_two_pass", allow_negative_numbers = true)]
    pub(super) refine_steps: Option<u32>,
}

/// Plan every combination of device and host memory.
#[derive(Debug, Args)]
pub struct GridArguments {
    #[command(flatten)]
    pub(super) model: ModelArguments,
    /// Free device memory in GiB, such as 8..32
    #[arg(long, value_name = "A..B", value_parser = Span::read, allow_hyphen_values = true)]
    pub(super) vram: Span,
    /// Free host memory in GiB, such as 8..32
    #[arg(long, value_name = "A..B", value_parser = Span::read, allow_hyphen_values = true)]
    pub(super) ram: Span,
    /// GiB from one capacity to the next
    #[arg(long, value_name = "GIB", value_parser = MilliGib::read, default_value = "1", allow_hyphen_values = true)]
    pub(super) step: MilliGib,
    #[command(flatten)]
    pub(super) machine: MachineArguments,
    #[command(flatten)]
    pub(super) request: RequestArguments,
    /// How the grid is written
    #[arg(long, value_enum, default_value_t = GridFormat::Table)]
    pub(super) format: GridFormat,
    /// Write to this file in place of the output stream
    #[arg(long, value_name = "FILE")]
    pub(super) out: Option<PathBuf>,
}

/// How a grid is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum GridFormat {
    /// Tables for people
    Table,
    /// One line for each combination
    Csv,
    /// A picture
    Svg,
}

/// GiB that somebody may believe; how many there may be is said together with whatever else is wrong.
fn gib(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "it is no number of GiB such as 8 or 10.5".to_owned())
}

fn task() -> impl TypedValueParser<Value = Task> {
    PossibleValuesParser::new(Task::ALL.map(|(_, word)| word)).try_map(|word| Task::parse(&word).ok_or("the words are those of the type"))
}
