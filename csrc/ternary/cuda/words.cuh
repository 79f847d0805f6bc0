// Quantises sixteen floats per lane to ternary bits; two lanes make one word of each plane.
#pragma once

#include <type_traits>

#include "ternary/cuda/bits.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kLaneFloats = 16;

// Forces a value to be computed here; the compiler would otherwise sink the arithmetic to its use.
template <class V>
__device__ __forceinline__ void make_ready(V*& pointer) {
  asm volatile("" : "+l"(pointer));
}
__device__ __forceinline__ void make_ready(int& value) { asm volatile("" : "+r"(value)); }

// Bits of a lane's 16 floats, spread over both halves of a word; merged() combines them.
struct LaneBits {
  uint32_t pos, neg;

  static __device__ __forceinline__ uint32_t merged(uint32_t halves) {
    return halves | (halves >> 16);
  }
};

// The 16-bit type that values are stored in most often.
template <class T>
using HalfOf = std::conditional_t<sizeof(T) == 2, T, __half>;

template <class T>
struct LanePiece {
  typename TernaryLimits<T>::Piece first, second;
};

// Loads two whole pieces of eight floats, of which `left` floats are still inside the row.
template <class T>
__device__ __forceinline__ LanePiece<T> load_lane_piece(const T* x, int left) {
  return {left > 0 ? load_piece(x) : TernaryLimits<T>::nothing(),
          left > kPieceFloats ? load_piece(x + kPieceFloats) : TernaryLimits<T>::nothing()};
}

template <class T>
__device__ __forceinline__ LaneBits lane_bits(const TernaryLimits<T>& limits,
                                              const LanePiece<T>& x) {
  LaneBits bits{0, 0};
  if constexpr (sizeof(T) == 2) {
    uint32_t above[2][4], below[2][4];
    limits.masks(x.first, above[0], below[0]);
    limits.masks(x.second, above[1], below[1]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t places = (1u << (2 * i)) | (2u << (2 * i + 16));
      bits.pos |= above[i / 4][i % 4] & places;
      bits.neg |= below[i / 4][i % 4] & places;
    }
  } else {
    const PieceBits low = limits.bits(x.first), high = limits.bits(x.second);
    bits.pos = low.pos | (high.pos << 8);
    bits.neg = low.neg | (high.neg << 8);
  }
  return bits;
}

// Combines a pair of lanes: the even lane gets the word of pos, the odd lane that of neg.
__device__ __forceinline__ uint32_t exchange_bits(const LaneBits& bits, int lane) {
  const bool odd = lane % 2 != 0;
  const uint32_t keep = LaneBits::merged(odd ? bits.neg : bits.pos);
  const uint32_t got = LaneBits::merged(__shfl_xor_sync(kFullWarp, odd ? bits.pos : bits.neg, 1));
  return odd ? __byte_perm(got, keep, 0x5410) : __byte_perm(keep, got, 0x5410);
}

}  // namespace bitgnn::cuda::ternary
