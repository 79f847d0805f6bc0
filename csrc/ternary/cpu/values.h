// Stores products of ternary rows, 32 at a time, as floats of any width or integers.
// Included once per instruction set; BITGNN_ISA names the namespace of its primitives.
#pragma once

#include "ternary/cpu/operands.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

inline uint16_t bfloat_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);  // to nearest, ties to even
}

// Stores `count` values as elements [at, at + count) of an output.
inline void store_values(void* out, ValueType type, int64_t at, const Lanes& v, int64_t count) {
  if (type == ValueType::kFloat32) {
    float* to = static_cast<float*>(out) + at;
    return count == kWordBits ? store_lanes(to, v) : store_lanes(to, v, count);
  }
  uint16_t* to = static_cast<uint16_t*>(out) + at;
  if (type == ValueType::kFloat16 && count == kWordBits) return store_halves(to, v);
  uint16_t buffer[kWordBits];
  if (type == ValueType::kFloat16) {
    store_halves(buffer, v);
  } else {
    alignas(64) float floats[kWordBits];
    store_lanes(floats, v);
    for (int i = 0; i < kWordBits; ++i) buffer[i] = bfloat_bits(floats[i]);
  }
  std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(uint16_t));
}

inline void store_sums(void* out, int64_t at, const IntLanes& v, int64_t count) {
  int32_t* to = static_cast<int32_t*>(out) + at;
  if (count == kWordBits) return store_ints(to, v);
  alignas(64) int32_t buffer[kWordBits];
  store_ints(buffer, v);
  std::memcpy(to, buffer, static_cast<size_t>(count) * sizeof(int32_t));
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
