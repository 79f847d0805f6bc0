// Sums of narrow float rows over a pattern, in the order of bspmm/narrow_sums.h with factors of 1.
//
// A group of lanes owns a row: kLanes of them hold kWidth columns each; the eight slots of the
// order are spread over further lanes and, if the columns take many, in several registers per lane.
// Most blocks sum short rows, one per group; the first ones find the long rows and share the pieces
// of each among their groups. Bound by the gathers of rows.
#pragma once

#include "bspmm/cuda/values.cuh"
#include "bspmm/narrow_sums.h"
#include "core/cuda/common.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kSlotThreads = 256;
constexpr int kSlotLoads = 4;  // minimum rows in flight per lane

template <int kWidth>
struct SlotFragment {
  float v[kWidth];
};

template <int kWidth>
__device__ __forceinline__ SlotFragment<kWidth> load_fragment(const float* from) {
  SlotFragment<kWidth> f;
  if constexpr (kWidth == 1) {
    f.v[0] = __ldg(from);
  } else {
    static_assert(kWidth == 4, "one access");
    const float4 v = __ldg(reinterpret_cast<const float4*>(from));
    f.v[0] = v.x, f.v[1] = v.y, f.v[2] = v.z, f.v[3] = v.w;
  }
  return f;
}

template <int kWidth_, int kLanes>
struct SlotGroup {
  static constexpr int kWidth = kWidth_;
  static constexpr int kSlots = kWarp / kLanes < kSumSlots ? kWarp / kLanes : kSumSlots;
  static constexpr int kSerial = kSumSlots / kSlots;
  static constexpr int kSize = kLanes * kSlots;
  static constexpr int kGroups = kSlotThreads / kSize;
  static constexpr int kColumns = kLanes * kWidth;
  static constexpr int kRounds = kSerial >= kSlotLoads ? 1 : kSlotLoads / kSerial;

  int slot, column;  // of the lane
  unsigned mask;

  __device__ SlotGroup() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    slot = lane / kLanes % kSlots;
    column = lane % kLanes * kWidth;
    mask = kSize == kWarp ? kFullWarp : ((1u << (kSize % kWarp)) - 1) << (lane / kSize * kSize);
  }

  // Sum of a piece of `count` edges, in every lane that has the columns; `x` points to the lane's
  // column of row 0, and `reads` is true if it exists.
  __device__ __forceinline__ SlotFragment<kWidth> piece(const float* x, int64_t stride, bool reads,
                                                        const int32_t* indices, int count) const {
    SlotFragment<kWidth> slots[kSerial] = {};
    for (int first = 0; first < count; first += kRounds * kSumSlots) {
      int32_t index[kRounds][kSerial];
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
#pragma unroll
        for (int k = 0; k < kSerial; ++k) {
          const int edge = first + r * kSumSlots + k * kSlots + slot;
          index[r][k] = reads && edge < count ? __ldg(indices + edge) : -1;
        }
      }
      SlotFragment<kWidth> rows[kRounds][kSerial];
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
#pragma unroll
        for (int k = 0; k < kSerial; ++k)
          rows[r][k] = index[r][k] >= 0 ? load_fragment<kWidth>(x + index[r][k] * stride)
                                        : SlotFragment<kWidth>{};
      }
      // Zeros in place of missing rows do not change a sum that starts at zero.
#pragma unroll
      for (int r = 0; r < kRounds; ++r) {
#pragma unroll
        for (int k = 0; k < kSerial; ++k) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i)
            slots[k].v[i] = __fadd_rn(slots[k].v[i], rows[r][k].v[i]);
        }
      }
    }
#pragma unroll
    for (int half = kSerial / 2; half > 0; half /= 2) {
#pragma unroll
      for (int k = 0; k < half; ++k) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          slots[k].v[i] = __fadd_rn(slots[k].v[i], slots[k + half].v[i]);
      }
    }
#pragma unroll
    for (int step = kSize / 2; step >= kLanes; step /= 2) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        slots[0].v[i] = __fadd_rn(slots[0].v[i], __shfl_xor_sync(mask, slots[0].v[i], step));
    }
    return slots[0];
  }
};

__device__ __forceinline__ int64_t slot_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// Stores row_scale * sum + bias + addend.
__device__ __forceinline__ void store_slot_sum(const SlotSumsArgs& d, int64_t row, int64_t feature,
                                               float sum) {
  float v = aggregate_value(d.sums, row, feature, sum);
  if (d.addend != nullptr) v = __fadd_rn(v, __ldg(d.addend + row * d.addend_stride + feature));
  d.sums.out_float[row * d.sums.features + feature] = v;
}

