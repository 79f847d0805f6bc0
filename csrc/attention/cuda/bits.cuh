// Packs the bits of attention from scores and limits, and stores results from sums of values.
#pragma once

#include "attention/cuda/limits.cuh"
#include "ternary/cuda/outputs.cuh"

namespace bitgnn::cuda::attention {

// Decision of a row's bits: an addend to packed scores, an AND mask (0 clears all bits) and an OR
// mask (ones set all bits).
struct RowDecision {
  uint32_t addend, some, all;
};

template <int kDim>
__device__ __forceinline__ RowDecision decide(int limit) {
  const auto some = limit > 2 * kDim ? 0u : 0xffffffffu;
  const auto all = limit <= 0 ? 0xffffffffu : 0u;
  if constexpr (AttentionShape<kDim>::kPack == 4)
    return {static_cast<uint32_t>(128 - min(max(limit, 1), 128)) * 0x01010101u, some, all};
  return {static_cast<uint32_t>(0x8000 - min(max(limit, 0), 2 * kDim + 1)) * 0x00010001u, some,
          all};
}

// Packs the bits of a part of this lane's keys of a stage into their words of the fragments of
// 16 rows by 256 keys.
template <int kDim>
__device__ __forceinline__ void pack_scores(
    uint32_t (&bits)[AttentionShape<kDim>::kFragments][4],
    const int32_t (&score)[AttentionShape<kDim>::kPartScores], int part,
    const RowDecision (&decision)[2], const uint32_t* valid, const int (&last)[2], bool edge,
    int (&set)[2]) {
  using S = AttentionShape<kDim>;
  constexpr uint32_t kDecided = S::kPack == 4 ? 0x80808080u : 0x80008000u;
#pragma unroll
  for (int w = 0; w < S::kPack / S::kParts; ++w) {
    const int k = part * (S::kPack / S::kParts) + w;
    const uint32_t allowed = valid[k];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t word = 0;
#pragma unroll
      for (int e = 0; e < S::kBits; ++e)
        word = (word >> 1) |
               (static_cast<uint32_t>(score[score_index(w * S::kBits + e, r)]) & kDecided);
      word = ((word & decision[r].some) | decision[r].all) & allowed;
      if (edge) word &= bits_through(last[r], k);
      bits[k / 2][k % 2 * 2 + r] = word;
      set[r] += __popc(word);
    }
  }
}

// Stores the lane's kDim / 4 consecutive features of a row.
template <class T, int kDim>
__device__ __forceinline__ void store_features(T* out, const int32_t (&sum)[kDim / 2], int r,
                                               int set, float scale, int first, int64_t size,
                                               bool vector) {
  constexpr int kEach = 16 / sizeof(T);
#pragma unroll
  for (int begin = 0; begin < kDim / 4; begin += kEach) {
    alignas(16) T part[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      part[i] = ternary::ternary_value<T>(scale, sum[score_index(begin + i, r)] - set);
    if (vector) {
      *reinterpret_cast<uint4*>(out + first + begin) = *reinterpret_cast<const uint4*>(part);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (first + begin + i < size) out[first + begin + i] = part[i];
    }
  }
}

}  // namespace bitgnn::cuda::attention
