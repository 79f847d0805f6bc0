// Arguments of the aggregation kernels, shared by all backends.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// Element type of the gathered rows of an aggregation.
enum class RowType : int { kBits, kFloat32, kFloat16, kBFloat16, kInt8, kInt16 };

// Largest degree whose sums of +-1 fit in 16 bits. Rows of more neighbours start further apart than
// that, so row_begin / (kMostShortDegree + 1) tells them apart.
constexpr int64_t kMostShortDegree = 0x7fff;

constexpr int64_t long_row_place(int64_t row_begin) { return row_begin / (kMostShortDegree + 1); }

// Sum of the neighbours' rows over a pattern: v = row_scale * sum + bias, stored as a value or bit.
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
  int64_t x_stride;  // row pitch in words or elements
  int64_t features;
  float* out_float;   // [rows, features]; exactly one of the three outputs is set
  int32_t* out_int;   // [rows, features]
  int32_t* out_bits;  // [rows, words_for(features)]
  // [rows, features], for CUDA alone, and then out_int [long_row_place(edges) + 1, features] takes
  // the rows of more than kMostShortDegree neighbours.
  int16_t* out_short;
};

// Sums of narrow float rows in the summation order of bspmm/narrow_sums.h: v = row_scale * sum +
// bias + addend.
struct SlotSumsArgs {
  AggregateArgs sums;   // x_type kFloat32, neither values nor col_scale; writes out_float
  const float* addend;  // [rows, features] or null
  int64_t addend_stride;
};

// FRDC 4 x 4 tiles: tile row R covers rows 4R .. 4R + 3; bit 4 r + c of a tile is (r, c).
struct FrdcArgs {
  AggregateArgs csr;  // rowptr points into tiles, indices are tile columns, edges counts tiles
  const int16_t* tiles;
};

// Column slices whose rows fit in shared memory; bitgnn/bits/layouts.py describes the layout.
struct SlicedArgs {
  AggregateArgs csr;              // rowptr gives the degrees; indices unused
  const uint16_t* local_indices;  // [group_steps[groups] * 32 * kSliceStepEdges]
  const int32_t* group_steps;     // [groups + 1]
  const int32_t* group_places;    // [groups]
  const int32_t* slice_groups;    // [num_slices + 1], first group of each slice
  const int32_t* row_slots;       // [rows + 1]
  const int32_t* row_items;       // [row_slots[rows]]
  int64_t groups;
  int64_t places;  // per chunk of words
  int64_t num_slices;
  int64_t slice_size;
};

// Sums of bits; x_type is kBits and there are no values.
BITGNN_KERNEL(bspmm, aggregate_bits, const AggregateArgs& args);
// Every other combination: float32 sums in edge order, or int32 sums of integer rows.
BITGNN_KERNEL(bspmm, aggregate_dense, const AggregateArgs& args);
// x holds ternary rows, each with its two planes back to back, without gaps.
BITGNN_KERNEL(bspmm, aggregate_ternary, const AggregateArgs& args);
// x holds bits.
BITGNN_KERNEL(bspmm, aggregate_frdc, const FrdcArgs& args);
BITGNN_KERNEL(bspmm, aggregate_sliced, const SlicedArgs& args);
BITGNN_KERNEL(bspmm, aggregate_slots, const SlotSumsArgs& args);

}  // namespace bitgnn
