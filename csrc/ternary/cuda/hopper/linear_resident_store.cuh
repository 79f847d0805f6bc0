// Epilogue of the product with resident weights: turns sums into values and stores them as vectors
// of adjacent columns, which lanes hold because the weights are stored in accumulator order.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/values.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kResidentColumns = 256;  // per block

__device__ __forceinline__ uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

// Packs four values for storing: two or four words.
template <class T>
__device__ __forceinline__ void pack_values(uint32_t* to, const float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (std::is_same_v<T, __half>) {
      const __half2 two = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
      memcpy(&to[i], &two, 4);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      const __nv_bfloat162 two = __floats2bfloat162_rn(v[2 * i], v[2 * i + 1]);
      memcpy(&to[i], &two, 4);
    } else {
      for (int k = 2 * i; k < 2 * i + 2; ++k)
        to[k] = std::is_same_v<T, float> ? __float_as_uint(v[k])
                                         : static_cast<uint32_t>(__float2int_rn(v[k]));
    }
  }
}

// Of every 32 columns, lane 4 g + q holds columns 8 q to 8 q + 7 of rows g and g + 8. Sums are
// turned into floats by adding them to the bits of one, which is exact since no sum reaches 2^22.
// Without kScales all columns share one scale; without kBias there is no bias. These variants save
// the per-value reads of shared memory that bound the epilogue while it competes with wgmma.
template <class T, bool kScales, bool kBias>
__device__ __forceinline__ void store_resident(uint32_t terms, const TernaryBmmArgs& a,
                                               const int32_t (&sum)[kResidentColumns / 2],
                                               const int32_t (&difference)[2], int64_t row,
                                               int64_t column, int lane) {
  constexpr float kShift = 12582912.0f;                    // 1.5 * 2^23
  constexpr int kWords = static_cast<int>(sizeof(T)) * 2;  // per eight values
  const float offset[2] = {kShift + static_cast<float>(difference[0]),
                           kShift + static_cast<float>(difference[1])};
  const auto columns =
      static_cast<int>(min(a.out_features - column, static_cast<int64_t>(kResidentColumns)));
  row += fragment_group(lane);
  const bool inside[2] = {row < a.rows, row + 8 < a.rows};
  T* const out = static_cast<T*>(a.out) + row * a.out_features + column + fragment_quad(lane) * 8;
  T* const below = out + 8 * a.out_features;
  const uint32_t joint = load_shared(terms + kResidentColumns * 4).x;
  terms += fragment_quad(lane) * 32;
#pragma unroll
  for (int first = 0; first < kResidentColumns; first += 32) {
    if (first >= columns) break;
    uint32_t packed[2][kWords];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t at = terms + (first + half * 4) * 4;
      const uint4 term = load_shared(at);
      uint4 scale = make_uint4(joint, joint, joint, joint), bias = make_uint4(0, 0, 0, 0);
      if constexpr (kScales) scale = load_shared(at + kResidentColumns * 4);
      if constexpr (kBias) bias = load_shared(at + kResidentColumns * 8);
      const uint32_t t[4] = {term.x, term.y, term.z, term.w};
      const uint32_t s[4] = {scale.x, scale.y, scale.z, scale.w};
      const uint32_t b[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int32_t acc = sum[(first / 8 + half * 2 + i / 2) * 4 + 2 * r + i % 2];
          const auto shifted = static_cast<uint32_t>(2 * acc) + t[i];
          const float dot = __fsub_rn(__uint_as_float(shifted), offset[r]);
          v[i] = std::is_same_v<T, int32_t> ? dot : __fmul_rn(__uint_as_float(s[i]), dot);
          if constexpr (kBias) v[i] = __fadd_rn(v[i], __uint_as_float(b[i]));
        }
        pack_values<T>(packed[r] + half * kWords / 2, v);
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!inside[r]) continue;
#pragma unroll
      for (int i = 0; i < kWords; i += 4)
        reinterpret_cast<uint4*>((r == 0 ? out : below) + first)[i / 4] =
            make_uint4(packed[r][i], packed[r][i + 1], packed[r][i + 2], packed[r][i + 3]);
    }
  }
}

template <class T>
__device__ __forceinline__ void store_resident(uint32_t terms, const TernaryBmmArgs& a,
                                               const int32_t (&sum)[kResidentColumns / 2],
                                               const int32_t (&difference)[2], int64_t row,
                                               int64_t column, int lane) {
  if constexpr (std::is_same_v<T, int32_t>) {
    store_resident<T, false, false>(terms, a, sum, difference, row, column, lane);
  } else if (a.bias != nullptr) {
    store_resident<T, true, true>(terms, a, sum, difference, row, column, lane);
  } else if (a.w_scale != nullptr && a.w_scale_stride != 0) {
    store_resident<T, true, false>(terms, a, sum, difference, row, column, lane);
  } else {
    store_resident<T, false, false>(terms, a, sum, difference, row, column, lane);
  }
}

}  // namespace bitgnn::cuda::ternary
