//! Bytes of stored weights: plain and quantised, with scales and the remainder that stays unquantised.
//!
//! A quantised module needs more than its parameter count: scales are counted by rows, blocks or groups of sixteen, so the
//! shapes of the matrices decide, and embeddings, norms and biases usually stay in a plain type. [`bytes`] takes the shapes;
//! [`bytes_of_count`] says what a bare count still allows, which for quantised storage is a lower bound and no more.
//!
//! A matrix has `rows` outputs and `columns` inputs, as PyTorch's `Linear.weight`. Quantisers group along the row, so a row
//! is an output channel, and "per row" and "per channel" cost the same; both words are kept because runtimes use both.

use fv_spec::authored::Dtype;

/// Bytes of a scale of the FP8 and INT8 formats, and of NVFP4's second-level scale: fp32.
const SCALE: u64 = 4;
/// Values of a row that share an NVFP4 scale of one byte.
const NVFP4_GROUP: u64 = 16;

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

/// Matrices of one shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrices {
    /// Output channels.
    pub rows: u64,
    /// Input channels.
    pub columns: u64,
    /// How many there are.
    pub count: u64,
}

impl Matrices {
    /// `count` matrices of `rows` x `columns`.
    pub fn new(rows: u64, columns: u64, count: u64) -> Self {
        Self { rows, columns, count }
    }
}

/// What a module stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tensors {
    /// The matrices that the storage applies to.
    pub matrices: Vec<Matrices>,
    /// Elements of everything that stays plain: embeddings, norms, biases, modules that the quantiser leaves out.
    pub unquantised: u64,
}

impl Tensors {
    /// All elements, whatever they are stored in: the parameter count.
    pub fn elements(&self) -> Option<u64> {
        self.matrices.iter().try_fold(self.unquantised, |sum, m| sum.checked_add(product(&[m.rows, m.columns, m.count])?))
    }
}

/// Stored bytes by what they hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// The matrices' values.
    pub values: u64,
    /// Their scales.
    pub scales: u64,
    /// What stays plain.
    pub rest: u64,
}

impl StoredBytes {
    /// Everything together.
    pub fn total(&self) -> Option<u64> {
        self.values.checked_add(self.scales)?.checked_add(self.rest)
    }
}

/// What is known of a component's stored bytes when only its parameter count is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromCount {
    /// Plain storage: the count is enough.
    Exact(u64),
    /// Quantised storage: the values alone, as if every parameter were quantised. Scales and whatever stays plain come on
    /// top and are not known.
    AtLeast(u64),
}

/// Bits of one element. NVFP4's shared scales are not part of an element.
pub fn element_bits(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Fp32 => 32,
        Dtype::Fp16 | Dtype::Bf16 => 16,
        Dtype::Fp8 | Dtype::Int8 => 8,
        Dtype::Nvfp4 => 4,
    }
}

/// Bytes of one element of a type whose elements are whole bytes; `None` for NVFP4.
pub fn element_bytes(dtype: Dtype) -> Option<u64> {
    let bits = element_bits(dtype);
    bits.is_multiple_of(8).then_some(bits / 8)
}

/// Bits that the values of one quantised element take.
fn value_bits(storage: Storage) -> Option<u64> {
    Some(match storage {
        Storage::Plain(Dtype::Nvfp4) => return None,
        Storage::Plain(dtype) => element_bits(dtype),
        Storage::Nvfp4 => 4,
        Storage::Fp8PerTensor | Storage::Fp8PerChannel | Storage::Fp8Blockwise { .. } | Storage::Int8PerRow | Storage::Int8PerChannel => 8,
    })
}

