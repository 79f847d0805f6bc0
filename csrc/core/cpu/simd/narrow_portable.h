// Primitives of aggregations over narrow rows in plain C++: 16 lanes that hold features of one row,
// or of two or four rows side by side. The reference for narrow_avx2.h and narrow_avx512.h.
#pragma once

#include "core/cpu/simd/plain.h"
#include "core/cpu/simd/vectors_portable.h"

namespace bitgnn::cpu::portable {

constexpr int kHalfLanes = 16;
constexpr int kNarrowVectors = 1;  // vectors of a row whose slots fit in registers together

struct HalfIntLanes {
  int32_t v[kHalfLanes];
};

inline HalfIntLanes half_ints(int32_t value) {
  HalfIntLanes r;
  for (int32_t& v : r.v) v = value;
  return r;
}

// Loads 16 integers of a row.
template <class T>
inline HalfIntLanes load_integers(const T* row) {
  HalfIntLanes r;
  for (int l = 0; l < kHalfLanes; ++l) r.v[l] = row[l];
  return r;
}
// Loads 16 / E words of each of E rows.
template <int E>
inline HalfLanes load_words(const float* const (&rows)[E]) {
  HalfLanes r;
  for (int l = 0; l < kHalfLanes; ++l) r.v[l] = rows[l * E / kHalfLanes][l % (kHalfLanes / E)];
  return r;
}
template <int E>
inline HalfIntLanes load_words(const int32_t* const (&rows)[E]) {
  HalfIntLanes r;
  for (int l = 0; l < kHalfLanes; ++l) r.v[l] = rows[l * E / kHalfLanes][l % (kHalfLanes / E)];
  return r;
}
// Broadcasts the last word of each of E rows to all lanes of that row.
template <int E>
inline HalfLanes spread_last(HalfLanes a) {
  constexpr int kEach = kHalfLanes / E;
  for (int l = 0; l < kHalfLanes; ++l) a.v[l] = a.v[l / kEach * kEach + kEach - 1];
  return a;
}
// Sets the last word of each row to 1.
template <int E>
inline HalfLanes with_last_one(HalfLanes a) {
  for (int l = kHalfLanes / E - 1; l < kHalfLanes; l += kHalfLanes / E) a.v[l] = 1.0f;
  return a;
}
inline HalfLanes to_half_lanes(const HalfIntLanes& a) {
  HalfLanes r;
  for (int l = 0; l < kHalfLanes; ++l) r.v[l] = static_cast<float>(a.v[l]);
  return r;
}
inline float plus(float a, float b) { return a + b; }
inline int32_t plus(int32_t a, int32_t b) {  // wraps
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}
inline HalfIntLanes add(HalfIntLanes a, const HalfIntLanes& b) {
  for (int l = 0; l < kHalfLanes; ++l) a.v[l] = plus(a.v[l], b.v[l]);
  return a;
}
// a * b + c, rounded once.
inline HalfLanes multiply_add(const HalfLanes& a, const HalfLanes& b, HalfLanes c) {
  for (int l = 0; l < kHalfLanes; ++l) c.v[l] = std::fma(a.v[l], b.v[l], c.v[l]);
  return c;
}
// Adds lanes N .. 2 N - 1 to lanes 0 .. N - 1, the only valid ones from then on.
template <int N, class V>
inline V fold(V a) {
  for (int l = 0; l < N; ++l) a.v[l] = plus(a.v[l], a.v[l + N]);
  return a;
}
inline void store_half(float* p, const HalfLanes& a, int64_t count) {
  std::memcpy(p, a.v, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace bitgnn::cpu::portable
