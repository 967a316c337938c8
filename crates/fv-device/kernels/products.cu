// Products that the library is not asked for: few rows, or formats and extents that matrix units do not take.
#include "fv.cuh"

// f(x w^T + b): one result a warp. Numbers of a row are summed up by lane, then over lanes, so that a result does not depend on
// which rows and columns are computed with it.
extern "C" __global__ void __launch_bounds__(THREADS) product(const __grid_constant__ Product of) {
  const u64 at = (u64(blockIdx.x) * THREADS + threadIdx.x) / 32;
  const u32 lane = threadIdx.x % 32;
  if (at >= u64(of.target.rows) * of.target.columns) return;
  const u32 row = u32(at / of.target.columns), column = u32(at % of.target.columns);
  float sum = 0.0f;
  for (u32 k = lane; k < of.x.columns; k += 32) sum += load(of.x, row, k) * load(of.w, column, k);
  sum = warp_sum(sum);
  if (lane > 0) return;
  if (of.biased) sum += load(of.bias, 0, column);
  store(of.target, row, column, apply(of.function, sum));
}
