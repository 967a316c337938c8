// What all kernels share. No header of the toolkit is needed, so that the run-time compiler takes the same files wherever its
// library is.
#pragma once

#include "arguments.cuh"

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned short bf16;  // its bits: the upper half of a float's

#define INFINITE __int_as_float(0x7F800000)

// Threads of every kernel that does not say otherwise.
constexpr u32 THREADS = 256;

// How numbers are stored: the order of `Element` in arguments.rs.
enum Element : u32 { F32 = 0, BF16 = 1, FP8 = 2, INT8 = 3, I32 = 4, U8 = 5 };

// f(x): the order of `Function` in arguments.rs.
enum Function : u32 { IDENTITY = 0, SILU = 1, GELU_TANH = 2 };

__device__ __forceinline__ u64 place(const Matrix& m, u64 row, u64 column) { return row * m.pitch + column; }

__device__ __forceinline__ float from_bf16(bf16 bits) { return __uint_as_float(u32(bits) << 16); }

// The nearest ones, ties to even; the first is the lower half.
__device__ __forceinline__ u32 pack_two(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Four exponent bits and three of mantissa: where a float has them, but for 120 in the exponent. Its small numbers are a float's.
__device__ __forceinline__ float from_fp8(u32 byte) {
  const u32 size = byte & 0x7Fu;
  if (size == 0x7Fu) return __int_as_float(0x7FFFFFFF);
  return __uint_as_float(size << 20 | (byte & 0x80u) << 24) * 1.329227995784916e36f;
}

// An element of any format as single precision, which holds every integer that a program converts.
__device__ __forceinline__ float load(const Matrix& m, u64 row, u64 column) {
  const u64 at = place(m, row, column);
  switch (m.element) {
    case F32: return reinterpret_cast<const float*>(m.data)[at];
    case BF16: return from_bf16(reinterpret_cast<const bf16*>(m.data)[at]);
    case FP8: return from_fp8(reinterpret_cast<const unsigned char*>(m.data)[at]);
    case INT8: return float(reinterpret_cast<const signed char*>(m.data)[at]);
    case I32: return float(reinterpret_cast<const int*>(m.data)[at]);
    default: return float(reinterpret_cast<const unsigned char*>(m.data)[at]);
  }
}

// The nearest number that can be stored; only formats that kernels write.
__device__ __forceinline__ void store(const Matrix& m, u64 row, u64 column, float value) {
  const u64 at = place(m, row, column);
  if (m.element == BF16) {
    reinterpret_cast<bf16*>(m.data)[at] = bf16(pack_two(value, 0.0f));
  } else {
    reinterpret_cast<float*>(m.data)[at] = value;
  }
}

// Eight neighbouring bfloat16 numbers, 16 bytes.
struct Eight {
  float x[8];
};

__device__ __forceinline__ Eight load_eight(const Matrix& m, u64 row, u64 column) {
  const uint4 packed = *reinterpret_cast<const uint4*>(reinterpret_cast<const bf16*>(m.data) + place(m, row, column));
  const u32 words[4] = {packed.x, packed.y, packed.z, packed.w};
  Eight result;
#pragma unroll
  for (int at = 0; at < 4; ++at) {
    result.x[2 * at] = __uint_as_float(words[at] << 16);
    result.x[2 * at + 1] = __uint_as_float(words[at] & 0xFFFF0000u);
  }
  return result;
}

__device__ __forceinline__ void store_eight(const Matrix& m, u64 row, u64 column, const Eight& value) {
  uint4 packed;
  packed.x = pack_two(value.x[0], value.x[1]);
  packed.y = pack_two(value.x[2], value.x[3]);
  packed.z = pack_two(value.x[4], value.x[5]);
  packed.w = pack_two(value.x[6], value.x[7]);
  *reinterpret_cast<uint4*>(reinterpret_cast<bf16*>(m.data) + place(m, row, column)) = packed;
}

// Eight neighbouring floats, 32 bytes.
__device__ __forceinline__ Eight load_eight_floats(const Matrix& m, u64 row, u64 column) {
  const float4* from = reinterpret_cast<const float4*>(reinterpret_cast<const float*>(m.data) + place(m, row, column));
  const float4 low = from[0], high = from[1];
  return Eight{{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

__device__ __forceinline__ float apply(u32 function, float x) {
  if (function == SILU) return x / (1.0f + expf(-x));
  if (function == GELU_TANH) {
    const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(inner));
  }
  return x;
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, distance));
  return value;
}

// The sum over all threads of a block, the same in each; the order depends on the number of threads alone.
__device__ __forceinline__ float block_sum(float value, float* shared) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
#pragma unroll
  for (u32 warp = 0; warp < THREADS / 32; ++warp) total += shared[warp];
  return total;
}

// Frame, row and column of a position.
struct Place {
  u32 frame, row, column;
};

__device__ __forceinline__ Place place_in(const Grid& grid, u32 position) {
  return Place{position / (grid.height * grid.width), position / grid.width % grid.height, position % grid.width};
}
