// ADD and CONCAT of rows: element-wise, bound by memory.
#pragma once

#include "pack/cuda/expand.cuh"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int64_t kMaxTabledWords = 1024;      // words per row whose masks fit in a block
constexpr int64_t kMaxTabledThresholds = 128;  // and whose thresholds do

__device__ __forceinline__ uint32_t load_word(const int32_t* p) {
  return static_cast<uint32_t>(__ldg(p));
}

__device__ __forceinline__ float threshold_at(const float* threshold, int64_t feature) {
  return threshold != nullptr ? __ldg(threshold + feature) : 0.0f;
}

// Float rows of a + b.
struct AddedRows {
  static constexpr bool kScales = false;
  static constexpr bool kFewForms = true;
  using Value = float;
  const float *a, *b;
  int64_t size;

  struct Row {
    const float *a, *b;
    __device__ __forceinline__ float load(int c, int back) const {
      const int column = c * kWarp - back;
      return __fadd_rn(__ldg(a + column), __ldg(b + column));
    }
    __device__ __forceinline__ void advance(int words) {
      a += words * kWarp;
      b += words * kWarp;
    }
  };
  __device__ __forceinline__ Row row(int64_t i, int64_t column) const {
    return {a + i * size + column, b + i * size + column};
  }
  __device__ __forceinline__ Row next(const Row& row) const { return {row.a + size, row.b + size}; }
};

// Float rows of a followed by b.
struct JoinedRows {
  static constexpr bool kScales = false;
  static constexpr bool kFewForms = true;
  using Value = float;
  const float *a, *b;
  int64_t a_size, b_size;

  struct Row {
    const float *a, *b;  // where the column would be in each
    int64_t left;        // columns of a left from here on
    __device__ __forceinline__ float load(int c, int back) const {
      const int column = c * kWarp - back;
      return __ldg((column < left ? a : b) + column);
    }
    __device__ __forceinline__ void advance(int words) {
      a += words * kWarp;
      b += words * kWarp;
      left -= words * kWarp;
    }
  };
  __device__ __forceinline__ Row row(int64_t i, int64_t column) const {
    return {a + i * a_size + column, b + i * b_size + column - a_size, a_size - column};
  }
  __device__ __forceinline__ Row next(const Row& row) const {
    return {row.a + a_size, row.b + b_size, row.left};
  }
};

// Values of a_scale * a + b_scale * b.
struct AddedBits {
  ExpandedBits a, b;

  template <int kVector>
  __device__ __forceinline__ void load(int64_t row, uint32_t column, float (&v)[kVector]) const {
    float other[kVector];
    a.load(row, column, v);
    b.load(row, column, other);
#pragma unroll
    for (int j = 0; j < kVector; ++j) v[j] = __fadd_rn(v[j], other[j]);
  }
};

// Values of a followed by those of b.
struct JoinedBits {
  ExpandedBits a, b;
  uint32_t a_size;

  template <int kVector>
  __device__ __forceinline__ void load(int64_t row, uint32_t column, float (&v)[kVector]) const {
    const bool in_a = column < a_size;
    const ExpandedBits source{in_a ? a.words : b.words, in_a ? a.scale : b.scale,
                              in_a ? a.pitch : b.pitch};
    source.load(row, in_a ? column : column - a_size, v);
  }
};

// Bits of a sum by its operands' bits: both set, only a's, only b's, neither.
struct SumMasks {
  uint32_t both, only_a, only_b, neither;

  __device__ __forceinline__ uint32_t of(uint32_t a, uint32_t b) const {
    return (a & b & both) | (a & ~b & only_a) | (~a & b & only_b) | (~(a | b) & neither);
  }
};

// Words of a + b >= threshold, where the sum is 2, 0 or -2, from a table of masks per column.
__global__ void __launch_bounds__(kFlatThreads)
    add_bits_kernel(const int32_t* a, const int32_t* b, FlatRange range, int64_t features,
                    const float* threshold, int32_t* out) {
  __shared__ uint32_t table[3][kMaxTabledWords];
  const int lane = threadIdx.x % kWarp;
  for (int w = threadIdx.x / kWarp; w < range.size; w += kFlatThreads / kWarp) {
    const int column = w * kWarp + lane;
    const bool exists = column < features;
    const float t = exists ? __ldg(threshold + column) : 0.0f;
#pragma unroll
    for (int sum = 0; sum < 3; ++sum) {
      const uint32_t mask = __ballot_sync(kFullWarp, exists && 2.0f - 2.0f * sum >= t);
      if (lane == 0) table[sum][w] = mask;
    }
  }
  __syncthreads();
  for_flat<1>(
      range,
      [&](int64_t i, int64_t, uint32_t column) {
        const uint32_t mixed = table[1][column];
        const SumMasks masks{table[0][column], mixed, mixed, table[2][column]};
        return masks.of(load_word(a + i), load_word(b + i));
      },
      [&](int64_t i, uint32_t word) { out[i] = static_cast<int32_t>(word); });
}

