// Products of few packed rows, written as wide rows: the warps of a block split the bits of 16 rows
// and 64 columns among them and then add up their counts. Bound by the latency of one round of
// loads.
#pragma once

#include "bmm/arguments.h"
#include "pairs/cuda/wide/product.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kSplitWarps = 4;
constexpr int kSplitThreads = kSplitWarps * kWarp;
constexpr int kStepBits = kMmaWords * static_cast<int>(kWordBits);
constexpr int kSplitPitch = kPartFeatures + 8;  // keeps writes of fragments free of bank conflicts

// A lane's words for one step of 256 bits: four of rows g and g + 8, and two of each column.
struct SplitStep {
  uint32_t x[4], w[kPartFragments][2];

  __device__ __forceinline__ void load(const int32_t* const (&row)[2],
                                       const int32_t* const (&column)[kPartFragments], int word,
                                       int words) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int at = word + k * 4;
      const bool exists = at < words;
#pragma unroll
      for (int i = 0; i < 2; ++i) x[2 * k + i] = exists ? static_cast<uint32_t>(row[i][at]) : 0u;
#pragma unroll
      for (int j = 0; j < kPartFragments; ++j)
        w[j][k] = exists ? static_cast<uint32_t>(__ldg(column[j] + at)) : 0u;
    }
  }
};

// blockIdx.y is the part. The number of features that agree is popc(x & w) + popc(~x & ~w),
// including those past the last one.
template <class Elements>
__global__ void __launch_bounds__(kSplitThreads)
    wide_split_kernel(const __grid_constant__ BmmArgs a, int words, int steps, WideTable table,
                      NarrowFactors factors) {
  __shared__ __align__(16) int32_t counted[kSplitWarps][kMmaRows][kSplitPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp, lane = thread % kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const auto part = static_cast<int>(blockIdx.y);
  const int64_t first_row = int64_t{blockIdx.x} * kMmaRows;
  const int32_t* row[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) row[i] = a.x + min(first_row + group + i * 8, a.rows - 1) * words;
  const int32_t* column[kPartFragments];
#pragma unroll
  for (int j = 0; j < kPartFragments; ++j)
    column[j] =
        a.w +
        min(int64_t{part} * kPartFeatures + j * kMmaColumns + group, a.out_features - 1) * words;
  wait_for_previous();
  let_next_start();
  int32_t agree[kPartFragments][4] = {};
#pragma unroll 2
  for (int step = warp; step < steps; step += kSplitWarps) {
    SplitStep own;
    own.load(row, column, step * kMmaWords + quad, words);
#pragma unroll
    for (int j = 0; j < kPartFragments; ++j) mma_and_popc(agree[j], own.x, own.w[j]);
#pragma unroll
    for (int k = 0; k < 4; ++k) own.x[k] = ~own.x[k];
#pragma unroll
    for (int j = 0; j < kPartFragments; ++j) {
      own.w[j][0] = ~own.w[j][0];
      own.w[j][1] = ~own.w[j][1];
      mma_and_popc(agree[j], own.x, own.w[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kPartFragments; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<int2*>(&counted[warp][group + i * 8][j * kMmaColumns + quad * 2]) =
          make_int2(agree[j][2 * i], agree[j][2 * i + 1]);
  }
  if (part == 0 && thread < kMmaRows && first_row + thread < a.rows)
    table.factors[first_row + thread] = wide_factor(factors, first_row + thread);
  __syncthreads();
  // half = (K >> 1) - popc(x ^ w), and the bits that agree are all bits of the steps minus those
  // that differ.
  const int32_t start = static_cast<int32_t>(a.size >> 1) - steps * kStepBits;
  static_assert(kMmaRows * kPartLanes == kSplitThreads, "a thread makes 16 bytes");
  const int own_row = thread / kPartLanes, piece = thread % kPartLanes;
  if (first_row + own_row >= a.rows) return;
  int4 half[2] = {make_int4(start, start, start, start), make_int4(start, start, start, start)};
#pragma unroll
  for (int k = 0; k < kSplitWarps; ++k) {
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int first = wide_feature(piece * kWideElements + v * 4);
      const int4 more = *reinterpret_cast<const int4*>(&counted[k][own_row][first]);
      half[v].x += more.x;
      half[v].y += more.y;
      half[v].z += more.z;
      half[v].w += more.w;
    }
  }
  reinterpret_cast<uint4*>(table.part(first_row + own_row, part))[piece] =
      make_uint4(Elements::pair(half[0].x, half[0].y), Elements::pair(half[0].z, half[0].w),
                 Elements::pair(half[1].x, half[1].y), Elements::pair(half[1].z, half[1].w));
}

}  // namespace bitgnn::cuda::pairs
