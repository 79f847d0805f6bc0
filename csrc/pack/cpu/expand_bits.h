// Bits as floats on the CPU.
#pragma once

#include "core/common.h"

namespace bitgnn::cpu {

// out[k] = value if bit k is set, else -value. Uses one mask per lane, since not every instruction
// set has variable vector shifts.
inline void expand_bits(const int32_t* words, int64_t size, float value, float* out) {
  static const struct Masks {
    uint32_t bit[kWordBits];
    Masks() {
      for (int l = 0; l < kWordBits; ++l) bit[l] = 1u << l;
    }
  } masks;
  const float negative = -value;
  for (int64_t w = 0; w < words_for(size); ++w) {
    const uint32_t bits = static_cast<uint32_t>(words[w]);
    const int64_t count = size - w * kWordBits < kWordBits ? size - w * kWordBits : kWordBits;
    float* lanes = out + w * kWordBits;
    for (int64_t l = 0; l < count; ++l) lanes[l] = (bits & masks.bit[l]) != 0 ? value : negative;
  }
}

}  // namespace bitgnn::cpu
