// Sums of narrow rows over a pattern, in the order of bitgnn/narrow_sums.h. Eight slots of lanes
// share a row, an edge each; rows of several pieces are taken by a whole block. Bound by the number
// of gathered rows, of 8 to 64 bytes.
#pragma once

#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/narrow_table.cuh"

namespace bitgnn::cuda {

constexpr int kNarrowThreads = 128;

// Where a row's neighbours are found: 32-bit column indices.
struct PlainIndices {
  const int32_t* indices;
  __device__ int32_t at(int64_t edge) const { return __ldg(indices + edge); }
};

template <class Row>
struct NarrowGroup {
  static constexpr int kLanes = Row::kLanes * kSumSlots;  // of a group
  static constexpr int kGroups = kNarrowThreads / kLanes;
  static_assert(kLanes <= kWarp, "a group lies in a warp");
};

// Folds sum[0 .. kCount) of lanes `kStep` apart; where the count is even each of the two keeps half
// of the elements, of which `first` is the first.
template <int kCount, int kStep, int kLanes, int kSize>
__device__ __forceinline__ void fold_slots(float (&sum)[kSize], int lane, int& first) {
  if constexpr (kStep >= kLanes) {
    if constexpr (kCount % 2 == 0) {
      constexpr int kHalf = kCount / 2;
      const bool upper = (lane & kStep) != 0;
#pragma unroll
      for (int i = 0; i < kHalf; ++i) {
        const float given = upper ? sum[i] : sum[i + kHalf];
        const float kept = upper ? sum[i + kHalf] : sum[i];
        sum[i] = __fadd_rn(kept, __shfl_xor_sync(kFullWarp, given, kStep));
      }
      first += upper ? kHalf : 0;
      fold_slots<kHalf, kStep / 2, kLanes>(sum, lane, first);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        sum[i] = __fadd_rn(sum[i], __shfl_xor_sync(kFullWarp, sum[i], kStep));
      fold_slots<kCount, kStep / 2, kLanes>(sum, lane, first);
    }
  }
}

// Elements that fold_slots leaves a lane.
constexpr int folded(int count, int slots) {
  return slots == 1 ? count : folded(count % 2 == 0 ? count / 2 : count, slots / 2);
}

// The canonical sums of one piece of a row, by a group of lanes; all groups of the warp call this
// together. `indices` starts at the piece. Lane l of a slot returns with elements
// [first, first + kKept) of its own in sum.
template <class Row, bool kFactors, int kBatch>
struct NarrowPiece {
  using Fragment = typename Row::Fragment;
  static constexpr int kKept = folded(Row::kUsed, kSumSlots);

  float sum[Row::kUsedWords * Row::Elements::kPerWord];
  int first;

  template <class Indices>
  __device__ void add(const char* table, const Indices& indices, int64_t begin, int count,
                      int lane) {
    const int slot = lane / Row::kLanes % kSumSlots;
    const int part = lane % Row::kLanes;
    const bool reads = Row::kPitchLanes == Row::kLanes || part < Row::kPitchLanes;
    const char* x = table + (reads ? part : 0) * sizeof(Fragment);
#pragma unroll
    for (float& s : sum) s = 0.0f;
    // Groups of a warp go on together, as they shuffle.
    const int longest = Row::kLanes * kSumSlots == kWarp
                            ? count
                            : static_cast<int>(__reduce_max_sync(kFullWarp, count));
    int32_t next[kBatch];
    const auto prefetch = [&](int base) {
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int edge = base + b * kSumSlots + slot;
        if (edge < count) next[b] = indices.at(begin + edge);
      }
    };
    prefetch(0);
    for (int base = 0; base < longest; base += kBatch * kSumSlots) {
      Fragment f[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        f[b] = Fragment{};
        if (base + b * kSumSlots + slot < count)
          f[b] = __ldg(reinterpret_cast<const Fragment*>(
              x + static_cast<uint64_t>(static_cast<uint32_t>(next[b])) * Row::kPitchBytes));
      }
      prefetch(base + kBatch * kSumSlots);
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (base + b * kSumSlots >= longest) break;
        uint32_t word[Row::kWords];
        memcpy(word, &f[b], sizeof(word));
        float factor = base + b * kSumSlots + slot < count ? 1.0f : 0.0f;
        if constexpr (kFactors) {
          factor = __uint_as_float(word[Row::kWords - 1]);
          if constexpr (Row::kLanes > 1)
            factor = __shfl_sync(kFullWarp, factor, Row::kPitchLanes - 1, Row::kLanes);
        }
#pragma unroll
        for (int w = 0; w < Row::kUsedWords; ++w)
          Row::Elements::add(sum + w * Row::Elements::kPerWord, word[w], factor);
      }
    }
    first = 0;
    fold_slots<Row::kUsed, Row::kLanes * kSumSlots / 2, Row::kLanes>(sum, lane, first);
  }
};

