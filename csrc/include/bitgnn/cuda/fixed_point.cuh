// Images in 16-bit fixed point and products of their two bytes on the tensor cores.
#pragma once

#include "bitgnn/cuda/pack_rows.cuh"

namespace bitgnn::cuda {

// q of a value: the product with 1 / step is exact as long as that is a float, infinities are
// clamped and NaN becomes 0.
__device__ __forceinline__ int fixed_point(float x, float inverse_step) {
  return max(-32768, min(32767, __float2int_rn(__fmul_rn(x, inverse_step))));
}

template <class T>
__device__ __forceinline__ int to_fixed_point(T x, float inverse_step) {
  return fixed_point(to_value(x), inverse_step);
}

template <>
__device__ __forceinline__ int to_fixed_point<uint8_t>(uint8_t x, float) {
  return x;
}

// Elements next to each other in memory, read at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) FixedVector {
  T value[kWidth];
};

// q = 256 * high + low of four neighbours, `first` the lower two.
__device__ __forceinline__ uint32_t low_bytes(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x6420);
}

__device__ __forceinline__ uint32_t high_bytes(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x7531);
}

// Four weights of bits 0 to 3: bytes of +-1, or 0 from `count` on.
__device__ __forceinline__ uint32_t weight_bytes(uint32_t bits, int count = 4) {
  constexpr uint32_t kSpread = 0x00204081, kOnes = 0x01010101;
  const uint32_t valid = count >= 4 ? kOnes : ((1u << count) - 1u) * kSpread & kOnes;
  const uint32_t positive = (bits & 15u) * kSpread & valid;
  return positive | (positive ^ valid) * 0xffu;
}

// sum += a * b for 16 rows and 8 columns over 32 bytes; b is signed.
template <bool kSigned>
__device__ __forceinline__ void mma_bytes(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t low,
                                          uint32_t high) {
  if constexpr (kSigned) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};\n"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
  }
}

}  // namespace bitgnn::cuda
