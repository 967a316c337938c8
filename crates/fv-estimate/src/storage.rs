//! Bytes of stored weights: plain and quantised, with scales and the remainder that stays unquantised.

use fv_spec::authored::Dtype;

/// How weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// One element, one value.
    Plain(Dtype),
    /// 8-bit floats with one scale a tensor.
    Fp8PerTensor,
    /// 8-bit floats with one fp32 scale an output channel.
    Fp8PerChannel,
    /// 8-bit floats with one fp32 scale for each block of rows and columns.
    Fp8Blockwise {
        /// Rows and columns of a block.
        block: [u32; 2],
    },
    /// 8-bit integers with one fp32 scale a row.
    Int8PerRow,
    /// 8-bit integers with one fp32 scale an output channel.
    Int8PerChannel,
    /// 4-bit floats, one 8-bit scale for 16 values and one fp32 scale a tensor.
    Nvfp4,
}
