// Scales and biases that turn sums of wide rows into results, and the stores of these.
#pragma once

#include "bspmm/arguments.h"
#include "pairs/cuda/wide/walk.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kWideThreads = 128;
constexpr int kWideBlocks = 4;  // per multiprocessor: gathers in flight fill its registers

struct WideLaunch {
  AggregateArgs a;
  WideTable table;
  const float* out_scale;
  const float* shift;
  bool odd;              // dot = 2 * half + 1
  int warp_rows;         // fewer than lanes: each lane has the bound of a row
  int long_degree;       // rows of more edges take whole blocks,
  unsigned long_blocks;  // the first ones of the grid
  bool vectors;          // results are written 16 bytes at a time
};

__device__ __forceinline__ float wide_row_scale(const WideLaunch& d, int64_t row) {
  return d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f;
}

// Factors of 1 and a bias of -0 change nothing.
struct WideColumn {
  float scale, bias, shift;

  __device__ static WideColumn of(const WideLaunch& d, int64_t feature) {
    const int64_t at = min(feature, d.a.features - 1);
    return {d.out_scale != nullptr ? __ldg(d.out_scale + at) : 1.0f,
            d.a.bias != nullptr ? __ldg(d.a.bias + at) : -0.0f,
            d.shift != nullptr ? __ldg(d.shift + at) : 0.0f};
  }
  // (row_scale * scale) * doubled [+ (row_scale * shift) * ones] + bias.
  template <NarrowSum kSum>
  __device__ __forceinline__ float value(const WideLaunch& d, float row_scale, int64_t degree,
                                         float sum, float ones) const {
    float v = doubled<kSum>(sum, ones, degree, d.odd);
    v = __fmul_rn(__fmul_rn(row_scale, scale), v);
    if (kSum != NarrowSum::kFactors && d.shift != nullptr) {
      const float all = kSum == NarrowSum::kPlain ? __ll2float_rn(degree) : ones;
      v = __fadd_rn(v, __fmul_rn(__fmul_rn(row_scale, shift), all));
    }
    return __fadd_rn(v, bias);
  }
};

// The columns of a chunk, in shared memory.
template <int kLanes>
struct WideColumns {
  static constexpr int kColumns = kLanes * kWideElements;
  float scale[kColumns], bias[kColumns], shift[kColumns];

  // All threads of the block take part.
  __device__ __forceinline__ void load(const WideLaunch& d) {
    for (int i = static_cast<int>(threadIdx.x); i < kColumns; i += kWideThreads) {
      const WideColumn column = WideColumn::of(d, int64_t{blockIdx.y} * kColumns + i);
      scale[i] = column.scale;
      bias[i] = column.bias;
      shift[i] = column.shift;
    }
  }
  // Writes the results of lane `part` of a group.
  template <NarrowSum kSum>
  __device__ __forceinline__ void store(const WideLaunch& d, int64_t row, int part, float row_scale,
                                        int64_t degree, const WideSums<kSum>& sums) const {
    constexpr int kRun = 4;
#pragma unroll
    for (int i = 0; i < kWideElements; i += kRun) {
      const int place = part * kWideElements + i;
      const int first = place / kPartFeatures * kPartFeatures + wide_feature(place % kPartFeatures);
      const float4 s = *reinterpret_cast<const float4*>(scale + first);
      const float4 b = *reinterpret_cast<const float4*>(bias + first);
      float4 t{};
      if constexpr (kSum != NarrowSum::kFactors)
        t = *reinterpret_cast<const float4*>(shift + first);
      const WideColumn column[kRun] = {
          {s.x, b.x, t.x}, {s.y, b.y, t.y}, {s.z, b.z, t.z}, {s.w, b.w, t.w}};
      float v[kRun];
#pragma unroll
      for (int k = 0; k < kRun; ++k)
        v[k] = column[k].template value<kSum>(d, row_scale, degree, sums.sum[i + k], sums.ones);
      const int64_t feature = int64_t{blockIdx.y} * kColumns + first;
      float* to = d.a.out_float + row * d.a.features + feature;
      if (d.vectors) {
        if (feature < d.a.features)
          *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
      } else {
#pragma unroll
        for (int k = 0; k < kRun; ++k)
          if (feature + k < d.a.features) to[k] = v[k];
      }
    }
  }
};

}  // namespace bitgnn::cuda::pairs
