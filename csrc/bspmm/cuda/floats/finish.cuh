// Epilogue of aggregations whose lanes each hold the sums of a few consecutive features of a row.
#pragma once

#include <type_traits>

#include "bspmm/cuda/values.cuh"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

// The row's factor, fetched long before it is needed.
__device__ __forceinline__ float row_factor(const AggregateArgs& a, int64_t row) {
  return a.row_scale != nullptr ? __ldg(a.row_scale + row) : 1.0f;
}

// Finishes features [first, first + kWidth) below `limit` of a row with factor `scale`. Called
// together by kGroup lanes, aligned in the warp, that hold adjacent features of one row.
template <class Sum, int kWidth, int kGroup>
__device__ __forceinline__ void finish_row(const AggregateArgs& a, int64_t row, bool exists,
                                           float scale, int64_t first, int64_t limit,
                                           const Sum (&sum)[kWidth]) {
  const int count = exists ? static_cast<int>(max(min(limit - first, static_cast<int64_t>(kWidth)),
                                                  static_cast<int64_t>(0)))
                           : 0;
  if constexpr (std::is_same_v<Sum, int32_t>) {
    if (a.out_int != nullptr) {
#pragma unroll
      for (int f = 0; f < kWidth; ++f)
        if (f < count) a.out_int[row * a.features + first + f] = sum[f];
      return;
    }
  }
  float value[kWidth];
#pragma unroll
  for (int f = 0; f < kWidth; ++f) {
    // As in aggregate_value; a factor of 1 changes nothing.
    value[f] = __fmul_rn(scale, static_cast<float>(sum[f]));
    if (a.bias != nullptr && f < count) value[f] = __fadd_rn(value[f], __ldg(a.bias + first + f));
  }
  if (a.out_float != nullptr) {
    float* out = a.out_float + row * a.features + first;
    if constexpr (kWidth % 4 == 0) {
      if (count == kWidth && reinterpret_cast<uintptr_t>(out) % sizeof(float4) == 0) {
#pragma unroll
        for (int f = 0; f < kWidth; f += 4)
          *reinterpret_cast<float4*>(out + f) =
              make_float4(value[f], value[f + 1], value[f + 2], value[f + 3]);
        return;
      }
    }
#pragma unroll
    for (int f = 0; f < kWidth; ++f)
      if (f < count) out[f] = value[f];
    return;
  }
  uint32_t bits = 0;
#pragma unroll
  for (int f = 0; f < kWidth; ++f)
    if (f < count && aggregate_bit(a, first + f, value[f])) bits |= 1u << f;
  constexpr int kLanesPerWord = kWidth * kGroup < kWordBits ? kGroup : kWordBits / kWidth;
  bits <<= first % kWordBits;
#pragma unroll
  for (int step = 1; step < kLanesPerWord; step *= 2)
    bits |= __shfl_xor_sync(kFullWarp, bits, step);
  if (count > 0 && first % kWordBits == 0)
    a.out_bits[row * words_for(a.features) + first / kWordBits] = static_cast<int32_t>(bits);
}

}  // namespace bitgnn::cuda::bspmm
