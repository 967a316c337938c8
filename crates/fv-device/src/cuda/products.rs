//! Matrix products by cuBLASLt: `target = f(x w^T + b)` over bfloat16 numbers, summed up in single precision.
//!
//! One algorithm for each number of outputs, inputs and kind of epilogue, chosen for [`TYPICAL_ROWS`] and kept for any number of
//! rows: rows that are computed in chunks must get the bits that they get together. For the same reason no sum is split.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::cublaslt::{
    result::{self, CublasError},
    sys,
};
use cudarc::driver::{CudaContext, CudaStream};

use super::arguments::Matrix;
use super::memory::DeviceArena;
use super::{Error, libraries};

/// Device memory that algorithms may use, as the vendor recommends for compute capability 9.0.
pub const WORKSPACE_BYTES: u64 = 32 << 20;
/// Rows that algorithms are chosen for.
const TYPICAL_ROWS: u64 = 4096;
/// Algorithms that are looked at: the first whose sums are not split is taken.
const CANDIDATES: usize = 16;
/// Bytes that operands are aligned to at least.
const ALIGNMENT: u32 = 16;

/// What is done with each sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Epilogue {
    pub(super) bias: bool,
    pub(super) gelu: bool,
}

impl Epilogue {
    fn word(self) -> sys::cublasLtEpilogue_t {
        match (self.bias, self.gelu) {
            (false, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            (true, false) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
            (false, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU,
            (true, true) => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        }
    }
}

/// Outputs, inputs, and what is done with each sum.
type Key = (u32, u32, Epilogue);

/// The library, and the algorithms that were chosen.
pub(super) struct Products {
    handle: sys::cublasLtHandle_t,
    workspace: DeviceArena,
    chosen: RefCell<HashMap<Key, sys::cublasLtMatmulAlgo_t>>,
}

impl std::fmt::Debug for Products {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Products").field("chosen", &self.chosen.borrow().len()).finish_non_exhaustive()
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: `new` made the handle, and nobody else has it.
        #[expect(unsafe_code, reason = "the library's handles have no owner but this")]
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Says what the library was asked for when it refused.
fn asked<T>(what: &str, answer: Result<T, CublasError>) -> Result<T, Error> {
    answer.map_err(|error| Error::Library { what: format!("cuBLASLt, {what}"), code: format!("{:?}", error.0) })
}

/// How a matrix lies in memory, for the library: columns of `rows` numbers at a distance of `pitch`.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Layout {
    fn new(rows: u64, columns: u64, pitch: u64) -> Result<Self, Error> {
        let pitch = i64::try_from(pitch).unwrap_or(i64::MAX);
        asked("a layout", result::create_matrix_layout(sys::cudaDataType_t::CUDA_R_16BF, rows, columns, pitch)).map(Self)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is destroyed here alone.
        #[expect(unsafe_code, reason = "the library's layouts have no owner but this")]
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// What is computed.
struct Operation(sys::cublasLtMatmulDesc_t);

impl Operation {
    fn new(epilogue: Epilogue, bias: u64) -> Result<Self, Error> {
        let single = sys::cudaDataType_t::CUDA_R_32F;
        let made = Self(asked("an operation", result::create_matmul_desc(sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, single))?);
        // CUBLAS_OP_T: weights lie with their inputs next to each other.
        made.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, &1_i32)?;
        made.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue.word())?;
        if epilogue.bias {
            made.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
        }
        Ok(made)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), Error> {
        // SAFETY: the value is of the attribute's type, and is copied.
        #[expect(unsafe_code, reason = "the library takes an address and a size")]
        let answer = unsafe { result::set_matmul_desc_attribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) };
        asked("an attribute", answer)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is destroyed here alone.
        #[expect(unsafe_code, reason = "the library's operations have no owner but this")]
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// What algorithms are wanted.
struct Wanted(sys::cublasLtMatmulPreference_t);

impl Wanted {
    fn new() -> Result<Self, Error> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let made = Self(asked("a preference", result::create_matmul_pref())?);
        made.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &super::index(WORKSPACE_BYTES))?;
        // CUBLASLT_REDUCTION_SCHEME_NONE.
        made.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &0_u32)?;
        for operand in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            made.set(operand, &ALIGNMENT)?;
        }
        Ok(made)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), Error> {
        // SAFETY: the value is of the attribute's type, and is copied.
        #[expect(unsafe_code, reason = "the library takes an address and a size")]
        let answer = unsafe { result::set_matmul_pref_attribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) };
        asked("a preference", answer)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is destroyed here alone.
        #[expect(unsafe_code, reason = "the library's preferences have no owner but this")]
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

impl Products {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, Error> {
        libraries::cublaslt()?;
        let workspace = DeviceArena::new(context, WORKSPACE_BYTES)?;
        let handle = asked("a handle", result::create_handle())?;
        Ok(Self { handle, workspace, chosen: RefCell::default() })
    }

    /// Whether these operands are ones that matrix units take.
    pub(super) fn takes(operands: &[&Matrix]) -> bool {
        let aligned = |m: &&&Matrix| m.element == 1 && m.data.is_multiple_of(u64::from(ALIGNMENT)) && m.pitch.is_multiple_of(8);
        operands.iter().filter(aligned).count() == operands.len() && operands.iter().all(|m| m.columns.is_multiple_of(8))
    }

