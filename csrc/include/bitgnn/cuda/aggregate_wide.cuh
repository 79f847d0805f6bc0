// Sums of wide rows over a pattern, in the order of bitgnn/narrow_sums.h for wide rows. A group of
// lanes owns a row at a time, and its chunk of features; a warp goes through a few sets of
// neighbouring rows. Long rows are taken by blocks of their own, which start first. Bound by the
// gathered bytes, and by the latency of a gather for each set of rows.
#pragma once

#include "bitgnn/cuda/dependent_launch.cuh"
#include "bitgnn/cuda/wide_rows.cuh"

namespace bitgnn::cuda {

constexpr int kWideThreads = 256;
constexpr int kWideWarps = kWideThreads / kWarp;
constexpr int kLongLanes = 8;  // that share a piece of a long row,
constexpr int kLongGroups = kWideThreads / kLongLanes;
constexpr int kLongFeatures = kLongLanes * kWideElements;  // of one part of its features

// Gathers of a lane at a time, and blocks of a multiprocessor: groups that share a warp wait for
// the longest of their rows, and so take more at a time; a group that is a warp has more of them.
constexpr int wide_batch(int lanes) { return lanes == 8 ? 8 : 4; }
constexpr int wide_blocks(int lanes) { return lanes == 8 ? 3 : 4; }

struct WideLaunch {
  AggregateArgs a;
  WideTable table;
  const float* out_scale;
  int warp_rows;         // at most 28, a multiple of those that a warp takes at a time
  int long_degree;       // rows of more edges are taken by whole blocks,
  unsigned long_blocks;  // the first ones of a grid
  bool vectors;          // results are written in 16 bytes
};

__device__ __forceinline__ int64_t wide_edge(const AggregateArgs& a, int64_t row) {
  return a.rowptr64 ? __ldg(static_cast<const long long*>(a.rowptr) + row)
                    : __ldg(static_cast<const int*>(a.rowptr) + row);
}

// What turns sums of a column into values: factors of 1 and a bias of -0 change nothing.
struct WideColumn {
  float scale, bias;

  __device__ static WideColumn of(const WideLaunch& d, int64_t feature) {
    const int64_t at = min(feature, d.a.features - 1);
    return {d.out_scale != nullptr ? __ldg(d.out_scale + at) : 1.0f,
            d.a.bias != nullptr ? __ldg(d.a.bias + at) : -0.0f};
  }
  // (row_scale * scale) * (2 * sum [+ ones]) + bias.
  template <bool kOdd>
  __device__ __forceinline__ float value(float row_scale, float sum, float ones) const {
    float v = __fmul_rn(2.0f, sum);
    if constexpr (kOdd) v = __fadd_rn(v, ones);
    return __fadd_rn(__fmul_rn(__fmul_rn(row_scale, scale), v), bias);
  }
};

__device__ __forceinline__ float wide_row_scale(const WideLaunch& d, int64_t row) {
  return d.a.row_scale != nullptr ? __ldg(d.a.row_scale + row) : 1.0f;
}

// A lane's elements, and the sum of the factors where products are odd.
struct WideSums {
  float sum[kWideElements] = {};
  float ones = 0.0f;

  __device__ __forceinline__ void add(const WideSums& piece) {
#pragma unroll
    for (int i = 0; i < kWideElements; ++i) sum[i] = __fadd_rn(sum[i], piece.sum[i]);
    ones = __fadd_rn(ones, piece.ones);
  }
  // sum = fma(factor, half, sum).
  template <class Elements, bool kOdd>
  __device__ __forceinline__ void add(const uint4& x, float factor) {
    const uint32_t word[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 half = Elements::values(word[k]);
      sum[2 * k] = __fmaf_rn(factor, half.x, sum[2 * k]);
      sum[2 * k + 1] = __fmaf_rn(factor, half.y, sum[2 * k + 1]);
    }
    if constexpr (kOdd) ones = __fadd_rn(ones, factor);
  }
};

// Lanes that walk through the edges of a row, all groups of a warp as far as the longest goes.
template <class Elements, bool kOdd, int kBatch>
struct WideWalk {
  static_assert(kWidePiece % kBatch == 0);
  const char* x;  // the lane's part of the first row
  const float* factors;
  uint32_t pitch;
  int32_t index[kBatch];  // of the next edges

