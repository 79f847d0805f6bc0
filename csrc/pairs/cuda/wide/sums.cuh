// Sums of wide rows over a pattern, in the order of bspmm/narrow_sums.h. A warp takes adjacent
// rows: its groups of lanes take one short row each, then together the others one by one, each
// group some slots. Long rows take blocks of their own, which start first. Bound by the gathered
// bytes, and by the latency of one gather for each step of the warp with the most steps.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "pairs/cuda/wide/columns.cuh"
#include "pairs/cuda/wide/walk.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kWideWarps = kWideThreads / kWarp;
constexpr int kFewEdges = 2 * kSumSlots;  // of rows that take a single step
constexpr int kLongLanes = 8;             // share a slot of a long row,
constexpr int kLongGroups = kWideThreads / kLongLanes;
constexpr int kLongFeatures = kLongLanes * kWideElements;            // one part of its features
constexpr int kLongEdges = static_cast<int>(kSumPiece) / kSumSlots;  // of a slot of a piece

__device__ __forceinline__ int64_t wide_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// Adjacent rows of a warp, one per lane.
struct WideRows {
  int begin;  // first edge, counted from the warp's first
  int degree;
  float scale;

  // All lanes ask for the row of some lane.
  __device__ __forceinline__ WideRows of(int lane) const {
    return {__shfl_sync(kFullWarp, begin, lane), __shfl_sync(kFullWarp, degree, lane),
            __shfl_sync(kFullWarp, scale, lane)};
  }
};

// Takes the next rows of `left`, a bit for each, out of it, one per group; that of `group`, or -1.
template <int kGroups>
__device__ __forceinline__ int take_rows(unsigned& left, int group) {
  unsigned own = left;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if (g < group) own &= own - 1;
    left &= left - 1;
  }
  return __ffs(static_cast<int>(own)) - 1;
}

// Sums rows of a single step, a row per group.
template <class Elements, NarrowSum kSum, int kLanes, class Store>
__device__ __forceinline__ void aggregate_few(const WideLaunch& d, const char* own,
                                              const int32_t* indices, const WideRows& rows,
                                              unsigned left, const Store& store) {
  constexpr int kGroups = kWarp / kLanes;
  const int group = static_cast<int>(threadIdx.x) % kWarp / kLanes;
  WideWalk<Elements, kSum, kLanes, kFewEdges> walk(d.table, own);
  int row = -1, next_row = take_rows<kGroups>(left, group);
  WideRows span{}, next = rows.of(next_row & (kWarp - 1));
  const auto fetch = [&] {
    if (next_row < 0) next.degree = 0;
    walk.fetch(indices + next.begin, next.degree, 1);
  };
  fetch();
  wait_for_previous();
#pragma unroll 1
  while (__any_sync(kFullWarp, next_row >= 0)) {
    row = next_row;
    span = next;
    next_row = take_rows<kGroups>(left, group);
    next = rows.of(next_row & (kWarp - 1));
    const int longest = __reduce_max_sync(kFullWarp, span.degree);
    const WideSums<kSum> sums = walk.row(span.degree, longest, fetch);
    if (row >= 0) store(row, span, sums.alone());
  }
}

