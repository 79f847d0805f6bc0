// Root term: products of the nodes' own packed rows, narrow rows like those that are summed, added
// to the finished sums.
#pragma once

#include "bmm/cuda/epilogue_terms.cuh"
#include "pairs/cuda/narrow/table.cuh"

namespace bitgnn::cuda::pairs {

// Row i of chunk c is at table + c * chunk_stride + i * Row::kPitchBytes.
struct RootTerm {
  const char* table;  // null without a root term
  int64_t chunk_stride;
  bool odd;  // dot = 2 * half + 1
  const float* row_scale;
  const float* out_scale;
  const float* bias;
};

// kEach adjacent elements of a row's root term, from `place` of a chunk on, a multiple of kEach.
template <class Row, int kEach>
struct RootElements {
  using Elements = typename Row::Elements;
  static constexpr bool kWhole = kEach % Elements::kPerWord == 0;  // words hold nothing else
  static constexpr int kStride = kWhole ? Elements::kPerWord : 1;
  uint32_t word[kEach / kStride];

  // Not ahead of the wait for the product.
  __device__ __forceinline__ void load(const RootTerm& root, int64_t row, int64_t chunk,
                                       int place) {
    const auto* from = reinterpret_cast<const uint32_t*>(root.table + chunk * root.chunk_stride +
                                                         row * Row::kPitchBytes);
#pragma unroll
    for (int i = 0; i < kEach / kStride; ++i) {
      const int lane = (place + i * kStride) / Row::kUsed;
      const int own = (place + i * kStride) % Row::kUsed;
      word[i] = from[lane * Row::kWords + own / Elements::kPerWord];
    }
  }

  // Adds outputs `first` and on, as many as exist, each rounded like every other product.
  __device__ __forceinline__ void add_to(float (&value)[kEach], const RootTerm& root, int64_t row,
                                         int place, int first, int exist) const {
    const float left = root.row_scale != nullptr ? __ldg(root.row_scale + row) : 1.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i >= exist) break;
      const int own = kWhole ? i : (place + i) % Row::kUsed;
      const int32_t half = element<Elements>(word[i / kStride], own % Elements::kPerWord);
      const float right = root.out_scale != nullptr ? __ldg(root.out_scale + first + i) : 1.0f;
      const float bias = root.bias != nullptr ? __ldg(root.bias + first + i) : -0.0f;
      const float term = bmm::slab_value(left, right, bias, 2 * half + (root.odd ? 1 : 0));
      value[i] = __fadd_rn(term, value[i]);
    }
  }
};

}  // namespace bitgnn::cuda::pairs