  __device__ WideWalk(const WideTable& table, const char* own)
      : x(own), factors(table.factors), pitch(table.pitch) {}

  // Asks for the indices of the next batch of `left` edges.
  __device__ __forceinline__ void fetch(const int32_t* indices, int left) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (k < left) index[k] = __ldg(indices + k);
  }

  // The sums of `count` edges, the first batch of which was fetched, by pieces; `longest` is the
  // largest count of the warp. Calls fetch_next() when the last indices are in use.
  template <class Next>
  __device__ __forceinline__ WideSums add(const int32_t* indices, int count, int longest,
                                          const Next& fetch_next) {
    WideSums total;
#pragma unroll 1
    for (int piece = 0; piece < longest; piece += kWidePiece) {
      const int end = min(longest, piece + kWidePiece);
      WideSums sums;
#pragma unroll 1
      for (int first = piece; first < end; first += kBatch) {
        uint4 f[kBatch];
        float factor[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          // Absent edges have a factor and elements of 0, which change nothing.
          f[k] = make_uint4(0, 0, 0, 0);
          factor[k] = 0.0f;
          if (first + k < count) {
            const auto row = static_cast<uint32_t>(index[k]);
            f[k] = __ldg(reinterpret_cast<const uint4*>(x + uint64_t{row} * pitch));
            factor[k] = __ldg(factors + row);
          }
        }
        if (first + kBatch < longest)
          fetch(indices + first + kBatch, count - first - kBatch);
        else
          fetch_next();
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          if (first + k >= longest) break;
          sums.template add<Elements, kOdd>(f[k], factor[k]);
        }
      }
      total.add(sums);
    }
    return total;
  }
};

// The rows of a warp. blockIdx.y is the chunk of features.
template <class Elements, bool kOdd, int kLanes>
__device__ __forceinline__ void aggregate_short_wide(const WideLaunch& d) {
  constexpr int kGroups = kWarp / kLanes;
  const AggregateArgs& a = d.a;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int group = lane / kLanes, part = lane % kLanes;
  const int64_t warp = int64_t{blockIdx.x - d.long_blocks} * kWideWarps + threadIdx.x / kWarp;
  const int64_t first_row = warp * d.warp_rows;
  const auto rows = static_cast<int>(min(a.rows - first_row, int64_t{d.warp_rows}));
  if (rows <= 0) return;
  const int64_t own = wide_edge(a, first_row + min(lane, rows));
  const int64_t begin = __shfl_sync(kFullWarp, own, 0);
  const auto bound = static_cast<int>(own - begin);
  WideWalk<Elements, kOdd, wide_batch(kLanes)> walk(d.table, d.table.chunk(blockIdx.y) + part * 16);
  struct Row {
    const int32_t* indices;
    int degree;  // -1 where the row is not the group's to add up
  };
  const auto row_at = [&](int number) {
    const int first = __shfl_sync(kFullWarp, bound, min(number, rows));
    const int degree = __shfl_sync(kFullWarp, bound, min(number + 1, rows)) - first;
    return Row{a.indices + begin + first, number < rows && degree <= d.long_degree ? degree : -1};
  };
  Row row = row_at(group);
  walk.fetch(row.indices, row.degree);
  const int64_t feature = (int64_t{blockIdx.y} * kLanes + part) * kWideElements;
  wait_for_previous();
#pragma unroll 1
  for (int set = 0; set < rows; set += kGroups) {
    const Row next = row_at(set + kGroups + group);
    const int longest = __reduce_max_sync(kFullWarp, row.degree);
    const auto fetch_next = [&] { walk.fetch(next.indices, next.degree); };
    if (longest <= 0) fetch_next();
    WideSums total = walk.add(row.indices, row.degree, longest, fetch_next);
    if (row.degree >= 0) {
      const int64_t number = first_row + set + group;
      const float row_scale = wide_row_scale(d, number);
      float* to = a.out_float + number * a.features + feature;
#pragma unroll
      for (int i = 0; i < kWideElements; i += 4) {
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; ++k)
          v[k] = WideColumn::of(d, feature + i + k)
                     .template value<kOdd>(row_scale, total.sum[i + k], total.ones);
        if (d.vectors) {
          if (feature + i < a.features)
            *reinterpret_cast<float4*>(to + i) = make_float4(v[0], v[1], v[2], v[3]);
        } else {
#pragma unroll
          for (int k = 0; k < 4; ++k)
            if (feature + i + k < a.features) to[i + k] = v[k];
        }
      }
    }
    row = next;
  }
}