// Sums longer rows, one at a time. Group g has the slots g, g + kGroups and so on.
template <class Elements, NarrowSum kSum, int kLanes, class Store>
__device__ __forceinline__ void aggregate_many(const WideLaunch& d, const char* own,
                                               const int32_t* indices, const WideRows& rows,
                                               unsigned left, const Store& store) {
  constexpr int kGroups = kWarp / kLanes, kSlots = kSumSlots / kGroups;
  constexpr int kEdges = kSlots > 2 ? 8 : 16;  // in flight: many slots leave few registers
  constexpr int kStep = kEdges * kGroups;
  static_assert(kSumPiece % kStep == 0, "pieces end with a step");
  const int group = static_cast<int>(threadIdx.x) % kWarp / kLanes;
  WideWalk<Elements, kSum, kLanes, kEdges> walk(d.table, own);
  // A step of a row: `count` edges, every kGroups-th of which is the group's.
  struct Step {
    int row, at, count;
  };
  WideRows span{};
  const auto step_at = [&](int row, int at) {
    span = rows.of(row & (kWarp - 1));
    const Step step{row, at, row < 0 ? 0 : min(span.degree - at, kStep)};
    return step;
  };
  const auto edges = [&](const Step& step, int from) {
    return max(step.count - from + kGroups - 1, 0) / kGroups;
  };
  const auto fetch = [&](const Step& step) {
    walk.fetch(indices + span.begin + step.at + group, edges(step, group), kGroups);
  };
  Step step = step_at(take_rows<1>(left, 0), 0);
  fetch(step);
  WideSums<kSum> slots[kSlots], total;
#pragma unroll 1
  while (step.row >= 0) {
    const WideRows now = span;
    const bool ends = step.at + kStep >= now.degree;
    const Step next = ends ? step_at(take_rows<1>(left, 0), 0) : step_at(step.row, step.at + kStep);
    walk.slots(slots, edges(step, group), edges(step, 0), [&] { fetch(next); });
    if (ends || (step.at + kStep) % kSumPiece == 0) {
#pragma unroll
      for (int half = kSlots / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; ++k) slots[k].add(slots[k + half]);
#pragma unroll
      for (int lanes = kWarp / 2; lanes >= kLanes; lanes /= 2) slots[0].add_lane(lanes);
      total.add_piece(slots[0]);
#pragma unroll
      for (auto& slot : slots) slot = {};
    }
    if (ends) {
      if (group == 0) store(step.row, now, total);
      total = {};
    }
    step = next;
  }
}

// Sums the rows of a warp. blockIdx.y is the chunk of features.
template <class Elements, NarrowSum kSum, int kLanes>
__device__ __forceinline__ void aggregate_short_wide(const WideLaunch& d) {
  __shared__ __align__(16) WideColumns<kLanes> columns;
  const AggregateArgs& a = d.a;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, part = lane % kLanes;
  const int64_t warp = int64_t{blockIdx.x - d.long_blocks} * kWideWarps + threadIdx.x / kWarp;
  const int64_t first_row = warp * d.warp_rows;
  const auto count = static_cast<int>(min(a.rows - first_row, int64_t{d.warp_rows}));
  int64_t bound = 0;
  float scale = 1.0f;
  if (count > 0) {
    bound = wide_edge(a, first_row + min(lane, count));
    scale = wide_row_scale(d, first_row + min(lane, count - 1));
  }
  columns.load(d);
  __syncthreads();
  if (count <= 0) return;
  const int64_t first_edge = __shfl_sync(kFullWarp, bound, 0);
  const auto begin = static_cast<int>(bound - first_edge);
  const int degree = __shfl_down_sync(kFullWarp, begin, 1) - begin;
  const WideRows rows{begin, degree, scale};
  const bool exists = lane < count && degree <= d.long_degree;
  const unsigned few = __ballot_sync(kFullWarp, exists && degree <= kFewEdges);
  const unsigned many = __ballot_sync(kFullWarp, exists && degree > kFewEdges);
  const char* own = d.table.chunk(blockIdx.y) + part * 16;
  const int32_t* indices = a.indices + first_edge;
  const auto store = [&](int row, const WideRows& span, const WideSums<kSum>& sums) {
    columns.template store<kSum>(d, first_row + row, part, span.scale, span.degree, sums);
  };
  aggregate_few<Elements, kSum, kLanes>(d, own, indices, rows, few, store);
  if (many != 0) aggregate_many<Elements, kSum, kLanes>(d, own, indices, rows, many, store);
}

