//! Seconds of a sampling step of MiniMax H3 under `FreeVideo`: a law of the plan's decisions and the device's rates.
//!
//! A step is what is computed, what is moved while nothing is computed, and what is waited for:
//!
//! ```text
//! step    = compute + copies + staging + reads
//! compute = products / (dense rate x efficiency) + attention / (its rate x efficiency)
//!           + (passes + groups of heads x passes of a group) x residual stream / memory bandwidth
//! copies  = with one slot the share of them that is not hidden; with two what a block's copy takes longer than its computing
//! reads   = for each block that is neither on the device nor page-locked, what reading it takes longer than the share of a
//!           block's computing that the reader runs beside; added, since nothing else is overlapped with it
//! ```
//!
//! Operations follow from the architecture; the coefficients are in `catalog/rules/time-minimax_h3-freevideo.yaml`, and
//! docs/forecast.md says how they were found and judged.

use fv_spec::authored::{Accumulate, Dtype};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;
use fv_spec::forecast::UsedRate;
use fv_spec::plan::{AttentionBackend, GemmPath, Source};

use super::coefficients::Coefficients;
use super::rates::{GIGA, Rate, Rates, TERA, used, used_products};

/// How the ids of the law's coefficients begin.
pub const PREFIX: &str = "time-minimax_h3-freevideo-";

/// Width of the residual stream, of the heads together and of the feed-forward layer, heads, and blocks (the model's
/// configuration; the planner fixes them as well).
const HIDDEN: u64 = 5376;
const INNER: u64 = 7168;
const FFN: u64 = 14_336;
const HEADS: u64 = 56;
/// Transformer blocks.
pub const BLOCKS: u64 = 50;
/// Latent frames that a window of attention reaches over (the runtime's own forecast counts as many).
const WINDOW_FRAMES: u64 = 15;
/// Bytes of a value of the residual stream: BF16.
const ELEMENT: u64 = 2;
/// No request has more rows: beyond, sums could leave the range in which products of them are exact.
const MOST_ROWS: u64 = 1 << 40;

/// Rows of the packed sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Video to be generated.
    pub video: u64,
    /// Of these, rows of one latent frame.
    pub frame: u64,
    /// References' pictures, videos and sound.
    pub references: u64,
    /// Text.
    pub text: u64,
    /// Sound to be generated, both channels.
    pub audio: u64,
}

impl Rows {
    /// All of them.
    pub fn all(&self) -> u64 {
        [self.video, self.references, self.text, self.audio].into_iter().fold(0, u64::saturating_add).min(MOST_ROWS)
    }
}

/// What of a plan decides how long a step takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The packed sequence.
    pub rows: Rows,
    /// Heads that are computed together.
    pub head_group: u64,
    /// Matrix products.
    pub gemm: GemmPath,
    /// Attention within windows.
    pub attention: AttentionBackend,
    /// Places that blocks are copied into.
    pub slots: u32,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that are copied from page-locked memory.
    pub pinned: u64,
    /// Blocks that are copied from ordinary host memory.
    pub pageable: u64,
    /// Blocks that are read from disk.
    pub disk: u64,
    /// Whether attention outputs are collected in host memory.
    pub outputs_on_host: bool,
    /// Whether the residual stream waits in host memory.
    pub residual_on_host: bool,
    /// Whether the wide feed-forward activation is computed twice.
    pub recompute: bool,
}

impl Step {
    /// Passes over the residual stream that groups of heads make: one for each group.
    pub fn groups(&self) -> u64 {
        HEADS.div_ceil(self.head_group.clamp(1, HEADS))
    }

    /// Blocks that do not stay on the device.
    pub fn copied(&self) -> u64 {
        [self.pinned, self.pageable, self.disk].into_iter().fold(0, u64::saturating_add).min(BLOCKS)
    }

    /// Operations of the linear layers: query, key and value, both branches' output projections, and the gated feed-forward
    /// layer, of every row.
    pub fn products(&self) -> u128 {
        2 * u128::from(self.rows.all()) * u128::from(5 * HIDDEN * INNER + 3 * HIDDEN * FFN) * u128::from(BLOCKS)
    }

    /// Operations of attention: video rows within their window, text and sound with everything. The linear branch's scan is a
    /// hundredth of that and not counted.
    pub fn attention(&self) -> u128 {
        let Rows { video, frame, references, text, audio } = self.rows;
        let [video, frame, references, text, audio] = [video, frame, references, text, audio].map(|rows| u128::from(rows.min(MOST_ROWS)));
        let everywhere = text + audio + references;
        let window = video.min(frame * u128::from(WINDOW_FRAMES)) + everywhere;
        let pairs = video * window + everywhere * u128::from(self.rows.all());
        4 * pairs * u128::from(INNER) * u128::from(BLOCKS)
    }

