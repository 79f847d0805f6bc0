// Arguments that the kernels of every backend share.
#pragma once

#include <cstdint>

#include "core/common.h"

namespace bitgnn {

// How float rows become bits: bit = x >= threshold, scale = mean |(x - threshold) * gain|.
struct PackArgs {
  const void* x;  // [rows, cols], unit column stride
  FloatType type;
  int64_t row_stride;  // in elements
  int64_t cols;
  const float* threshold;  // [cols] or null
  const float* gain;       // [cols] or null; acts on the scale alone
  int32_t* words;          // [rows, words_for(cols)]
  float* scale;            // [rows] or null
};

// How rows become bits behind s(u) = (u - mean) / (std + kStandardizeEpsilon) of each row, where u
// is x or, with `relu`, max(x, 0): bit = u >= mean, scale = mean |s(u)|. The mean is a float64 sum
// rounded to float32; a row whose mean is not finite has no bit set and the scale NaN.
struct StandardizedPackArgs {
  const void* x;  // [rows, cols], unit column stride
  FloatType type;
  int64_t row_stride;  // in elements
  int64_t cols;
  bool relu;
  int32_t* words;  // [rows, words_for(cols)]
  float* scale;    // [rows] or null
};

// Bits of thermometers: bit = x[column] >= threshold.
struct LevelPackArgs {
  const void* x;  // [rows, features], unit column stride
  FloatType type;
  int64_t row_stride;  // in elements
  int64_t features;
  const int64_t* columns;   // [size], each a feature
  const float* thresholds;  // [size]
  int64_t size;
  int32_t* words;  // [rows, words_for(size)]
};

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

// What the gathered rows of an aggregation hold.
enum class RowType : int { kBits, kFloat32, kFloat16, kBFloat16, kInt8, kInt16 };

// Sums of neighbours' rows over a pattern: v = row_scale * sum + bias, then a value or a bit.
struct AggregateArgs {
  const void* rowptr;  // [rows + 1], int32 or int64
  bool rowptr64;
  const int32_t* indices;  // [edges]
  int64_t rows;
  int64_t cols;
  int64_t edges;
  const float* values;     // [edges] or null (all ones)
  const float* row_scale;  // [rows] or null
  const float* col_scale;  // [cols] or null
  const float* bias;       // [features] or null
  const float* threshold;  // [features] or null (0)
  const void* x;           // [cols, ...], packed words or dense elements
  RowType x_type;
  int64_t x_stride;  // words or elements a row
  int64_t features;
  float* out_float;   // [rows, features]; exactly one of the three outputs is given
  int32_t* out_int;   // [rows, features]
  int32_t* out_bits;  // [rows, words_for(features)]
};

// A product whose half is held as narrow integers, aggregated over a pattern: with f = x_scale *
// col_scale, v = (row_scale * out_scale) * sum of f[j] * dot[j] + bias. The order of float sums is
// that of bspmm/narrow_sums.h; without factors they are exact integers.
struct NarrowArgs {
  BmmArgs product;     // its row_scale is x_scale; bias, addend, threshold and outputs are null
  AggregateArgs sums;  // writes out_float; x and values are null
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

// Sums of narrow float rows in the order of bspmm/narrow_sums.h: v = row_scale * sum + bias +
// addend.
struct SlotSumsArgs {
  AggregateArgs sums;   // x_type kFloat32, neither values nor col_scale; writes out_float
  const float* addend;  // [rows, features] or null
  int64_t addend_stride;
};

// FRDC 4 x 4 tiles: tile row R covers rows 4R .. 4R + 3; bit 4 r + c of a tile is (r, c).
struct FrdcArgs {
  AggregateArgs csr;  // rowptr counts tiles, indices are tile columns, edges the tiles
  const int16_t* tiles;
  Reconcile method;
};

// Column-blocked CSR: rowptr entry b * rows + i starts row i of column block b.
struct BlockedArgs {
  AggregateArgs csr;  // indices unused
  const uint16_t* local_indices;
  int64_t num_blocks;
  int64_t block_size;
};

// Column slices whose rows fit shared memory; bitgnn/bits/sliced.py tells how it is laid out.
struct SlicedArgs {
  AggregateArgs csr;              // rowptr gives the degrees; indices unused
  const uint16_t* local_indices;  // [group_steps[groups] * 32 * kSliceStep]
  const int32_t* group_steps;     // [groups + 1]
  const int32_t* group_places;    // [groups]
  const int32_t* slice_groups;    // [num_slices + 1], first group of each slice
  const int32_t* row_slots;       // [rows + 1]
  const int32_t* row_items;       // [row_slots[rows]]
  int64_t groups;
  int64_t places;  // of one chunk of words
  int64_t num_slices;
  int64_t slice_size;
};

// ADD and CONCAT: rows of a and b side by side or summed.
struct JoinArgs {
  bool packed;            // bits, else floats: pointers to nothing are null either way
  const int32_t* a_bits;  // packed operands, or
  const int32_t* b_bits;
  const float* a_float;  // contiguous float operands
  const float* b_float;
  const float* a_scale;  // [rows] or null; of packed operands
  const float* b_scale;
  const float* threshold;  // [out size] or null (0)
  int64_t rows;
  int64_t a_size;
  int64_t b_size;    // equal to a_size for ADD
  float* out_float;  // one of the two outputs
  int32_t* out_bits;
};

}  // namespace bitgnn
