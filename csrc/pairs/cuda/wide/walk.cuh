// Sums over a piece of a row's edges by a group of lanes, for wide rows: every lane adds up its own
// elements, all edges of a piece are in flight at once, and their indices and factors are read
// once.
#pragma once

#include "pairs/cuda/wide/rows.cuh"

namespace bitgnn::cuda::pairs {

// A lane's elements, and the sum of the factors with kOnes.
struct WideSums {
  float sum[kWideElements] = {};
  float ones = 0.0f;

  // sum = fma(factor, half, sum).
  template <class Elements, bool kOnes>
  __device__ __forceinline__ void add(const uint4& x, float factor) {
    const uint32_t word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 half = Elements::values(word[k]);
      sum[2 * k] = __fmaf_rn(factor, half.x, sum[2 * k]);
      sum[2 * k + 1] = __fmaf_rn(factor, half.y, sum[2 * k + 1]);
    }
    if constexpr (kOnes) ones = __fadd_rn(ones, factor);
  }
  // Adds the sums of earlier pieces.
  template <bool kOnes>
  __device__ __forceinline__ void follow(const WideSums& earlier) {
#pragma unroll
    for (int i = 0; i < kWideElements; ++i) sum[i] = __fadd_rn(earlier.sum[i], sum[i]);
    if constexpr (kOnes) ones = __fadd_rn(earlier.ones, ones);
  }
  template <bool kOnes>
  __device__ __forceinline__ WideSums of_lane(int lane) const {
    WideSums other;
#pragma unroll
    for (int i = 0; i < kWideElements; ++i) other.sum[i] = __shfl_sync(kFullWarp, sum[i], lane);
    if constexpr (kOnes) other.ones = __shfl_sync(kFullWarp, ones, lane);
    return other;
  }
};

// State with which groups of `kLanes` lanes walk through pieces side by side.
template <class Elements, bool kOnes, int kLanes>
struct WideWalk {
  static constexpr int kOwn = kLanes < kWidePiece ? kWidePiece / kLanes : 1;  // edges per lane
  static constexpr int kStep = 4;  // edges between checks for groups with more
  static_assert(kWidePiece % kStep == 0);

  const char* x;  // the lane's part of the first row
  const float* factors;
  uint32_t pitch;
  int part;             // the lane's number in its group
  int32_t index[kOwn];  // of edges `part`, `part + kLanes` and so on of the next piece

  // `own` is the address of the lane's elements of the first row.
  __device__ WideWalk(const WideTable& table, const char* own)
      : x(own),
        factors(table.factors),
        pitch(table.pitch),
        part(static_cast<int>(threadIdx.x) % kLanes) {}

  // Loads the indices of a piece of `count` edges. Missing edges read the first row, which exists
  // if any edge does.
  __device__ __forceinline__ void fetch(const int32_t* indices, int count) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int at = part + i * kLanes;
      index[i] = at < min(count, kWidePiece) ? __ldg(indices + at) : 0;
    }
  }

  // Sums the piece of `count` edges whose indices were fetched; `longest` is the largest count in
  // the warp. Calls fetch_next() once the indices have been used.
  template <class Next>
  __device__ __forceinline__ WideSums add(int count, int longest, const Next& fetch_next) {
    // Missing edges have a factor of 0, which changes nothing.
    float factor[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      factor[i] = part + i * kLanes < min(count, kWidePiece) ? __ldg(factors + index[i]) : 0.0f;
    uint4 f[kWidePiece];
#pragma unroll
    for (int first = 0; first < kWidePiece; first += kStep) {
      if (first >= longest) break;
#pragma unroll
      for (int k = first; k < first + kStep; ++k) {
        const auto row =
            static_cast<uint32_t>(__shfl_sync(kFullWarp, index[k / kLanes], k % kLanes, kLanes));
        f[k] = __ldg(reinterpret_cast<const uint4*>(x + uint64_t{row} * pitch));
      }
    }
    fetch_next();
    WideSums sums;
#pragma unroll
    for (int first = 0; first < kWidePiece; first += kStep) {
      if (first >= longest) break;
#pragma unroll
      for (int k = first; k < first + kStep; ++k)
        sums.template add<Elements, kOnes>(
            f[k], __shfl_sync(kFullWarp, factor[k / kLanes], k % kLanes, kLanes));
    }
    return sums;
  }
};

}  // namespace bitgnn::cuda::pairs
