// Made from crates/fv-device/src/cuda/arguments.rs: `make kernels` writes it.
#pragma once

struct Matrix {
  void* data;
  unsigned long long pitch;
  unsigned int rows;
  unsigned int columns;
  unsigned int element;
  unsigned int reserved;
};
static_assert(sizeof(Matrix) == 32, "size");
static_assert(__builtin_offsetof(Matrix, data) == 0, "offset");
static_assert(__builtin_offsetof(Matrix, pitch) == 8, "offset");
static_assert(__builtin_offsetof(Matrix, rows) == 16, "offset");
static_assert(__builtin_offsetof(Matrix, columns) == 20, "offset");
static_assert(__builtin_offsetof(Matrix, element) == 24, "offset");
static_assert(__builtin_offsetof(Matrix, reserved) == 28, "offset");

struct Grid {
  unsigned int frames;
  unsigned int height;
  unsigned int width;
};
static_assert(sizeof(Grid) == 12, "size");
static_assert(__builtin_offsetof(Grid, frames) == 0, "offset");
static_assert(__builtin_offsetof(Grid, height) == 4, "offset");
static_assert(__builtin_offsetof(Grid, width) == 8, "offset");

struct Pointwise {
  Matrix a;
  Matrix b;
  Matrix target;
  unsigned int op;
  unsigned int function;
  float scale;
  unsigned int reserved;
};
static_assert(sizeof(Pointwise) == 112, "size");
static_assert(__builtin_offsetof(Pointwise, a) == 0, "offset");
static_assert(__builtin_offsetof(Pointwise, b) == 32, "offset");
static_assert(__builtin_offsetof(Pointwise, target) == 64, "offset");
static_assert(__builtin_offsetof(Pointwise, op) == 96, "offset");
static_assert(__builtin_offsetof(Pointwise, function) == 100, "offset");
static_assert(__builtin_offsetof(Pointwise, scale) == 104, "offset");
static_assert(__builtin_offsetof(Pointwise, reserved) == 108, "offset");

struct GatedAdd {
  Matrix x;
  Matrix y;
  Matrix gate;
  Matrix target;
};
static_assert(sizeof(GatedAdd) == 128, "size");
static_assert(__builtin_offsetof(GatedAdd, x) == 0, "offset");
static_assert(__builtin_offsetof(GatedAdd, y) == 32, "offset");
static_assert(__builtin_offsetof(GatedAdd, gate) == 64, "offset");
static_assert(__builtin_offsetof(GatedAdd, target) == 96, "offset");

struct Dequantise {
  Matrix weights;
  Matrix scales;
  Matrix target;
};
static_assert(sizeof(Dequantise) == 96, "size");
static_assert(__builtin_offsetof(Dequantise, weights) == 0, "offset");
static_assert(__builtin_offsetof(Dequantise, scales) == 32, "offset");
static_assert(__builtin_offsetof(Dequantise, target) == 64, "offset");

struct Product {
  Matrix x;
  Matrix w;
  Matrix bias;
  Matrix target;
  unsigned int biased;
  unsigned int function;
};
static_assert(sizeof(Product) == 136, "size");
static_assert(__builtin_offsetof(Product, x) == 0, "offset");
static_assert(__builtin_offsetof(Product, w) == 32, "offset");
static_assert(__builtin_offsetof(Product, bias) == 64, "offset");
static_assert(__builtin_offsetof(Product, target) == 96, "offset");
static_assert(__builtin_offsetof(Product, biased) == 128, "offset");
static_assert(__builtin_offsetof(Product, function) == 132, "offset");

struct LayerNorm {
  Matrix x;
  Matrix weight;
  Matrix bias;
  Matrix shift;
  Matrix scale;
  Matrix target;
  float epsilon;
  unsigned int affine;
  unsigned int modulated;
  unsigned int reserved;
};
static_assert(sizeof(LayerNorm) == 208, "size");
static_assert(__builtin_offsetof(LayerNorm, x) == 0, "offset");
static_assert(__builtin_offsetof(LayerNorm, weight) == 32, "offset");
static_assert(__builtin_offsetof(LayerNorm, bias) == 64, "offset");
static_assert(__builtin_offsetof(LayerNorm, shift) == 96, "offset");
static_assert(__builtin_offsetof(LayerNorm, scale) == 128, "offset");
static_assert(__builtin_offsetof(LayerNorm, target) == 160, "offset");
static_assert(__builtin_offsetof(LayerNorm, epsilon) == 192, "offset");
static_assert(__builtin_offsetof(LayerNorm, affine) == 196, "offset");
static_assert(__builtin_offsetof(LayerNorm, modulated) == 200, "offset");
static_assert(__builtin_offsetof(LayerNorm, reserved) == 204, "offset");

