// Products of packed rows, written as wide rows and their factors. Weights stay in shared memory; a
// warp multiplies 16 rows with the columns of one part at a time. Bound by writing the rows.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "pairs/cuda/routes.h"
#include "pairs/cuda/wide/rows.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kWideProductWarps = 8;
constexpr int kWideProductThreads = kWideProductWarps * kWarp;
constexpr int kPartLanes = kPartFeatures / kWideElements;
constexpr int kPartFragments = kPartFeatures / kMmaColumns;
constexpr int kQuadFeatures = kPartFeatures / 4;  // adjacent ones, of one lane of a quad

__device__ __forceinline__ float wide_factor(const NarrowFactors& f, int64_t row) {
  const float left = f.x_scale != nullptr ? f.x_scale[row] : 1.0f;
  return f.col_scale != nullptr ? __fmul_rn(left, __ldg(f.col_scale + row)) : left;
}

// Layout of the weights in shared memory: rows of `pitch` words, for `steps` products, then the
// counts of their set bits.
struct WideWeights {
  int words, steps, pitch, parts;

  static WideWeights of(const BmmArgs& a, int64_t parts) {
    const auto words = static_cast<int>(words_for(a.size));
    const int steps = (words + kMmaWords - 1) / kMmaWords;
    return {words, steps, tile_pitch(steps * kMmaWords), static_cast<int>(parts)};
  }
  __host__ __device__ int rows() const { return parts * kPartFeatures; }
  __host__ __device__ int64_t bytes() const { return int64_t{rows()} * (pitch + 1) * 4; }
};

// Place of the weights in row `row` of a part: 16 (n / 2) + 2 j + n % 2 for column n of fragment j,
// so that a lane ends up with adjacent places.
__device__ __forceinline__ int place_of(int row) {
  const int j = row / kMmaColumns, n = row % kMmaColumns;
  return n / 2 * kQuadFeatures + 2 * j + n % 2;
}

// Eight adjacent threads load a row of weights.
__device__ __forceinline__ void load_wide_weights(const BmmArgs& a, const WideWeights& layout,
                                                  uint32_t* weights, int32_t* counts) {
  const int own = static_cast<int>(threadIdx.x) % kMmaWords;
  constexpr int kRowsAtOnce = kWideProductThreads / kMmaWords;
  static_assert(kPartFeatures % kRowsAtOnce == 0, "whole warps take part");
#pragma unroll 4
  for (int row = static_cast<int>(threadIdx.x) / kMmaWords; row < layout.rows();
       row += kRowsAtOnce) {
    const int part = row / kPartFeatures * kPartFeatures;
    const int place = place_of(row % kPartFeatures), feature = part + wide_feature(place);
    const int left = feature < a.out_features ? layout.words - own : 0;
    const int32_t* from = a.w + int64_t{feature} * layout.words + own;
    int count = 0;
#pragma unroll 2
    for (int w = 0; w < layout.steps * kMmaWords; w += kMmaWords) {
      const uint32_t word = w < left ? static_cast<uint32_t>(__ldg(from + w)) : 0u;
      weights[row * layout.pitch + w + own] = word;
      count += __popc(word);
    }
#pragma unroll
    for (int step = 1; step < kMmaWords; step *= 2)
      count += __shfl_xor_sync(kFullWarp, count, step);
    if (own == 0) counts[part + place] = count;
  }
}

// The lane's words of a row for one step; missing words are 0.
struct WideOperand {
  const int32_t* row[2];  // rows g and g + 8 of a fragment, from the lane's word on
  int left;               // number of these words

  __device__ __forceinline__ void load(uint32_t (&x)[4], int step) const {
    const int word = step * kMmaWords;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int at = word + k / 2 * 4;
      x[k] = at < left ? static_cast<uint32_t>(row[k % 2][at]) : 0u;
    }
  }
};

