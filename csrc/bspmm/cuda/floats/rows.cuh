// How a lane reads and adds up its share of a neighbour's row: floats, sign bits, integers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::bspmm {

template <int kBytes>
struct Raw;
template <>
struct Raw<1> {
  using Type = unsigned char;
};
template <>
struct Raw<2> {
  using Type = unsigned short;
};
template <>
struct Raw<4> {
  using Type = unsigned int;
};
template <>
struct Raw<16> {
  using Type = uint4;
};

// Loads if count > place; otherwise the result is undefined. In PTX, so that a predicate lives for
// one load only: the compiler would keep a batch of them and run out of registers.
__device__ __forceinline__ uint4 load_below(const uint4* p, int place, int count) {
  uint4 v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %5, %6;\n @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];}"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p), "r"(count), "r"(place));
  return v;
}
__device__ __forceinline__ unsigned load_below(const unsigned* p, int place, int count) {
  unsigned v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %2, %3;\n @p ld.global.nc.u32 %0, [%1];}"
      : "=r"(v)
      : "l"(p), "r"(count), "r"(place));
  return v;
}
__device__ __forceinline__ unsigned short load_below(const unsigned short* p, int place,
                                                     int count) {
  unsigned short v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %2, %3;\n @p ld.global.nc.u16 %0, [%1];}"
      : "=h"(v)
      : "l"(p), "r"(count), "r"(place));
  return v;
}
__device__ __forceinline__ unsigned char load_below(const unsigned char* p, int place, int count) {
  unsigned v;
  asm("{.reg .pred p;\n setp.gt.s32 p, %2, %3;\n @p ld.global.nc.u8 %0, [%1];}"
      : "=r"(v)
      : "l"(p), "r"(count), "r"(place));
  return static_cast<unsigned char>(v);
}

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(__half v) { return __half2float(v); }
__device__ __forceinline__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

// A lane's share of a piece: kFeatures consecutive elements, aligned to their total size.
template <class Element, int kFeatures>
struct ElementRows {
  static constexpr int kWidth = kFeatures;
  using Fragment = typename Raw<sizeof(Element) * kFeatures>::Type;
  template <int kLanes>
  static constexpr int kPieceBytes = kLanes * static_cast<int>(sizeof(Fragment));

  __device__ static int offset(int lane) { return lane * static_cast<int>(sizeof(Fragment)); }
  // True if the lane's fragment is its own.
  __device__ static bool owns(int /*lane*/) { return true; }
};

// Float rows, multiplied by a factor per edge if kFactors is set.
template <class Element, int kFeatures, bool kFactors>
struct FloatRows : ElementRows<Element, kFeatures> {
  using Sum = float;
  using Fragment = typename ElementRows<Element, kFeatures>::Fragment;
  static constexpr bool kScaled = kFactors;

  __device__ static float term(float x, float factor) { return kScaled ? __fmul_rn(factor, x) : x; }
  __device__ static void add(float (&sum)[kFeatures], const Fragment& fragment, float factor,
                             int /*lane*/) {
    Element x[kFeatures];
    memcpy(x, &fragment, sizeof(x));
#pragma unroll
    for (int f = 0; f < kFeatures; ++f) sum[f] = __fadd_rn(sum[f], term(to_float(x[f]), factor));
  }
  // The same for one feature of a whole piece.
  __device__ static void add_feature(float& sum, const char* piece, int feature, float factor) {
    sum = __fadd_rn(sum, term(to_float(reinterpret_cast<const Element*>(piece)[feature]), factor));
  }
};

template <class Element, int kFeatures>
struct IntegerRows : ElementRows<Element, kFeatures> {
  using Sum = int32_t;
  using Fragment = typename ElementRows<Element, kFeatures>::Fragment;
  static constexpr bool kScaled = false;

  __device__ static void add(int32_t (&sum)[kFeatures], const Fragment& fragment, float /*factor*/,
                             int /*lane*/) {
    Element x[kFeatures];
    memcpy(x, &fragment, sizeof(x));
#pragma unroll
    for (int f = 0; f < kFeatures; ++f) sum[f] += x[f];
  }
  __device__ static void add_feature(int32_t& sum, const char* piece, int feature,
                                     float /*factor*/) {
    sum += reinterpret_cast<const Element*>(piece)[feature];
  }
};

// Half a word of a packed row: the factor with the sign given by each feature's bit.
struct SignRows {
  static constexpr int kWidth = 16;
  static constexpr int kLanesPerWord = kWordBits / kWidth;
  using Sum = float;
  using Fragment = unsigned int;
  static constexpr bool kScaled = true;
  template <int kLanes>
  static constexpr int kPieceBytes = kLanes / kLanesPerWord * static_cast<int>(sizeof(Fragment));

  __device__ static int offset(int lane) {
    return lane / kLanesPerWord * static_cast<int>(sizeof(Fragment));
  }
  __device__ static bool owns(int lane) { return lane % kLanesPerWord == 0; }
  // The top bit of `clear` is the complement of the feature's bit.
  __device__ static float term(unsigned clear, float factor) {
    return __uint_as_float(__float_as_uint(factor) ^ (clear & 0x80000000u));
  }
  __device__ static void add(float (&sum)[kWidth], const Fragment& word, float factor, int lane) {
    // A choice, not a changed sign bit: the compiler turns seven bits at once into predicates,
    // which leaves two instructions a feature instead of three.
    const unsigned own = word >> (kWidth * (lane % kLanesPerWord));
    const float negative = -factor;
#pragma unroll
    for (int f = 0; f < kWidth; ++f)
      sum[f] = __fadd_rn(sum[f], (own & (1u << f)) != 0 ? factor : negative);
  }
  __device__ static void add_feature(float& sum, const char* piece, int feature, float factor) {
    const unsigned word = reinterpret_cast<const unsigned*>(piece)[feature / kWordBits];
    sum = __fadd_rn(sum, term(~word << (31 - feature % kWordBits), factor));
  }
};

}  // namespace bitgnn::cuda::bspmm
