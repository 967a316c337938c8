// Made from crates/fv-device/src/cuda/arguments.rs: `make kernels` writes it.
#pragma once

#ifdef __CUDACC_RTC__
#define OFFSET(type, field, bytes) static_assert(true, "")
#else
#define OFFSET(type, field, bytes) static_assert(__builtin_offsetof(type, field) == bytes, "offset")
#endif

struct Matrix {
  void* data;
  unsigned long long pitch;
  unsigned int rows;
  unsigned int columns;
  unsigned int element;
  unsigned int reserved;
};
static_assert(sizeof(Matrix) == 32, "size");
OFFSET(Matrix, data, 0);
OFFSET(Matrix, pitch, 8);
OFFSET(Matrix, rows, 16);
OFFSET(Matrix, columns, 20);
OFFSET(Matrix, element, 24);
OFFSET(Matrix, reserved, 28);

struct Grid {
  unsigned int frames;
  unsigned int height;
  unsigned int width;
};
static_assert(sizeof(Grid) == 12, "size");
OFFSET(Grid, frames, 0);
OFFSET(Grid, height, 4);
OFFSET(Grid, width, 8);

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
OFFSET(Pointwise, a, 0);
OFFSET(Pointwise, b, 32);
OFFSET(Pointwise, target, 64);
OFFSET(Pointwise, op, 96);
OFFSET(Pointwise, function, 100);
OFFSET(Pointwise, scale, 104);
OFFSET(Pointwise, reserved, 108);

struct GatedAdd {
  Matrix x;
  Matrix y;
  Matrix gate;
  Matrix target;
};
static_assert(sizeof(GatedAdd) == 128, "size");
OFFSET(GatedAdd, x, 0);
OFFSET(GatedAdd, y, 32);
OFFSET(GatedAdd, gate, 64);
OFFSET(GatedAdd, target, 96);

struct Dequantise {
  Matrix weights;
  Matrix scales;
  Matrix target;
};
static_assert(sizeof(Dequantise) == 96, "size");
OFFSET(Dequantise, weights, 0);
OFFSET(Dequantise, scales, 32);
OFFSET(Dequantise, target, 64);

struct Product {
  Matrix x;
  Matrix w;
  Matrix bias;
  Matrix target;
  unsigned int biased;
  unsigned int function;
};
static_assert(sizeof(Product) == 136, "size");
OFFSET(Product, x, 0);
OFFSET(Product, w, 32);
OFFSET(Product, bias, 64);
OFFSET(Product, target, 96);
OFFSET(Product, biased, 128);
OFFSET(Product, function, 132);

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
OFFSET(LayerNorm, x, 0);
OFFSET(LayerNorm, weight, 32);
OFFSET(LayerNorm, bias, 64);
OFFSET(LayerNorm, shift, 96);
OFFSET(LayerNorm, scale, 128);
OFFSET(LayerNorm, target, 160);
OFFSET(LayerNorm, epsilon, 192);
OFFSET(LayerNorm, affine, 196);
OFFSET(LayerNorm, modulated, 200);
OFFSET(LayerNorm, reserved, 204);

struct RmsNorm {
  Matrix x;
  Matrix weight;
  Matrix target;
  float epsilon;
  unsigned int reserved;
};
static_assert(sizeof(RmsNorm) == 104, "size");
OFFSET(RmsNorm, x, 0);
OFFSET(RmsNorm, weight, 32);
OFFSET(RmsNorm, target, 64);
OFFSET(RmsNorm, epsilon, 96);
OFFSET(RmsNorm, reserved, 100);

struct RotaryTable {
  Matrix target;
  Grid grid;
  unsigned int reserved;
};
static_assert(sizeof(RotaryTable) == 48, "size");
OFFSET(RotaryTable, target, 0);
OFFSET(RotaryTable, grid, 32);
OFFSET(RotaryTable, reserved, 44);

struct TimestepFeatures {
  Matrix target;
  double timestep;
};
static_assert(sizeof(TimestepFeatures) == 40, "size");
OFFSET(TimestepFeatures, target, 0);
OFFSET(TimestepFeatures, timestep, 32);

struct Rotate {
  Matrix x;
  Matrix table;
  Matrix target;
};
static_assert(sizeof(Rotate) == 96, "size");
OFFSET(Rotate, x, 0);
OFFSET(Rotate, table, 32);
OFFSET(Rotate, target, 64);

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
OFFSET(Attention, q, 0);
OFFSET(Attention, k, 32);
OFFSET(Attention, v, 64);
OFFSET(Attention, bias, 96);
OFFSET(Attention, chosen, 128);
OFFSET(Attention, target, 160);
OFFSET(Attention, grid, 192);
OFFSET(Attention, tile, 204);
OFFSET(Attention, head_dim, 216);
OFFSET(Attention, scale, 220);
OFFSET(Attention, biased, 224);
OFFSET(Attention, reserved, 228);

struct RelativeBias {
  Matrix table;
  Matrix target;
  unsigned int max_distance;
  unsigned int reserved;
};
static_assert(sizeof(RelativeBias) == 72, "size");
OFFSET(RelativeBias, table, 0);
OFFSET(RelativeBias, target, 32);
OFFSET(RelativeBias, max_distance, 64);
OFFSET(RelativeBias, reserved, 68);

struct TileMeans {
  Matrix x;
  Matrix target;
  Grid grid;
  Grid tile;
};
static_assert(sizeof(TileMeans) == 88, "size");
OFFSET(TileMeans, x, 0);
OFFSET(TileMeans, target, 32);
OFFSET(TileMeans, grid, 64);
OFFSET(TileMeans, tile, 76);

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
OFFSET(TileScores, q, 0);
OFFSET(TileScores, k, 32);
OFFSET(TileScores, v, 64);
OFFSET(TileScores, outputs, 96);
OFFSET(TileScores, chosen, 128);
OFFSET(TileScores, head_dim, 160);
OFFSET(TileScores, places, 164);
OFFSET(TileScores, scale, 168);
OFFSET(TileScores, reserved, 172);

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
OFFSET(TileAdd, x, 0);
OFFSET(TileAdd, coarse, 32);
OFFSET(TileAdd, gate, 64);
OFFSET(TileAdd, target, 96);
OFFSET(TileAdd, grid, 128);
OFFSET(TileAdd, tile, 140);
OFFSET(TileAdd, first_row, 152);
OFFSET(TileAdd, reserved, 156);

struct Patches {
  Matrix whole;
  Matrix rows;
  Grid latent;
  Grid patch;
  unsigned int first_row;
  unsigned int reserved;
};
static_assert(sizeof(Patches) == 96, "size");
OFFSET(Patches, whole, 0);
OFFSET(Patches, rows, 32);
OFFSET(Patches, latent, 64);
OFFSET(Patches, patch, 76);
OFFSET(Patches, first_row, 88);
OFFSET(Patches, reserved, 92);

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
OFFSET(Sample, x, 0);
OFFSET(Sample, prediction, 32);
OFFSET(Sample, noise, 64);
OFFSET(Sample, last, 96);
OFFSET(Sample, before, 128);
OFFSET(Sample, earlier, 160);
OFFSET(Sample, target, 192);
OFFSET(Sample, kind, 224);
OFFSET(Sample, corrects, 228);
OFFSET(Sample, change, 232);
OFFSET(Sample, sigma, 236);
OFFSET(Sample, keep, 240);
OFFSET(Sample, next, 244);
OFFSET(Sample, corrector, 248);
OFFSET(Sample, predictor, 264);
OFFSET(Sample, reserved, 276);
