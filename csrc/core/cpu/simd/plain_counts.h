// Popcounts by the CPU's scalar instruction or its substitute; AVX-512 counts eight at a time, see
// narrow_avx512.h.
#pragma once

#include <cstdint>

namespace bitgnn::cpu::BITGNN_ISA {

// Hamming distances of eight outputs from a row, counted one pair of words at a time.
struct EightCounts {
  uint64_t v[8];
};

inline EightCounts zero_counts() { return {}; }
inline void count_differences(EightCounts& counts, uint64_t x, const uint64_t* w) {
  for (int l = 0; l < 8; ++l) counts.v[l] += static_cast<uint64_t>(__builtin_popcountll(x ^ w[l]));
}
// Stores the halves of the first 4 or all 8 products, which are size - 2 count.
template <int N>
inline void store_halves(int32_t* p, const EightCounts& counts, int64_t size) {
  for (int l = 0; l < N; ++l)
    p[l] = static_cast<int32_t>((size - 2 * static_cast<int64_t>(counts.v[l])) >> 1);
}
template <int N>
inline void store_halves(float* p, const EightCounts& counts, int64_t size) {
  int32_t halves[N];
  store_halves<N>(halves, counts, size);
  for (int l = 0; l < N; ++l) p[l] = static_cast<float>(halves[l]);
}

}  // namespace bitgnn::cpu::BITGNN_ISA
