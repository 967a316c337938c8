//! The op program of our own runtime: every operation of a request in the order in which it is issued, what each reads and
//! writes, on which stream, what it waits for, and where each buffer lies. JSON in `snake_case`; sizes are bytes, extents
//! are counts.
//!
//! One program is what the estimate sums, the arena packs, the simulator times and the executor runs. Blocks of a component
//! and chunks of rows are written out; the steps of a sampler are not: a [`Segment`] is issued `repeat` times in a row.
//!
//! Streams take their operations in the order in which they are issued. Between streams there is no order but that of events,
//! which mean what they mean in CUDA: an operation waits for the latest record of an event that was issued before it, and an
//! event that nobody has recorded yet holds nothing back.

pub mod kernel;

use serde::{Deserialize, Serialize};

pub use crate::authored::Role;
pub use crate::estimate::{BufferKind, StageName, Tier};
pub use kernel::Kernel;

#[cfg(feature = "schema")]
use schemars::JsonSchema;

/// The version of the program format.
pub const VERSION: u32 = 1;

/// Where buffers start: a multiple of this many bytes, which is what matrix units and copies want at most.
pub const ALIGNMENT: u64 = 256;

words! {
    /// How one number is stored.
    Element {
        /// IEEE double precision.
        F64 "f64",
        /// IEEE single precision.
        F32 "f32",
        /// Brain floating point.
        Bf16 "bf16",
        /// Eight-bit floating point with four exponent bits (e4m3, finite).
        Fp8 "fp8",
        /// Eight-bit integer.
        Int8 "int8",
        /// 32-bit integer: token ids and chosen tiles.
        I32 "i32",
        /// A byte: a colour of a pixel.
        U8 "u8",
    }
}

impl Element {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::Bf16 => 2,
            Self::Fp8 | Self::Int8 | Self::U8 => 1,
        }
    }
}

words! {
    /// A queue of operations that are executed one after another.
    Stream {
        /// Kernels.
        Compute "compute",
        /// Copies from host memory to the device.
        CopyIn "copy_in",
        /// Copies from the device to host memory.
        CopyOut "copy_out",
        /// Reads of files into host memory, and what the host does with them.
        Disk "disk",
    }
}

/// Index of a buffer in [`Program::buffers`].
pub type BufferId = u32;
/// An event, below [`Program::events`].
pub type EventId = u32;
/// Index of an operation in the program, segments one after another and each counted once.
pub type OpIndex = u32;

/// A program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Format version: 1.
    pub version: u32,
    /// The model's id in the catalog.
    pub model: String,
    /// The id of the plan that it executes; empty while there is none.
    pub plan: String,
    /// How numbers are stored.
    pub formats: Formats,
    /// What steps the sampler takes.
    pub schedule: Schedule,
    /// Names of phases, such as `self_attention`.
    pub phases: Vec<String>,
    /// Weights that are moved together.
    pub groups: Vec<Group>,
    /// Memory that is reserved at once.
    pub regions: Vec<Region>,
    /// What lies in it.
    pub buffers: Vec<Buffer>,
    /// Events are numbers below this.
    pub events: u32,
    /// The operations.
    pub segments: Vec<Segment>,
}

/// How numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Formats {
    /// Activations, and weights when they are multiplied.
    pub compute: Element,
    /// The latent, schedules, modulation and other small things that are kept exact.
    pub exact: Element,
    /// Matrices of the transformer's blocks in memory and on the way.
    pub block_weights: Element,
}

/// The noise schedule and the sampler.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The sampler.
    pub sampler: Sampler,
    /// Steps.
    pub steps: u32,
    /// The flow's shift.
    pub shift: f64,
    /// Timesteps, where the sampler does not derive them from the number of steps.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timesteps: Vec<u32>,
}

words! {
    /// How a step is taken.
    Sampler {
        /// `UniPC` of order two over flow sigmas.
        UniPc "unipc",
        /// Euler over flow sigmas.
        Euler "euler",
        /// Distribution matching: the clean latent is predicted and noised again.
        Dmd "dmd",
    }
}

