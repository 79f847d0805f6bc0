// Epilogue of a warp's slab of 8-bit products: turns 16 rows of int32 sums into bits or floats.
#pragma once

#include "bmm/cuda/epilogue.cuh"
#include "int8/arguments.h"

namespace bitgnn::cuda::int8 {

// kBits compares the sums as integers; kValueBits compares floats, kSumBits those whose addend
// comes as NeighbourSums.
enum class Int8Output : int { kFloat, kBits, kValueBits, kSumBits };

inline Int8Output int8_output(const Int8BmmArgs& a) {
  if (a.out_float != nullptr) return Int8Output::kFloat;
  return a.addend == nullptr ? Int8Output::kBits : Int8Output::kValueBits;
}

template <Int8Output kOutput>
using Int8OutputConstant = std::integral_constant<Int8Output, kOutput>;

// Calls f with the output as a compile-time constant.
template <class F>
cudaError_t with_int8_output(const Int8BmmArgs& a, const F& f) {
  switch (int8_output(a)) {
    case Int8Output::kFloat:
      return f(Int8OutputConstant<Int8Output::kFloat>{});
    case Int8Output::kBits:
      return f(Int8OutputConstant<Int8Output::kBits>{});
    default:
      return f(Int8OutputConstant<Int8Output::kValueBits>{});
  }
}

// Terms of the columns from `first` on: `term` is the largest sum below the integer threshold, or
// one that lies just outside of all sums; `bias` is the shift. Missing scales and shifts are 1 and
// -0, which change no value. With NeighbourSums, `term` is their bias. Whole warps participate.
template <Int8Output kOutput, int kColumns>
__device__ __forceinline__ void load_columns(bmm::ColumnTable<kColumns>& table,
                                             const Int8BmmArgs& a, int64_t first, int thread,
                                             int threads) {
  for (int at = thread; at < kColumns; at += threads) {
    const int64_t column = first + at;
    const bool exists = column < a.out_features;
    if constexpr (kOutput == Int8Output::kBits) {
      const int64_t most = a.size * kLargestCode * kLargestCode;
      const int64_t threshold = exists && a.threshold != nullptr ? __ldg(a.threshold + column) : 0;
      table.term[at] = static_cast<int32_t>(max(-most - 1, min(most, threshold - 1)));
    } else {
      table.scale[at] = exists && a.scale != nullptr ? __ldg(a.scale + column) : 1.0f;
      table.bias[at] = exists && a.shift != nullptr ? __ldg(a.shift + column) : -0.0f;
    }
    if constexpr (kOutput == Int8Output::kSumBits)
      table.term[at] = __float_as_int(
          exists && a.neighbours.bias != nullptr ? __ldg(a.neighbours.bias + column) : -0.0f);
    if constexpr (kOutput == Int8Output::kValueBits || kOutput == Int8Output::kSumBits)
      table.threshold[at] =
          exists && a.value_threshold != nullptr ? __ldg(a.value_threshold + column) : 0.0f;
    if constexpr (kOutput != Int8Output::kFloat) {
      const bool flips = kOutput == Int8Output::kBits && exists && a.flip != nullptr;
      const uint32_t flip = __ballot_sync(kFullWarp, flips && a.flip[column]);
      const uint32_t exist = __ballot_sync(kFullWarp, exists);
      if (at % kWarp == 0) {
        table.flip[at / kWarp] = flip;
        table.exists[at / kWarp] = exist;
      }
    }
  }
}

__device__ __forceinline__ float int8_value(float scale, float shift, int32_t dot) {
  return __fadd_rn(__fmul_rn(scale, __int2float_rn(dot)), shift);
}

__device__ __forceinline__ void add_values(float2& value, float2 addend) {
  value.x = __fadd_rn(value.x, addend.x);
  value.y = __fadd_rn(value.y, addend.y);
}

// Whether two neighbouring columns are 8-byte aligned wherever they start at an even one.
__device__ __forceinline__ bool has_pairs(const Int8BmmArgs& a) {
  return (((reinterpret_cast<uintptr_t>(a.out_float) | reinterpret_cast<uintptr_t>(a.addend)) & 7) |
          (a.out_features & 1)) == 0;
}

// Addends of columns `column` and `column` + 1 of a row that exists, if they exist themselves.
__device__ __forceinline__ float2 load_addends(const Int8BmmArgs& a, bool pairs, int64_t row,
                                               int64_t column) {
  float2 found = make_float2(0.0f, 0.0f);
  const float* from = a.addend + row * a.out_features + column;
  if (pairs) {
    if (column < a.out_features) found = __ldcs(reinterpret_cast<const float2*>(from));
  } else {
    if (column < a.out_features) found.x = __ldcs(from);
    if (column + 1 < a.out_features) found.y = __ldcs(from + 1);
  }
  return found;
}

// Values of 32 columns from `first` of the table on, for rows g and g + 8 of the slab at `row`:
// element [j][half][e] is column 8 j + 2 q + e.
using SlabValues = float2[4][2];

template <int kColumns>
__device__ __forceinline__ void scaled_values(SlabValues& value,
                                              const bmm::ColumnTable<kColumns>& table,
                                              const int32_t (&sum)[kColumns / 2], int first,
                                              int lane) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int at = first + j * 8 + fragment_quad(lane) * 2;
    const float2 scale = *reinterpret_cast<const float2*>(table.scale + at);
    const float2 shift = *reinterpret_cast<const float2*>(table.bias + at);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t* of = sum + (first / 8 + j) * 4 + half * 2;
      value[j][half] =
          make_float2(int8_value(scale.x, shift.x, of[0]), int8_value(scale.y, shift.y, of[1]));
    }
  }
}