// Words of a_scale * a + b_scale * b >= threshold: each feature takes one of a row's four sums.
__global__ void __launch_bounds__(kFlatThreads)
    add_compared_bits_kernel(ExpandedBits a, ExpandedBits b, FlatRange range, int64_t features,
                             const float* threshold, int32_t* out) {
  __shared__ float table[kWarp][kMaxTabledThresholds];  // adjacent words in different banks
  const bool tabled = range.size <= kMaxTabledThresholds;
  const float none = __int_as_float(0x7fffffff);  // NaN: no bit is set
  if (tabled) {
    for (int i = threadIdx.x; i < range.size * kWarp; i += kFlatThreads)
      table[i % kWarp][i / kWarp] = i < features ? threshold_at(threshold, i) : none;
  }
  __syncthreads();
  for_flat<1>(
      range,
      [&](int64_t i, int64_t row, uint32_t column) {
        const float x = a.row_scale(row), y = b.row_scale(row);
        const float both = __fadd_rn(x, y), only_a = __fsub_rn(x, y), only_b = __fsub_rn(y, x),
                    neither = __fsub_rn(-x, y);
        const uint32_t a_word = load_word(a.words + i), b_word = load_word(b.words + i);
        uint32_t word = 0;
#pragma unroll
        for (int j = 0; j < kWarp; ++j) {
          const int64_t feature = static_cast<int64_t>(column) * kWarp + j;
          const float t = tabled               ? table[j][column]
                          : feature < features ? threshold_at(threshold, feature)
                                               : none;
          const bool in_b = (b_word >> j & 1u) != 0;
          const float sum =
              (a_word >> j & 1u) != 0 ? (in_b ? both : only_a) : (in_b ? only_b : neither);
          if (sum >= t) word |= 1u << j;
        }
        return word;
      },
      [&](int64_t i, uint32_t word) { out[i] = static_cast<int32_t>(word); });
}

// a | b: the sum of two signs is negative only if both are -1.
template <class Word>
__global__ void __launch_bounds__(kFlatThreads)
    or_kernel(const Word* a, const Word* b, int64_t count, Word* out) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kFlatThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x; i < count;
       i += step) {
    if constexpr (sizeof(Word) == sizeof(int4)) {
      const int4 x = __ldg(a + i), y = __ldg(b + i);
      out[i] = make_int4(x.x | y.x, x.y | y.y, x.z | y.z, x.w | y.w);
    } else {
      out[i] = __ldg(a + i) | __ldg(b + i);
    }
  }
}

// Words of the features of a followed by those of b; words of b straddle two of the result.
__global__ void __launch_bounds__(kFlatThreads)
    concat_bits_kernel(const int32_t* a, const int32_t* b, int64_t a_size, int64_t b_size,
                       FlatRange range, int32_t* out) {
  const int64_t a_words = word_count(a_size), b_words = word_count(b_size);
  const int first =
      static_cast<int>(a_size / kWordBits);  // the first word that holds features of b
  const int shift = static_cast<int>(a_size % kWordBits);
  for_flat<1>(
      range,
      [&](int64_t, int64_t row, uint32_t column) {
        const int w = static_cast<int>(column) - first;  // the word of b whose low bits land here
        const int32_t* b_word = b + row * b_words + w;
        const uint32_t word = column < a_words ? load_word(a + row * a_words + column) : 0u;
        const uint32_t low = w > 0 && shift > 0 ? load_word(b_word - 1) : 0u;
        const uint32_t high = w >= 0 && w < b_words ? load_word(b_word) : 0u;
        return word | __funnelshift_l(low, high, shift);
      },
      [&](int64_t i, uint32_t word) { out[i] = static_cast<int32_t>(word); });
}

}  // namespace bitgnn::cuda::pack
