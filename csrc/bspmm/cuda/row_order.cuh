// Rows of a pattern in descending order of degree, to a quarter octave: long rows start first and
// the rows that share a warp are about equally long. Rows within a class come in any order.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kDegreeClasses = 128;

// A row to aggregate, with edges [begin, begin + degree); `row` is -1 past the last row.
struct alignas(16) RowSpan {
  int64_t begin;
  int32_t degree;
  int32_t row;
};

// Rows in descending degree classes, or in their original order if `rows` is null.
struct RowOrder {
  const RowSpan* rows;
  int32_t heavy_degree;   // degree from which a block takes a row; in an order these come first
  unsigned heavy_blocks;  // blocks that share the heavy rows; 0 without an order
};

__device__ __forceinline__ int64_t edge_begin(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

__device__ __forceinline__ RowSpan row_at(const AggregateArgs& a, const RowOrder& order,
                                          int64_t slot) {
  if (slot >= a.rows) return {0, 0, -1};
  if (order.rows != nullptr) {
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(order.rows + slot));
    RowSpan span;
    memcpy(&span, &raw, sizeof(span));
    return span;
  }
  const int64_t begin = edge_begin(a, slot);
  return {begin, static_cast<int32_t>(edge_begin(a, slot + 1) - begin), static_cast<int32_t>(slot)};
}

// The row at a slot, or none if it is heavy and handled elsewhere.
__device__ __forceinline__ RowSpan light_row_at(const AggregateArgs& a, const RowOrder& order,
                                                int64_t slot) {
  const RowSpan span = row_at(a, order, slot);
  return order.rows != nullptr && span.degree >= order.heavy_degree ? RowSpan{0, 0, -1} : span;
}

// Calls take(row) for this block's share of the heavy rows.
template <class Take>
__device__ __forceinline__ void for_heavy_rows(const AggregateArgs& a, const RowOrder& order,
                                               unsigned block, const Take& take) {
  for (int64_t slot = block; slot < a.rows; slot += order.heavy_blocks) {
    const RowSpan span = row_at(a, order, slot);
    if (span.degree < order.heavy_degree) return;
    take(span);
  }
}

// Degree class, four per octave; class 0 holds the longest rows.
__device__ __forceinline__ int degree_class(int64_t degree) {
  if (degree == 0) return kDegreeClasses - 1;
  const auto d = static_cast<uint32_t>(degree < 0x7fffffff ? degree : 0x7fffffff);
  const int octave = 31 - __clz(static_cast<int>(d));
  const uint32_t quarter = octave >= 2 ? (d >> (octave - 2)) & 3u : (d << (2 - octave)) & 3u;
  return kDegreeClasses - 2 - (4 * octave + static_cast<int>(quarter));
}

// Degree from which a block takes a row, given the number of gathered edges: a group should not
// spend more than about an eighth of the total time on one row.
int32_t heavy_degree(int64_t gathered);

// Orders the rows of a pattern if that pays, otherwise leaves an empty order; each edge is read
// `pieces` times. Memory comes from the workspace.
cudaError_t order_rows(const AggregateArgs& a, int64_t pieces, const Context& context,
                       RowOrder* order);

}  // namespace bitgnn::cuda::bspmm