    /// Bytes of the residual stream of all blocks, each once.
    fn residual(&self) -> u128 {
        u128::from(self.rows.all()) * u128::from(HIDDEN * ELEMENT) * u128::from(BLOCKS)
    }

    /// Format and accumulator of the matrix products.
    fn product_format(&self) -> (Dtype, Accumulate) {
        match self.gemm {
            GemmPath::Int8PerRow => (Dtype::Int8, Accumulate::Int32),
            GemmPath::Fp8PerTensor | GemmPath::Fp8PerChannel => (Dtype::Fp8, Accumulate::Fp32),
            GemmPath::Bf16WeightOnly | GemmPath::Bf16 => (Dtype::Bf16, Accumulate::Fp32),
        }
    }

    /// The same of attention: `SageAttention` multiplies eight-bit integers, the others BF16.
    fn attention_format(&self) -> (Dtype, Accumulate) {
        match self.attention {
            AttentionBackend::Sage2 => (Dtype::Int8, Accumulate::Int32),
            _ => (Dtype::Bf16, Accumulate::Fp32),
        }
    }
}

/// The coefficients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// Share of the dense rate that matrix products reach.
    pub products: f64,
    /// The same of attention, by eight-bit and by BF16 kernels.
    pub attention: [f64; 2],
    /// How much more of its rate eight-bit attention reaches where it is not Hopper.
    pub attention_elsewhere: f64,
    /// Times that the residual stream is moved in a block, whatever the groups of heads.
    pub passes: f64,
    /// Times for each group of eight heads or more, and of fewer.
    pub group_passes: [f64; 2],
    /// Share of the link's rate that copies reach.
    pub link: f64,
    /// Share of the copies that one slot does not hide.
    pub exposed: f64,
    /// Share of a block's computing that reading runs beside.
    pub hidden: f64,
    /// Bytes that are read ahead or found in the system's cache: with page-locked blocks, and without any.
    pub kept: [f64; 2],
    /// GB/s that the measured host's disk gave: what is assumed where nobody says.
    pub disk: f64,
    /// GB/s from ordinary host memory into staging.
    pub host: f64,
    /// How much longer computing takes with the feed-forward layer's first half done twice.
    pub recompute: f64,
}

impl Law {
    /// The catalog's.
    ///
    /// # Errors
    /// Which coefficient is missing.
    pub fn of(rules: &RulesFile) -> Result<Self, Reason> {
        let c = Coefficients::new(rules, PREFIX);
        Ok(Self {
            products: c.positive("product-efficiency")?,
            attention: [c.positive("sage-attention-efficiency")?, c.positive("bf16-attention-efficiency")?],
            attention_elsewhere: c.positive("sage-attention-elsewhere")?,
            passes: c.value("passes")?,
            group_passes: [c.value("group-passes")?, c.value("narrow-group-passes")?],
            link: c.positive("link-efficiency")?,
            exposed: c.value("exposed-copies")?.min(1.0),
            hidden: c.value("hidden-reads")?.min(1.0),
            kept: [c.value("kept-bytes")?, c.value("kept-bytes-unpinned")?],
            disk: c.positive("disk-rate")?,
            host: c.positive("host-rate")?,
            recompute: c.value("recompute")?,
        })
    }
}

/// What a step takes, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepSeconds {
    /// Matrix products.
    pub products: f64,
    /// Attention.
    pub attention: f64,
    /// Everything that waits for device memory, passes of head groups included.
    pub passes: f64,
    /// Copies of blocks that are not hidden.
    pub copies: f64,
    /// Activations to host memory and back.
    pub staging: f64,
    /// Reads that are not hidden.
    pub reads: f64,
}

impl StepSeconds {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.products + self.attention + self.passes + self.copies + self.staging + self.reads
    }
}

/// A number of bytes or operations as a factor.
#[expect(clippy::cast_precision_loss, reason = "a ratio of a forecast, not a sum of bytes")]
pub(crate) fn real(count: u128) -> f64 {
    count as f64
}

/// The rate of reading weights: the device's, or else the one assumed.
pub fn disk(rates: &Rates, law: &Law) -> Rate {
    rates.disk.unwrap_or(Rate { value: law.disk, source: Source::Assumed })
}

/// The rates that a step runs at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepRates {
    /// Matrix products, in the step's format.
    pub products: Rate,
    /// Attention, in its format.
    pub attention: Rate,
    /// Device memory.
    pub memory: Rate,
    /// Copies from host memory, where there are any.
    pub link: Option<Rate>,
    /// Reading weights.
    pub disk: Rate,
    /// Whether the device is of the generation that the coefficients were fitted on.
    pub hopper: bool,
}

