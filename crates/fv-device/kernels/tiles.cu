// Video sparse attention but for its fine part: means of tiles, attention between tiles and the choice of tiles.
#include "fv.cuh"

// Tiles, numbered as positions are: by frame, row and column.
__device__ __forceinline__ u32 tile_of(const Grid& grid, const Grid& tile, u32 token) {
  const Place at = place_in(grid, token);
  const u32 height = (grid.height + tile.height - 1) / tile.height, width = (grid.width + tile.width - 1) / tile.width;
  return (at.frame / tile.frames * height + at.row / tile.height) * width + at.column / tile.width;
}

// Means over the tokens of each tile that are in the grid: a block for each tile, two features of bfloat16 a
// thread.
extern "C" __global__ void __launch_bounds__(THREADS) tile_means(const __grid_constant__ TileMeans of) {
  const u32 height = (of.grid.height + of.tile.height - 1) / of.tile.height, width = (of.grid.width + of.tile.width - 1) / of.tile.width;
  const u32 number = blockIdx.x;
  const u32 frame = number / (height * width) * of.tile.frames, row = number / width % height * of.tile.height;
  const u32 column = number % width * of.tile.width;
  const u32 last_frame = min(frame + of.tile.frames, of.grid.frames), last_row = min(row + of.tile.height, of.grid.height);
  const u32 last_column = min(column + of.tile.width, of.grid.width);
  const float count = float((last_frame - frame) * (last_row - row) * (last_column - column));
  for (u32 feature = threadIdx.x * 2; feature < of.x.columns; feature += THREADS * 2) {
    float low = 0.0f, high = 0.0f;
    for (u32 f = frame; f < last_frame; ++f) {
      for (u32 r = row; r < last_row; ++r) {
        const u64 start = place(of.x, (f * of.grid.height + r) * of.grid.width, feature);
        for (u32 c = column; c < last_column; ++c) {
          const u32 pair = *reinterpret_cast<const u32*>(reinterpret_cast<const bf16*>(of.x.data) + start + c * of.x.pitch);
          low += __uint_as_float(pair << 16);
          high += __uint_as_float(pair & 0xFFFF0000u);
        }
      }
    }
    store(of.target, number, feature, low / count);
    store(of.target, number, feature + 1, high / count);
  }
}

// x + coarse[tile of the row] * gate, eight numbers a thread.
extern "C" __global__ void __launch_bounds__(THREADS) tile_add(const __grid_constant__ TileAdd of) {
  const u32 across = of.target.columns / 8;
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * across) return;
  const u32 row = u32(at / across), column = u32(at % across) * 8;
  Eight x = load_eight(of.x, row, column);
  const Eight coarse = load_eight(of.coarse, tile_of(of.grid, of.tile, of.first_row + row), column), gate = load_eight(of.gate, row, column);
#pragma unroll
  for (int i = 0; i < 8; ++i) x.x[i] += coarse.x[i] * gate.x[i];
  store_eight(of.target, row, column, x);
}

// Bits of a float such that larger numbers have smaller bits: keys are sorted upwards and numbers of tiles too.
__device__ __forceinline__ u32 falling(float value) {
  const u32 bits = __float_as_uint(value);
  return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

// A block for each tile and head: scores of all tiles, their softmax over values, and the best tiles first, of equal ones the
// earlier. Operands are floats. Shared memory: a key for each tile, in a number of them that is a power of two, then a weight for
// each.
extern "C" __global__ void __launch_bounds__(THREADS) tile_scores(const __grid_constant__ TileScores of) {
  extern __shared__ u64 keys[];
  __shared__ float shared[THREADS / 32], query[256], halves[256];
  float* weights = reinterpret_cast<float*>(keys + of.places);
  const u32 tile = blockIdx.x, head = blockIdx.y, tiles = of.q.rows, first = head * of.head_dim;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < of.head_dim) query[threadIdx.x] = reinterpret_cast<const float*>(of.q.data)[place(of.q, tile, first + threadIdx.x)];
  __syncthreads();
  const float* k = reinterpret_cast<const float*>(of.k.data) + first;
  float largest = -INFINITE;
  for (u32 other = warp; other < tiles; other += THREADS / 32) {
    float sum = 0.0f;
    for (u32 feature = lane; feature < of.head_dim; feature += 32) sum += query[feature] * k[other * of.k.pitch + feature];
    sum = warp_sum(sum) * of.scale;
    largest = fmaxf(largest, sum);
    if (lane == 0) {
      keys[other] = u64(falling(sum)) << 32 | other;
      weights[other] = sum;
    }
  }
  for (u32 at = tiles + threadIdx.x; at < of.places; at += THREADS) keys[at] = ~u64(0);
  if (lane == 0) shared[warp] = largest;
  __syncthreads();
#pragma unroll
  for (u32 other = 0; other < THREADS / 32; ++other) largest = fmaxf(largest, shared[other]);
  float total = 0.0f;
  for (u32 other = threadIdx.x; other < tiles; other += THREADS) {
    weights[other] = expf(weights[other] - largest);
    total += weights[other];
  }
  total = block_sum(total, shared);

  // A feature a thread; heads of 128 or fewer have two threads for each, which take turns.
  const float* v = reinterpret_cast<const float*>(of.v.data) + first;
  const u32 threads = of.head_dim > THREADS / 2 ? 1 : 2, feature = threadIdx.x / threads, part = threadIdx.x % threads;
  float sum = 0.0f;
  if (feature < of.head_dim) {
    for (u32 other = part; other < tiles; other += threads) sum += weights[other] * v[other * of.v.pitch + feature];
  }
  if (feature < of.head_dim && part == 1) halves[feature] = sum;
  __syncthreads();
  if (feature < of.head_dim && part == 0) {
    store(of.outputs, tile, first + feature, (threads == 2 ? sum + halves[feature] : sum) / total);
  }

  // Bitonic sort.
  for (u32 size = 2; size <= of.places; size *= 2) {
    for (u32 distance = size / 2; distance > 0; distance /= 2) {
      __syncthreads();
      for (u32 at = threadIdx.x; at < of.places / 2; at += THREADS) {
        const u32 low = at / distance * distance * 2 + at % distance, high = low + distance;
        const u64 a = keys[low], b = keys[high];
        if ((a > b) == ((low & size) == 0)) {
          keys[low] = b;
          keys[high] = a;
        }
      }
    }
  }
  __syncthreads();
  int* chosen = reinterpret_cast<int*>(of.chosen.data) + place(of.chosen, u64(head) * tiles + tile, 0);
  for (u32 at = threadIdx.x; at < of.chosen.columns; at += THREADS) chosen[at] = int(keys[at] & 0xFFFFFFFFu);
}
