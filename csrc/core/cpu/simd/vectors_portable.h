// Portable vector primitives in plain C++; the reference for vectors_avx2.h and vectors_avx512.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/common.h"

namespace bitgnn::cpu::portable {

// 32 floats, one per bit of a word: the unit in which rows are packed and scales are summed.
struct Lanes {
  float v[kWordBits];
};

inline Lanes zero_lanes() { return Lanes{}; }
inline Lanes load_lanes(const float* p) {
  Lanes r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline Lanes load_lanes(const float* p, int64_t count) {
  Lanes r{};
  std::memcpy(r.v, p, static_cast<size_t>(count) * sizeof(float));
  return r;
}
inline void store_lanes(float* p, const Lanes& a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline void store_lanes(float* p, const Lanes& a, int64_t count) {
  std::memcpy(p, a.v, static_cast<size_t>(count) * sizeof(float));
}
// A plain store: there are no portable streaming stores.
inline void stream_lanes(float* p, const Lanes& a) { store_lanes(p, a); }
inline void stream_fence() {}
inline Lanes add(Lanes a, const Lanes& b) {
  for (int i = 0; i < kWordBits; ++i) a.v[i] += b.v[i];
  return a;
}
inline Lanes sub(Lanes a, const Lanes& b) {
  for (int i = 0; i < kWordBits; ++i) a.v[i] -= b.v[i];
  return a;
}
inline Lanes mul(Lanes a, const Lanes& b) {
  for (int i = 0; i < kWordBits; ++i) a.v[i] *= b.v[i];
  return a;
}
inline Lanes abs(Lanes a) {
  for (int i = 0; i < kWordBits; ++i) a.v[i] = std::fabs(a.v[i]);
  return a;
}
inline Lanes broadcast_lanes(float value) {
  Lanes r;
  for (int i = 0; i < kWordBits; ++i) r.v[i] = value;
  return r;
}
// 16 floats, for rows of at most 16.
struct HalfLanes {
  float v[kWordBits / 2];
};

inline HalfLanes half_lanes(float value) {
  HalfLanes r;
  for (float& v : r.v) v = value;
  return r;
}
inline HalfLanes load_half(const float* p, int64_t count) {
  HalfLanes r{};
  std::memcpy(r.v, p, static_cast<size_t>(count) * sizeof(float));
  return r;
}
inline HalfLanes add(HalfLanes a, const HalfLanes& b) {
  for (int i = 0; i < kWordBits / 2; ++i) a.v[i] += b.v[i];
  return a;
}
inline HalfLanes mul(HalfLanes a, const HalfLanes& b) {
  for (int i = 0; i < kWordBits / 2; ++i) a.v[i] *= b.v[i];
  return a;
}
inline Lanes widen(const HalfLanes& a) { return load_lanes(a.v, kWordBits / 2); }

struct IntLanes {
  int32_t v[kWordBits];
};

inline IntLanes load_ints(const int32_t* p) {
  IntLanes r;
  std::memcpy(r.v, p, sizeof(r.v));
  return r;
}
inline void store_ints(int32_t* p, const IntLanes& a) { std::memcpy(p, a.v, sizeof(a.v)); }
inline Lanes to_lanes(const IntLanes& a) {
  Lanes r;
  for (int i = 0; i < kWordBits; ++i) r.v[i] = static_cast<float>(a.v[i]);
  return r;
}
// Halves even numbers.
inline IntLanes halved(IntLanes a) {
  for (int32_t& v : a.v) v /= 2;
  return a;
}
// Bit i is a[i] >= b[i]; false for NaN.
inline uint32_t ge_mask(const Lanes& a, const Lanes& b) {
  uint32_t bits = 0;
  for (int i = 0; i < kWordBits; ++i) bits |= static_cast<uint32_t>(a.v[i] >= b.v[i]) << i;
  return bits;
}

inline uint32_t ge_mask(const HalfLanes& a, const HalfLanes& b) {
  uint32_t bits = 0;
  for (int i = 0; i < kWordBits / 2; ++i) bits |= static_cast<uint32_t>(a.v[i] >= b.v[i]) << i;
  return bits;
}

inline uint32_t popcount(uint32_t x) {
  x -= (x >> 1) & 0x55555555u;
  x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
  x = (x + (x >> 4)) & 0x0f0f0f0fu;
  return (x * 0x01010101u) >> 24;
}

// value where the bit is set, -value where it is not.
inline Lanes signed_lanes(uint32_t bits, float value) {
  Lanes r;
  for (int i = 0; i < kWordBits; ++i) r.v[i] = (bits >> i) & 1u ? value : -value;
  return r;
}

// Vector of N 64-bit words of bits, with the sum and carry of a full adder.
template <int N>
struct BitVector {
  static constexpr int64_t kWords = 2 * N;
  using Tail = int64_t;  // valid 32-bit words
  uint64_t v[N];

  static Tail tail(int64_t words) { return words < kWords ? words : kWords; }
  static BitVector zero() { return BitVector{}; }
  static BitVector load(const int32_t* p, Tail t) {
    BitVector r{};
    if (t == kWords) {
      std::memcpy(r.v, p, sizeof(r.v));
    } else {
      std::memcpy(r.v, p, static_cast<size_t>(t) * sizeof(int32_t));
    }
    return r;
  }
  static void store(int32_t* p, BitVector a, Tail t) {
    std::memcpy(p, a.v, static_cast<size_t>(t) * sizeof(int32_t));
  }
  static BitVector ones() {
    BitVector r;
    for (int i = 0; i < N; ++i) r.v[i] = ~uint64_t{0};
    return r;
  }
  friend BitVector operator&(BitVector a, const BitVector& b) {
    for (int i = 0; i < N; ++i) a.v[i] &= b.v[i];
    return a;
  }
  friend BitVector operator|(BitVector a, const BitVector& b) {
    for (int i = 0; i < N; ++i) a.v[i] |= b.v[i];
    return a;
  }
  friend BitVector operator^(BitVector a, const BitVector& b) {
    for (int i = 0; i < N; ++i) a.v[i] ^= b.v[i];
    return a;
  }
  static BitVector sum(const BitVector& a, const BitVector& b, const BitVector& c) {
    return a ^ b ^ c;
  }
  static BitVector carry(const BitVector& a, const BitVector& b, const BitVector& c) {
    return (a & b) | (c & (a ^ b));
  }
};

using Bits2 = BitVector<1>;
using Bits4 = BitVector<2>;
using Bits8 = BitVector<4>;
using Bits16 = BitVector<8>;

// 2 count - degree for each feature of a word; bit p of a feature's count is its bit in plane p.
inline IntLanes signed_sums(const int32_t* planes, int64_t plane_stride, int count,
                            int64_t degree) {
  uint32_t sums[kWordBits];
  for (int l = 0; l < kWordBits; ++l) sums[l] = 0u - static_cast<uint32_t>(degree);
  for (int p = 0; p < count; ++p) {
    const uint32_t bits = static_cast<uint32_t>(planes[p * plane_stride]);
    for (int l = 0; l < kWordBits; ++l) sums[l] += ((bits >> l) & 1u) << (p + 1);
  }
  IntLanes result;
  std::memcpy(result.v, sums, sizeof(sums));
  return result;
}

// The same for two words at once; vector versions use bytes, if the degree fits.
constexpr int64_t kMaxByteDegree = 127;

struct BytePair {
  IntLanes word[2];

  const IntLanes& first() const { return word[0]; }
  const IntLanes& second() const { return word[1]; }
};

inline BytePair signed_byte_sums(const int32_t* planes, int64_t plane_stride, int count,
                                 int64_t degree) {
  return {{signed_sums(planes, plane_stride, count, degree),
           signed_sums(planes + 1, plane_stride, count, degree)}};
}

inline void prefetch(const void* p) {
#if defined(__GNUC__)
  __builtin_prefetch(p);
#else
  (void)p;
#endif
}

// Sums of 32 integers kept as int16 or int32.
// Adds, wrapping on overflow.
inline IntLanes add(const IntLanes& a, const IntLanes& b) {
  IntLanes r;
  for (int i = 0; i < kWordBits; ++i)
    r.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]));
  return r;
}
// Loads the first `count` integers, then zeros.
template <class T>
inline IntLanes load_some_ints(const T* p, int64_t count) {
  IntLanes r{};
  for (int64_t i = 0; i < std::min(count, kWordBits); ++i) r.v[i] = p[i];
  return r;
}
// Stores the first `count` integers, saturated to int16 where needed.
inline void store_some_ints(int32_t* p, const IntLanes& a, int64_t count) {
  for (int64_t i = 0; i < std::min(count, kWordBits); ++i) p[i] = a.v[i];
}
inline void store_some_ints(int16_t* p, const IntLanes& a, int64_t count) {
  for (int64_t i = 0; i < std::min(count, kWordBits); ++i)
    p[i] = static_cast<int16_t>(std::clamp(a.v[i], -32768, 32767));
}

}  // namespace bitgnn::cpu::portable