// A part of the features of every long row among each stride-th one: a piece eight lanes, then a
// thread a feature adds the pieces up.
template <class Elements, bool kOdd, int kLanes>
__device__ __forceinline__ void aggregate_long_wide(const WideLaunch& d) {
  __shared__ float part[kLongGroups][kLongFeatures + 1];
  __shared__ int64_t found[kWideThreads];
  __shared__ int count;
  const AggregateArgs& a = d.a;
  constexpr int kParts = kLanes / kLongLanes;
  constexpr int kTurn = kLongGroups * kWidePiece;
  const int64_t stride = d.long_blocks / kParts;
  const int own_part = static_cast<int>(blockIdx.x) % kParts;
  const int64_t first_feature = (int64_t{blockIdx.y} * kParts + own_part) * kLongFeatures;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / kLongLanes, lane = thread % kLongLanes;
  WideWalk<Elements, kOdd, wide_batch(kLanes)> walk(
      d.table, d.table.chunk(blockIdx.y) + (own_part * kLongLanes + lane) * 16);
  wait_for_previous();
  for (int64_t base = blockIdx.x / kParts; base < a.rows; base += stride * kWideThreads) {
    const int64_t own = base + thread * stride;
    const bool is_long = own < a.rows && wide_edge(a, own + 1) - wide_edge(a, own) > d.long_degree;
    if (!__syncthreads_or(is_long)) continue;
    if (thread == 0) count = 0;
    __syncthreads();
    if (is_long) found[atomicAdd(&count, 1)] = own;
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      const int64_t row = found[i], begin = wide_edge(a, row);
      const auto degree = static_cast<int>(wide_edge(a, row + 1) - begin);
      const int32_t* indices = a.indices + begin + group * kWidePiece;
      int left = degree - group * kWidePiece;
      float total = 0.0f, ones = 0.0f;
      walk.fetch(indices, min(left, kWidePiece));
      for (int turn = 0; turn < degree; turn += kTurn, left -= kTurn, indices += kTurn) {
        const WideSums sums = walk.add(indices, min(left, kWidePiece), kWidePiece, [&] {
          walk.fetch(indices + kTurn, min(left - kTurn, kWidePiece));
        });
#pragma unroll
        for (int k = 0; k < kWideElements; ++k) part[group][lane * kWideElements + k] = sums.sum[k];
        part[group][kLongFeatures] = sums.ones;
        __syncthreads();
        if (thread < kLongFeatures) {
          const int pieces = min((degree - turn + kWidePiece - 1) / kWidePiece, kLongGroups);
          for (int k = 0; k < pieces; ++k) {
            total = __fadd_rn(total, part[k][thread]);
            if constexpr (kOdd) ones = __fadd_rn(ones, part[k][kLongFeatures]);
          }
        }
        __syncthreads();
      }
      const int64_t feature = first_feature + thread;
      if (thread < kLongFeatures && feature < a.features)
        a.out_float[row * a.features + feature] =
            WideColumn::of(d, feature).template value<kOdd>(wide_row_scale(d, row), total, ones);
    }
    __syncthreads();
  }
}

template <class Elements, bool kOdd, int kLanes>
__global__ void __launch_bounds__(kWideThreads, wide_blocks(kLanes))
    aggregate_wide_kernel(const __grid_constant__ WideLaunch d) {
  // The next kernel starts behind this one: its few blocks would pile up on the multiprocessors
  // that are free first.
  if (blockIdx.x < d.long_blocks)
    aggregate_long_wide<Elements, kOdd, kLanes>(d);
  else
    aggregate_short_wide<Elements, kOdd, kLanes>(d);
}

}  // namespace bitgnn::cuda