    /// `target = f(x w^T + b)`; the caller has checked extents.
    pub(super) fn multiply(
        &self,
        stream: &CudaStream,
        (x, w, target): (&Matrix, &Matrix, &Matrix),
        bias: Option<&Matrix>,
        gelu: bool,
    ) -> Result<(), Error> {
        let epilogue = Epilogue { bias: bias.is_some(), gelu };
        let algorithm = self.algorithm((w.rows, w.columns, epilogue))?;
        let operation = Operation::new(epilogue, bias.map_or(0, |bias| bias.data))?;
        // The library has columns next to each other: its matrices are ours, transposed.
        let (outputs, inputs, rows) = (u64::from(w.rows), u64::from(w.columns), u64::from(x.rows));
        let of_w = Layout::new(inputs, outputs, w.pitch)?;
        let of_x = Layout::new(inputs, rows, x.pitch)?;
        let of_target = Layout::new(outputs, rows, target.pitch)?;
        let (one, zero) = (1.0_f32, 0.0_f32);
        let to = target.data as *mut c_void;
        // SAFETY: operands lie in device memory as the layouts say, which the caller has checked; the algorithm was chosen for these
        // extents but for the number of rows, and the library checks it again. Its memory is used by one stream alone.
        #[expect(unsafe_code, reason = "the library takes addresses")]
        let answer = unsafe {
            result::matmul(
                self.handle,
                operation.0,
                ptr::from_ref(&one).cast(),
                ptr::from_ref(&zero).cast(),
                w.data as *const c_void,
                of_w.0,
                x.data as *const c_void,
                of_x.0,
                to.cast_const(),
                of_target.0,
                to,
                of_target.0,
                &raw const algorithm,
                self.workspace.at(0, WORKSPACE_BYTES)? as *mut c_void,
                super::index(WORKSPACE_BYTES),
                stream.cu_stream().cast(),
            )
        };
        asked(&format!("a product of {rows} rows, {inputs} inputs and {outputs} outputs"), answer)
    }

    fn algorithm(&self, key: Key) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        if let Some(algorithm) = self.chosen.borrow().get(&key) {
            return Ok(*algorithm);
        }
        let algorithm = self.choose(key)?;
        self.chosen.borrow_mut().insert(key, algorithm);
        Ok(algorithm)
    }

    fn choose(&self, (outputs, inputs, epilogue): Key) -> Result<sys::cublasLtMatmulAlgo_t, Error> {
        let (n, k) = (u64::from(outputs), u64::from(inputs));
        // Any address: it only says that there is one.
        let operation = Operation::new(epilogue, self.workspace.at(0, 0)?)?;
        let (of_w, of_x, of_target) = (Layout::new(k, n, k)?, Layout::new(k, TYPICAL_ROWS, k)?, Layout::new(n, TYPICAL_ROWS, n)?);
        let wanted = Wanted::new()?;
        let mut found = [NOTHING; CANDIDATES];
        let mut count = 0;
        let room = i32::try_from(CANDIDATES).unwrap_or(i32::MAX);
        // SAFETY: everything is alive, and there is room for as many results as are asked for.
        #[expect(unsafe_code, reason = "the library takes addresses")]
        let answer = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                self.handle,
                operation.0,
                of_w.0,
                of_x.0,
                of_target.0,
                of_target.0,
                wanted.0,
                room,
                found.as_mut_ptr(),
                &raw mut count,
            )
        };
        let what = format!("an algorithm for {inputs} inputs and {outputs} outputs");
        asked(&what, answer.result())?;
        let found = found.iter().take(usize::try_from(count).unwrap_or(0));
        let usable = |result: &&sys::cublasLtMatmulHeuristicResult_t| result.state == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS;
        let chosen = found.filter(usable).find(|result| splits(&result.algo).is_some_and(|splits| splits <= 1));
        chosen.map(|result| result.algo).ok_or(Error::Library { what: format!("cuBLASLt, {what}"), code: "there is none".to_owned() })
    }
}

/// Before the library has written a result.
const NOTHING: sys::cublasLtMatmulHeuristicResult_t = sys::cublasLtMatmulHeuristicResult_t {
    algo: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
    workspaceSize: 0,
    state: sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED,
    wavesCount: 0.0,
    reserved: [0; 4],
};

/// Into how many parts an algorithm splits each sum.
fn splits(algorithm: &sys::cublasLtMatmulAlgo_t) -> Option<u32> {
    let mut splits = 0_u32;
    let mut written = 0;
    let attribute = sys::cublasLtMatmulAlgoConfigAttributes_t::CUBLASLT_ALGO_CONFIG_SPLITK_NUM;
    let to = (&raw mut splits).cast();
    // SAFETY: the number has a place of its size.
    #[expect(unsafe_code, reason = "the library takes addresses")]
    let answer =
        unsafe { sys::cublasLtMatmulAlgoConfigGetAttribute(ptr::from_ref(algorithm), attribute, to, size_of::<u32>(), &raw mut written) };
    answer.result().ok().map(|()| splits)
}
