// 16-bit fixed-point conversion, and tensor-core products of the two bytes.
#pragma once

#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::first_layers {

// Calls f with a zero of an element type that supports fixed point.
template <class F>
cudaError_t with_fixed_type(FloatType type, const F& f) {
  return type == FloatType::kUInt8 ? f(uint8_t{}) : with_quantised_type(type, f);
}

// q of two values: the product with 1 / step is exact; the conversion clamps and maps NaN to 0.
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

// q of two values, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t fixed_pair(T first, T second, float inverse_step) {
  return fixed_pair(__fmul_rn(pack::to_value(first), inverse_step),
                    __fmul_rn(pack::to_value(second), inverse_step));
}

template <>
__device__ __forceinline__ uint32_t fixed_pair<uint8_t>(uint8_t first, uint8_t second, float) {
  return static_cast<uint32_t>(first) | static_cast<uint32_t>(second) << 16;
}

// Consecutive elements in memory, loaded at once.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) FixedVector {
  T value[kWidth];
};

// The bytes of four neighbouring q = 256 * high + low; `first` holds the lower two.
__device__ __forceinline__ uint32_t low_bytes(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x6420);
}

__device__ __forceinline__ uint32_t high_bytes(uint32_t first, uint32_t second) {
  return __byte_perm(first, second, 0x7531);
}

// Union of the bits set in several q, as they are and with negative q inverted; tells how few bytes
// hold every q.
struct FixedBits {
  uint32_t values = 0, sizes = 0;  // for pairs of q

  __device__ __forceinline__ void add(uint32_t first, uint32_t second) {
    const auto signs = [](uint32_t pair) {
      uint32_t spread;
      asm("prmt.b32 %0, %1, 0, 0xbb99;\n" : "=r"(spread) : "r"(pair));
      return spread;
    };
    values |= first | second;
    sizes |= first ^ signs(first);
    sizes |= second ^ signs(second);
  }

  // Combines both halves into the argument of FixedForm.
  __device__ __forceinline__ uint32_t all() const {
    return ((values | values >> 16) & 0xffffu) | ((sizes | sizes << 16) & 0xffff0000u);
  }
};

// The bytes of q to multiply: the high bytes are not needed if all q fit in 8 bits once their
// common trailing zero bits are dropped.
enum class FixedDigits : int { kUnsigned, kSigned, kBoth };

struct FixedForm {
  FixedDigits digits = FixedDigits::kUnsigned;
  int zeros = 0;  // bits dropped: sums must be multiplied by 2^zeros

  __device__ FixedForm() {}

  // From the result of FixedBits::all(): value bits in the low half, sizes in the high half.
  __device__ __forceinline__ explicit FixedForm(uint32_t all) {
    constexpr int kMostZeros = 8;  // what is left then has 8 bits
    const uint32_t values = all & 0xffffu, sizes = all >> 16;
    const bool negative = (values & 0x8000u) != 0;
    if (sizes >= 128 && (negative || values >= 256))
      zeros = min(__ffs(static_cast<int>(values)) - 1, kMostZeros);
    if (sizes >> zeros < 128) {
      digits = FixedDigits::kSigned;
    } else if (!negative && values >> zeros < 256) {
      digits = FixedDigits::kUnsigned;
    } else {
      digits = FixedDigits::kBoth;
      zeros = 0;
    }
  }
};

// The low bytes of q >> zeros, for four q that FixedForm reduced to 8 bits.
__device__ __forceinline__ uint32_t shifted_bytes(uint32_t low, uint32_t high, int zeros) {
  const uint32_t kept = (0xffu >> zeros) * 0x01010101u;
  return (low >> zeros & kept) | (high << (8 - zeros) & ~kept);
}

// Expands bits 0 to 3 into four weights: bytes of +-1, or 0 from `count` on.
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

}  // namespace bitgnn::cuda::first_layers
