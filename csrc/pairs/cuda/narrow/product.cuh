// Products of packed rows, written as narrow rows with their factors: on tensor cores or counted
// directly if the weights are small, otherwise from a table of dot products.
#pragma once

#include <type_traits>

#include "bmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "pairs/cuda/narrow/table.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kNarrowProductThreads = 128;

// Destination of narrow rows, and the scales that make up their factors.
struct NarrowTarget {
  char* table;  // [chunks, rows, pitch]
  const float* x_scale;
  const float* col_scale;

  template <class Row>
  __device__ __forceinline__ typename Row::Fragment* fragment(int64_t rows, int64_t row,
                                                              int64_t chunk, int lane) const {
    return reinterpret_cast<typename Row::Fragment*>(table +
                                                     (chunk * rows + row) * Row::kPitchBytes) +
           lane;
  }
};

__device__ __forceinline__ float narrow_factor(const NarrowTarget& t, int64_t row) {
  const float left = t.x_scale != nullptr ? t.x_scale[row] : 1.0f;
  return t.col_scale != nullptr ? __fmul_rn(left, __ldg(t.col_scale + row)) : left;
}

// Stores fragment `lane` of row `row` in chunk `chunk`; half(i, feature) yields its element i.
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
      word[i / kPerWord] |= (static_cast<uint32_t>(half(i, first + i) + kBias) & kMask)
                            << (i % kPerWord * Elements::kBits);
  }
  if (Row::holds_factor(lane, Row::kWords - 1))
    word[Row::kWords - 1] = __float_as_uint(narrow_factor(target, row));
  typename Row::Fragment fragment;
  memcpy(&fragment, word, sizeof(fragment));
  *target.template fragment<Row>(rows, row, chunk, lane) = fragment;
}

// Waits first: what the next kernel reads before it waits was ready before this one.
__device__ __forceinline__ void wait_then_let_next_start() {
  wait_for_previous();
  let_next_start();
}

// A product and its destination.
struct NarrowProduct {
  BmmArgs a;
  NarrowTarget target;
};

// One launch makes the products that sums gather and those of the root term, blockIdx.z.
struct NarrowProducts {
  NarrowProduct product[2];
  int words[2];
};

