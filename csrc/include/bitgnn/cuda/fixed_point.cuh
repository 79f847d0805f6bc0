// Images in 16-bit fixed point and products of their two bytes on the tensor cores.
#pragma once

#include "bitgnn/cuda/pack_rows.cuh"

namespace bitgnn::cuda {

// q of a value: the product with 1 / step is exact, the conversion clamps and makes NaN 0.
__device__ __forceinline__ uint32_t fixed_pair(float first, float second) {
  uint32_t pair;
  asm("{\n.reg .s16 a, b;\n"
      "cvt.rni.s16.f32 a, %1;\n"
      "cvt.rni.s16.f32 b, %2;\n"
      "mov.b32 %0, {a, b};\n}\n"
      : "=r"(pair)
      : "f"(first), "f"(second));
  return pair;
}

// q of two values, the first in the lower half.
template <class T>
__device__ __forceinline__ uint32_t fixed_pair(T first, T second, float inverse_step) {
  return fixed_pair(__fmul_rn(to_value(first), inverse_step),
                    __fmul_rn(to_value(second), inverse_step));
}

template <>
__device__ __forceinline__ uint32_t fixed_pair<uint8_t>(uint8_t first, uint8_t second, float) {
  return static_cast<uint32_t>(first) | static_cast<uint32_t>(second) << 16;
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

// Every byte 0xff where its sign bit is set, else 0.
__device__ __forceinline__ uint32_t byte_signs(uint32_t bytes) {
  uint32_t signs;
  asm("prmt.b32 %0, %1, 0, 0xba98;\n" : "=r"(signs) : "r"(bytes));
  return signs;
}

// Four weights of bits 0 to 3: bytes of +-1, or 0 from `count` on.
__device__ __forceinline__ uint32_t weight_bytes(uint32_t bits, int count = 4) {
  constexpr uint32_t kSpread = 0x00204081, kOnes = 0x01010101;
  const uint32_t valid = count >= 4   ? kOnes
                         : count <= 0 ? 0u
                                      : ((1u << count) - 1u) * kSpread & kOnes;
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
