// Sums of wide rows over a pattern, in the order of bspmm/narrow_sums.h for wide rows. A warp takes
// adjacent rows and distributes their pieces to groups of lanes, which pass on the sums of rows
// with several pieces. Long rows take blocks of their own, which start first. Bound by the gathered
// bytes, and by the latency of one gather for each turn of the warp with the most pieces.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "pairs/cuda/wide/columns.cuh"
#include "pairs/cuda/wide/walk.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kWideWarps = kWideThreads / kWarp;
constexpr int kLongLanes = 8;  // share a piece of a long row,
constexpr int kLongGroups = kWideThreads / kLongLanes;
constexpr int kLongFeatures = kLongLanes * kWideElements;  // one part of its features

__device__ __forceinline__ int64_t wide_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// Pieces of a row: one without edges if it is empty, or long and summed elsewhere.
__device__ __forceinline__ int wide_pieces(int64_t degree, int long_degree) {
  if (degree > long_degree) return 1;
  return max(1, (static_cast<int>(degree) + kWidePiece - 1) / kWidePiece);
}

// Inclusive prefix sum over the lanes.
__device__ __forceinline__ int sum_up_to_lane(int value) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int before = __shfl_up_sync(kFullWarp, value, step);
    if (lane >= step) value += before;
  }
  return value;
}

// A piece of a warp's rows.
struct WidePiece {
  int first;  // first edge, counted from the warp's first
  int about;  // the fields below, as bits of a word that lanes can pass on

  static constexpr int kCount = 31, kOpens = 32, kCloses = 64, kRow = 256;
  __device__ int count() const { return about & kCount; }
  __device__ bool opens() const { return (about & kOpens) != 0; }    // starts its row
  __device__ bool closes() const { return (about & kCloses) != 0; }  // ends and writes its row
  __device__ int row() const { return about / kRow; }
  __device__ static WidePiece none() { return {0, kOpens}; }
};

// Adjacent rows of a warp, one per lane.
struct WideRows {
  int bound;   // first edge, counted from the first row's
  int degree;  // -1 if the row is long
  int start;   // number of its first piece
  int pieces;  // total of all rows
  bool exists;

  __device__ __forceinline__ WideRows(int bound, int rows, int long_degree) : bound(bound) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    degree = __shfl_down_sync(kFullWarp, bound, 1) - bound;
    exists = lane < rows;
    const int own = exists ? wide_pieces(degree, long_degree) : 0;
    if (degree > long_degree) degree = -1;
    const int end = sum_up_to_lane(own);
    start = end - own;
    pieces = __shfl_sync(kFullWarp, end, kWarp - 1);
  }

  // Piece `base + lane`.
  __device__ __forceinline__ WidePiece piece(int base) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, at = start - base;
    const uint32_t marks =
        __reduce_or_sync(kFullWarp, exists && at >= 0 && at < kWarp ? 1u << at : 0u);
    const int earlier = __popc(__ballot_sync(kFullWarp, exists && at < 0));
    const int row = earlier + __popc(marks & ((2u << lane) - 1)) - 1;
    const int number = base + lane - __shfl_sync(kFullWarp, start, row);
    const int first = __shfl_sync(kFullWarp, bound, row) + number * kWidePiece;
    const int edges = __shfl_sync(kFullWarp, degree, row);
    if (base + lane >= pieces) return WidePiece::none();
    const int left = edges - number * kWidePiece;
    return {first, max(min(left, kWidePiece), 0) | (number == 0 ? WidePiece::kOpens : 0) |
                       (edges >= 0 && left <= kWidePiece ? WidePiece::kCloses : 0) |
                       row * WidePiece::kRow};
  }
};

// Sums the rows of a warp. blockIdx.y is the chunk of features.
template <class Elements, bool kOnes, int kLanes>
__device__ __forceinline__ void aggregate_short_wide(const WideLaunch& d) {
  constexpr int kGroups = kWarp / kLanes;
  __shared__ __align__(16) WideColumns<kLanes> columns;
  const AggregateArgs& a = d.a;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = lane / kLanes, part = lane % kLanes;
  const int64_t warp = int64_t{blockIdx.x - d.long_blocks} * kWideWarps + threadIdx.x / kWarp;
  const int64_t first_row = warp * d.warp_rows;
  const auto count = static_cast<int>(min(a.rows - first_row, int64_t{d.warp_rows}));
  int64_t own = 0;
  float own_scale = 1.0f;
  if (count > 0) {
    own = wide_edge(a, first_row + min(lane, count));
    own_scale = wide_row_scale(d, first_row + min(lane, count - 1));
  }
  columns.load(d);
  __syncthreads();
  if (count <= 0) return;
  const int64_t begin = __shfl_sync(kFullWarp, own, 0);
  const int32_t* indices = a.indices + begin;
  const WideRows rows(static_cast<int>(own - begin), count, d.long_degree);
  WideWalk<Elements, kOnes, kLanes> walk(d.table, d.table.chunk(blockIdx.y) + part * 16);
  WideSums earlier;
#pragma unroll 1
  for (int base = 0; base < rows.pieces; base += kWarp) {
    const WidePiece own_piece = rows.piece(base);
    const auto piece_at = [&](int place) {
      const int source = (place + group) % kWarp;
      const WidePiece piece{__shfl_sync(kFullWarp, own_piece.first, source),
                            __shfl_sync(kFullWarp, own_piece.about, source)};
      return place + group < kWarp ? piece : WidePiece::none();
    };
    const int places = min(rows.pieces - base, kWarp);
    WidePiece piece = piece_at(0);
    walk.fetch(indices + piece.first, piece.count());
    wait_for_previous();
#pragma unroll 1
    for (int place = 0; place < places; place += kGroups) {
      const WidePiece next = piece_at(place + kGroups);
      const int longest = __reduce_max_sync(kFullWarp, piece.count());
      WideSums sums =
          walk.add(piece.count(), longest, [&] { walk.fetch(indices + next.first, next.count()); });
      if (__any_sync(kFullWarp, !piece.opens())) {
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          if (g > 0) earlier = sums.template of_lane<kOnes>((g - 1) * kLanes + part);
          if (group == g && !piece.opens()) sums.template follow<kOnes>(earlier);
        }
      }
      if constexpr (kGroups == 1)
        earlier = sums;
      else if (__shfl_sync(kFullWarp, !piece.closes(), kWarp - 1))
        earlier = sums.template of_lane<kOnes>(kWarp - kLanes + part);
      const float row_scale = __shfl_sync(kFullWarp, own_scale, piece.row());
      if (piece.closes())
        columns.template store<kOnes>(d, first_row + piece.row(), part, row_scale, sums);
      piece = next;
    }
  }
}

