// Sums of 32 integers kept as int16 or int32 in plain C++; the reference for int_sums_avx2.h and
// int_sums_avx512.h.
#pragma once

#include <algorithm>

#include "core/cpu/simd/vectors_portable.h"

namespace bitgnn::cpu::portable {

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
