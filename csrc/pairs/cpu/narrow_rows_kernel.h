// Writes products of bits as narrow rows; see NarrowRows. Included once per CPU capability;
// BITGNN_ISA names the namespace of its primitives.

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

template <class T>
inline void put_halves(T* to, const int32_t* dots, int64_t count) {
  for (int64_t l = 0; l < count; ++l) to[l] = static_cast<T>(dots[l] >> 1);
}

// Stores the products of one row with outputs [first, first + count) as integers.
inline void put_narrow(const NarrowRows& rows, int64_t row, int64_t first, const IntLanes& dots,
                       int64_t count) {
  alignas(64) int32_t buffer[kWordBits];
  store_ints(buffer, dots);
  char* halves = rows.data + row * rows.stride + rows.halves_at();
  rows.half_bytes == 2 ? put_halves(reinterpret_cast<int16_t*>(halves) + first, buffer, count)
                       : put_halves(reinterpret_cast<int8_t*>(halves) + first, buffer, count);
}

// Factor of row `row + r`, whose product scale, if there is one, is row_scale[r].
inline float factor_of(const BmmArgs& a, int64_t row, int64_t r, const float* row_scale) {
  const float scale = row_scale != nullptr ? row_scale[r] : 1.0f;
  return a.narrow_factor != nullptr ? scale * a.narrow_factor[row + r] : scale;
}

// Writes what accompanies the integers: the factor and, where factors are summed, a 1 for it.
inline void put_factors(const BmmArgs& a, int64_t row, int64_t rows, const float* row_scale) {
  const NarrowRows& to = *a.out_narrow;
  if (!to.has_factors) return;
  for (int64_t r = 0; r < rows; ++r) {
    char* at = to.data + (row + r) * to.stride;
    const float factor = factor_of(a, row, r, row_scale);
    std::memcpy(at, &factor, sizeof(factor));
    if (!to.ones) continue;
    char* halves = at + to.halves_at();
    if (to.half_bytes == 2) {
      reinterpret_cast<int16_t*>(halves)[a.out_features] = 1;
    } else {
      halves[a.out_features] = 1;
    }
  }
}

// Rows of N words: the lanes are eight outputs, compared with two words of the row at a time.
template <class T, int N>
void multiply_few_outputs(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row,
                          int64_t rows, const float* row_scale) {
  const NarrowRows& to = *a.out_narrow;
  for (int64_t r = 0; r < rows; ++r, x += words) {
    EightCounts counts = zero_counts();
    int64_t w = 0;
    for (; w + 2 <= words; w += 2) {
      uint64_t pair;
      std::memcpy(&pair, x + w, sizeof(pair));
      count_differences(counts, pair, a.few_panel + w / 2 * kFewOutputs);
    }
    if (w < words)
      count_differences(counts, static_cast<uint32_t>(x[w]), a.few_panel + w / 2 * kFewOutputs);
    T* at = reinterpret_cast<T*>(to.data + (row + r) * to.stride);
    store_halves<N>(at, counts, a.size);
    if constexpr (std::is_same_v<T, float>) at[N - 1] = factor_of(a, row, r, row_scale);
  }
}

inline void multiply_few(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row,
                         int64_t rows, const float* row_scale) {
  const bool small = a.out_narrow->stride == 4 * static_cast<int64_t>(sizeof(float));
  if (a.out_narrow->has_factors) {
    small ? multiply_few_outputs<float, 4>(a, x, words, row, rows, row_scale)
          : multiply_few_outputs<float, 8>(a, x, words, row, rows, row_scale);
  } else {
    small ? multiply_few_outputs<int32_t, 4>(a, x, words, row, rows, row_scale)
          : multiply_few_outputs<int32_t, 8>(a, x, words, row, rows, row_scale);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
