// Weights of the one-launch product of few rows in registers, and their sums.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/linear/tile.cuh"

namespace bitgnn::cuda::ternary {

// A lane's weights, and pointers to its weights, scales and biases.
template <class Few>
struct FewWeights {
  const int32_t* row[Few::kOutputTiles][2];
  const float* scale[Few::kOutputTiles][2];
  const float* bias[Few::kOutputTiles][2];
  uint32_t words[Few::kStages][Few::kOutputTiles][2][2 * Few::kSteps];

  __device__ __forceinline__ FewWeights(const TernaryBmmArgs& a, int row_words, int output,
                                        int part, int quad) {
    const int own = Few::kExact ? part * Few::kChunkWords + quad * 2 * Few::kSteps : 0;
    const int last = static_cast<int>(a.out_features) - 1;
#pragma unroll
    for (int i = 0; i < Few::kOutputTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = min(output + i * kMmaRows + half * 8, last);
        row[i][half] = a.w + int64_t{at} * row_words + own;
        scale[i][half] = a.w_scale + at * a.w_scale_stride;
        bias[i][half] = a.bias + at;
        make_ready(row[i][half]);
        make_ready(scale[i][half]);
        make_ready(bias[i][half]);
      }
    }
  }
  // Words past a row's end are multiplied by zeros, so they may be any readable words.
  static __device__ __forceinline__ int place(int chunk, int row_words, int quad) {
    if constexpr (Few::kExact) return chunk * Few::kChunkWords;  // relative to the lane's words
    return min(chunk * Few::kChunkWords + quad * 2 * Few::kSteps, row_words - 2 * Few::kSteps);
  }
  __device__ __forceinline__ void fetch(int stage, int word) {
#pragma unroll
    for (int i = 0; i < Few::kOutputTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t (&to)[2 * Few::kSteps] = words[stage][i][half];
        if constexpr (Few::kSteps == 2) {
          const uint4 v = load_in_place(reinterpret_cast<const uint4*>(row[i][half] + word));
          to[0] = v.x;
          to[1] = v.y;
          to[2] = v.z;
          to[3] = v.w;
        } else {
          const uint2 v = load_in_place(reinterpret_cast<const uint2*>(row[i][half] + word));
          to[0] = v.x;
          to[1] = v.y;
        }
      }
    }
  }
};

// Sums of pos and of neg of the same tiles, and the rows' set bits; in separate accumulators, so
// that they do not depend on each other.
template <class Few>
struct FewSums {
  int32_t pos[Few::kOutputTiles][4] = {};
  int32_t neg[Few::kOutputTiles][4] = {};
  int32_t count[4] = {};

  // x holds words 2 k and 2 k + 1, pos and neg alternating.
  __device__ __forceinline__ void add(
      const uint32_t (&weights)[Few::kOutputTiles][2][2 * Few::kSteps], int step, const uint4& x) {
    const uint32_t x_pos[2] = {x.x, x.z}, x_neg[2] = {x.y, x.w}, x_any[2] = {x.x | x.y, x.z | x.w};
    const uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
    for (int i = 0; i < Few::kOutputTiles; ++i) {
      const uint32_t (&low)[2 * Few::kSteps] = weights[i][0];
      const uint32_t (&high)[2 * Few::kSteps] = weights[i][1];
      const uint32_t plus[4] = {low[2 * step], high[2 * step], low[2 * step + 1],
                                high[2 * step + 1]};
      const uint32_t minus[4] = {~plus[0], ~plus[1], ~plus[2], ~plus[3]};
      mma_and_popc(pos[i], plus, x_pos);
      mma_and_popc(neg[i], minus, x_neg);
    }
    mma_and_popc(count, ones, x_any);
  }
  __device__ __forceinline__ void dots(int32_t (&dot)[Few::kOutputTiles][1][4]) const {
#pragma unroll
    for (int i = 0; i < Few::kOutputTiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) dot[i][0][k] = 2 * (pos[i][k] + neg[i][k]) - count[k];
    }
  }
};

}  // namespace bitgnn::cuda::ternary