impl StepRates {
    /// Those of a device.
    ///
    /// # Errors
    /// Every rate that it lacks.
    pub fn of(step: &Step, rates: &Rates, law: &Law) -> Result<Self, Vec<Reason>> {
        let products = rates.products(step.product_format().0, step.product_format().1);
        let attention = rates.products(step.attention_format().0, step.attention_format().1);
        let moves = step.copied() > 0 || step.outputs_on_host || step.residual_on_host;
        let link = if moves { rates.copies(law.link).map(Some) } else { Ok(None) };
        match (products, attention, rates.memory(), link) {
            (Ok(products), Ok(attention), Ok(memory), Ok(link)) => {
                Ok(Self { products, attention, memory, link, disk: disk(rates, law), hopper: is_hopper(rates) })
            }
            (products, attention, memory, link) => {
                let mut missing: Vec<Reason> = [products.err(), attention.err(), memory.err(), link.err()].into_iter().flatten().collect();
                missing.dedup();
                Err(missing)
            }
        }
    }

    /// The same for the reader.
    pub fn used(&self, step: &Step) -> Vec<UsedRate> {
        let (products, attention) = (step.product_format(), step.attention_format());
        let mut all = vec![used_products(products.0, products.1, self.products)];
        if attention != products {
            all.push(used_products(attention.0, attention.1, self.attention));
        }
        all.push(used("memory bandwidth", self.memory, "GB/s"));
        all.extend(self.link.map(|link| used("host to device", link, "GB/s")));
        if step.disk > 0 {
            all.push(used("disk", self.disk, "GB/s"));
        }
        all
    }
}

/// The time of a step.
pub fn step(step: &Step, rates: &StepRates, law: &Law) -> StepSeconds {
    let eight_bit = step.attention == AttentionBackend::Sage2;
    let elsewhere = if eight_bit && !rates.hopper { law.attention_elsewhere } else { 1.0 };
    let attention_efficiency = law.attention[usize::from(!eight_bit)] * elsewhere;
    let residual = real(step.residual());
    let of_group = law.group_passes[usize::from(step.head_group < 8)];
    let more = if step.recompute { 1.0 + law.recompute } else { 1.0 };
    let mut seconds = StepSeconds {
        products: real(step.products()) / (rates.products.value * TERA * law.products) * more,
        attention: real(step.attention()) / (rates.attention.value * TERA * attention_efficiency) * more,
        passes: residual * (law.passes + of_group * real(step.groups().into())) / (rates.memory.value * GIGA) * more,
        ..StepSeconds::default()
    };
    let blocks = real(BLOCKS.into());
    let block = real(step.block_bytes.into());
    let computing = (seconds.products + seconds.attention + seconds.passes) / blocks;
    if let Some(link) = rates.link {
        let copy = block / (link.value * GIGA);
        let exposed = if step.slots >= 2 { 0.0 } else { copy * law.exposed };
        seconds.copies = real(step.copied().into()) * exposed.max(copy - computing);
        seconds.staging = staged(step, residual) / (link.value * GIGA);
    }
    let beside = law.hidden * (computing + seconds.copies / blocks) / block.max(1.0);
    let waited = |bytes: f64, rate: f64| bytes * (1.0 / (rate * GIGA) - beside).max(0.0);
    // What the system's cache holds of the blocks on disk is read from host memory, like the blocks that stay there.
    let on_disk = real(step.disk.min(BLOCKS).into()) * block;
    let kept = law.kept[usize::from(step.pinned == 0)].min(on_disk);
    let in_memory = real(step.pageable.min(BLOCKS).into()) * block + kept;
    seconds.reads = waited(on_disk - kept, rates.disk.value.min(law.host)) + waited(in_memory, law.host);
    seconds
}

/// Bytes of activations that a step moves to host memory and back: attention outputs once each way, and the residual stream with
/// every group of heads.
fn staged(step: &Step, residual: f64) -> f64 {
    let outputs = if step.outputs_on_host { 2.0 * residual * real(INNER.into()) / real(HIDDEN.into()) } else { 0.0 };
    let stream = if step.residual_on_host { 2.0 * residual * real(step.groups().into()) } else { 0.0 };
    outputs + stream
}

/// Whether the device is of the generation that the coefficients were fitted on.
pub fn is_hopper(rates: &Rates) -> bool {
    rates.capability.as_deref().is_some_and(|capability| capability.starts_with("9."))
}
