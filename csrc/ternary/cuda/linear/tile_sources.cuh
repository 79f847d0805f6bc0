// Fills a block's shared memory in the ternary tile product with the planes of packed rows.
// start() issues the first loads, ahead of other loads; finish() consumes them.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/bits.cuh"
#include "ternary/cuda/linear/tile.h"

namespace bitgnn::cuda::ternary {

// Packed rows [rows, 2, words]. A thread copies groups of 64 features. kPairs: planes consist of
// 8-byte aligned pairs of words.
template <bool kPairs>
struct PlaneSource {
  const int32_t* x;
  const int32_t* counts;

  template <class Tile>
  struct Fill {
    uint4 group[Tile::kBatch];
    int32_t count;
    int first;

    static __device__ __forceinline__ int item(int first, int i) {
      return first + i * Tile::kThreads;
    }
    __device__ __forceinline__ void load(const PlaneSource& s, const TernaryTilePlan& plan,
                                         int64_t first_row, int items) {
#pragma unroll
      for (int i = 0; i < Tile::kBatch; ++i) {
        const int at = item(first, i);
        const auto row = static_cast<int>(plan.row_groups.divide(at));
        const int word = 2 * (at - row * static_cast<int>(plan.row_groups.divisor));
        const int32_t* pos = s.x + (first_row + row) * 2 * plan.words + word;
        const int32_t* neg = pos + plan.words;
        group[i] = make_uint4(0, 0, 0, 0);
        if (at >= items || word >= plan.words) continue;
        if constexpr (kPairs) {
          const uint2 p = load_in_place(reinterpret_cast<const uint2*>(pos));
          const uint2 n = load_in_place(reinterpret_cast<const uint2*>(neg));
          group[i] = make_uint4(p.x, p.y, n.x, n.y);
        } else {
          group[i].x = static_cast<uint32_t>(pos[0]);
          group[i].z = static_cast<uint32_t>(neg[0]);
          if (word + 1 < plan.words) {
            group[i].y = static_cast<uint32_t>(pos[1]);
            group[i].w = static_cast<uint32_t>(neg[1]);
          }
        }
      }
    }
    __device__ __forceinline__ void start(const PlaneSource& s, const TernaryTilePlan& plan,
                                          int64_t first_row, int rows) {
      first = static_cast<int>(threadIdx.x);
      load(s, plan, first_row, rows * static_cast<int>(plan.row_groups.divisor));
      if (first < rows) count = load_in_place(s.counts + first_row + first);
    }
    __device__ __forceinline__ void finish(const PlaneSource& s, const TernaryTilePlan& plan,
                                           int64_t first_row, int rows, uint32_t* planes,
                                           int32_t* counts_of_rows) {
      const int items = rows * static_cast<int>(plan.row_groups.divisor);
      if (first < rows) counts_of_rows[first] = count;
#pragma unroll 1
      while (true) {
#pragma unroll
        for (int i = 0; i < Tile::kBatch; ++i) {
          const int at = item(first, i);
          if (at >= items) break;
          const auto row = static_cast<int>(plan.row_groups.divide(at));
          const int place = at - row * static_cast<int>(plan.row_groups.divisor);
          *reinterpret_cast<uint4*>(planes + row * plan.pitch + place * kGroupWords) = group[i];
        }
        first = item(first, Tile::kBatch);
        if (first >= items) return;
        load(s, plan, first_row, items);
      }
    }
  };
};

}  // namespace bitgnn::cuda::ternary
