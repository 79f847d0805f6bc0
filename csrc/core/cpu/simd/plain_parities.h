// Running parities of a row's words, computed word by word: AVX2 has no faster way.
#pragma once

#include <cstdint>

namespace bitgnn::cpu::BITGNN_ISA {

// Turns a row of words into running parities, in place or not.
inline void running_parities(const int32_t* from, int64_t words, int32_t* to) {
  int32_t parity = 0;
  for (int64_t w = 0; w < words; ++w) {
    parity ^= from[w];
    to[w] = parity;
  }
}

}  // namespace bitgnn::cpu::BITGNN_ISA
