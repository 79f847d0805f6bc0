// Product of packed rows with three-digit weights by table look-up of every four features.
//
// Four bits of a row select one of 16 table rows, which hold the signed digit sums of 16 outputs at
// once, as two integers each: one for the high digit, one for the two low digits. A row of K
// features takes K / 4 additions of 32 integers. Bound by reading the tables.
// Included once per capability, with BITGNN_ISA naming the namespace of its primitives.

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Computes rows [begin, end) of the 16 outputs from `first`, given their table.
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

// The tables of the groups of 16 outputs are contiguous.
void bits_linear(const BitsLinearArgs& a, const int32_t* tables, int64_t begin, int64_t end) {
  const int64_t group = words_for(a.size) * kLinearParts * kLinearEntries * kLinearTableLanes;
  for (int64_t first = 0; first < a.out_features; first += kLinearOutputs)
    sum_looked_up(a, tables + first / kLinearOutputs * group, first, begin, end);
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
