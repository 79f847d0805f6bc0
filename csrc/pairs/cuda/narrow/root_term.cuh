// Root term: the product of a node's own packed row with few weights, added to its finished sums.
#pragma once

#include "bmm/arguments.h"
#include "bmm/cuda/epilogue_terms.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kRootAccess = 2;  // rows come in pieces of this many words

// Number of bits that differ between two rows.
__device__ __forceinline__ int differing_bits(const uint32_t* x, const uint32_t* w, int words) {
  int differing = 0;
  if (words % 4 == 0) {
#pragma unroll 2
    for (int i = 0; i < words; i += 4) {
      const uint4 a = __ldg(reinterpret_cast<const uint4*>(x + i));
      const uint4 b = __ldg(reinterpret_cast<const uint4*>(w + i));
      differing += __popc(a.x ^ b.x) + __popc(a.y ^ b.y) + __popc(a.z ^ b.z) + __popc(a.w ^ b.w);
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < words; i += kRootAccess) {
      const uint2 a = __ldg(reinterpret_cast<const uint2*>(x + i));
      const uint2 b = __ldg(reinterpret_cast<const uint2*>(w + i));
      differing += __popc(a.x ^ b.x) + __popc(a.y ^ b.y);
    }
  }
  return differing;
}

// Output `feature` of row `row`, rounded like every other product.
__device__ __forceinline__ float root_value(const BmmArgs& root, int64_t row, int feature) {
  const int size = static_cast<int>(root.size);
  const auto words = static_cast<int>(words_for(size));
  const auto* x = reinterpret_cast<const uint32_t*>(root.x) +
                  static_cast<uint64_t>(static_cast<uint32_t>(row)) * static_cast<uint32_t>(words);
  const auto* w = reinterpret_cast<const uint32_t*>(root.w) + feature * words;
  const float scale = root.row_scale != nullptr ? __ldg(root.row_scale + row) : 1.0f;
  const float column = root.out_scale != nullptr ? __ldg(root.out_scale + feature) : 1.0f;
  const float bias = root.bias != nullptr ? __ldg(root.bias + feature) : -0.0f;
  return bmm::slab_value(scale, column, bias, size - 2 * differing_bits(x, w, words));
}

// The outputs of a row, each held by one lane of a group of kGroup.
template <int kFeatures, int kGroup>
struct RootOutputs {
  static constexpr int kEach = (kFeatures + kGroup - 1) / kGroup;
  float own[kEach];

  // Computes every kGroup-th of the row's outputs, from `lane` on, the lane's number in the group.
  __device__ __forceinline__ RootOutputs(const BmmArgs& root, int64_t row, int lane) {
    const auto features = static_cast<int>(root.out_features);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      own[i] = 0.0f;
      if (i * kGroup < features)
        own[i] = root_value(root, row, min(i * kGroup + lane, features - 1));
    }
  }

  // Output `feature`, whichever lane holds it; all lanes of the group, those of `mask`, take part.
  __device__ __forceinline__ float at(unsigned mask, int feature) const {
    float value = __shfl_sync(mask, own[0], feature, kGroup);
#pragma unroll
    for (int i = 1; i < kEach; ++i) {
      const float other = __shfl_sync(mask, own[i], feature, kGroup);
      if (feature >= i * kGroup) value = other;
    }
    return value;
  }
};

// Stands in if nothing is added.
struct NoRootOutputs {
  __device__ NoRootOutputs(const BmmArgs&, int64_t, int) {}
  __device__ float at(unsigned, int) const { return 0.0f; }
};

}  // namespace bitgnn::cuda::pairs