template <class Elements>
__device__ __forceinline__ void store_wide(char* to, const int32_t (&half)[kQuadFeatures]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    uint32_t word[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      word[k] = Elements::pair(half[i * 8 + k * 2], half[i * 8 + k * 2 + 1]);
    reinterpret_cast<uint4*>(to)[i] = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// half = (K >> 1) - popc(x ^ w), for even and odd K alike.
template <class Elements>
__global__ void __launch_bounds__(kWideProductThreads)
    wide_product_kernel(const __grid_constant__ BmmArgs a, WideWeights layout, WideTable table,
                        NarrowFactors factors) {
  extern __shared__ __align__(16) uint32_t weights[];
  auto* counts = reinterpret_cast<int32_t*>(weights + layout.rows() * layout.pitch);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  wait_for_previous();
  let_next_start();
  load_wide_weights(a, layout, weights, counts);
  __syncthreads();
  const auto middle = static_cast<int32_t>(a.size >> 1);
  const int64_t slabs = (a.rows + kMmaRows - 1) / kMmaRows;
  for (int64_t slab = int64_t{blockIdx.x} * kWideProductWarps + warp; slab < slabs;
       slab += int64_t{gridDim.x} * kWideProductWarps) {
    const int64_t first = slab * kMmaRows + group;
    const WideOperand x{{a.x + min(first, a.rows - 1) * layout.words + quad,
                         a.x + min(first + 8, a.rows - 1) * layout.words + quad},
                        layout.words - quad};
    if (lane < kMmaRows && slab * kMmaRows + lane < a.rows)
      table.factors[slab * kMmaRows + lane] = wide_factor(factors, slab * kMmaRows + lane);
    int32_t ones[2];
    for (int part = 0; part < layout.parts; ++part) {
      const uint32_t* columns = weights + part * kPartFeatures * layout.pitch;
      int32_t both[kPartFragments][4] = {};
      int32_t count[2] = {};
      for (int step = 0; step < layout.steps; ++step) {
        uint32_t own[4];
        x.load(own, step);
        count[0] += __popc(own[0]) + __popc(own[2]);
        count[1] += __popc(own[1]) + __popc(own[3]);
#pragma unroll
        for (int j = 0; j < kPartFragments; j += 2) {
          uint32_t b[2][2];
          load_column_fragments(b[0], b[1],
                                columns + j * kMmaColumns * layout.pitch + step * kMmaWords,
                                layout.pitch, lane);
          mma_and_popc(both[j], own, b[0]);
          mma_and_popc(both[j + 1], own, b[1]);
        }
      }
      if (part == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          ones[i] = count[i] + __shfl_xor_sync(kFullWarp, count[i], 1);
          ones[i] += __shfl_xor_sync(kFullWarp, ones[i], 2);
        }
      }
      alignas(16) int32_t own_counts[kQuadFeatures];
#pragma unroll
      for (int k = 0; k < kQuadFeatures; k += 4)
        *reinterpret_cast<int4*>(own_counts + k) = *reinterpret_cast<const int4*>(
            counts + part * kPartFeatures + quad * kQuadFeatures + k);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (first + i * 8 >= a.rows) continue;
        int32_t half[kQuadFeatures];
#pragma unroll
        for (int j = 0; j < kPartFragments; ++j) {
#pragma unroll
          for (int e = 0; e < 2; ++e)
            half[2 * j + e] = middle - ones[i] - own_counts[2 * j + e] + 2 * both[j][i * 2 + e];
        }
        store_wide<Elements>(table.part(first + i * 8, part) + quad * kQuadFeatures * 2, half);
      }
    }
  }
}

// The same from a table of dot products [rows, features]; a thread writes 16 bytes.
template <class Elements>
__global__ void __launch_bounds__(kWideProductThreads)
    wide_copy_kernel(const int32_t* dots, int64_t features, WideTable table,
                     NarrowFactors factors) {
  wait_for_previous();
  let_next_start();
  const int64_t id = int64_t{blockIdx.x} * kWideProductThreads + threadIdx.x;
  const int64_t row = id / kPartLanes;
  if (row >= table.count) return;
  const int lane = static_cast<int>(id % kPartLanes);
  const int64_t part = int64_t{blockIdx.y} * kPartFeatures;
  uint32_t word[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const auto half = [&](int64_t feature) {
      return feature < features ? dots[row * features + feature] >> 1 : 0;
    };
    const int64_t first = part + wide_feature(lane * kWideElements + 2 * k);
    word[k] = Elements::pair(half(first), half(first + 1));
  }
  reinterpret_cast<uint4*>(table.part(row, blockIdx.y))[lane] =
      make_uint4(word[0], word[1], word[2], word[3]);
  if (blockIdx.y == 0 && lane == 0) table.factors[row] = wide_factor(factors, row);
}

}  // namespace bitgnn::cuda::pairs
