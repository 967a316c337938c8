// Softmax attention that never has more than a tile of scores: numbers of keys and values come tile by tile, and what was summed
// up is rescaled whenever a larger score is found (arXiv 2205.14135). Matrix units of compute capability 8.0 and newer.
#include "fv.cuh"

constexpr u32 HEAD = 128;   // features of a head
constexpr u32 KEYS = 64;    // keys of a tile
constexpr u32 LANES = 128;  // threads of a block: four warps
constexpr u32 TILE_BYTES = KEYS * HEAD * 2;

__device__ __forceinline__ u32 shared_address(const void* pointer) { return u32(__cvta_generic_to_shared(pointer)); }

// 16 bytes to shared memory, or zeros.
__device__ __forceinline__ void copy_async(u32 to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}

__device__ __forceinline__ void copies_issued() { asm volatile("cp.async.commit_group;"); }
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from));
}

// c += a b, 16 x 8 results of 16 terms.
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Rows of 256 bytes. Pieces of 16 bytes are exchanged within groups of eight, so that eight rows of one column lie in different
// banks.
__device__ __forceinline__ u32 swizzled(u32 row, u32 piece) { return row * (HEAD * 2) + ((piece ^ (row & 7)) * 16); }

// Which rows of a matrix a tile has.
struct Rows {
  u32 count;                       // rows of the tile that are there
  u32 first;                       // of neighbouring rows
  u32 frame, row, column;          // of a tile of a grid
  u32 height, width;               // rows and columns of it that are in the grid
};

template <bool SPARSE>
__device__ __forceinline__ u32 row_of(const Rows& rows, const Grid& grid, u32 at) {
  if constexpr (!SPARSE) return rows.first + at;
  const u32 plane = rows.height * rows.width;
  const u32 frame = rows.frame + at / plane, row = rows.row + at / rows.width % rows.height, column = rows.column + at % rows.width;
  return (frame * grid.height + row) * grid.width + column;
}

__device__ __forceinline__ Rows tile_rows(const Grid& grid, const Grid& tile, u32 number) {
  const u32 height = (grid.height + tile.height - 1) / tile.height, width = (grid.width + tile.width - 1) / tile.width;
  Rows rows;
  rows.first = 0;
  rows.frame = number / (height * width) * tile.frames;
  rows.row = number / width % height * tile.height;
  rows.column = number % width * tile.width;
  rows.height = min(tile.height, grid.height - rows.row);
  rows.width = min(tile.width, grid.width - rows.column);
  rows.count = min(tile.frames, grid.frames - rows.frame) * rows.height * rows.width;
  return rows;
}

// COUNT rows of one head to shared memory, zeros where there are none.
template <u32 COUNT, bool SPARSE>
__device__ __forceinline__ void load_rows(u32 to, const Matrix& from, u32 head, const Rows& rows, const Grid& grid) {
  const u32 piece = threadIdx.x % 16;
#pragma unroll
  for (u32 step = 0; step < COUNT / 8; ++step) {
    const u32 at = step * 8 + threadIdx.x / 16;
    const bool there = at < rows.count;
    const u32 row = there ? row_of<SPARSE>(rows, grid, at) : 0;
    const bf16* source = reinterpret_cast<const bf16*>(from.data) + place(from, row, head * HEAD + piece * 8);
    copy_async(to + swizzled(at, piece), source, there);
  }
}

// Keys and values of a tile.
template <bool SPARSE>
__device__ __forceinline__ void load_tile(u32 to, const Attention& of, u32 head, const Rows& rows, const u32 (&whole)[KEYS / 8]) {
  if constexpr (SPARSE) {
    // In a tile that is all there, rows lie as they do in all such tiles: divisions are saved for those at the border.
    if (rows.count == KEYS) {
      const u32 piece = threadIdx.x % 16, first = (rows.frame * of.grid.height + rows.row) * of.grid.width + rows.column;
      const bf16* k = reinterpret_cast<const bf16*>(of.k.data) + head * HEAD + piece * 8;
      const bf16* v = reinterpret_cast<const bf16*>(of.v.data) + head * HEAD + piece * 8;
#pragma unroll
      for (u32 step = 0; step < KEYS / 8; ++step) {
        const u32 at = step * 8 + threadIdx.x / 16, row = first + whole[step];
        copy_async(to + swizzled(at, piece), k + row * of.k.pitch, true);
        copy_async(to + TILE_BYTES + swizzled(at, piece), v + row * of.v.pitch, true);
      }
      return;
    }
  }
  load_rows<KEYS, SPARSE>(to, of.k, head, rows, of.grid);
  load_rows<KEYS, SPARSE>(to + TILE_BYTES, of.v, head, rows, of.grid);
}

