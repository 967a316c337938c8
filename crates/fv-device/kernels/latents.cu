// Latents, `[channels x positions]`, as rows of patches and back, and the sampler: one element a thread.
#include "fv.cuh"

// The position in a latent of one position of a patch.
__device__ __forceinline__ u32 position_of(const Grid& latent, const Grid& patch, u32 number, u32 inside) {
  const Grid patches = {latent.frames / patch.frames, latent.height / patch.height, latent.width / patch.width};
  const Place outer = place_in(patches, number), inner = place_in(patch, inside);
  const u32 frame = outer.frame * patch.frames + inner.frame;
  return (frame * latent.height + outer.row * patch.height + inner.row) * latent.width + outer.column * patch.width + inner.column;
}

// A row has its channels outermost.
extern "C" __global__ void __launch_bounds__(THREADS) patches(const __grid_constant__ Patches of) {
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.rows.rows) * of.rows.columns) return;
  const u32 row = u32(at / of.rows.columns), column = u32(at % of.rows.columns);
  const u32 size = of.patch.frames * of.patch.height * of.patch.width;
  const u32 position = position_of(of.latent, of.patch, of.first_row + row, column % size);
  store(of.rows, row, column, load(of.whole, column / size, position));
}

// A row has its channels innermost.
extern "C" __global__ void __launch_bounds__(THREADS) unpatch(const __grid_constant__ Patches of) {
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.rows.rows) * of.rows.columns) return;
  const u32 row = u32(at / of.rows.columns), column = u32(at % of.rows.columns);
  const u32 channels = of.whole.rows;
  const u32 position = position_of(of.latent, of.patch, of.first_row + row, column / channels);
  store(of.whole, column % channels, position, load(of.rows, row, column));
}

// Terms in order, without fused multiplication: the bits of the reference in single precision.
__device__ __forceinline__ float term(float sum, float coefficient, float value) {
  return coefficient == 0.0f ? sum : __fadd_rn(sum, __fmul_rn(coefficient, value));
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const __grid_constant__ Sample of) {
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.x.rows) * of.x.columns) return;
  const u32 row = u32(at / of.x.columns), column = u32(at % of.x.columns);
  const float x = load(of.x, row, column), velocity = load(of.prediction, row, column);
  if (of.kind == 0) {
    store(of.target, row, column, term(x, of.change, velocity));
    return;
  }
  const float clean = term(x, -of.sigma, velocity);
  if (of.kind == 1) {
    const float next = of.next == 0.0f ? clean : term(term(0.0f, of.keep, clean), of.next, load(of.noise, row, column));
    store(of.target, row, column, next);
    return;
  }
  // States: the last prediction of the clean latent, the one before, the last sample.
  const float last = load(of.last, row, column);
  float corrected = x;
  if (of.corrects) {
    const float before = load(of.before, row, column), earlier = load(of.earlier, row, column);
    corrected = term(term(term(term(0.0f, of.corrector[0], earlier), of.corrector[1], last), of.corrector[2], before), of.corrector[3], clean);
  }
  const float next = term(term(term(0.0f, of.predictor[0], corrected), of.predictor[1], clean), of.predictor[2], last);
  store(of.target, row, column, next);
  store(of.last, row, column, clean);
  store(of.before, row, column, of.corrects ? last : 0.0f);
  store(of.earlier, row, column, corrected);
}
