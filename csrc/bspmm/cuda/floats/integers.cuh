// Exact sums of int8 and int16 rows over a pattern. A warp owns a row and takes several edges at a
// time; elements are biased to be unsigned and added up packed in words, two sum words per word of
// the rows. Bound by the number of gathered pieces, of 16 to 128 bytes.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/floats/piece.cuh"

namespace bitgnn::cuda::bspmm {

// Sums of the words of a fragment: `all` sums whole words modulo 2^32, `odd` the odd elements; the
// even elements are what remains of `all`.
template <class Element>
struct PackedSums;

template <>
struct PackedSums<int8_t> {
  static constexpr int kElements = 16;
  static constexpr uint32_t kBias = 0x80808080u;
  static constexpr int kElementBias = 128;
  static constexpr int kCapacity = 256;  // fragments whose byte sums fit in half words

  uint32_t all[4] = {};
  uint32_t odd[4] = {};

  __device__ static uint32_t odd_bytes(uint32_t w) { return __byte_perm(w, 0, 0x4341); }
  __device__ void add(int word, uint32_t a, uint32_t b) {
    all[word] += a + b;
    odd[word] += odd_bytes(a) + odd_bytes(b);
  }
  __device__ void flush(int32_t (&sum)[kElements]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint32_t even = all[w] - (odd[w] << 8);
      sum[4 * w] += static_cast<int32_t>(even & 0xffffu);
      sum[4 * w + 1] += static_cast<int32_t>(odd[w] & 0xffffu);
      sum[4 * w + 2] += static_cast<int32_t>(even >> 16);
      sum[4 * w + 3] += static_cast<int32_t>(odd[w] >> 16);
      all[w] = odd[w] = 0;
    }
  }
};

template <>
struct PackedSums<int16_t> {
  static constexpr int kElements = 8;
  static constexpr uint32_t kBias = 0x80008000u;
  static constexpr int kElementBias = 32768;
  static constexpr int kCapacity = 0x7fffffff;  // sums are exact modulo 2^32

  uint32_t all[4] = {};
  uint32_t odd[4] = {};

  __device__ void add(int word, uint32_t a, uint32_t b) {
    all[word] += a + b;
    odd[word] += (a >> 16) + (b >> 16);
  }
  __device__ void flush(int32_t (&sum)[kElements]) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      sum[2 * w] += static_cast<int32_t>(all[w] - (odd[w] << 16));
      sum[2 * w + 1] += static_cast<int32_t>(odd[w]);
      all[w] = odd[w] = 0;
    }
  }
};

// Copies rows like copy_table_kernel, biasing each element.
template <class Element>
__global__ void __launch_bounds__(kTableThreads)
    copy_biased_kernel(const __grid_constant__ AggregateArgs a, int64_t chunks, int lanes,
                       char* table) {
  constexpr int kElements = PackedSums<Element>::kElements;
  const int64_t id = static_cast<int64_t>(blockIdx.x) * kTableThreads + threadIdx.x;
  const int64_t row = id / (chunks * lanes);
  if (row >= a.cols) return;
  const int64_t chunk = id % (chunks * lanes) / lanes;
  const int lane = static_cast<int>(id % lanes);
  const int64_t first = (chunk * lanes + lane) * kElements;
  const auto* x = static_cast<const Element*>(a.x) + row * a.x_stride + first;
  Element v[kElements] = {};
#pragma unroll
  for (int i = 0; i < kElements; ++i)
    if (first + i < a.features) v[i] = x[i];
  uint4 f;
  memcpy(&f, v, sizeof(f));
  constexpr uint32_t kBias = PackedSums<Element>::kBias;
  *reinterpret_cast<uint4*>(table + ((chunk * a.cols + row) * lanes + lane) * kFragmentBytes) =
      make_uint4(f.x ^ kBias, f.y ^ kBias, f.z ^ kBias, f.w ^ kBias);
}

// A warp's work on a row: kLanes lanes take an edge's piece, kSlots edges at a time.
template <class Element, int kLanes>
struct IntegerWarp {
  using Packed = PackedSums<Element>;
  static constexpr int kElements = Packed::kElements;
  static constexpr int kSlots = kWarp / kLanes;
  static constexpr int kBatch = 8;
  static constexpr int kWindow = kSlots * kBatch;
  static constexpr int kLoads = kWindow / kWarp;
  // Number of slots that end up with their own features, and features per lane.
  static constexpr int kSplit = kSlots < kElements ? kSlots : kElements;
  static constexpr int kWidth = kElements / kSplit;
  static constexpr int kFinishing = kLanes * kSplit;  // lanes that hold features at the end