/// Weights that lie next to each other and are moved together: a block, or what a component has outside blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The component.
    pub component: Role,
    /// The block, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u32>,
    /// The bytes of all, gaps included.
    pub bytes: u64,
    /// What is in it, by offset.
    pub tensors: Vec<Tensor>,
}

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name in the checkpoint, in the layout of `diffusers`; the scales of an eight-bit matrix have `.scale` appended.
    pub name: String,
    /// Its extents in the checkpoint.
    pub shape: Vec<u64>,
    /// How it is stored here.
    pub element: Element,
    /// Bytes from the start of the group.
    pub offset_bytes: u64,
    /// How the order of its elements differs from the checkpoint's.
    #[serde(skip_serializing_if = "Order::is_checkpoint", default)]
    pub order: Order,
}

words! {
    /// The order of a tensor's elements.
    #[derive(Default)]
    Order {
        /// As in the checkpoint.
        #[default]
        Checkpoint "checkpoint",
        /// The kernel of a convolution with its input channels innermost: output channel, frame, row, column, input channel.
        ChannelsLast "channels_last",
    }
}

impl Order {
    /// Whether nothing differs.
    pub fn is_checkpoint(&self) -> bool {
        *self == Self::Checkpoint
    }
}

/// Memory that is reserved at once: one for each part of a request and tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Such as `transformer`, or `request` for what parts hand to each other.
    pub name: String,
    /// The rank whose memory it is.
    pub rank: u32,
    /// The memory.
    pub tier: Tier,
    /// Its size once buffers have their places; zero before.
    pub bytes: u64,
}

/// Memory for one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    /// Such as `query`, or `blocks.3`.
    pub name: String,
    /// What it is for.
    pub kind: BufferKind,
    /// Index of its region in [`Program::regions`].
    pub region: u32,
    /// Its size.
    pub bytes: u64,
    /// Bytes from the start of its region; absent until buffers have their places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
    /// The first operation for which it is allocated.
    pub first: OpIndex,
    /// The last one before it is freed. A buffer that lives from before a repeated segment, or until after it, lives in every
    /// repetition; one that begins and ends inside begins and ends in each.
    pub last: OpIndex,
}

/// Operations that are issued together, several times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// The stage.
    pub stage: StageName,
    /// Such as `step`.
    pub name: String,
    /// How often.
    pub repeat: u32,
    /// The number of the sampler's step in the first repetition.
    pub first_step: u32,
    /// What is done.
    pub ops: Vec<Op>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Op {
    /// What is computed or moved.
    pub kernel: Kernel,
    /// Index of its phase in [`Program::phases`].
    pub phase: u16,
    /// The block that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u16>,
    /// Where it is queued.
    pub stream: Stream,
    /// What it reads, in the order that its kernel states.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub reads: Vec<View>,
    /// What it writes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub writes: Vec<View>,
    /// Events that must have happened.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waits: Vec<EventId>,
    /// The event that happens when it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<EventId>,
}

/// A matrix within a buffer: rows of equal length at a constant distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct View {
    /// The buffer.
    pub buffer: BufferId,
    /// Bytes from its start to the first element.
    pub offset_bytes: u64,
    /// How its numbers are stored.
    pub element: Element,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
    /// Elements from the start of a row to that of the next.
    pub pitch: u64,
}

impl View {
    /// A whole matrix at the start of a buffer.
    pub fn matrix(buffer: BufferId, element: Element, rows: u64, columns: u64) -> Self {
        Self { buffer, offset_bytes: 0, element, rows, columns, pitch: columns }
    }

    /// Rows from `first` on.
    #[must_use]
    pub fn row_range(self, first: u64, rows: u64) -> Self {
        Self { offset_bytes: self.offset_bytes + first * self.pitch * self.element.bytes(), rows, ..self }
    }

    /// Columns from `first` on.
    #[must_use]
    pub fn column_range(self, first: u64, columns: u64) -> Self {
        Self { offset_bytes: self.offset_bytes + first * self.element.bytes(), columns, ..self }
    }

    /// Elements.
    pub fn len(&self) -> u64 {
        self.rows * self.columns
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its elements, those between rows apart.
    pub fn bytes(&self) -> u64 {
        self.len() * self.element.bytes()
    }

    /// Bytes from its first element to the end of its last one.
    pub fn span_bytes(&self) -> u64 {
        if self.is_empty() { 0 } else { ((self.rows - 1) * self.pitch + self.columns) * self.element.bytes() }
    }
}

impl Program {
    /// All operations, each counted once, with their segments.
    pub fn ops(&self) -> impl Iterator<Item = (&Segment, &Op)> {
        self.segments.iter().flat_map(|segment| segment.ops.iter().map(move |op| (segment, op)))
    }
}
