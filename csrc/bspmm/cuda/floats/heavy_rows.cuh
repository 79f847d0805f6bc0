// Rows too long for a group of lanes: a block prefetches stages of edges into shared memory, and
// one thread per feature adds them up in order.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/piece.cuh"

namespace bitgnn::cuda::bspmm {

__device__ __forceinline__ void copy_async(void* to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
               : "memory");
}
// Copies a word; words below four bytes are too short for cp.async.
template <class Word>
__device__ __forceinline__ void copy_async(void* to, const Word* from) {
  if constexpr (sizeof(Word) == 4) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
  } else {
    *static_cast<Word*>(to) = __ldg(from);
  }
}

template <class Rows, int kLanes>
class HeavyRow {
 public:
  // All threads of the block call the constructor and aggregate().
  __device__ HeavyRow(const DenseLaunch& launch, const BlockRole& block_role)
      : d(launch), role(block_role) {}

  __device__ __forceinline__ void aggregate(const RowSpan& span) const {
    __shared__ Stages shared;
    const AggregateArgs& a = d.a;
    const int group = static_cast<int>(threadIdx.x) / kSpan;
    const int feature = static_cast<int>(threadIdx.x);
    const Place piece(d, role.chunk, static_cast<int>(threadIdx.x) % kSpan);
    // Indices come from global memory and are fetched two stages before their use.
    int32_t index[kEach] = {};
    int32_t next_index[kEach] = {};
    const auto fetch_indices = [&](int stage) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int edge = stage * kEdges + i * kGroups + group;
        index[i] = next_index[i];
        if (edge < span.degree) next_index[i] = __ldg(a.indices + span.begin + edge);
      }
    };
    const auto fetch_pieces = [&](int stage) {
      const int ring = stage % kStages;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int place = i * kGroups + group;
        const int edge = stage * kEdges + place;
        if (edge >= span.degree) continue;
        if (piece.lane < kLanes && Rows::owns(piece.lane))
          copy_async(&shared.pieces[ring][place][Rows::offset(piece.lane)], piece.at(index[i]));
        if constexpr (Rows::kScaled) {
          if (piece.lane == 0 && a.values != nullptr)
            copy_async(&shared.values[ring][place], a.values + span.begin + edge);
          if (piece.lane == kSpan - 1 && a.col_scale != nullptr)
            copy_async(&shared.columns[ring][place], a.col_scale + index[i]);
        }
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      fetch_indices(stage + 2);
    };
    typename Rows::Sum sum[1] = {};
    // Wait until the previous row is done with the stages.
    __syncthreads();
    fetch_indices(0);
    fetch_indices(1);
    for (int stage = 0; stage < kStages - 1; ++stage) fetch_pieces(stage);
    for (int stage = 0; stage * kEdges < span.degree; ++stage) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
      __syncthreads();
      fetch_pieces(stage + kStages - 1);
      if (feature >= Place::kFeatures) continue;
      const int ring = stage % kStages;
      const int edges = min(kEdges, span.degree - stage * kEdges);
#pragma unroll 8
      for (int e = 0; e < edges; ++e) {
        float factor = 1.0f;
        if constexpr (Rows::kScaled) {
          if (a.values != nullptr) factor = shared.values[ring][e];
          if (a.col_scale != nullptr) factor = __fmul_rn(factor, shared.columns[ring][e]);
        }
        Rows::add_feature(sum[0], shared.pieces[ring][e], feature, factor);
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    finish_row<typename Rows::Sum, 1, kWarp>(
        a, span.row, feature < Place::kFeatures, row_factor(a, span.row),
        role.chunk * Place::kFeatures + feature, Place::limit(d, role.chunk), sum);
  }

 private:
  using Place = Piece<Rows, kLanes>;
  static constexpr int kSpan = Place::kSpan;
  static constexpr int kGroups = kDenseThreads / kSpan;
  static constexpr int kStages = 4;
  // Enough edges per stage to cover its latency, in about 9 KiB.
  static constexpr int kStageBytes = 9216;
  static constexpr int kEdgeBytes = Place::kBytes + (Rows::kScaled ? 8 : 0);
  static constexpr int kFit = kStageBytes / (kGroups * kEdgeBytes);
  static constexpr int kEach = kFit < 1 ? 1 : kFit > 8 ? 8 : kFit;
  static constexpr int kEdges = kGroups * kEach;

  struct Stages {
    alignas(16) char pieces[kStages][kEdges][Place::kBytes];
    float values[Rows::kScaled ? kStages : 1][Rows::kScaled ? kEdges : 1];
    float columns[Rows::kScaled ? kStages : 1][Rows::kScaled ? kEdges : 1];
  };

  const DenseLaunch& d;
  const BlockRole& role;
};

}  // namespace bitgnn::cuda::bspmm
