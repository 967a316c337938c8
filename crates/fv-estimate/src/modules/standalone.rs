//! One component on its own: weights on the device, inputs, and one forward pass from an empty cache. What benchmarks of a
//! single component measure, and so what the accuracy of the rules is judged on.

use fv_spec::authored::{Dtype, Role};
use fv_spec::compiled::ExpandedComponent;
use fv_spec::estimate::{Reason, StageName};

use super::encoder::{self, Encoder};
use super::parameter::Weights;
use super::residency::{self, Streams, bias_workspace, load_alone, product_workspace};
use super::{FP32, bytes_of, transformers_text};
use crate::caching::Config;
use crate::forecast::operations::Operations;
use crate::pinned;
use crate::program::{Builder, Model, Program, Sampling, Tensor, sites};
use crate::settings::Placement;

sites! { "component":
    INPUT "input" Activation;
}
/// Pixels of a side of the image encoder's input.
const IMAGE_SIDE: u64 = 224;

/// What a benchmark ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the benchmark's case")]
pub struct Asked {
    /// Such as `denoise_forward`, `decode`, `encode`, `encode_prompt`.
    pub stage: String,
    /// Height, width and frames of the video.
    pub video: Option<[u64; 3]>,
    /// Tokens, where those are what is given.
    pub tokens: Option<u64>,
    /// Videos, prompts or images.
    pub batch: u64,
    /// The type of weights and activations, where it is not the usual one.
    pub dtype: Option<Dtype>,
    /// Whether a VAE was tiled, with the class's own sizes.
    pub tiled: bool,
    /// Whether a VAE took one video of a batch at a time.
    pub sliced: bool,
    /// Text tokens, where they are not the usual number.
    pub text_tokens: Option<u64>,
    /// Whether each token had its own timestep.
    pub expand_timesteps: bool,
    /// Whether a text encoder that usually is given no mask of the padding had one.
    pub masked: bool,
    /// Whether what the class keeps in fp32 was cast as well.
    pub cast: bool,
}

impl Asked {
    /// Bytes of an activation, of `default` where the case does not say.
    pub fn act(&self, default: Dtype) -> u64 {
        bytes_of(self.dtype.unwrap_or(default))
    }

    /// Height, width and frames.
    ///
    /// # Errors
    /// Where the case has no such geometry.
    pub fn video(&self) -> Result<[u64; 3], Why> {
        self.video.ok_or_else(|| Why::Malformed("height, width and frames are expected".to_owned()))
    }
}

/// Why there is no pass for what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No rule covers it.
    NotCovered(String),
    /// The case lacks what its component needs.
    Malformed(String),
}

impl From<String> for Why {
    fn from(uncovered: String) -> Self {
        Self::NotCovered(uncovered)
    }
}

/// The workspaces that a matrix library holds once a component has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libraries {
    /// No product runs.
    None,
    /// Products without a bias only.
    Products,
    /// Products with a bias as well.
    Biases,
}