// A block has BLOCKS * 64 queries of one head, a warp BLOCKS * 16 of them. Shared memory: queries, then twice keys and values.
template <u32 BLOCKS, bool SPARSE>
__device__ __forceinline__ void attend(const Attention& of) {
  extern __shared__ __align__(128) char memory[];
  const u32 queries = shared_address(memory), tiles = queries + BLOCKS * TILE_BYTES;
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
  const int* chosen = nullptr;
  Rows mine, next;
  u32 count;
  // Of this thread's rows in a whole tile: how far they lie from its first one.
  u32 whole[KEYS / 8];
  if constexpr (SPARSE) {
    mine = tile_rows(of.grid, of.tile, blockIdx.x);
    chosen = reinterpret_cast<const int*>(of.chosen.data) + place(of.chosen, u64(head) * gridDim.x + blockIdx.x, 0);
    count = of.chosen.columns;
    next = tile_rows(of.grid, of.tile, u32(chosen[0]));
    const Rows all = {KEYS, 0, 0, 0, 0, of.tile.height, of.tile.width};
#pragma unroll
    for (u32 step = 0; step < KEYS / 8; ++step) whole[step] = row_of<true>(all, of.grid, step * 8 + threadIdx.x / 16);
  } else {
    mine.first = blockIdx.x * BLOCKS * 64;
    mine.count = min(BLOCKS * 64, of.q.rows - mine.first);
    count = (of.k.rows + KEYS - 1) / KEYS;
    next.first = 0;
    next.count = min(KEYS, of.k.rows);
  }
  load_rows<BLOCKS * 64, SPARSE>(queries, of.q, head, mine, of.grid);
  load_tile<SPARSE>(tiles, of, head, next, whole);
  copies_issued();

  float sums[BLOCKS][HEAD / 8][4];
  float largest[BLOCKS][2], total[BLOCKS][2];
#pragma unroll
  for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
    for (u32 at = 0; at < HEAD / 8; ++at) {
#pragma unroll
      for (u32 i = 0; i < 4; ++i) sums[block][at][i] = 0.0f;
    }
    largest[block][0] = largest[block][1] = -INFINITE;
    total[block][0] = total[block][1] = 0.0f;
  }
  // Scores are powers of two: the scale has the logarithm of e in it.
  const float scale = of.scale * 1.4426950408889634f;

  for (u32 tile = 0; tile < count; ++tile) {
    copies_done();
    __syncthreads();
    const u32 keys = tiles + (tile & 1) * 2 * TILE_BYTES, values = keys + TILE_BYTES, valid = next.count;
    if (tile + 1 < count) {
      if constexpr (SPARSE) {
        next = tile_rows(of.grid, of.tile, u32(chosen[tile + 1]));
      } else {
        next.first = (tile + 1) * KEYS;
        next.count = min(KEYS, of.k.rows - next.first);
      }
      load_tile<SPARSE>(tiles + ((tile + 1) & 1) * 2 * TILE_BYTES, of, head, next, whole);
      copies_issued();
    }

    float scores[BLOCKS][KEYS / 8][4];
#pragma unroll
    for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
      for (u32 at = 0; at < KEYS / 8; ++at) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) scores[block][at][i] = 0.0f;
      }
    }
#pragma unroll
    for (u32 part = 0; part < HEAD / 16; ++part) {
      u32 q[BLOCKS][4];
#pragma unroll
      for (u32 block = 0; block < BLOCKS; ++block) {
        load_matrices(q[block], queries + swizzled((warp * BLOCKS + block) * 16 + lane % 16, part * 2 + lane / 16));
      }
#pragma unroll
      for (u32 pair = 0; pair < KEYS / 16; ++pair) {
        u32 k[4];
        load_matrices(k, keys + swizzled(pair * 16 + lane / 16 * 8 + lane % 8, part * 2 + lane / 8 % 2));
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
          multiply(scores[block][2 * pair], q[block], k[0], k[1]);
          multiply(scores[block][2 * pair + 1], q[block], k[2], k[3]);
        }
      }
    }
    if (valid < KEYS) {
#pragma unroll
      for (u32 at = 0; at < KEYS / 8; ++at) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          if (at * 8 + lane % 4 * 2 + i % 2 >= valid) {
#pragma unroll
            for (u32 block = 0; block < BLOCKS; ++block) scores[block][at][i] = -INFINITE;
          }
        }
      }
    }

