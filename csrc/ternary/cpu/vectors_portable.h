// Primitives of the ternary kernels in plain C++; the reference for vectors_avx2.h and
// vectors_avx512.h.
#pragma once

#include "core/cpu/float_types.h"
#include "core/cpu/simd/vectors_portable.h"

namespace bitgnn::cpu::portable {

// Bit i is a[i] < b[i]; false for NaN.
inline uint32_t lt_mask(const Lanes& a, const Lanes& b) {
  uint32_t bits = 0;
  for (int i = 0; i < kWordBits; ++i) bits |= static_cast<uint32_t>(a.v[i] < b.v[i]) << i;
  return bits;
}

// Loads 32 elements of any type as floats.
template <class T>
inline Lanes load_values(const T* p) {
  Lanes r;
  for (int i = 0; i < kWordBits; ++i) r.v[i] = to_float(p[i]);
  return r;
}

// Rounds to the nearest float16, ties to even, by adding a float so large that the sum's mantissa
// ends where that of the half does.
inline uint16_t half_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t sign = bits >> 16 & 0x8000u, twice = bits + bits;
  if (twice > 0xff000000u) return static_cast<uint16_t>(sign | 0x7e00u);
  float base = (std::fabs(x) * 0x1.0p+112f) * 0x1.0p-110f;
  uint32_t bias = twice & 0xff000000u;
  if (bias < 0x71000000u) bias = 0x71000000u;
  base = float_from_bits((bias >> 1) + 0x07800000u) + base;
  std::memcpy(&bits, &base, sizeof(bits));
  return static_cast<uint16_t>(sign | ((bits >> 13 & 0x7c00u) + (bits & 0x0fffu)));
}

inline void store_halves(uint16_t* p, const Lanes& a) {
  for (int i = 0; i < kWordBits; ++i) p[i] = half_bits(a.v[i]);
}

// 2 a - b.
inline IntLanes twice_less(IntLanes a, int32_t b) {
  for (int i = 0; i < kWordBits; ++i) a.v[i] = 2 * a.v[i] - b;
  return a;
}

constexpr int kSelectRows = 4;

// Calls emit(r, counts) with the 32 counts popcount(panel ? pos[r] : neg[r]) of each row r.
template <int R, class Emit>
inline void select_dots(const int32_t* pos, const int32_t* neg, int64_t stride,
                        const int32_t* panel, int64_t words, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    IntLanes counts{};
    for (int64_t w = 0; w < words; ++w) {
      const auto n = static_cast<uint32_t>(neg[r * stride + w]);
      const uint32_t either = n ^ static_cast<uint32_t>(pos[r * stride + w]);
      for (int l = 0; l < kWordBits; ++l) {
        const auto b = static_cast<uint32_t>(panel[w * kWordBits + l]);
        counts.v[l] += static_cast<int32_t>(popcount(n ^ (b & either)));
      }
    }
    emit(r, counts);
  }
}

// Calls emit(r, dots) with the 32 dot products of each row r and a panel; see PairPanels.
template <int R, class Emit>
inline void pair_dots(const int32_t* pos, const int32_t* neg, int64_t stride, const int32_t* panel,
                      int64_t words, const Emit& emit) {
  for (int r = 0; r < R; ++r) {
    IntLanes dots{};
    for (int64_t w = 0; w < words; ++w) {
      const auto p = static_cast<uint32_t>(pos[r * stride + w]);
      const uint32_t held = p | static_cast<uint32_t>(neg[r * stride + w]);
      const int32_t* of = panel + w * 2 * kWordBits;
      for (int l = 0; l < kWordBits; ++l) {
        const uint32_t both = held & static_cast<uint32_t>(of[l]);
        const uint32_t apart = both & (p ^ static_cast<uint32_t>(of[kWordBits + l]));
        dots.v[l] +=
            static_cast<int32_t>(popcount(both)) - 2 * static_cast<int32_t>(popcount(apart));
      }
    }
    emit(r, dots);
  }
}

// Adjacent words of a row, processed together; SetBits sums up their set bits.
using RowWords = Bits2;

inline RowWords select(const RowWords& w, const RowWords& pos, const RowWords& neg) {
  return neg ^ (w & (pos ^ neg));
}

struct SetBits {
  uint64_t total;

  void clear() { total = 0; }
  void add(const RowWords& bits) {
    uint64_t x = bits.v[0];
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    total += (x * 0x0101010101010101u) >> 56;
  }
  int32_t sum() const { return static_cast<int32_t>(total); }
};

}  // namespace bitgnn::cpu::portable