/// An input of a pass: extents, and bytes of an element.
pub type Input = (Vec<(&'static str, u64)>, u64);

/// One component with its inputs.
pub trait Pass {
    /// Its weights.
    fn weights(&self) -> Weights;
    /// Bytes of an element of its weights, and whether what the class keeps in fp32 is kept.
    fn element(&self) -> (u64, bool);
    /// Where its weights are.
    fn placement(&self) -> Placement {
        Placement::Resident
    }
    /// What libraries hold before the measured pass.
    fn libraries(&self) -> Libraries;
    /// Its inputs, in the order in which they are made.
    fn inputs(&self) -> Vec<Input>;
    /// What the forward pass computes, where that is counted.
    fn operations(&self) -> Option<Operations> {
        None
    }
    /// The forward pass; the result is its output.
    fn run(&self, p: &mut Builder, streams: &mut Streams) -> Tensor;
}

/// Peaks of the measured pass, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ComponentPeaks {
    /// Alive before the pass: weights, inputs, and what libraries keep.
    pub base: u64,
    /// Highest sum of tensors alive during it.
    pub allocated: u64,
    /// The same without what the allocator rounds up and without workspaces.
    pub tensors: u64,
    /// The most that the allocator held during it.
    pub reserved: u64,
    /// Page-locked host memory.
    pub pinned: u64,
}

/// The peaks of a pass.
///
/// # Errors
/// Why it is not evaluated, such as a size beyond what the rules count in.
pub fn peaks(pass: &dyn Pass) -> Result<ComponentPeaks, Why> {
    let program = lower(pass).map_err(|reason| Why::NotCovered(reason.message))?;
    let timeline = program.run(&Model::Caching(Config::default()), Sampling::Ends);
    let pinned = pinned_bytes(pass).ok_or_else(|| Why::NotCovered("page-locked memory beyond what the rules count in".to_owned()))?;
    let mut peaks = ComponentPeaks { base: 0, allocated: 0, tensors: 0, reserved: 0, pinned };
    for (span, held) in program.phases().iter().zip(&timeline.phases) {
        if span.stage == StageName::Denoising {
            peaks.tensors = peaks.tensors.max(held.tensors);
            peaks.allocated = peaks.allocated.max(held.allocated);
            peaks.reserved = peaks.reserved.max(held.reserved);
        } else {
            peaks.base = peaks.base.max(held.allocated);
        }
    }
    Ok(peaks)
}

/// Host memory that is page-locked for weights that pass by, each tensor on its own.
fn pinned_bytes(pass: &dyn Pass) -> Option<u64> {
    let (Placement::Streamed { pinned: true, .. } | Placement::Leaf { pinned: true }) = pass.placement() else { return Some(0) };
    let Weights { groups, rest, buffers, .. } = pass.weights();
    let (size, keep) = pass.element();
    let blocks = groups.iter().flat_map(|group| group.block.iter().map(|p| (p.elements * p.element(size, keep), group.count)));
    pinned::pinned_bytes(blocks.chain(rest[buffers..].iter().map(|p| (p.elements * p.element(size, keep), 1))))
}

/// The program of a pass: the stage `denoising` is the measured one, whatever the component.
///
/// # Errors
/// Why it is not built.
pub fn lower(pass: &dyn Pass) -> Result<Program, Reason> {
    let mut p = Builder::new(false);
    let weights = pass.weights();
    let (size, keep_fp32) = pass.element();
    p.stage(StageName::Load);
    p.phase("weights");
    let list = p.list();
    if pass.placement() == Placement::Resident {
        load_alone(&mut p, &weights, size, keep_fp32, list);
    }
    p.phase("inputs");
    let inputs = p.list();
    let libraries = pass.libraries();
    if libraries != Libraries::None {
        product_workspace(&mut p, inputs);
    }
    if libraries == Libraries::Biases {
        bias_workspace(&mut p, inputs);
    }
    for (dims, size) in pass.inputs() {
        let tensor = p.alloc(&INPUT, &dims, size);
        p.keep(inputs, tensor);
    }
    p.stage(StageName::Denoising);
    let mut streams = residency::alone(&mut p, &weights, size, keep_fp32, pass.placement());
    let output = pass.run(&mut p, &mut streams);
    p.release(output);
    p.finish()
}

/// A text or image encoder over batch and tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderPass {
    /// The encoder.
    pub encoder: Encoder,
    /// Its role.
    pub role: Role,
    /// Prompts or images.
    pub batch: u64,
    /// Tokens of each.
    pub tokens: u64,
    /// Bytes of an activation.
    pub act: u64,
    /// Whether that is fp16.
    pub fp16: bool,
}

impl EncoderPass {
    /// The encoder that a benchmark ran; `tokens` is the usual number of them.
    ///
    /// # Errors
    /// Where it is not run the way an encoder is.
    pub fn read(component: &ExpandedComponent, role: Role, tokens: u64, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        let fp16 = asked.dtype == Some(Dtype::Fp16);
        let pass = match (role, asked.stage.as_str()) {
            (Role::TextEncoder | Role::TextEncoder2, "encode_prompt") if asked.tokens.is_some() => Self {
                encoder: {
                    let encoder = Encoder::read(component, 0)?;
                    Encoder { masked: encoder.masked || asked.masked, ..encoder }
                },
                role,
                batch: asked.batch,
                tokens: asked.tokens.unwrap_or(tokens),
                act: asked.act(Dtype::Bf16),
                fp16,
            },
            (Role::ImageEncoder, "encode_image") => Self {
                encoder: Encoder::read(component, encoder::IMAGE_TOKENS)?,
                role,
                batch: asked.batch,
                tokens: encoder::IMAGE_TOKENS,
                act: asked.act(Dtype::Fp32),
                fp16,
            },
            (role, stage) => return Err(format!("no rule for the stage `{stage}` of a {}", role.word()).into()),
        };
        Ok(Box::new(pass))
    }
}

impl Pass for EncoderPass {
    fn weights(&self) -> Weights {
        Weights::blocks(self.role, encoder::tensors(&self.encoder))
    }

    fn element(&self) -> (u64, bool) {
        (self.act, self.fp16)
    }

    fn libraries(&self) -> Libraries {
        // Without biases only plain products leave a workspace.
        if self.encoder.biases() { Libraries::Biases } else { Libraries::Products }
    }

    fn inputs(&self) -> Vec<Input> {
        if self.role == Role::ImageEncoder {
            return vec![(vec![("batch", self.batch), ("channels", 3), ("height", IMAGE_SIDE), ("width", IMAGE_SIDE)], FP32)];
        }
        // Token numbers and their mask.
        vec![(vec![("batch", self.batch), ("tokens", self.tokens)], 8); 2]
    }

    fn run(&self, p: &mut Builder, _: &mut Streams) -> Tensor {
        let Self { encoder, batch, tokens, act, fp16, .. } = self;
        transformers_text::Forward { encoder, batch: *batch, tokens: *tokens, act: *act, fp16: *fp16, leaf: None }.emit(p)
    }
}