#pragma unroll
    for (u32 block = 0; block < BLOCKS; ++block) {
      // Two rows a thread; four neighbouring threads have a row together.
      float most[2] = {largest[block][0], largest[block][1]};
#pragma unroll
      for (u32 at = 0; at < KEYS / 8; ++at) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) most[i / 2] = fmaxf(most[i / 2], scores[block][at][i]);
      }
      float factor[2];
#pragma unroll
      for (u32 half = 0; half < 2; ++half) {
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xFFFFFFFFu, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(0xFFFFFFFFu, most[half], 2));
        factor[half] = power_of_two((largest[block][half] - most[half]) * scale);
        largest[block][half] = most[half];
        total[block][half] *= factor[half];
      }
      if (__any_sync(0xFFFFFFFFu, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
        for (u32 at = 0; at < HEAD / 8; ++at) {
#pragma unroll
          for (u32 i = 0; i < 4; ++i) sums[block][at][i] *= factor[i / 2];
        }
      }
      const float shift[2] = {most[0] * scale, most[1] * scale};
#pragma unroll
      for (u32 at = 0; at < KEYS / 8; ++at) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          scores[block][at][i] = power_of_two(fmaf(scores[block][at][i], scale, -shift[i / 2]));
          total[block][i / 2] += scores[block][at][i];
        }
      }
    }

#pragma unroll
    for (u32 part = 0; part < KEYS / 16; ++part) {
      u32 weights[BLOCKS][4];
#pragma unroll
      for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          const float* pair = &scores[block][2 * part + i / 2][i % 2 * 2];
          weights[block][i] = pack_two(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (u32 pair = 0; pair < HEAD / 16; ++pair) {
        u32 v[4];
        load_transposed(v, values + swizzled(part * 16 + lane % 16, pair * 2 + lane / 16));
#pragma unroll
        for (u32 block = 0; block < BLOCKS; ++block) {
          multiply(sums[block][2 * pair], weights[block], v[0], v[1]);
          multiply(sums[block][2 * pair + 1], weights[block], v[2], v[3]);
        }
      }
    }
  }