struct RmsNorm {
  Matrix x;
  Matrix weight;
  Matrix target;
  float epsilon;
  unsigned int reserved;
};
static_assert(sizeof(RmsNorm) == 104, "size");
static_assert(__builtin_offsetof(RmsNorm, x) == 0, "offset");
static_assert(__builtin_offsetof(RmsNorm, weight) == 32, "offset");
static_assert(__builtin_offsetof(RmsNorm, target) == 64, "offset");
static_assert(__builtin_offsetof(RmsNorm, epsilon) == 96, "offset");
static_assert(__builtin_offsetof(RmsNorm, reserved) == 100, "offset");

struct RotaryTable {
  Matrix target;
  Grid grid;
  unsigned int reserved;
};
static_assert(sizeof(RotaryTable) == 48, "size");
static_assert(__builtin_offsetof(RotaryTable, target) == 0, "offset");
static_assert(__builtin_offsetof(RotaryTable, grid) == 32, "offset");
static_assert(__builtin_offsetof(RotaryTable, reserved) == 44, "offset");

struct TimestepFeatures {
  Matrix target;
  double timestep;
};
static_assert(sizeof(TimestepFeatures) == 40, "size");
static_assert(__builtin_offsetof(TimestepFeatures, target) == 0, "offset");
static_assert(__builtin_offsetof(TimestepFeatures, timestep) == 32, "offset");

struct Rotate {
  Matrix x;
  Matrix table;
  Matrix target;
};
static_assert(sizeof(Rotate) == 96, "size");
static_assert(__builtin_offsetof(Rotate, x) == 0, "offset");
static_assert(__builtin_offsetof(Rotate, table) == 32, "offset");
static_assert(__builtin_offsetof(Rotate, target) == 64, "offset");

struct Attention {
  Matrix q;
  Matrix k;
  Matrix v;
  Matrix bias;
  Matrix chosen;
  Matrix target;
  Grid grid;
  Grid tile;
  unsigned int head_dim;
  float scale;
  unsigned int biased;
  unsigned int reserved;
};
static_assert(sizeof(Attention) == 232, "size");
static_assert(__builtin_offsetof(Attention, q) == 0, "offset");
static_assert(__builtin_offsetof(Attention, k) == 32, "offset");
static_assert(__builtin_offsetof(Attention, v) == 64, "offset");
static_assert(__builtin_offsetof(Attention, bias) == 96, "offset");
static_assert(__builtin_offsetof(Attention, chosen) == 128, "offset");
static_assert(__builtin_offsetof(Attention, target) == 160, "offset");
static_assert(__builtin_offsetof(Attention, grid) == 192, "offset");
static_assert(__builtin_offsetof(Attention, tile) == 204, "offset");
static_assert(__builtin_offsetof(Attention, head_dim) == 216, "offset");
static_assert(__builtin_offsetof(Attention, scale) == 220, "offset");
static_assert(__builtin_offsetof(Attention, biased) == 224, "offset");
static_assert(__builtin_offsetof(Attention, reserved) == 228, "offset");

struct RelativeBias {
  Matrix table;
  Matrix target;
  unsigned int max_distance;
  unsigned int reserved;
};
static_assert(sizeof(RelativeBias) == 72, "size");
static_assert(__builtin_offsetof(RelativeBias, table) == 0, "offset");
static_assert(__builtin_offsetof(RelativeBias, target) == 32, "offset");
static_assert(__builtin_offsetof(RelativeBias, max_distance) == 64, "offset");
static_assert(__builtin_offsetof(RelativeBias, reserved) == 68, "offset");

struct TileMeans {
  Matrix x;
  Matrix target;
  Grid grid;
  Grid tile;
};
static_assert(sizeof(TileMeans) == 88, "size");
static_assert(__builtin_offsetof(TileMeans, x) == 0, "offset");
static_assert(__builtin_offsetof(TileMeans, target) == 32, "offset");
static_assert(__builtin_offsetof(TileMeans, grid) == 64, "offset");
static_assert(__builtin_offsetof(TileMeans, tile) == 76, "offset");

