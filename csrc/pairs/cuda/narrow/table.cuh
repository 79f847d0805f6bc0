// Rows of narrow integers, gathered as one piece with their factor: how elements are packed into
// words and become floats, and how lanes share a row.
#pragma once

#include "bspmm/narrow_sums.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::pairs {

// Elements are the halves of products, biased to be unsigned. The lowest bits of a word become the
// mantissa of 2^23 + u, and one subtraction leaves the element: two instructions, where a
// conversion would take the slowest unit.
constexpr uint32_t kMantissaBase = 0x4b000000u;  // 2^23 as float32
constexpr float kMantissaOne = 8388608.0f;

// Four bytes per word, for products of up to 255 features.
struct ByteElements {
  static constexpr int kPerWord = 4;
  static constexpr int kBits = 8;
  static constexpr int64_t kMostFeatures = kMostByteFeatures;

  // sum += factor * element, with one rounding each.
  __device__ static void add(float* sum, uint32_t word, float factor) {
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      const float biased = __uint_as_float(__byte_perm(word, kMantissaBase, 0x7440 | i));
      sum[i] = __fmaf_rn(factor, __fadd_rn(biased, -(kMantissaOne + 128.0f)), sum[i]);
    }
  }
};

// Three 10-bit elements per word, for products of up to 1023 features.
struct TenBitElements {
  static constexpr int kPerWord = 3;
  static constexpr int kBits = 10;
  static constexpr int64_t kMostFeatures = 1023;

  __device__ static void add(float* sum, uint32_t word, float factor) {
    constexpr uint32_t kMask = 0x3ff;
    constexpr float kBias = 512.0f, kShift = 1024.0f;
    const float first = __uint_as_float((word & kMask) | kMantissaBase);
    // Left in place: 1024 times the element, with a factor smaller by as much.
    const float second = __uint_as_float((word & (kMask << kBits)) | kMantissaBase);
    const float third = __uint_as_float((word >> (2 * kBits)) | kMantissaBase);
    sum[0] = __fmaf_rn(factor, __fadd_rn(first, -(kMantissaOne + kBias)), sum[0]);
    sum[1] = __fmaf_rn(__fmul_rn(factor, 1.0f / kShift),
                       __fadd_rn(second, -(kMantissaOne + kBias * kShift)), sum[1]);
    sum[2] = __fmaf_rn(factor, __fadd_rn(third, -(kMantissaOne + kBias)), sum[2]);
  }
};

// Two 16-bit elements per word, for products of up to 65535 features.
struct ShortElements {
  static constexpr int kPerWord = 2;
  static constexpr int kBits = 16;
  static constexpr int64_t kMostFeatures = kMostShortFeatures;

  __device__ static void add(float* sum, uint32_t word, float factor) {
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      const float biased =
          __uint_as_float(__byte_perm(word, kMantissaBase, i == 0 ? 0x7410 : 0x7432));
      sum[i] = __fmaf_rn(factor, __fadd_rn(biased, -(kMantissaOne + 32768.0f)), sum[i]);
    }
  }
};

template <int kWords>
struct RowFragment;
template <>
struct RowFragment<2> {
  using Type = uint2;
};
template <>
struct RowFragment<4> {
  using Type = uint4;
};

// Loads a fragment that exists. Of any other the last word is 0 and the rest undefined: it holds
// some finite elements, and a factor of 0 if fragments have one.
template <class Fragment>
__device__ __forceinline__ Fragment load_fragment(const void* p, bool exists);

template <>
__device__ __forceinline__ uint2 load_fragment(const void* p, bool exists) {
  uint2 v;
  v.y = 0;
  asm volatile("{.reg .pred p;\n setp.ne.s32 p, %3, 0;\n @p ld.global.nc.v2.u32 {%0, %1}, [%2];}"
               : "=r"(v.x), "+r"(v.y)
               : "l"(p), "r"(static_cast<int>(exists)));
  return v;
}

template <>
__device__ __forceinline__ uint4 load_fragment(const void* p, bool exists) {
  uint4 v;
  v.w = 0;
  asm volatile(
      "{.reg .pred p;\n setp.ne.s32 p, %5, 0;\n"
      " @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "+r"(v.w)
      : "l"(p), "r"(static_cast<int>(exists)));
  return v;
}

// Place of a row's factor: none, the last word of each lane's fragment, which saves a shuffle, or
// the last word of the row, which leaves room for more elements; kApart where this word belongs to
// none of the fragments in question.
enum class FactorPlace : int { kNone, kEach, kLast, kApart };

// A row of kLanes fragments of kWords words each; kUsed elements per lane are added up.
template <class Elements_, int kWords_, int kLanes_, FactorPlace kFactor_, int kUsed_>
struct NarrowRow {
  using Elements = Elements_;
  using Fragment = typename RowFragment<kWords_>::Type;
  static constexpr int kWords = kWords_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kPitchBytes = kLanes * kWords * 4;
  static constexpr FactorPlace kFactor = kFactor_;
  static constexpr int kUsed = kUsed_;
  static constexpr int kUsedWords = (kUsed + Elements::kPerWord - 1) / Elements::kPerWord;
  static constexpr int kFeatures =
      kLanes * kUsed - (kFactor == FactorPlace::kLast ? Elements::kPerWord : 0);

  __host__ __device__ static constexpr bool holds_factor(int lane, int word) {
    return word == kWords - 1 &&
           (kFactor == FactorPlace::kEach || (kFactor == FactorPlace::kLast && lane == kLanes - 1));
  }
};

// One fragment of rows, as rows of a single lane.
template <class Row>
struct NarrowPart : Row {
  static constexpr int kLanes = 1;
  static constexpr FactorPlace kFactor =
      Row::kFactor == FactorPlace::kLast ? FactorPlace::kApart : Row::kFactor;
  static constexpr int kFeatures = Row::kUsed;
};

// The integer at a place of a word.
template <class Elements>
__device__ __forceinline__ int32_t element(uint32_t word, int place) {
  constexpr int32_t kBias = 1 << (Elements::kBits - 1);
  constexpr uint32_t kMask = (1u << Elements::kBits) - 1;
  return static_cast<int32_t>(word >> (place * Elements::kBits) & kMask) - kBias;
}

}  // namespace bitgnn::cuda::pairs
