// Quantises eight floats at a time to ternary or boolean bits, comparing in the floats' own type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda/common.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kPieceFloats = 8;  // quantised by a lane at a time: one byte per plane

// Bits of eight floats, spread over both halves of a word; byte() combines them.
struct PieceBits {
  uint32_t pos, neg;

  static __device__ __forceinline__ uint32_t byte(uint32_t halves) {
    return (halves | (halves >> 16)) & 0xffu;
  }
  __device__ __forceinline__ int count() const { return __popc(pos | neg); }
};

// Takes one bit from each of eight 16-bit masks held in four words.
__device__ __forceinline__ uint32_t gather_masks(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return (a & 0x00020001u) | (b & 0x00080004u) | (c & 0x00200010u) | (d & 0x00800040u);
}

// Thresholds: +1 where x >= high = scale / 2, -1 where x < low = -scale / 2. Both are rounded up to
// the type of x, which changes no comparison: no value of that type lies between a threshold and
// its rounded-up value.
template <class T>
struct TernaryLimits;

template <>
struct TernaryLimits<float> {
  float high, low;
  struct Piece {
    float4 first, second;
  };
  __device__ explicit TernaryLimits(float scale) : high(0.5f * scale), low(-0.5f * scale) {}
  static __device__ __forceinline__ Piece nothing() {
    const float nan = __int_as_float(-1);
    return {make_float4(nan, nan, nan, nan), make_float4(nan, nan, nan, nan)};
  }
  __device__ __forceinline__ PieceBits bits(const Piece& x) const {
    const float v[8] = {x.first.x,  x.first.y,  x.first.z,  x.first.w,
                        x.second.x, x.second.y, x.second.z, x.second.w};
    PieceBits result{0, 0};
#pragma unroll
    for (int i = 0; i < kPieceFloats; ++i) {
      result.pos |= v[i] >= high ? 1u << i : 0u;
      result.neg |= v[i] < low ? 1u << i : 0u;
    }
    return result;
  }
};

// Thresholds of a 16-bit type; Two is __half2 or __nv_bfloat162.
template <class Two>
struct HalfLimits {
  Two high, low;
  using Piece = uint4;
  static __device__ __forceinline__ Piece nothing() { return make_uint4(~0u, ~0u, ~0u, ~0u); }
  // 16-bit masks, all ones where the comparison holds.
  __device__ __forceinline__ void masks(const Piece& x, uint32_t (&above)[4],
                                        uint32_t (&below)[4]) const {
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Two v;
      memcpy(&v, &words[i], sizeof(v));
      above[i] = __hge2_mask(v, high);
      below[i] = __hlt2_mask(v, low);
    }
  }
  __device__ __forceinline__ PieceBits bits(const Piece& x) const {
    uint32_t above[4], below[4];
    masks(x, above, below);
    return {gather_masks(above[0], above[1], above[2], above[3]),
            gather_masks(below[0], below[1], below[2], below[3])};
  }
};

template <>
struct TernaryLimits<__half> : HalfLimits<__half2> {
  __device__ explicit TernaryLimits(float scale)
      : HalfLimits{__half2half2(__float2half_ru(0.5f * scale)),
                   __half2half2(__float2half_ru(-0.5f * scale))} {}
};

template <>
struct TernaryLimits<__nv_bfloat16> : HalfLimits<__nv_bfloat162> {
  __device__ explicit TernaryLimits(float scale)
      : HalfLimits{__bfloat162bfloat162(__float2bfloat16_ru(0.5f * scale)),
                   __bfloat162bfloat162(__float2bfloat16_ru(-0.5f * scale))} {}
};

// Loads that the compiler does not move: they stay after the wait for the previous kernel and ahead
// of work meant to overlap with them. (Loads through the read-only cache may be hoisted.)
__device__ __forceinline__ uint4 load_in_place(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_in_place(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];\n" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
__device__ __forceinline__ uint32_t load_in_place(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];\n" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ int32_t load_in_place(const int32_t* p) {
  return static_cast<int32_t>(load_in_place(reinterpret_cast<const uint32_t*>(p)));
}
__device__ __forceinline__ float load_in_place(const float* p) {
  return __uint_as_float(load_in_place(reinterpret_cast<const uint32_t*>(p)));
}

// Loads a whole piece from a 16-byte aligned address.
template <class T>
__device__ __forceinline__ typename TernaryLimits<T>::Piece load_piece(const T* x) {
  if constexpr (sizeof(T) == 4) {
    const uint4 first = load_in_place(reinterpret_cast<const uint4*>(x));
    const uint4 second = load_in_place(reinterpret_cast<const uint4*>(x) + 1);
    typename TernaryLimits<T>::Piece piece;
    memcpy(&piece.first, &first, sizeof(first));
    memcpy(&piece.second, &second, sizeof(second));
    return piece;
  } else {
    return load_in_place(reinterpret_cast<const uint4*>(x));
  }
}

// Loads the first `count` floats of a piece at any alignment; the rest is NaN, which sets no bit.
template <class T>
__device__ __forceinline__ typename TernaryLimits<T>::Piece load_part(const T* x, int64_t count) {
  typename TernaryLimits<T>::Piece piece = TernaryLimits<T>::nothing();
  T v[kPieceFloats];
  static_assert(sizeof(piece) == sizeof(v), "a piece is eight floats");
  memcpy(v, &piece, sizeof(v));
#pragma unroll
  for (int i = 0; i < kPieceFloats; ++i)
    if (i < count) v[i] = x[i];
  memcpy(&piece, v, sizeof(piece));
  return piece;
}

// Piece of a row of `cols` floats, starting at `column`. kAligned: rows are 16-byte aligned.
template <bool kAligned, class T>
__device__ __forceinline__ typename TernaryLimits<T>::Piece piece_of_row(const T* row,
                                                                         int64_t column,
                                                                         int64_t cols) {
  if (column >= cols) return TernaryLimits<T>::nothing();
  if (kAligned && column + kPieceFloats <= cols) return load_piece(row + column);
  return load_part(row + column, cols - column);
}

}  // namespace bitgnn::cuda::ternary
