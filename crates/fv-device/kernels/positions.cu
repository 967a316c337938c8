// Rotary embedding and timesteps. Angles are in double precision: positions reach 1,024 and timesteps 1,000, where single
// precision would lose the last four digits.
#include "fv.cuh"

constexpr double LN_10000 = 9.210340371976184;

// Cosine and sine of an angle from 0 to a few thousand. The library's functions keep a table for huge angles on the stack.
__device__ __forceinline__ void turn(double angle, float& cosine, float& sine) {
  const double quarter = rint(angle * 0.63661977236758134308);
  // pi / 2 in two parts: the first has 33 bits, so that its multiples are exact.
  const double r = fma(-quarter, 6.07710050650619224932e-11, fma(-quarter, 1.57079632673412561417, angle));
  const double z = r * r;
  double s = -7.6471637318198164759e-13, c = -1.1470745597729724714e-11;
  s = fma(s, z, 1.6059043836821614599e-10);
  s = fma(s, z, -2.5052108385441718775e-8);
  s = fma(s, z, 2.7557319223985890653e-6);
  s = fma(s, z, -1.9841269841269841270e-4);
  s = fma(s, z, 8.3333333333333333333e-3);
  s = fma(s, z, -1.6666666666666666667e-1);
  s = fma(s * z, r, r);
  c = fma(c, z, 2.0876756987868098979e-9);
  c = fma(c, z, -2.7557319223985890653e-7);
  c = fma(c, z, 2.4801587301587301587e-5);
  c = fma(c, z, -1.3888888888888888889e-3);
  c = fma(c, z, 4.1666666666666666667e-2);
  c = fma(c, z, -0.5);
  c = fma(c, z, 1.0);
  const int turns = int(quarter) & 3;
  const double along = turns & 1 ? s : c, across = turns & 1 ? c : s;
  cosine = float(turns == 1 || turns == 2 ? -along : along);
  sine = float(turns == 2 || turns == 3 ? -across : across);
}

// Cosine and sine of each pair of features next to each other; one pair a thread.
extern "C" __global__ void __launch_bounds__(THREADS) rotary_table(const __grid_constant__ RotaryTable of) {
  const u32 pairs = of.target.columns / 2;
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.target.rows) * pairs) return;
  const u32 token = u32(at / pairs), pair = u32(at % pairs);
  const Place position = place_in(of.grid, token);
  const u32 across = 2 * (of.target.columns / 6), along = of.target.columns - 2 * across;
  u32 part = along, inside = pair, coordinate = position.frame;
  if (pair >= along / 2) {
    const u32 rest = pair - along / 2;
    part = across;
    inside = rest % (across / 2);
    coordinate = rest < across / 2 ? position.row : position.column;
  }
  const double angle = double(coordinate) * exp(-LN_10000 * double(2 * inside) / double(part));
  float cosine, sine;
  turn(angle, cosine, sine);
  store(of.target, token, 2 * pair, cosine);
  store(of.target, token, 2 * pair + 1, sine);
}

// Cosines, then sines, of the timestep times falling frequencies.
extern "C" __global__ void __launch_bounds__(THREADS) timestep_features(const __grid_constant__ TimestepFeatures of) {
  const u32 half = of.target.columns / 2, at = blockIdx.x * THREADS + threadIdx.x;
  if (at >= half) return;
  float cosine, sine;
  turn(of.timestep * exp(-LN_10000 * double(at) / double(half)), cosine, sine);
  store(of.target, 0, at, cosine);
  store(of.target, 0, half + at, sine);
}

// Rotates pairs of neighbouring features of all heads: PAIRS pairs a thread.
template <u32 PAIRS>
__device__ __forceinline__ void rotate_pairs(const Rotate& of) {
  const u32 across = of.x.columns / (2 * PAIRS);
  const u64 at = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (at >= u64(of.x.rows) * across) return;
  const u32 row = u32(at / across), column = u32(at % across) * 2 * PAIRS;
  const u32 feature = column % of.table.columns;
  if constexpr (PAIRS == 4) {
    Eight x = load_eight(of.x, row, column);
    const Eight table = load_eight_floats(of.table, row, feature);
#pragma unroll
    for (u32 pair = 0; pair < 4; ++pair) {
      const float even = x.x[2 * pair], odd = x.x[2 * pair + 1], cosine = table.x[2 * pair], sine = table.x[2 * pair + 1];
      x.x[2 * pair] = even * cosine - odd * sine;
      x.x[2 * pair + 1] = even * sine + odd * cosine;
    }
    store_eight(of.target, row, column, x);
  } else {
    const float even = load(of.x, row, column), odd = load(of.x, row, column + 1);
    const float cosine = load(of.table, row, feature), sine = load(of.table, row, feature + 1);
    store(of.target, row, column, even * cosine - odd * sine);
    store(of.target, row, column + 1, even * sine + odd * cosine);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) rotate_eight(const __grid_constant__ Rotate of) { rotate_pairs<4>(of); }
extern "C" __global__ void __launch_bounds__(THREADS) rotate(const __grid_constant__ Rotate of) { rotate_pairs<1>(of); }