#pragma unroll
  for (u32 block = 0; block < BLOCKS; ++block) {
#pragma unroll
    for (u32 half = 0; half < 2; ++half) {
      float all = total[block][half];
      all += __shfl_xor_sync(0xFFFFFFFFu, all, 1);
      all += __shfl_xor_sync(0xFFFFFFFFu, all, 2);
      const u32 at = (warp * BLOCKS + block) * 16 + half * 8 + lane / 4;
      if (at >= mine.count) continue;
      bf16* target = reinterpret_cast<bf16*>(of.target.data) + place(of.target, row_of<SPARSE>(mine, of.grid, at), head * HEAD + lane % 4 * 2);
#pragma unroll
      for (u32 part = 0; part < HEAD / 8; ++part) {
        const float* pair = &sums[block][part][half * 2];
        *reinterpret_cast<u32*>(target + part * 8) = pack_two(pair[0] / all, pair[1] / all);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(LANES) attention(const __grid_constant__ Attention of) { attend<2, false>(of); }
// Two blocks fit into the shared memory of the largest multiprocessors: the compiler may use the registers that this leaves.
extern "C" __global__ void __launch_bounds__(LANES, 2) tile_attention(const __grid_constant__ Attention of) { attend<1, true>(of); }

// One query of one head, a warp's work: a key a lane, then a feature a lane.
struct Running {
  float largest = -INFINITE, total = 0.0f, sums[8] = {};

  // 32 keys or fewer, each lane with the score of its own.
  __device__ __forceinline__ void add(const Attention& of, float score, u32 key, u32 count, u32 first) {
    const float most = fmaxf(largest, warp_max(score)), factor = expf(largest - most), weight = expf(score - most);
    largest = most;
    total = total * factor + warp_sum(weight);
#pragma unroll
    for (u32 part = 0; part < 8; ++part) sums[part] *= factor;
    for (u32 other = 0; other < count; ++other) {
      const float share = __shfl_sync(0xFFFFFFFFu, weight, other);
      const u32 row = __shfl_sync(0xFFFFFFFFu, key, other);
#pragma unroll
      for (u32 part = 0; part < 8; ++part) {
        const u32 feature = part * 32 + threadIdx.x % 32;
        if (feature < of.head_dim) sums[part] += share * load(of.v, row, first + feature);
      }
    }
  }

  __device__ __forceinline__ void write(const Attention& of, u32 query, u32 first) {
    // The target may be the query, which other lanes may still read.
    __syncwarp();
#pragma unroll
    for (u32 part = 0; part < 8; ++part) {
      const u32 feature = part * 32 + threadIdx.x % 32;
      if (feature < of.head_dim) store(of.target, query, first + feature, sums[part] / total);
    }
  }
};

__device__ __forceinline__ float score_of(const Attention& of, u32 query, u32 key, u32 first) {
  float sum = 0.0f;
  for (u32 feature = 0; feature < of.head_dim; ++feature) sum += load(of.q, query, first + feature) * load(of.k, key, first + feature);
  return sum * of.scale;
}

// Heads of any width up to 256, and biases, for text encoders and tiny models: a warp for each query and head.
extern "C" __global__ void __launch_bounds__(32) attention_any(const __grid_constant__ Attention of) {
  const u32 lane = threadIdx.x, head = blockIdx.y, first = head * of.head_dim, query = blockIdx.x;
  Running sum;
  for (u32 start = 0; start < of.k.rows; start += 32) {
    const u32 key = start + lane;
    float score = -INFINITE;
    if (key < of.k.rows) {
      score = score_of(of, query, key, first);
      if (of.biased) score += load(of.bias, u64(head) * of.q.rows + query, key);
    }
    sum.add(of, score, key, min(32u, of.k.rows - start), first);
  }
  sum.write(of, query, first);
}

// The same for chosen tiles: a warp for each tile, head and place in a tile.
extern "C" __global__ void __launch_bounds__(32) tile_attention_any(const __grid_constant__ Attention of) {
  const u32 lane = threadIdx.x, head = blockIdx.y, first = head * of.head_dim;
  const Rows mine = tile_rows(of.grid, of.tile, blockIdx.x);
  if (blockIdx.z >= mine.count) return;
  const u32 query = row_of<true>(mine, of.grid, blockIdx.z);
  const int* chosen = reinterpret_cast<const int*>(of.chosen.data) + place(of.chosen, u64(head) * gridDim.x + blockIdx.x, 0);
  Running sum;
  for (u32 tile = 0; tile < of.chosen.columns; ++tile) {
    const Rows rows = tile_rows(of.grid, of.tile, u32(chosen[tile]));
    for (u32 start = 0; start < rows.count; start += 32) {
      const bool there = start + lane < rows.count;
      const u32 key = there ? row_of<true>(rows, of.grid, start + lane) : 0;
      const float score = there ? score_of(of, query, key, first) : -INFINITE;
      sum.add(of, score, key, min(32u, rows.count - start), first);
    }
  }
  sum.write(of, query, first);
}

// Bias by distance, as T5 has it: half of the buckets for tokens behind, half for tokens ahead; of each, half for exact distances
// and half for logarithms, which are rounded to single precision.
extern "C" __global__ void __launch_bounds__(THREADS) relative_bias(const __grid_constant__ RelativeBias of) {
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  const u32 tokens = of.target.columns;
  if (at >= u64(of.target.rows) * tokens) return;
  const u32 row = u32(at / tokens), key = u32(at % tokens), head = row / tokens, query = row % tokens;
  const u32 half = of.table.rows / 2, exact = of.table.rows / 4, distance = query > key ? query - key : key - query;
  u32 bucket = key > query ? half : 0;
  if (distance < exact) {
    bucket += distance;
  } else {
    const float range = float(log(double(of.max_distance) / double(exact)));
    const float beyond = float(log(double(float(distance) / float(exact)))) / range * float(half - exact);
    bucket += min(exact + u32(beyond), half - 1);
  }
  store(of.target, row, key, load(of.table, bucket, head));
}