// The same plus their addends, if any, from global memory.
template <int kColumns>
__device__ __forceinline__ void slab_values(SlabValues& value, const Int8BmmArgs& a,
                                            const bmm::ColumnTable<kColumns>& table,
                                            const int32_t (&sum)[kColumns / 2], int first,
                                            int64_t row, int64_t column, int lane) {
  SlabValues addend;
  if (a.addend != nullptr) {
    const bool pairs = has_pairs(a);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int64_t at = row + fragment_group(lane) + i % 2 * 8;
      addend[i / 2][i % 2] = make_float2(0.0f, 0.0f);
      if (at < a.rows)
        addend[i / 2][i % 2] =
            load_addends(a, pairs, at, column + first + i / 2 * 8 + fragment_quad(lane) * 2);
    }
  }
  scaled_values(value, table, sum, first, lane);
  if (a.addend == nullptr) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) add_values(value[i / 2][i % 2], addend[i / 2][i % 2]);
}

// Writes them to rows that exist from `row` on and columns that exist from `column` on.
__device__ __forceinline__ void store_values(const Int8BmmArgs& a, const SlabValues& value,
                                             int64_t row, int64_t column, int lane) {
  const bool pairs = has_pairs(a);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int64_t at_row = row + fragment_group(lane) + i % 2 * 8;
    const int64_t at = column + i / 2 * 8 + fragment_quad(lane) * 2;
    if (at_row >= a.rows || at >= a.out_features) continue;
    float* to = a.out_float + at_row * a.out_features + at;
    const float2 v = value[i / 2][i % 2];
    if (pairs) {
      *reinterpret_cast<float2*>(to) = v;
    } else {
      to[0] = v.x;
      if (at + 1 < a.out_features) to[1] = v.y;
    }
  }
}

// Sets the bits of 32 columns from 4 kFirst pairs of the part's columns on, see part_bits().
template <int kFirst>
__device__ __forceinline__ void compare_values(uint32_t& bits, const SlabValues& value,
                                               const float* limits, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = kFirst * 4 + i / 2;
    const float2 limit =
        *reinterpret_cast<const float2*>(limits + at * 8 + fragment_quad(lane) * 2);
    if (value[i / 2][i % 2].x >= limit.x) bits |= 1u << (16 * (i % 2) + 2 * at);
    if (value[i / 2][i % 2].y >= limit.y) bits |= 1u << (16 * (i % 2) + 2 * at + 1);
  }
}

// Bits of 64 columns from `first` of the table on, or 32 if there are no more, as
// bmm::store_parts() takes them.
template <Int8Output kOutput, int kColumns>
__device__ __forceinline__ uint32_t part_bits(const Int8BmmArgs& a,
                                              const bmm::ColumnTable<kColumns>& table,
                                              const int32_t (&sum)[kColumns / 2], int first,
                                              int64_t row, int64_t column, int lane) {
  constexpr int kPairs = kColumns < 64 ? kColumns / 8 : 8;
  uint32_t bits = 0;
  if constexpr (kOutput == Int8Output::kBits) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int2 below =
          *reinterpret_cast<const int2*>(table.term + first + j * 8 + fragment_quad(lane) * 2);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (sum[(first / 8 + j) * 4 + i] > (i % 2 == 0 ? below.x : below.y))
          bits |= 1u << (16 * (i / 2) + 2 * j + i % 2);
      }
    }
  } else {
    SlabValues value;
    slab_values(value, a, table, sum, first, row, column, lane);
    compare_values<0>(bits, value, table.threshold + first, lane);
    if constexpr (kPairs == 8) {
      slab_values(value, a, table, sum, first + 32, row, column, lane);
      compare_values<1>(bits, value, table.threshold + first, lane);
    }
  }
  return bits;
}

__device__ __forceinline__ bmm::SlabTarget bits_target(const Int8BmmArgs& a, int64_t row,
                                                       int64_t column) {
  const int64_t words = (a.out_features + kWordBits - 1) / kWordBits;
  return {a.out_bits + row * words + column / kWordBits,
          words,
          a.rows - row,
          a.out_features - column,
          nullptr,
          0};
}

// Writes the slab from row `row` and column `column`, a multiple of 32, on: sum[4 j + i] is element
// i of the accumulator fragment of columns 8 j to 8 j + 7. All lanes of the warp participate.
template <Int8Output kOutput, int kColumns>
__device__ __forceinline__ void store_slab(const Int8BmmArgs& a,
                                           const bmm::ColumnTable<kColumns>& table,
                                           const int32_t (&sum)[kColumns / 2], int64_t row,
                                           int64_t column, int lane) {
  if constexpr (kOutput == Int8Output::kFloat) {
#pragma unroll
    for (int first = 0; first < kColumns; first += 32) {
      if (column + first >= a.out_features) break;
      SlabValues value;
      slab_values(value, a, table, sum, first, row, column, lane);
      store_values(a, value, row, column + first, lane);
    }
  } else {
    uint32_t bits[bmm::slab_parts(kColumns)];
#pragma unroll
    for (int part = 0; part < bmm::slab_parts(kColumns); ++part)
      bits[part] = part_bits<kOutput, kColumns>(a, table, sum, part * 64, row, column, lane);
    bmm::store_parts(bits_target(a, row, column), table, bits, lane);
  }
}

}  // namespace bitgnn::cuda::int8
