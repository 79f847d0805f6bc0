// Running parities of a row's words, one word after the other: AVX2 has no better form of them.
#pragma once

#include <cstdint>

namespace bitgnn::cpu::BITGNN_ISA {

// A row of words to running parities, in place or not.
inline void running_parities(const int32_t* from, int64_t words, int32_t* to) {
  int32_t parity = 0;
  for (int64_t w = 0; w < words; ++w) {
    parity ^= from[w];
    to[w] = parity;
  }
}

}  // namespace bitgnn::cpu::BITGNN_ISA