// One chunk of features of every row of a pattern.
template <class Indices>
struct NarrowLaunch {
  AggregateArgs a;
  Indices indices;
  const char* table;  // [chunks, cols, pitch]
  const float* out_scale;
  unsigned blocks;  // of a chunk
  bool odd;         // dot = 2 * half + 1: the last element of each piece is a one
};

__device__ __forceinline__ int64_t narrow_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// The result from a sum of halves; `ones` is the sum of the factors.
__device__ __forceinline__ float narrow_value(const AggregateArgs& a, const float* out_scale,
                                              bool odd, int64_t row, int64_t feature, float sum,
                                              float ones) {
  float v = __fmul_rn(2.0f, sum);
  if (odd) v = __fadd_rn(v, ones);
  if (a.row_scale != nullptr || out_scale != nullptr) {
    const float left = a.row_scale != nullptr ? __ldg(a.row_scale + row) : 1.0f;
    const float right = out_scale != nullptr ? __ldg(out_scale + feature) : 1.0f;
    v = __fmul_rn(__fmul_rn(left, right), v);
  }
  return a.bias != nullptr ? __fadd_rn(v, __ldg(a.bias + feature)) : v;
}

template <class Row, bool kFactors, int kBatch, class Indices>
__global__ void __launch_bounds__(kNarrowThreads)
    aggregate_narrow_kernel(const __grid_constant__ NarrowLaunch<Indices> d) {
  using Group = NarrowGroup<Row>;
  using Piece = NarrowPiece<Row, kFactors, kBatch>;
  constexpr int kTotal = Row::kLanes * Row::kUsed;
  __shared__ float part[Group::kGroups][kTotal];
  __shared__ int64_t long_begin[Group::kGroups];
  __shared__ int64_t long_degree[Group::kGroups];
  const AggregateArgs& a = d.a;
  const int group = static_cast<int>(threadIdx.x) / Group::kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t chunk = blockIdx.x / d.blocks;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x % d.blocks) * Group::kGroups;
  const int64_t row = first_row + group;
  const int64_t first_feature = chunk * Row::kFeatures;
  const int64_t features = min(a.features - first_feature, static_cast<int64_t>(Row::kFeatures));
  const char* table = d.table + chunk * a.cols * Row::kPitchBytes;
  const int64_t begin = row < a.rows ? narrow_edge(a, row) : 0;
  const int64_t degree = row < a.rows ? narrow_edge(a, row + 1) - begin : 0;
  let_next_start();
  wait_for_previous();
  const bool is_long = degree > kSumPiece;
  Piece piece;
  piece.add(table, d.indices, begin, is_long ? 0 : static_cast<int>(degree), lane);
  const int at = lane % Row::kLanes * Row::kPerLane + piece.first;
  if (!is_long && row < a.rows) {
#pragma unroll
    for (int i = 0; i < Piece::kKept; ++i)
      if (at + i < features)
        a.out_float[row * a.features + first_feature + at + i] =
            narrow_value(a, d.out_scale, false, row, first_feature + at + i, piece.sum[i], 0.0f);
  }
  if (lane % Group::kLanes == 0) {
    long_begin[group] = begin;
    long_degree[group] = is_long ? degree : 0;
  }
  if (!__syncthreads_or(is_long)) return;
  for (int g = 0; g < Group::kGroups; ++g) {
    const int64_t edges = long_degree[g];
    float total = 0.0f;
    for (int64_t base = 0; base < edges; base += Group::kGroups * kSumPiece) {
      const int64_t own = base + group * kSumPiece;
      const int64_t left = edges - own;
      piece.add(table, d.indices, long_begin[g] + own,
                static_cast<int>(left < 0           ? 0
                                 : left < kSumPiece ? left
                                                    : kSumPiece),
                lane);
#pragma unroll
      for (int i = 0; i < Piece::kKept; ++i)
        part[group][lane % Row::kLanes * Row::kUsed + piece.first + i] = piece.sum[i];
      __syncthreads();
      const int64_t pieces =
          min((edges - base + kSumPiece - 1) / kSumPiece, static_cast<int64_t>(Group::kGroups));
      if (threadIdx.x < kTotal)
        for (int p = 0; p < pieces; ++p) total = __fadd_rn(total, part[p][threadIdx.x]);
      __syncthreads();
    }
    const int feature = static_cast<int>(threadIdx.x) / Row::kUsed * Row::kPerLane +
                        static_cast<int>(threadIdx.x) % Row::kUsed;
    if (edges > 0 && threadIdx.x < kTotal && feature < features)
      a.out_float[(first_row + g) * a.features + first_feature + feature] =
          narrow_value(a, d.out_scale, false, first_row + g, first_feature + feature, total, 0.0f);
  }
}

}  // namespace bitgnn::cuda
