// Products of packed rows, written as narrow rows with their factors: counted directly if the
// weights are small, otherwise from a table of dot products.
#pragma once

#include <type_traits>

#include "bmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "pairs/cuda/narrow/table.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kNarrowProductThreads = 128;

// Destination of narrow rows, and the scales that make up their factors.
struct NarrowTarget {
  char* table;  // [chunks, rows, pitch]
  const float* x_scale;
  const float* col_scale;
};

__device__ __forceinline__ float narrow_factor(const NarrowTarget& t, int64_t row) {
  const float left = t.x_scale != nullptr ? t.x_scale[row] : 1.0f;
  return t.col_scale != nullptr ? __fmul_rn(left, __ldg(t.col_scale + row)) : left;
}

// Stores fragment `lane` of row `row` in chunk `chunk`; half(feature) yields the elements.
template <class Row, class Half>
__device__ __forceinline__ void store_narrow(const NarrowTarget& target, int64_t rows, int64_t row,
                                             int64_t chunk, int lane, int64_t features,
                                             const Half& half) {
  using Elements = typename Row::Elements;
  constexpr int kPerWord = Elements::kPerWord;
  constexpr int32_t kBias = 1 << (Elements::kBits - 1);
  constexpr uint32_t kMask = (1u << Elements::kBits) - 1;
  const int64_t first = chunk * Row::kFeatures + lane * Row::kUsed;
  uint32_t word[Row::kWords] = {};
#pragma unroll
  for (int i = 0; i < Row::kUsed; ++i) {
    const int place = lane * Row::kUsed + i;
    if (place < Row::kFeatures && first + i < features)
      word[i / kPerWord] |= (static_cast<uint32_t>(half(first + i) + kBias) & kMask)
                            << (i % kPerWord * Elements::kBits);
  }
  if (Row::holds_factor(lane, Row::kWords - 1))
    word[Row::kWords - 1] = __float_as_uint(narrow_factor(target, row));
  typename Row::Fragment fragment;
  memcpy(&fragment, word, sizeof(fragment));
  *reinterpret_cast<typename Row::Fragment*>(
      target.table + (chunk * rows + row) * Row::kPitchBytes + lane * sizeof(fragment)) = fragment;
}

// Waits first: what the next kernel reads before it waits was ready before this one.
__device__ __forceinline__ void wait_then_let_next_start() {
  wait_for_previous();
  let_next_start();
}

// dots: [rows, features] int32; blockIdx.y is the chunk.
template <class Row>
__global__ void __launch_bounds__(kNarrowProductThreads)
    narrow_copy_kernel(const int32_t* dots, int64_t rows, int64_t features, NarrowTarget target) {
  wait_then_let_next_start();
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kNarrowProductThreads + threadIdx.x;
  const int64_t row = id / Row::kLanes;
  if (row >= rows) return;
  store_narrow<Row>(target, rows, row, blockIdx.y, static_cast<int>(id % Row::kLanes), features,
                    [&](int64_t feature) { return dots[row * features + feature] >> 1; });
}

// Loads the words of a row, in whole accesses if rows consist of them.
template <int kWords>
__device__ __forceinline__ void load_row(uint32_t (&x)[kWords], const int32_t* row, int words) {
  constexpr int kAccess = kWords < 4 ? kWords : 4;
  using Access = std::conditional_t<kAccess == 2, uint2, uint4>;
  if (words % kAccess == 0 && reinterpret_cast<uintptr_t>(row) % sizeof(Access) == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += kAccess) {
      if (w >= words) break;
      const Access piece = *reinterpret_cast<const Access*>(row + w);
      memcpy(x + w, &piece, sizeof(piece));
    }
  } else {
#pragma unroll
    for (int w = 0; w < kWords; ++w)
      if (w < words) x[w] = static_cast<uint32_t>(row[w]);
  }
}

// half = (K >> 1) - popc(x ^ w), for even and odd K alike. Rows have `words` words, up to kWords; a
// thread makes one fragment. Bound by the popcounts.
template <class Row, int kWords>
__global__ void __launch_bounds__(kNarrowProductThreads)
    narrow_product_kernel(const __grid_constant__ BmmArgs a, int words, NarrowTarget target) {
  extern __shared__ __align__(16) uint32_t weights[];  // [features, kWords]
  wait_then_let_next_start();
  const auto features = static_cast<int>(a.out_features);
  for (int i = static_cast<int>(threadIdx.x); i < features * kWords; i += kNarrowProductThreads)
    weights[i] =
        i % kWords < words ? static_cast<uint32_t>(a.w[i / kWords * words + i % kWords]) : 0;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kNarrowProductThreads + threadIdx.x;
  const int64_t row = id / Row::kLanes;
  uint32_t x[kWords] = {};
  if (row < a.rows) load_row<kWords>(x, a.x + row * words, words);
  __syncthreads();
  if (row >= a.rows) return;
  const auto middle = static_cast<int32_t>(a.size >> 1);
  store_narrow<Row>(target, a.rows, row, blockIdx.y, static_cast<int>(id % Row::kLanes), features,
                    [&](int64_t feature) {
                      const uint32_t* own = weights + feature * kWords;
                      int32_t differing = 0;
#pragma unroll
                      for (int w = 0; w < kWords; ++w) differing += __popc(x[w] ^ own[w]);
                      return middle - differing;
                    });
}

}  // namespace bitgnn::cuda::pairs