// The folded slots of a piece: column `at` of kSumSlots rows.
__device__ __forceinline__ float folded_slots(const float (*slots)[kLongFeatures + 1], int at) {
  float sum[kSumSlots];
#pragma unroll
  for (int k = 0; k < kSumSlots; ++k) sum[k] = slots[k][at];
#pragma unroll
  for (int half = kSumSlots / 2; half > 0; half /= 2)
#pragma unroll
    for (int k = 0; k < half; ++k) sum[k] = __fadd_rn(sum[k], sum[k + half]);
  return sum[0];
}

// Sums one part of the features of each long row among every stride-th row: eight lanes per slot of
// two pieces, then one thread per feature folds the slots and adds up the pieces.
template <class Elements, NarrowSum kSum, int kLanes>
__device__ __noinline__ void aggregate_long_wide(const WideLaunch& d) {
  __shared__ float part[kLongGroups][kLongFeatures + 1];
  __shared__ int64_t found[kWideThreads];
  __shared__ int count;
  const AggregateArgs& a = d.a;
  constexpr int kParts = kLanes / kLongLanes;
  constexpr int kTurn = kLongGroups / kSumSlots * static_cast<int>(kSumPiece);
  const int64_t stride = d.long_blocks / kParts;
  const int own_part = static_cast<int>(blockIdx.x) % kParts;
  const int64_t first_feature = (int64_t{blockIdx.y} * kParts + own_part) * kLongFeatures;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / kLongLanes, lane = thread % kLongLanes;
  // The group's first edge of a turn; its others follow kSumSlots apart.
  const int own_edge = group / kSumSlots * static_cast<int>(kSumPiece) + group % kSumSlots;
  WideWalk<Elements, kSum, kLongLanes, kLongEdges> walk(
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
      const int32_t* indices = a.indices + begin + own_edge;
      const auto edges = [&](int turn) {
        return max(degree - turn - own_edge + kSumSlots - 1, 0) / kSumSlots;
      };
      float total = 0.0f, ones = 0.0f;
      walk.fetch(indices, edges(0), kSumSlots);
      wait_for_previous();
      for (int turn = 0; turn < degree; turn += kTurn, indices += kTurn) {
        const WideSums<kSum> sums = walk.chain(edges(turn), kLongEdges, [&] {
          walk.fetch(indices + kTurn, edges(turn + kTurn), kSumSlots);
        });
#pragma unroll
        for (int k = 0; k < kWideElements; ++k)
          part[group][wide_feature(lane * kWideElements + k)] = sums.sum[k];
        part[group][kLongFeatures] = sums.ones;
        __syncthreads();
        if (thread < kLongFeatures) {
#pragma unroll 1
          for (int first = 0; first < kLongGroups; first += kSumSlots) {
            if (turn + first / kSumSlots * kSumPiece >= degree) break;
            total = add_piece<kSum>(total, folded_slots(part + first, thread));
            if constexpr (WideSums<kSum>::kOnes)
              ones = __fadd_rn(ones, folded_slots(part + first, kLongFeatures));
          }
        }
        __syncthreads();
      }
      const int64_t feature = first_feature + thread;
      if (thread < kLongFeatures && feature < a.features)
        a.out_float[row * a.features + feature] =
            WideColumn::of(d, feature)
                .template value<kSum>(d, wide_row_scale(d, row), degree, total, ones);
    }
    __syncthreads();
  }
}

template <class Elements, NarrowSum kSum, int kLanes>
__global__ void __launch_bounds__(kWideThreads, kWideBlocks)
    aggregate_wide_kernel(const __grid_constant__ WideLaunch d) {
  // The next kernel starts only after this one: its few blocks would pile up on the first free
  // multiprocessors. The preceding product let this kernel start after all older work, so
  // everything but the table is read before that product ends. If there are no rows, there is no
  // product.
  if (d.table.count == 0) wait_for_previous();
  if (blockIdx.x < d.long_blocks)
    aggregate_long_wide<Elements, kSum, kLanes>(d);
  else
    aggregate_short_wide<Elements, kSum, kLanes>(d);
}

}  // namespace bitgnn::cuda::pairs