  // Sums the windows `first`, `first + step`, ... of a row; lane l < kFinishing gets the kWidth
  // features from kWidth * l on.
  __device__ static void sum_row(const AggregateArgs& a, const char* x, const RowSpan& span,
                                 int first, int step, int32_t (&result)[kWidth]) {
    const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
    const int slot = in_warp / kLanes;
    const int32_t* indices = a.indices + span.begin;
    const int degree = span.degree;
    const int windows = (degree + kWindow - 1) / kWindow;
    const int full_windows = degree / kWindow;
    int32_t sum[kElements] = {};
    Packed packed;
    int held = 0;
    int32_t next[kLoads];
    const auto prefetch = [&](int window) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        next[i] = __ldg(indices + min(window * kWindow + i * kWarp + in_warp, degree - 1));
    };
    const auto add_window = [&](int window, auto full) {
      int32_t index[kLoads];
#pragma unroll
      for (int i = 0; i < kLoads; ++i) index[i] = next[i];
      prefetch(window + step);
      uint4 f[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int32_t j =
            __shfl_sync(kFullWarp, index[b * kSlots / kWarp], b * kSlots % kWarp + slot);
        f[b] = make_uint4(0, 0, 0, 0);
        if (full || window * kWindow + b * kSlots + slot < degree)
          f[b] = __ldg(reinterpret_cast<const uint4*>(
              x + static_cast<uint64_t>(static_cast<uint32_t>(j)) * (kLanes * kFragmentBytes)));
      }
#pragma unroll
      for (int b = 0; b < kBatch; b += 2) {
        packed.add(0, f[b].x, f[b + 1].x);
        packed.add(1, f[b].y, f[b + 1].y);
        packed.add(2, f[b].z, f[b + 1].z);
        packed.add(3, f[b].w, f[b + 1].w);
      }
      held += kBatch;
      if (held == Packed::kCapacity) {
        packed.flush(sum);
        held = 0;
      }
    };
    if (first < windows) prefetch(first);
    int w = first;
    for (; w < full_windows; w += step) add_window(w, std::true_type());
    for (; w < windows; w += step) add_window(w, std::false_type());
    packed.flush(sum);
    reduce(sum, in_warp, slot, result);
  }

 private:
  // Adds up the slots; each step hands over half of the features.
  __device__ static void reduce(int32_t (&sum)[kElements], int in_warp, int slot,
                                int32_t (&result)[kWidth]) {
    int bit = kSlots / 2;
#pragma unroll
    for (int half = kElements / 2; half >= kWidth; half /= 2, bit /= 2) {
      const bool upper = (slot & bit) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const int32_t given = upper ? sum[i] : sum[i + half];
        const int32_t kept = upper ? sum[i + half] : sum[i];
        sum[i] = kept + __shfl_xor_sync(kFullWarp, given, bit * kLanes);
      }
    }
    for (; bit > 0; bit /= 2) sum[0] += __shfl_xor_sync(kFullWarp, sum[0], bit * kLanes);
    const int source = in_warp % kSplit * (kSlots / kSplit) * kLanes + in_warp / kSplit % kLanes;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result[i] = __shfl_sync(kFullWarp, sum[i], source);
  }
};

// Rows of d.table in pieces of kLanes fragments; a warp per row, a block per heavy row.
template <class Element, int kLanes>
__global__ void __launch_bounds__(kDenseThreads)
    aggregate_integers_kernel(const __grid_constant__ DenseLaunch d) {
  using Warp = IntegerWarp<Element, kLanes>;
  constexpr int kWidth = Warp::kWidth;
  __shared__ int32_t part[kDenseWarps][kWarp][kWidth];
  const AggregateArgs& a = d.a;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int in_warp = static_cast<int>(threadIdx.x) % kWarp;
  const BlockRole role(d);
  const int64_t chunk = role.chunk;
  const char* x = d.table.x + chunk * d.table.chunk_bytes + in_warp % kLanes * kFragmentBytes;
  const int64_t first = chunk * kLanes * Warp::kElements + in_warp * kWidth;
  const int64_t limit = min(a.features, (chunk + 1) * kLanes * Warp::kElements);
  const bool holds = in_warp < Warp::kFinishing;
  const auto finish = [&](const RowSpan& span, int32_t (&sum)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] -= span.degree * PackedSums<Element>::kElementBias;
    finish_row<int32_t, kWidth, kWarp>(a, span.row, holds, row_factor(a, span.row), first, limit,
                                       sum);
  };
  int32_t sum[kWidth];
  if (!role.heavy) {
    const RowSpan span =
        light_row_at(a, d.order, static_cast<int64_t>(role.place) * kDenseWarps + warp);
    if (span.row < 0) return;
    Warp::sum_row(a, x, span, 0, 1, sum);
    finish(span, sum);
    return;
  }
  for_heavy_rows(a, d.order, role.place, [&](const RowSpan& span) {
    Warp::sum_row(a, x, span, warp, kDenseWarps, sum);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWidth; ++i) part[warp][in_warp][i] = sum[i];
    __syncthreads();
    if (warp != 0) return;
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      for (int other = 1; other < kDenseWarps; ++other) sum[i] += part[other][in_warp][i];
    finish(span, sum);
  });
}

}  // namespace bitgnn::cuda::bspmm
