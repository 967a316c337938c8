// What is computed element by element.
#include "fv.cuh"

// target = op(a, b): rows of b are repeated where there are fewer. Any formats; one element a thread.
extern "C" __global__ void __launch_bounds__(THREADS) pointwise(const __grid_constant__ Pointwise of) {
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * of.target.columns) return;
  const u32 row = u32(at / of.target.columns), column = u32(at % of.target.columns);
  const float a = load(of.a, row, column);
  float result;
  switch (of.op) {
    case 0: result = apply(of.function, a); break;
    case 1: result = a + load(of.b, row % of.b.rows, column); break;
    case 2: result = apply(of.function, a) * load(of.b, row % of.b.rows, column); break;
    default: {
      const float b = load(of.b, row % of.b.rows, column);
      result = __fadd_rn(b, __fmul_rn(of.scale, __fsub_rn(a, b)));
    }
  }
  store(of.target, row, column, result);
}

// The same for eight bfloat16 numbers a thread, b having as many rows as a.
extern "C" __global__ void __launch_bounds__(THREADS) pointwise_eight(const __grid_constant__ Pointwise of) {
  const u32 across = of.target.columns / 8;
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * across) return;
  const u32 row = u32(at / across), column = u32(at % across) * 8;
  Eight a = load_eight(of.a, row, column);
  if (of.op == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) a.x[i] = apply(of.function, a.x[i]);
  } else {
    const Eight b = load_eight(of.b, row, column);
#pragma unroll
    for (int i = 0; i < 8; ++i) a.x[i] = of.op == 1 ? a.x[i] + b.x[i] : apply(of.function, a.x[i]) * b.x[i];
  }
  store_eight(of.target, row, column, a);
}

// x + y * gate, eight bfloat16 numbers a thread and a gate of floats.
extern "C" __global__ void __launch_bounds__(THREADS) gated_add(const __grid_constant__ GatedAdd of) {
  const u32 across = of.target.columns / 8;
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * across) return;
  const u32 row = u32(at / across), column = u32(at % across) * 8;
  Eight x = load_eight(of.x, row, column);
  const Eight y = load_eight(of.y, row, column), gate = load_eight_floats(of.gate, 0, column);
#pragma unroll
  for (int i = 0; i < 8; ++i) x.x[i] += y.x[i] * gate.x[i];
  store_eight(of.target, row, column, x);
}

// Eight-bit weights as bfloat16 numbers, a scale for each row: 16 weights a thread.
extern "C" __global__ void __launch_bounds__(THREADS) dequantise(const __grid_constant__ Dequantise of) {
  const u32 across = of.target.columns / 16;
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * across) return;
  const u32 row = u32(at / across), column = u32(at % across) * 16;
  const float scale = reinterpret_cast<const float*>(of.scales.data)[row];
  const uint4 packed = *reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(of.weights.data) + place(of.weights, row, column));
  const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Eight result;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const u32 byte = words[half * 2 + i / 4] >> (8 * (i % 4)) & 0xFFu;
      const float value = of.weights.element == FP8 ? from_fp8(byte) : float(static_cast<signed char>(byte));
      result.x[i] = value * scale;
    }
    store_eight(of.target, row, column + half * 8, result);
  }
}
