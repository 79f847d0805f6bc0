// Arguments of the packed-row matrix products, shared by the kernels of all backends.
#pragma once

#include <cstdint>

#include "core/kernel.h"
#include "pack/arguments.h"

namespace bitgnn {

// Binary matrix product of packed rows: v = (row_scale * out_scale) * dot + bias + addend, written
// as a value or a bit.
struct BmmArgs {
  const int32_t* x;      // [rows, words_for(size)]; null if `pack` gives rows to binarise
  const PackArgs* pack;  // rows to binarise inside the product; its words and scale are ignored
  const int32_t* w;      // [out_features, words_for(size)]
  int64_t rows;
  int64_t size;  // K, length of the dot product
  int64_t out_features;
  const float* row_scale;  // [rows] or null
  bool packed_scale;       // use the scale measured while packing
  const float* out_scale;  // [out_features] or null
  const float* bias;       // [out_features] or null
  const float* addend;     // [rows, out_features] or null
  const float* threshold;  // [out_features] or null (0)
  const bool* flip;        // [out_features] or null
  float* out_float;        // [rows, out_features]; exactly one of the three outputs is set
  int32_t* out_int;        // [rows, out_features]
  int32_t* out_bits;       // [rows, words_for(out_features)]
};

// Product of packed rows with weights split into three 8-bit digits. With the digit sums S0, S1,
// S2: v = (x_scale * step) * (65536 S0 + (256 S1 + S2)) + bias + addend.
struct BitsLinearArgs {
  const int32_t* x;  // [rows, words_for(size)]
  // [3, out_features, words_for(size), 8, 4]: byte [t, j] of a word belongs to feature t + 8 j.
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

// Largest number of features for which int32 holds 256 S1 + S2.
constexpr int64_t kMostLinearFeatures = 65024;

BITGNN_KERNEL(bmm, bmm, const BmmArgs& args);
BITGNN_KERNEL(bmm, bits_linear, const BitsLinearArgs& args);

}  // namespace bitgnn