struct TileScores {
  Matrix q;
  Matrix k;
  Matrix v;
  Matrix outputs;
  Matrix chosen;
  unsigned int head_dim;
  unsigned int places;
  float scale;
  unsigned int reserved;
};
static_assert(sizeof(TileScores) == 176, "size");
static_assert(__builtin_offsetof(TileScores, q) == 0, "offset");
static_assert(__builtin_offsetof(TileScores, k) == 32, "offset");
static_assert(__builtin_offsetof(TileScores, v) == 64, "offset");
static_assert(__builtin_offsetof(TileScores, outputs) == 96, "offset");
static_assert(__builtin_offsetof(TileScores, chosen) == 128, "offset");
static_assert(__builtin_offsetof(TileScores, head_dim) == 160, "offset");
static_assert(__builtin_offsetof(TileScores, places) == 164, "offset");
static_assert(__builtin_offsetof(TileScores, scale) == 168, "offset");
static_assert(__builtin_offsetof(TileScores, reserved) == 172, "offset");

struct TileAdd {
  Matrix x;
  Matrix coarse;
  Matrix gate;
  Matrix target;
  Grid grid;
  Grid tile;
  unsigned int first_row;
  unsigned int reserved;
};
static_assert(sizeof(TileAdd) == 160, "size");
static_assert(__builtin_offsetof(TileAdd, x) == 0, "offset");
static_assert(__builtin_offsetof(TileAdd, coarse) == 32, "offset");
static_assert(__builtin_offsetof(TileAdd, gate) == 64, "offset");
static_assert(__builtin_offsetof(TileAdd, target) == 96, "offset");
static_assert(__builtin_offsetof(TileAdd, grid) == 128, "offset");
static_assert(__builtin_offsetof(TileAdd, tile) == 140, "offset");
static_assert(__builtin_offsetof(TileAdd, first_row) == 152, "offset");
static_assert(__builtin_offsetof(TileAdd, reserved) == 156, "offset");

struct Patches {
  Matrix whole;
  Matrix rows;
  Grid latent;
  Grid patch;
  unsigned int first_row;
  unsigned int reserved;
};
static_assert(sizeof(Patches) == 96, "size");
static_assert(__builtin_offsetof(Patches, whole) == 0, "offset");
static_assert(__builtin_offsetof(Patches, rows) == 32, "offset");
static_assert(__builtin_offsetof(Patches, latent) == 64, "offset");
static_assert(__builtin_offsetof(Patches, patch) == 76, "offset");
static_assert(__builtin_offsetof(Patches, first_row) == 88, "offset");
static_assert(__builtin_offsetof(Patches, reserved) == 92, "offset");

struct Sample {
  Matrix x;
  Matrix prediction;
  Matrix noise;
  Matrix last;
  Matrix before;
  Matrix earlier;
  Matrix target;
  unsigned int kind;
  unsigned int corrects;
  float change;
  float sigma;
  float keep;
  float next;
  float corrector[4];
  float predictor[3];
  unsigned int reserved;
};
static_assert(sizeof(Sample) == 280, "size");
static_assert(__builtin_offsetof(Sample, x) == 0, "offset");
static_assert(__builtin_offsetof(Sample, prediction) == 32, "offset");
static_assert(__builtin_offsetof(Sample, noise) == 64, "offset");
static_assert(__builtin_offsetof(Sample, last) == 96, "offset");
static_assert(__builtin_offsetof(Sample, before) == 128, "offset");
static_assert(__builtin_offsetof(Sample, earlier) == 160, "offset");
static_assert(__builtin_offsetof(Sample, target) == 192, "offset");
static_assert(__builtin_offsetof(Sample, kind) == 224, "offset");
static_assert(__builtin_offsetof(Sample, corrects) == 228, "offset");
static_assert(__builtin_offsetof(Sample, change) == 232, "offset");
static_assert(__builtin_offsetof(Sample, sigma) == 236, "offset");
static_assert(__builtin_offsetof(Sample, keep) == 240, "offset");
static_assert(__builtin_offsetof(Sample, next) == 244, "offset");
static_assert(__builtin_offsetof(Sample, corrector) == 248, "offset");
static_assert(__builtin_offsetof(Sample, predictor) == 264, "offset");
static_assert(__builtin_offsetof(Sample, reserved) == 276, "offset");