// dots: [rows, features] int32; blockIdx.y is the chunk.
template <class Row>
__global__ void __launch_bounds__(kNarrowProductThreads)
    narrow_copy_kernel(const int32_t* dots, int64_t rows, int64_t features, NarrowTarget target) {
  wait_then_let_next_start();
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kNarrowProductThreads + threadIdx.x;
  const int64_t row = id / Row::kLanes;
  if (row >= rows) return;
  store_narrow<Row>(target, rows, row, blockIdx.y, static_cast<int>(id % Row::kLanes), features,
                    [&](int, int64_t feature) { return dots[row * features + feature] >> 1; });
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
    narrow_product_kernel(const __grid_constant__ NarrowProducts both) {
  extern __shared__ __align__(16) uint32_t weights[];  // [features, kWords]
  const BmmArgs& a = both.product[blockIdx.z].a;
  const NarrowTarget& target = both.product[blockIdx.z].target;
  const int words = both.words[blockIdx.z];
  wait_then_let_next_start();
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kNarrowProductThreads + threadIdx.x;
  const int64_t row = id / Row::kLanes;
  uint32_t x[kWords] = {};
  if (row < a.rows) load_row<kWords>(x, a.x + row * words, words);
  const auto features = static_cast<int>(a.out_features);
  for (int i = static_cast<int>(threadIdx.x); i < features * kWords; i += kNarrowProductThreads)
    weights[i] =
        i % kWords < words ? static_cast<uint32_t>(a.w[i / kWords * words + i % kWords]) : 0;
  __syncthreads();
  if (row >= a.rows) return;
  const auto middle = static_cast<int32_t>(a.size >> 1);
  store_narrow<Row>(target, a.rows, row, blockIdx.y, static_cast<int>(id % Row::kLanes), features,
                    [&](int, int64_t feature) {
                      const uint32_t* own = weights + feature * kWords;
                      int32_t differing = 0;
#pragma unroll
                      for (int w = 0; w < kWords; ++w) differing += __popc(x[w] ^ own[w]);
                      return middle - differing;
                    });
}

// The same for rows of four lanes on tensor cores, by popc(x & ~w) + popc(~x & w), if rows of words
// consist of aligned pairs. Column n of tile j is element 2 j + n % 2 of fragment n / 2, so a lane
// ends up with the elements of one fragment.
template <class Row>
__global__ void __launch_bounds__(kNarrowProductThreads)
    narrow_tensor_kernel(const __grid_constant__ NarrowProducts both) {
  constexpr int kTiles = Row::kUsed / 2;
  extern __shared__ __align__(16) uint2 fragments[];  // [steps, kTiles, kWarp]
  const BmmArgs& a = both.product[blockIdx.z].a;
  const NarrowTarget& target = both.product[blockIdx.z].target;
  const int words = both.words[blockIdx.z];
  const int steps = (words + kMmaWords - 1) / kMmaWords;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp, group = fragment_group(lane), quad = fragment_quad(lane);
  constexpr int kWarps = kNarrowProductThreads / kWarp;
  const int64_t first_of_block = static_cast<int64_t>(blockIdx.x) * kWarps * kMmaRows;
  if (first_of_block >= a.rows) return;
  const int64_t first = first_of_block + thread / kWarp * kMmaRows + group;
  uint2 x[2];
  const auto load = [&](int step) {
    const int word = step * kMmaWords + 2 * quad;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t* row = a.x + min(first + i * 8, a.rows - 1) * words;
      x[i] = word < words ? *reinterpret_cast<const uint2*>(row + word) : make_uint2(0, 0);
    }
  };
  wait_then_let_next_start();
  load(0);
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    if (Row::holds_factor(quad, Row::kWords - 1))
      factor[i] = narrow_factor(target, min(first + i * 8, a.rows - 1));
#pragma unroll 1
  for (int i = thread / kWarp; i < steps * kTiles; i += kWarps) {
    const int feature = static_cast<int>(blockIdx.y) * Row::kFeatures + group / 2 * Row::kUsed +
                        i % kTiles * 2 + group % 2;
    const int word = i / kTiles * kMmaWords + 2 * quad;
    const bool exists = word < words && feature < a.out_features;
    copy_async_8(fragments + i * kWarp + lane, exists ? a.w + int64_t{feature} * words + word : a.w,
                 exists ? sizeof(uint2) : 0);
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  int32_t differing[kTiles][4] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    if (step > 0) load(step);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint2 w = fragments[(step * kTiles + j) * kWarp + lane];
      mma_and_popc(differing[j], {x[0].x, x[1].x, x[0].y, x[1].y}, {~w.x, ~w.y});
      mma_and_popc(differing[j], {~x[0].x, ~x[1].x, ~x[0].y, ~x[1].y}, {w.x, w.y});
    }
  }
  // Elements are biased, so a word is the difference of the words of all middles and all counts.
  using Elements = typename Row::Elements;
  const auto middle = static_cast<uint32_t>(a.size >> 1) + (1u << (Elements::kBits - 1));
  uint32_t middles = 0;
#pragma unroll
  for (int k = 0; k < Elements::kPerWord; ++k) middles += middle << (k * Elements::kBits);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t row = first + i * 8;
    if (row >= a.rows) return;
    uint32_t word[Row::kWords];
#pragma unroll
    for (uint32_t& w : word) w = middles;
#pragma unroll
    for (int k = 0; k < Row::kUsed; ++k)
      word[k / Elements::kPerWord] -= static_cast<uint32_t>(differing[k / 2][i * 2 + k % 2])
                                      << (k % Elements::kPerWord * Elements::kBits);
    if (Row::holds_factor(quad, Row::kWords - 1))
      word[Row::kWords - 1] = __float_as_uint(factor[i]);
    typename Row::Fragment fragment;
    memcpy(&fragment, word, sizeof(fragment));
    *target.template fragment<Row>(a.rows, row, blockIdx.y, quad) = fragment;
  }
}

}  // namespace bitgnn::cuda::pairs
