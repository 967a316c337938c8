//! Feature maps of video autoencoders, and the workspaces of their convolutions.

use fv_spec::estimate::Reason;

use super::FP32;
use crate::program::{Builder, Dims, Site, Tensor};

/// Extents of a feature map and bytes of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// Videos.
    pub batch: u64,
    /// Channels.
    pub channels: u64,
    /// Frames.
    pub frames: u64,
    /// Rows.
    pub height: u64,
    /// Columns.
    pub width: u64,
    /// Bytes of an element.
    pub element: u64,
}

impl Map {
    /// A tensor of this map.
    pub fn alloc(self, p: &mut Builder, site: &'static Site) -> Tensor {
        let dims: Dims<'_> =
            &[("batch", self.batch), ("channels", self.channels), ("frames", self.frames), ("height", self.height), ("width", self.width)];
        p.alloc(site, dims, self.element)
    }

    /// With other channels and frames.
    #[must_use]
    pub fn with(self, channels: u64, frames: u64) -> Self {
        Self { channels, frames, ..self }
    }

    /// With other channels.
    #[must_use]
    pub fn with_channels(self, channels: u64) -> Self {
        Self { channels, ..self }
    }

    /// With other frames.
    #[must_use]
    pub fn with_frames(self, frames: u64) -> Self {
        Self { frames, ..self }
    }

    /// With other sides.
    #[must_use]
    pub fn sized(self, height: u64, width: u64) -> Self {
        Self { height, width, ..self }
    }

    /// In a type of `element` bytes.
    #[must_use]
    pub fn of(self, element: u64) -> Self {
        Self { element, ..self }
    }

    /// A copy in fp32, where the map is in a narrower type.
    pub fn wide(self, p: &mut Builder, site: &'static Site) -> Option<Tensor> {
        (self.element != FP32).then(|| self.of(FP32).alloc(p, site))
    }

    /// Its elements.
    pub fn elements(self) -> u64 {
        self.positions() * self.channels
    }

    fn positions(self) -> u64 {
        self.batch * self.frames * self.height * self.width
    }
}

/// What cuDNN adds to a workspace besides the copies: 16 to 147 bytes in the recorded traces.
pub const CUDNN_HEADER: u64 = 146;

/// cuDNN's channels-last kernels take channels eight at a time.
pub fn pad8(channels: u64) -> u64 {
    channels.div_ceil(8) * 8
}

/// The workspace of a convolution of `x` to `y` with `kernel` values a channel pair: copies of input, output and weights in
/// channels-last order (`tests/data/wan/ops.csv`). Convolutions of pixels and of single positions take none.
pub fn convolution_workspace(p: &mut Builder, site: &'static Site, x: Map, y: Map, kernel: u64) {
    const RGB: u64 = 3;
    if kernel > 1 && x.channels != RGB {
        copies_workspace(p, site, x, y, kernel);
    }
}

/// The copies of [`convolution_workspace`], whatever is convolved.
pub fn copies_workspace(p: &mut Builder, site: &'static Site, x: Map, y: Map, kernel: u64) {
    let pad = |channels: u64| if x.element == FP32 { channels } else { pad8(channels) };
    let (inputs, outputs) = (pad(x.channels), pad(y.channels));
    let copies = x.positions() * inputs + y.positions() * outputs + inputs * outputs * kernel;
    p.touch(site, &[("input, output and weights", copies + CUDNN_HEADER / x.element)], x.element);
}

/// The buffer of PyTorch's sum over the channels of `m`, whose positions lie next to each other in memory: threads take up to
/// four positions at once, and where each would add up 256 values or more, several blocks share a position and leave their parts
/// in a buffer (`setReduceConfig` of `ATen/native/cuda/Reduce.cuh`, seen in `tests/data/families`).
pub fn reduction_buffer(p: &mut Builder, site: &'static Site, m: Map) {
    /// Threads of a block and positions that they lie along, multiprocessors of an H200 and threads of one.
    const THREADS: [u64; 4] = [512, 32, 132, 2048];
    let [threads, columns, processors, resident] = THREADS;
    let together = [4, 2].into_iter().find(|n| (m.frames * m.height * m.width).is_multiple_of(*n)).unwrap_or(1);
    let values = m.channels.div_ceil(threads / together / columns);
    let blocks = m.positions().div_ceil(columns * together);
    let target = processors * (resident * together / threads);
    if values < 256 || blocks > target || blocks == 0 {
        return;
    }
    let parts = target.div_ceil(blocks).min(values.div_ceil(16)).max(values.div_ceil(256));
    if parts > 1 {
        p.touch(site, &[("positions", m.positions()), ("parts", parts), ("values of a part", columns * together)], FP32);
    }
}

/// `CogVideoXSafeConv3d` cuts what it convolves into parts of so many frames. It adds the border to each but the first, so where
/// that has fewer frames than the kernel the class fails, and no memory would help.
pub fn refuse_short_parts(p: &mut Builder, frames: u64, kernel: u64) {
    if frames < kernel {
        let text = format!(
            "a convolution of the VAE is over so many values that diffusers cuts it into parts of {frames} frame{}, fewer than the \
             {kernel} of its kernel, and fails: tiles or a smaller size avoid it",
            if frames == 1 { "" } else { "s" }
        );
        p.refuse(Reason::new("uncovered-size", text));
    }
}
