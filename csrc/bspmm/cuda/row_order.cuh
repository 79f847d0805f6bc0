// Rows of a pattern in descending order of degree, up to quarter octaves: long rows start first
// and the rows that share a warp are about equally long. Rows of a class come in any order.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kDegreeClasses = 128;

// A row to aggregate: its edges are [begin, begin + degree). Past the last row -1.
struct alignas(16) RowSpan {
  int64_t begin;
  int32_t degree;
  int32_t row;
};

// The rows in descending classes of degree, or as they come where `rows` is null.
struct RowOrder {
  const RowSpan* rows;
  int32_t heavy_degree;   // of rows that a block takes together; in an order they come first
  unsigned heavy_blocks;  // blocks that share the heavy rows; 0 where there is no order
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

// The row at a slot unless it is heavy and has its place elsewhere.
__device__ __forceinline__ RowSpan light_row_at(const AggregateArgs& a, const RowOrder& order,
                                                int64_t slot) {
  const RowSpan span = row_at(a, order, slot);
  return order.rows != nullptr && span.degree >= order.heavy_degree ? RowSpan{0, 0, -1} : span;
}

// Calls take(row) for the heavy rows that are this one's of the blocks that share them.
template <class Take>
__device__ __forceinline__ void for_heavy_rows(const AggregateArgs& a, const RowOrder& order,
                                               unsigned block, const Take& take) {
  for (int64_t slot = block; slot < a.rows; slot += order.heavy_blocks) {
    const RowSpan span = row_at(a, order, slot);
    if (span.degree < order.heavy_degree) return;
    take(span);
  }
}

// 0 for the longest rows: four classes an octave.
__device__ __forceinline__ int degree_class(int64_t degree) {
  if (degree == 0) return kDegreeClasses - 1;
  const auto d = static_cast<uint32_t>(degree < 0x7fffffff ? degree : 0x7fffffff);
  const int octave = 31 - __clz(static_cast<int>(d));
  const uint32_t quarter = octave >= 2 ? (d >> (octave - 2)) & 3u : (d << (2 - octave)) & 3u;
  return kDegreeClasses - 2 - (4 * octave + static_cast<int>(quarter));
}

// From which degree on a block takes a row where so many edges are gathered: a group should not
// take longer over a row than an eighth or so of the whole.
int32_t heavy_degree(int64_t gathered);

// Orders the rows of a pattern where that pays, else leaves an empty order; `pieces` times an edge
// is read. Memory comes from the workspace.
cudaError_t order_rows(const AggregateArgs& a, int64_t pieces, const Context& context,
                       RowOrder* order);

}  // namespace bitgnn::cuda::bspmm
