// Vector primitives that AVX2 and AVX-512 write alike, on vectors of 8 or 16 floats; same contract
// as vectors_portable.h. The types and primitives of one vector and BITGNN_ISA must precede it.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::BITGNN_ISA {

template <int N>
struct FloatVectors {
  Floats v[N];
};
template <int N>
struct IntVectors {
  Ints v[N];
};
constexpr int kVectors = static_cast<int>(kWordBits) / kFloats;
using Lanes = FloatVectors<kVectors>;
using HalfLanes = FloatVectors<kVectors / 2>;  // 16 floats, for rows of at most 16
using IntLanes = IntVectors<kVectors>;
using HalfIntLanes = IntVectors<kVectors / 2>;

// Vectors of which f gives the i-th. No loops: GCC would unroll those around them too late to keep
// arrays of lanes in registers.
template <class V, class F>
inline V each_vector(const F& f) {
  constexpr size_t kCount = sizeof(V) / sizeof(Floats);
  if constexpr (kCount == 1) return {{f(0)}};
  if constexpr (kCount == 2) return {{f(0), f(1)}};
  if constexpr (kCount == 4) return {{f(0), f(1), f(2), f(3)}};
}
// The bits of all vectors side by side, of which f gives those of the i-th.
template <int N, class F>
inline uint32_t each_bits(const F& f) {
  if constexpr (N == 1) return f(0);
  if constexpr (N == 2) return f(0) | f(1) << kFloats;
  if constexpr (N == 4)
    return f(0) | f(1) << kFloats | f(2) << (2 * kFloats) | f(3) << (3 * kFloats);
}
// Calls f with the number of each vector.
template <class F>
inline void for_vectors(const F& f) {
  f(0), f(1);
  if constexpr (kVectors == 4) f(2), f(3);
}

inline Lanes zero_lanes() { return {}; }
inline Lanes broadcast_lanes(float value) {
  return each_vector<Lanes>([=](int) { return set_floats(value); });
}
inline HalfLanes half_lanes(float value) {
  return each_vector<HalfLanes>([=](int) { return set_floats(value); });
}
inline HalfIntLanes half_ints(int32_t value) {
  return each_vector<HalfIntLanes>([=](int) { return set_ints(value); });
}
inline Lanes load_lanes(const float* p) {
  return each_vector<Lanes>([=](int i) { return load_floats(p + kFloats * i); });
}
// Loads 32 elements of any type as floats.
template <class T>
inline Lanes load_values(const T* p) {
  return each_vector<Lanes>([=](int i) { return load_floats(p + kFloats * i); });
}
inline void store_lanes(float* p, const Lanes& a) {
  for_vectors([&](int i) { store_floats(p + kFloats * i, a.v[i]); });
}
// Streaming store to an address aligned to vectors; readers need a stream_fence() first.
inline void stream_lanes(float* p, const Lanes& a) {
  for_vectors([&](int i) { stream_floats(p + kFloats * i, a.v[i]); });
}
inline void stream_fence() { _mm_sfence(); }
inline void store_halves(uint16_t* p, const Lanes& a) {
  for_vectors([&](int i) { store_float16(p + kFloats * i, a.v[i]); });
}
inline IntLanes load_ints(const int32_t* p) {
  return each_vector<IntLanes>([=](int i) { return load_integers(p + kFloats * i); });
}
inline void store_ints(int32_t* p, const IntLanes& a) {
  for_vectors([&](int i) { store_integers(p + kFloats * i, a.v[i]); });
}

template <int N>
inline FloatVectors<N> add(const FloatVectors<N>& a, const FloatVectors<N>& b) {
  return each_vector<FloatVectors<N>>([&](int i) { return a.v[i] + b.v[i]; });
}
template <int N>
inline FloatVectors<N> mul(const FloatVectors<N>& a, const FloatVectors<N>& b) {
  return each_vector<FloatVectors<N>>([&](int i) { return a.v[i] * b.v[i]; });
}
template <int N>
inline FloatVectors<N> multiply_add(const FloatVectors<N>& a, const FloatVectors<N>& b,
                                    const FloatVectors<N>& c) {
  return each_vector<FloatVectors<N>>([&](int i) { return fused(a.v[i], b.v[i], c.v[i]); });
}
inline Lanes sub(const Lanes& a, const Lanes& b) {
  return each_vector<Lanes>([&](int i) { return a.v[i] - b.v[i]; });
}
inline Lanes abs(const Lanes& a) {
  return each_vector<Lanes>([&](int i) { return magnitudes(a.v[i]); });
}
inline Lanes widen(const HalfLanes& a) {
  return each_vector<Lanes>([&](int i) { return i < kVectors / 2 ? a.v[i] : Floats{}; });
}
template <int N>
inline FloatVectors<N> to_lanes(const IntVectors<N>& a) {
  return each_vector<FloatVectors<N>>([&](int i) { return to_floats(a.v[i]); });
}
template <int N>
inline IntVectors<N> add(const IntVectors<N>& a, const IntVectors<N>& b) {
  return each_vector<IntVectors<N>>([&](int i) { return add_ints(a.v[i], b.v[i]); });
}
inline IntLanes halved(const IntLanes& a) {
  return each_vector<IntLanes>([&](int i) { return half_ints_of(a.v[i]); });
}
inline IntLanes twice_less(const IntLanes& a, int32_t b) {
  return each_vector<IntLanes>(
      [&](int i) { return sub_ints(add_ints(a.v[i], a.v[i]), set_ints(b)); });
}
template <int N>
inline uint32_t ge_mask(const FloatVectors<N>& a, const FloatVectors<N>& b) {
  return each_bits<N>([&](int i) { return ge_bits(a.v[i], b.v[i]); });
}
inline uint32_t lt_mask(const Lanes& a, const Lanes& b) {
  return each_bits<kVectors>([&](int i) { return lt_bits(a.v[i], b.v[i]); });
}

inline uint32_t popcount(uint32_t x) { return static_cast<uint32_t>(__builtin_popcount(x)); }
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// W words of bits. Operators are defined outside their class: GCC does not apply its target pragma
// to friends defined inside.
template <class Vector, int64_t W>
struct WordVector {
  static constexpr int64_t kWords = W;
  using Tail = MaskOf<Vector>;  // of the valid words
  Vector v;

  static Tail tail(int64_t words) { return first_words<Vector>(words); }
  static WordVector zero() { return {Vector{}}; }
  static WordVector load(const int32_t* p, Tail t) { return {load_masked<Vector>(p, t)}; }
  static void store(int32_t* p, WordVector a, Tail t) { store_masked(p, t, a.v); }
  static WordVector ones() { return {~Vector{}}; }
  static WordVector sum(WordVector a, WordVector b, WordVector c) {
    return {odd_bits(a.v, b.v, c.v)};
  }
  static WordVector carry(WordVector a, WordVector b, WordVector c) {
    return {most_bits(a.v, b.v, c.v)};
  }
};
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator&(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v & b.v};
}
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator|(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v | b.v};
}
template <class Vector, int64_t W>
inline WordVector<Vector, W> operator^(WordVector<Vector, W> a, WordVector<Vector, W> b) {
  return {a.v ^ b.v};
}

}  // namespace bitgnn::cpu::BITGNN_ISA
