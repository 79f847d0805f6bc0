// Product of packed rows with weights in three digits: sums of every four features looked up.
//
// Four bits of a row pick one of 16 rows of a table that holds the sums of their digits, signs
// applied, for 16 outputs at once: the high digit's and the two low ones' as two integers each. A
// row of K features then takes K / 4 additions of 32 integers. Bound by the reads of the tables.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include "core/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Rows [begin, end) for 16 outputs from `first`, from the outputs' table.
inline void sum_looked_up(const BitsLinearArgs& a, const int32_t* table, int64_t first,
                          int64_t begin, int64_t end) {
  constexpr int64_t kEntries = kLinearEntries * kLinearTableLanes;
  const int64_t words = words_for(a.size);
  const int64_t count =
      a.out_features - first < kLinearOutputs ? a.out_features - first : kLinearOutputs;
  for (int64_t row = begin; row < end; ++row) {
    int32_t sums[kLinearTableLanes] = {};
    const int32_t* entries = table;
    for (int64_t w = 0; w < words; ++w) {
      uint32_t bits = static_cast<uint32_t>(a.x[row * words + w]);
      for (int64_t part = 0; part < kLinearParts; ++part, bits >>= 4, entries += kEntries) {
        const int32_t* entry = entries + (bits & 15) * kLinearTableLanes;
        for (int64_t l = 0; l < kLinearTableLanes; ++l) sums[l] += entry[l];
      }
    }
    float values[kLinearOutputs];
    for (int64_t l = 0; l < kLinearOutputs; ++l)
      values[l] =
          static_cast<float>(sums[l]) * 65536.0f + static_cast<float>(sums[kLinearOutputs + l]);
    float* out = a.out + row * a.out_features + first;
    for (int64_t l = 0; l < count; ++l) {
      const float step = a.step[first + l];
      float v = (a.x_scale != nullptr ? a.x_scale[row] * step : step) * values[l];
      if (a.bias != nullptr) v += a.bias[first + l];
      if (a.addend != nullptr) v += a.addend[row * a.out_features + first + l];
      out[l] = v;
    }
  }
}

// Tables of groups of 16 outputs, one after the other.
void bits_linear(const BitsLinearArgs& a, const int32_t* tables, int64_t begin, int64_t end) {
  const int64_t group = words_for(a.size) * kLinearParts * kLinearEntries * kLinearTableLanes;
  for (int64_t first = 0; first < a.out_features; first += kLinearOutputs)
    sum_looked_up(a, tables + first / kLinearOutputs * group, first, begin, end);
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