/// Bytes of the module `tensors` with its matrices in `storage` and everything else in `rest`.
///
/// * Plain: rows x columns elements. FP8 and INT8: a byte an element.
/// * FP8 per tensor: one fp32 scale. Per channel or per row: one for each row. Blockwise: one for each block, blocks at the
///   edges counted whole.
/// * NVFP4: two values a byte along the row, one byte of scale for 16 values along the row, and one fp32 scale a tensor
///   (a kernel may ask for scales padded to 128 rows and 4 columns: for shapes that are no multiples that comes on top).
///
/// `None` on overflow, for a block without rows or columns, and for NVFP4 as a plain type, which does not exist.
pub fn bytes(storage: Storage, tensors: &Tensors, rest: Dtype) -> Option<StoredBytes> {
    let mut stored = StoredBytes { rest: tensors.unquantised.checked_mul(element_bytes(rest)?)?, ..StoredBytes::default() };
    for &Matrices { rows, columns, count } in &tensors.matrices {
        let (values, scales) = match storage {
            Storage::Plain(dtype) => (product(&[rows, columns, element_bytes(dtype)?])?, 0),
            Storage::Fp8PerTensor => (product(&[rows, columns])?, SCALE),
            Storage::Fp8PerChannel | Storage::Int8PerRow | Storage::Int8PerChannel => {
                (product(&[rows, columns])?, product(&[rows, SCALE])?)
            }
            Storage::Fp8Blockwise { block: [height, width] } => {
                if height == 0 || width == 0 {
                    return None;
                }
                let blocks = product(&[rows.div_ceil(u64::from(height)), columns.div_ceil(u64::from(width))])?;
                (product(&[rows, columns])?, product(&[blocks, SCALE])?)
            }
            Storage::Nvfp4 => {
                let groups = product(&[rows, columns.div_ceil(NVFP4_GROUP)])?;
                (product(&[rows, columns.div_ceil(2)])?, groups.checked_add(SCALE)?)
            }
        };
        stored.values = stored.values.checked_add(values.checked_mul(count)?)?;
        stored.scales = stored.scales.checked_add(scales.checked_mul(count)?)?;
    }
    stored.total()?;
    Some(stored)
}

/// What `parameters` alone say of the bytes in `storage`: quantised storage needs more than a parameter count.
///
/// No upper bound is given: how much stays plain is the quantiser's choice, and scales depend on the shapes.
pub fn bytes_of_count(storage: Storage, parameters: u64) -> Option<FromCount> {
    let bytes = parameters.checked_mul(value_bits(storage)?)?.div_ceil(8);
    Some(if matches!(storage, Storage::Plain(_)) { FromCount::Exact(bytes) } else { FromCount::AtLeast(bytes) })
}

fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1u64, |product, factor| product.checked_mul(*factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Language layers of the MiniMax H3 conditioner: Qwen3-VL 32B cut to 50 layers, 5120 wide, FFN 25600, 64 query and 8
    /// key/value heads of 128. Embedding and vision tower stay plain, as do the norms of the layers.
    fn h3_encoder() -> Tensors {
        let (width, ffn, queries, pairs, layers) = (5120, 25_600, 64 * 128, 8 * 128, 50);
        let norms = 2 * width + 2 * 128; // input, post attention; query and key a head
        Tensors {
            matrices: vec![
                Matrices::new(queries, width, layers),
                Matrices::new(pairs, width, 2 * layers),
                Matrices::new(width, queries, layers),
                Matrices::new(ffn, width, 2 * layers),
                Matrices::new(width, ffn, layers),
            ],
            unquantised: 777_912_320 + 595_266_800 + layers * norms,
        }
    }

    /// Two decimals of GiB, as published figures are printed, by integer rounding.
    fn hundredths(bytes: u64) -> u64 {
        ((bytes * 100) + (1 << 29)) >> 30
    }

    #[test]
    fn h3_encoder_in_nvfp4_is_what_its_authors_published() {
        let tensors = h3_encoder();
        assert_eq!(tensors.elements(), Some(25_753_095_920), "the catalog's parameter count");
        let stored = bytes(Storage::Nvfp4, &tensors, Dtype::Bf16).expect("in range");
        // Per layer: q 41,943,040 + k and v 10,485,760 + o 41,943,040 + gate, up and down 393,216,000 = 487,587,840
        // elements; 50 layers 24,379,392,000; half a byte each, and a byte for 16.
        assert_eq!(stored.values, 24_379_392_000 / 2);
        assert_eq!(stored.scales, 24_379_392_000 / 16 + 350 * 4);
        assert_eq!(stored.rest, 2 * (777_912_320 + 595_266_800 + 524_800));
        // Published: 15.33 GiB in all, 11.35 GiB packed values, 1.42 GiB block scales.
        assert_eq!(
            (hundredths(stored.values), hundredths(stored.scales), hundredths(stored.total().expect("in range"))),
            (1135, 142, 1533)
        );
    }

    #[test]
    fn h3_encoder_in_fp8_is_what_its_authors_projected() {
        // Published: about 25.3 GiB, "the FP8 block-scale overhead is small"; blocks of 128 x 128.
        let stored = bytes(Storage::Fp8Blockwise { block: [128, 128] }, &h3_encoder(), Dtype::Bf16).expect("in range");
        assert_eq!((stored.values, stored.scales), (24_379_392_000, 24_379_392_000 / 16_384 * 4));
        assert_eq!(hundredths(stored.total().expect("in range")), 2527);
    }

    #[test]
    fn fasth3_block_is_the_slope_of_the_measured_rows() {
        // Width 5376, 56 heads of 128 (inner 7168), FFN 14336 gated. The AdaLN's own factor at rank 16 is 16 x 96,768 with a
        // bias of 96,768 (18 x 5376); its other factor is shared by the blocks. The gate is 7168 x 5376.
        let (width, inner, ffn, modulation) = (5376, 56 * 128, 14_336, 18 * 5376);
        let tensors = Tensors {
            matrices: vec![
                Matrices::new(inner, width, 3),
                Matrices::new(width, inner, 1),
                Matrices::new(2 * ffn, width, 1),
                Matrices::new(width, ffn, 1),
            ],
            unquantised: inner * width + 16 * modulation + modulation + 2 * width + 2 * 128,
        };
        assert_eq!(tensors.elements(), Some(425_542_912), "a block of the catalog's rank 16 DiT with the gate");
        let stored = bytes(Storage::Fp8PerTensor, &tensors, Dtype::Bf16).expect("in range");
        assert_eq!(stored, StoredBytes { values: 385_351_680, scales: 6 * 4, rest: 80_382_464 });
        // 465.73 MB = 0.4337 GiB. The published peaks with 0, 6 and 30 resident blocks differ by 0.433 to 0.434 GiB a block.
        let ten_thousandths = (stored.total().expect("in range") * 10_000 + (1 << 29)) >> 30;
        assert_eq!(ten_thousandths, 4337);
        let by_channel = bytes(Storage::Fp8PerChannel, &tensors, Dtype::Bf16).expect("in range");
        assert_eq!(by_channel.scales, 4 * (3 * 7168 + 5376 + 28_672 + 5376));
    }

    #[test]
    fn every_storage_on_an_odd_matrix() {
        let tensors = Tensors { matrices: vec![Matrices::new(3, 33, 2)], unquantised: 5 };
        let stored = |storage| bytes(storage, &tensors, Dtype::Fp32).map(|s| (s.values, s.scales, s.rest));
        for (storage, expected) in [
            (Storage::Plain(Dtype::Bf16), (396, 0, 20)),
            (Storage::Plain(Dtype::Fp32), (792, 0, 20)),
            (Storage::Fp8PerTensor, (198, 8, 20)),
            (Storage::Fp8PerChannel, (198, 24, 20)),
            (Storage::Fp8Blockwise { block: [2, 32] }, (198, 32, 20)),
            (Storage::Int8PerRow, (198, 24, 20)),
            (Storage::Int8PerChannel, (198, 24, 20)),
            (Storage::Nvfp4, (102, 26, 20)),
        ] {
            assert_eq!(stored(storage), Some(expected), "{storage:?}");
        }
        assert_eq!(tensors.elements(), Some(203));
    }

    #[test]
    fn what_does_not_exist_or_does_not_fit_is_none() {
        let tensors = Tensors { matrices: vec![Matrices::new(4, 4, 1)], unquantised: 0 };
        assert_eq!(bytes(Storage::Plain(Dtype::Nvfp4), &tensors, Dtype::Bf16), None);
        assert_eq!(bytes(Storage::Nvfp4, &tensors, Dtype::Nvfp4), None);
        assert_eq!(bytes(Storage::Fp8Blockwise { block: [0, 128] }, &tensors, Dtype::Bf16), None);
        let huge = Tensors { matrices: vec![Matrices::new(1 << 32, 1 << 31, 2)], unquantised: 0 };
        assert_eq!(bytes(Storage::Fp8PerTensor, &huge, Dtype::Bf16), None);
        assert_eq!(huge.elements(), None);
        assert_eq!(bytes(Storage::Nvfp4, &Tensors { matrices: vec![], unquantised: u64::MAX }, Dtype::Bf16), None);
    }

    #[test]
    fn a_count_bounds_quantised_storage_from_below_only() {
        assert_eq!(bytes_of_count(Storage::Plain(Dtype::Bf16), 5_680_910_336), Some(FromCount::Exact(11_361_820_672)));
        assert_eq!(bytes_of_count(Storage::Nvfp4, 3), Some(FromCount::AtLeast(2)));
        let stored = bytes(Storage::Nvfp4, &h3_encoder(), Dtype::Bf16).and_then(|s| s.total()).expect("in range");
        let Some(FromCount::AtLeast(low)) = bytes_of_count(Storage::Nvfp4, 25_753_095_920) else { panic!("a lower bound") };
        assert!(low < stored);
        assert_eq!(bytes_of_count(Storage::Plain(Dtype::Nvfp4), 1), None);
        assert_eq!(bytes_of_count(Storage::Fp8PerTensor, u64::MAX), None);
    }
}
