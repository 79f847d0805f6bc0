// Aggregation of dense rows over a pattern, strictly in edge order: out = row * sum(factor * x).
// Bound by the gathered bytes. A group of lanes owns a row and a piece of its features; the longest
// rows go first and get a block each. If rows are used often, all blocks work on one chunk of
// features at a time, so that the active part of the table stays in the L2 cache.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/heavy_rows.cuh"

namespace bitgnn::cuda::bspmm {

// One row per group of lanes.
template <class Rows, int kLanes, int kBatch>
__device__ __forceinline__ void aggregate_light(const DenseLaunch& d, const BlockRole& role,
                                                const RowSpan& span) {
  using Place = Piece<Rows, kLanes>;
  using Fragment = typename Rows::Fragment;
  constexpr int kSpan = Place::kSpan;
  constexpr int kWindow = kSpan > kBatch ? kSpan : kBatch;
  constexpr int kLoads = kWindow / kSpan;
  const AggregateArgs& a = d.a;
  const Place piece(d, role.chunk, static_cast<int>(threadIdx.x) % kSpan);
  const float scale = span.row >= 0 ? row_factor(a, span.row) : 0.0f;

  // Indices and values of a window, one per lane and load.
  struct Window {
    int32_t index[kLoads] = {};
    float value[kLoads];
  };
  // Past the end of a row the last edge stands in.
  const auto fetch = [&](int first_edge, Window& to) {
    if (span.degree == 0) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t edge = span.begin + min(first_edge + i * kSpan + piece.lane, span.degree - 1);
      to.index[i] = __ldg(a.indices + edge);
      if constexpr (Rows::kScaled)
        to.value[i] = a.values != nullptr ? __ldg(a.values + edge) : 1.0f;
    }
  };
  Window now, next;
  fetch(0, now);
  fetch(kWindow, next);
  typename Rows::Sum sum[Rows::kWidth] = {};
  const auto add_window = [&](int first_edge, auto full) {
    [[maybe_unused]] float column[kLoads] = {};
    if constexpr (Rows::kScaled) {
      if (a.col_scale != nullptr && span.degree > 0) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) column[i] = __ldg(a.col_scale + now.index[i]);
      }
    }
    // Unrolled, the batches of a window would exceed the registers.
#pragma unroll 1
    for (int start = 0; start < kWindow; start += kBatch) {
      const int left = span.degree - first_edge - start;
      if (start > 0 && !full && !__any_sync(kFullWarp, left > 0)) break;
      Fragment fragment[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const Fragment* from =
            piece.at(__shfl_sync(kFullWarp, now.index[b / kSpan], (start + b) % kSpan, kSpan));
        fragment[b] = full ? __ldg(from) : load_below(from, b, left);
      }
      if constexpr (Rows::kScaled) {
        if (start == 0 && a.col_scale != nullptr) {
#pragma unroll
          for (int i = 0; i < kLoads; ++i) now.value[i] = __fmul_rn(now.value[i], column[i]);
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        float factor = 1.0f;
        if constexpr (Rows::kScaled)
          factor = __shfl_sync(kFullWarp, now.value[b / kSpan], (start + b) % kSpan, kSpan);
        if (full || b < left) Rows::add(sum, fragment[b], factor, piece.lane);
      }
    }
    now = next;
    fetch(first_edge + 2 * kWindow, next);
  };
  const int longest = __reduce_max_sync(kFullWarp, span.degree);
  const int shortest = __reduce_min_sync(kFullWarp, span.degree);
  int edge = 0;
  for (; edge + kWindow <= shortest; edge += kWindow) add_window(edge, std::true_type());
  for (; edge < longest; edge += kWindow) add_window(edge, std::false_type());
  finish_row<typename Rows::Sum, Rows::kWidth, kSpan>(
      a, span.row, span.row >= 0, scale, piece.first(role.chunk), Place::limit(d, role.chunk), sum);
}

template <class Rows, int kLanes, int kBatch, int kMinBlocks>
__global__ void __launch_bounds__(kDenseThreads, kMinBlocks)
    aggregate_dense_kernel(const __grid_constant__ DenseLaunch d) {
  constexpr int kSpan = Piece<Rows, kLanes>::kSpan;
  constexpr int kRows = kDenseThreads / kSpan;
  __shared__ int heavy_slots[kRows];
  __shared__ int heavy_count;
  const BlockRole role(d);
  const int64_t first = static_cast<int64_t>(role.place) * kRows;
  if (!role.heavy) {
    const int group = static_cast<int>(threadIdx.x) / kSpan;
    const bool ordered = d.order.rows != nullptr;
    RowSpan span = row_at(d.a, d.order, first + group);
    if (!ordered) {
      if (threadIdx.x == 0) heavy_count = 0;
      __syncthreads();
    }
    if (span.degree >= d.order.heavy_degree) {
      // Without an order, the block handles its own heavy rows afterwards.
      if (!ordered && threadIdx.x % kSpan == 0) heavy_slots[atomicAdd(&heavy_count, 1)] = group;
      span = {0, 0, -1};
    }
    aggregate_light<Rows, kLanes, kBatch>(d, role, span);
    if (ordered) return;
    __syncthreads();
  }
  const HeavyRow<Rows, kLanes> heavy(d, role);
  for (int i = 0; role.heavy || i < heavy_count; ++i) {
    const RowSpan span =
        row_at(d.a, d.order,
               role.heavy ? role.place + static_cast<int64_t>(i) * d.order.heavy_blocks
                          : first + heavy_slots[i]);
    if (span.degree < d.order.heavy_degree) return;
    heavy.aggregate(span);
  }
}

}  // namespace bitgnn::cuda::bspmm