// Sums one part of the features of each long row among every stride-th row: eight lanes per piece,
// then one thread per feature adds up the pieces.
template <class Elements, bool kOnes, int kLanes>
__device__ __noinline__ void aggregate_long_wide(const WideLaunch& d) {
  __shared__ float part[kLongGroups][kLongFeatures + 1];
  __shared__ int64_t found[kWideThreads];
  __shared__ int count;
  const AggregateArgs& a = d.a;
  constexpr int kParts = kLanes / kLongLanes;
  constexpr int kTurn = kLongGroups * kWidePiece;
  const int64_t stride = d.long_blocks / kParts;
  const int own_part = static_cast<int>(blockIdx.x) % kParts;
  const int64_t first_feature = (int64_t{blockIdx.y} * kParts + own_part) * kLongFeatures;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / kLongLanes, lane = thread % kLongLanes;
  WideWalk<Elements, kOnes, kLongLanes> walk(
      d.table, d.table.chunk(blockIdx.y) + (own_part * kLongLanes + lane) * 16);
  for (int64_t base = blockIdx.x / kParts; base < a.rows; base += stride * kWideThreads) {
    const int64_t own = base + thread * stride;
    const bool is_long = own < a.rows && wide_edge(a, own + 1) - wide_edge(a, own) > d.long_degree;
    if (!__syncthreads_or(is_long)) continue;
    if (thread == 0) count = 0;
    __syncthreads();
    if (is_long) found[atomicAdd(&count, 1)] = own;
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      const int64_t row = found[i], begin = wide_edge(a, row);
      const auto degree = static_cast<int>(wide_edge(a, row + 1) - begin);
      const int32_t* indices = a.indices + begin + group * kWidePiece;
      int left = degree - group * kWidePiece;
      float total = 0.0f, ones = 0.0f;
      walk.fetch(indices, left);
      wait_for_previous();
      for (int turn = 0; turn < degree; turn += kTurn, left -= kTurn, indices += kTurn) {
        const WideSums sums =
            walk.add(left, kWidePiece, [&] { walk.fetch(indices + kTurn, left - kTurn); });
#pragma unroll
        for (int k = 0; k < kWideElements; ++k)
          part[group][wide_feature(lane * kWideElements + k)] = sums.sum[k];
        part[group][kLongFeatures] = sums.ones;
        __syncthreads();
        if (thread < kLongFeatures) {
          const int pieces = min((degree - turn + kWidePiece - 1) / kWidePiece, kLongGroups);
          for (int k = 0; k < pieces; ++k) {
            total = __fadd_rn(total, part[k][thread]);
            if constexpr (kOnes) ones = __fadd_rn(ones, part[k][kLongFeatures]);
          }
        }
        __syncthreads();
      }
      const int64_t feature = first_feature + thread;
      if (thread < kLongFeatures && feature < a.features)
        a.out_float[row * a.features + feature] =
            WideColumn::of(d, feature)
                .template value<kOnes>(d, wide_row_scale(d, row), total, ones);
    }
    __syncthreads();
  }
}

template <class Elements, bool kOnes, int kLanes>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    aggregate_wide_kernel(const __grid_constant__ WideLaunch d) {
  // The next kernel starts only after this one: its few blocks would pile up on the first free
  // multiprocessors. The preceding product let this kernel start after all older work, so
  // everything but the table is read before that product ends. If there are no rows, there is no
  // product.
  if (d.table.count == 0) wait_for_previous();
  if (blockIdx.x < d.long_blocks)
    aggregate_long_wide<Elements, kOnes, kLanes>(d);
  else
    aggregate_short_wide<Elements, kOnes, kLanes>(d);
}

}  // namespace bitgnn::cuda::pairs
