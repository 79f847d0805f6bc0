// Aggregation of products held as narrow integers, in the order of bitgnn/narrow_sums.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "bitgnn/cpu/kernel_table.h"
#include "bitgnn/narrow_sums.h"

namespace bitgnn::cpu {

// The table that rows are gathered from: dot products, or their halves where there are factors.
struct NarrowTable {
  const int32_t* rows;   // [cols, features]
  const float* factors;  // [cols] or null
  bool odd;              // dot = 2 * half + 1
};

// Folds the slots of `features` sums each into the first.
inline void fold_slots(float* slots, int64_t features) {
  for (int64_t half = kSumSlots / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half * features; ++k) slots[k] += slots[k + half * features];
}

// Canonical sums of one row into total[features]; the last of them is the sum of the factors where
// the table is odd. Both buffers have room for features + 1, slots for eight times as many.
inline void sum_factored_row(const NarrowTable& table, const int32_t* indices, int64_t degree,
                             int64_t features, float* slots, float* total) {
  const int64_t width = features + (table.odd ? 1 : 0);
  std::fill_n(total, width, 0.0f);
  for (int64_t begin = 0; begin < degree; begin += kSumPiece) {
    const int64_t end = std::min(begin + kSumPiece, degree);
    std::fill_n(slots, kSumSlots * width, 0.0f);
    for (int64_t p = begin; p < end; ++p) {
      float* slot = slots + (p - begin) % kSumSlots * width;
      const float factor = table.factors[indices[p]];
      const int32_t* half = table.rows + indices[p] * features;
      for (int64_t k = 0; k < features; ++k)
        slot[k] = std::fma(factor, static_cast<float>(half[k]), slot[k]);
      if (table.odd) slot[features] += factor;
    }
    fold_slots(slots, width);
    for (int64_t k = 0; k < width; ++k) total[k] += slots[k];
  }
}

// Rows [begin, end) of the result.
inline void aggregate_narrow_rows(const CsrArgs& a, const float* out_scale,
                                  const NarrowTable& table, int64_t begin, int64_t end) {
  const int64_t features = a.features;
  std::vector<float> slots(static_cast<size_t>(kSumSlots * (features + 1)));
  std::vector<float> value(static_cast<size_t>(features + 1));
  std::vector<int32_t> sum(static_cast<size_t>(features));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = a.row_begin(row);
    const int64_t degree = a.row_begin(row + 1) - first;
    const int32_t* indices = a.indices + first;
    if (table.factors != nullptr) {
      sum_factored_row(table, indices, degree, features, slots.data(), value.data());
      const float rest = value[static_cast<size_t>(features)];
      for (int64_t k = 0; k < features; ++k) {
        float& v = value[static_cast<size_t>(k)];
        v = table.odd ? 2.0f * v + rest : 2.0f * v;
      }
    } else {
      std::fill(sum.begin(), sum.end(), 0);
      for (int64_t p = 0; p < degree; ++p)
        for (int64_t k = 0; k < features; ++k)
          sum[static_cast<size_t>(k)] += table.rows[indices[p] * features + k];
      std::copy(sum.begin(), sum.end(), value.begin());
    }
    for (int64_t k = 0; k < features; ++k) {
      float v = value[static_cast<size_t>(k)];
      const bool scales_row = a.row_scale != nullptr, scales_out = out_scale != nullptr;
      if (scales_row || scales_out)
        v *= (scales_row ? a.row_scale[row] : 1.0f) * (scales_out ? out_scale[k] : 1.0f);
      a.out_float[row * features + k] = a.bias != nullptr ? v + a.bias[k] : v;
    }
  }
}

}  // namespace bitgnn::cpu
