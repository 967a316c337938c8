// Norms over rows of bfloat16 numbers: one row a block, which stays in registers. Sums are in single precision.
#include "fv.cuh"

// Each thread has up to this many times eight numbers of a row, which can have THREADS * 8 * MOST numbers.
constexpr u32 MOST = 4;

struct Row {
  Eight parts[MOST];
};

__device__ __forceinline__ u32 column_of(u32 part) { return (part * THREADS + threadIdx.x) * 8; }

__device__ __forceinline__ Row load_row(const Matrix& x, u32 row) {
  Row result;
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
    if (column_of(part) < x.columns) {
      result.parts[part] = load_eight(x, row, column_of(part));
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) result.parts[part].x[i] = 0.0f;
    }
  }
  return result;
}

extern "C" __global__ void __launch_bounds__(THREADS) layer_norm(const __grid_constant__ LayerNorm of) {
  __shared__ float shared[THREADS / 32];
  const u32 row = blockIdx.x, columns = of.x.columns;
  const Row x = load_row(of.x, row);
  float sum = 0.0f;
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += x.parts[part].x[i];
  }
  const float mean = block_sum(sum, shared) / float(columns);
  float squares = 0.0f;
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
    if (column_of(part) < columns) {
#pragma unroll
      for (int i = 0; i < 8; ++i) squares += (x.parts[part].x[i] - mean) * (x.parts[part].x[i] - mean);
    }
  }
  const float factor = 1.0f / sqrtf(block_sum(squares, shared) / float(columns) + of.epsilon);
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
    const u32 column = column_of(part);
    if (column >= columns) continue;
    Eight y;
#pragma unroll
    for (int i = 0; i < 8; ++i) y.x[i] = (x.parts[part].x[i] - mean) * factor;
    if (of.affine) {
      const Eight weight = load_eight(of.weight, 0, column), bias = load_eight(of.bias, 0, column);
#pragma unroll
      for (int i = 0; i < 8; ++i) y.x[i] = y.x[i] * weight.x[i] + bias.x[i];
    }
    if (of.modulated) {
      const Eight shift = load_eight_floats(of.shift, 0, column), scale = load_eight_floats(of.scale, 0, column);
#pragma unroll
      for (int i = 0; i < 8; ++i) y.x[i] = y.x[i] * (1.0f + scale.x[i]) + shift.x[i];
    }
    store_eight(of.target, row, column, y);
  }
}

// x / sqrt(mean(x^2) + epsilon) * weight.
extern "C" __global__ void __launch_bounds__(THREADS) rms_norm(const __grid_constant__ RmsNorm of) {
  __shared__ float shared[THREADS / 32];
  const u32 row = blockIdx.x, columns = of.x.columns;
  const Row x = load_row(of.x, row);
  float squares = 0.0f;
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += x.parts[part].x[i] * x.parts[part].x[i];
  }
  const float factor = 1.0f / sqrtf(block_sum(squares, shared) / float(columns) + of.epsilon);
#pragma unroll
  for (u32 part = 0; part < MOST; ++part) {
    const u32 column = column_of(part);
    if (column >= columns) continue;
    const Eight weight = load_eight(of.weight, 0, column);
    Eight y;
#pragma unroll
    for (int i = 0; i < 8; ++i) y.x[i] = x.parts[part].x[i] * factor * weight.x[i];
    store_eight(of.target, row, column, y);
  }
}