// One group per row; rows with more than long_degree edges are left to other blocks.
template <class Group>
__device__ __forceinline__ void sum_short_row(const SlotSumsArgs& d, const Group& lanes,
                                              int64_t row, int64_t long_degree, const float* x,
                                              int64_t feature) {
  const AggregateArgs& a = d.sums;
  if (row >= a.rows) return;
  const int64_t begin = slot_edge(a, row), degree = slot_edge(a, row + 1) - begin;
  if (degree > long_degree) return;
  SlotFragment<Group::kWidth> total{};
  for (int64_t at = 0; at < degree; at += kSumPiece) {
    const auto piece = lanes.piece(x, a.x_stride, feature < a.features, a.indices + begin + at,
                                   static_cast<int>(min(degree - at, kSumPiece)));
#pragma unroll
    for (int i = 0; i < Group::kWidth; ++i) total.v[i] = __fadd_rn(total.v[i], piece.v[i]);
  }
  if (lanes.slot != 0) return;
#pragma unroll
  for (int i = 0; i < Group::kWidth; ++i)
    if (feature + i < a.features) store_slot_sum(d, row, feature + i, total.v[i]);
}

// One block per row: its groups take pieces, whose sums one thread per column adds in order.
template <class Group>
__device__ __forceinline__ void sum_long_row(const SlotSumsArgs& d, const Group& lanes, int64_t row,
                                             const float* x, int64_t feature,
                                             int64_t first_feature) {
  __shared__ float parts[Group::kGroups][Group::kColumns];
  const AggregateArgs& a = d.sums;
  const int group = static_cast<int>(threadIdx.x) / Group::kSize;
  const int64_t begin = slot_edge(a, row), degree = slot_edge(a, row + 1) - begin;
  const int64_t own = first_feature + threadIdx.x;
  const bool adds = threadIdx.x < Group::kColumns && own < a.features;
  float total = 0.0f;
  for (int64_t base = 0; base < degree; base += Group::kGroups * kSumPiece) {
    const int64_t at = base + group * kSumPiece;
    if (at < degree) {
      const auto piece = lanes.piece(x, a.x_stride, feature < a.features, a.indices + begin + at,
                                     static_cast<int>(min(degree - at, kSumPiece)));
      if (lanes.slot == 0) {
#pragma unroll
        for (int i = 0; i < Group::kWidth; ++i) parts[group][lanes.column + i] = piece.v[i];
      }
    }
    __syncthreads();
    const int64_t left = (degree - base + kSumPiece - 1) / kSumPiece;
    if (adds)
      for (int g = 0; g < Group::kGroups && g < left; ++g)
        total = __fadd_rn(total, parts[g][threadIdx.x]);
    __syncthreads();
  }
  if (adds) store_slot_sum(d, row, own, total);
}

// The first long_blocks blocks search for long rows, each among every long_blocks-th row.
template <int kWidth, int kLanes>
__global__ void __launch_bounds__(kSlotThreads)
    aggregate_slots_kernel(const __grid_constant__ SlotSumsArgs d, int64_t long_degree,
                           unsigned long_blocks) {
  using Group = SlotGroup<kWidth, kLanes>;
  __shared__ int64_t found[kSlotThreads];
  __shared__ int count;
  const AggregateArgs& a = d.sums;
  const Group lanes;
  const int64_t first_feature = static_cast<int64_t>(blockIdx.y) * Group::kColumns;
  const int64_t feature = first_feature + lanes.column;
  const float* x = static_cast<const float*>(a.x) + feature;
  let_next_start();
  wait_for_previous();
  if (blockIdx.x >= long_blocks) {
    const int64_t block = blockIdx.x - long_blocks;
    const int64_t row = block * Group::kGroups + static_cast<int>(threadIdx.x) / Group::kSize;
    sum_short_row(d, lanes, row, long_degree, x, feature);
    return;
  }
  const int64_t step = static_cast<int64_t>(long_blocks) * kSlotThreads;
  for (int64_t base = blockIdx.x; base < a.rows; base += step) {
    const int64_t row = base + static_cast<int64_t>(threadIdx.x) * long_blocks;
    const bool is_long = row < a.rows && slot_edge(a, row + 1) - slot_edge(a, row) > long_degree;
    if (!__syncthreads_or(is_long)) continue;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (is_long) found[atomicAdd(&count, 1)] = row;
    __syncthreads();
    for (int l = 0; l < count; ++l) sum_long_row(d, lanes, found[l], x, feature, first_feature);
    __syncthreads();
  }
}

}  // namespace bitgnn::cuda::bspmm
