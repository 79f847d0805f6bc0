// Arguments of products of packed rows that the kernels of every backend share.
#pragma once

#include <cstdint>

#include "pack/arguments.h"

namespace bitgnn {

// A product of packed rows: v = (row_scale * out_scale) * dot + bias + addend, then a value or a
// bit.
struct BmmArgs {
  const int32_t* x;      // [rows, words_for(size)], or null when `pack` says how to make them
  const PackArgs* pack;  // packs rows inside the product; its words and scale are ignored
  const int32_t* w;      // [out_features, words_for(size)]
  int64_t rows;
  int64_t size;  // features K of the dot product
  int64_t out_features;
  const float* row_scale;  // [rows] or null
  bool packed_scale;       // use the scale measured while packing
  const float* out_scale;  // [out_features] or null
  const float* bias;       // [out_features] or null
  const float* addend;     // [rows, out_features] or null
  const float* threshold;  // [out_features] or null (0)
  const bool* flip;        // [out_features] or null
  float* out_float;        // [rows, out_features]; exactly one of the three outputs is given
  int32_t* out_int;        // [rows, out_features]
  int32_t* out_bits;       // [rows, words_for(out_features)]
};

// A product of packed rows with weights in three digits of 8 bits, for sums S0, S1, S2 of the
// digits: v = (x_scale * step) * (65536 S0 + (256 S1 + S2)) + bias + addend.
struct BitsLinearArgs {
  const int32_t* x;  // [rows, words_for(size)]
  // [3, out_features, words_for(size), 8, 4]: byte [t, j] of a word is that of feature t + 8 j.
  const int8_t* digits;
  const float* step;  // [out_features]
  int64_t rows;
  int64_t size;
  int64_t out_features;
  const float* x_scale;  // [rows] or null
  const float* bias;     // [out_features] or null
  const float* addend;   // [rows, out_features] or null
  float* out;            // [rows, out_features]
};

// Features up to which int32 holds 256 S1 + S2.
constexpr int64_t kMostLinearFeatures = 65024;

}  // namespace bitgnn
