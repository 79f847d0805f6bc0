// Products of bits written as narrow rows: halves behind the factor of their row.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include "bitgnn/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

template <class T>
inline void put_halves(T* to, const int32_t* dots, int64_t count) {
  for (int64_t l = 0; l < count; ++l) to[l] = static_cast<T>(dots[l] >> 1);
}

// The products of one row with outputs [first, first + count).
inline void put_narrow(const NarrowRows& rows, int64_t row, int64_t first, const IntLanes& dots,
                       int64_t count) {
  alignas(64) int32_t buffer[kWordBits];
  store_ints(buffer, dots);
  char* halves = rows.data + row * rows.stride + rows.halves_at();
  rows.shorts ? put_halves(reinterpret_cast<int16_t*>(halves) + first, buffer, count)
              : put_halves(reinterpret_cast<int8_t*>(halves) + first, buffer, count);
}

// What stands beside the halves: the factor, and the half of 1 that follows them.
inline void put_factors(const BmmArgs& a, int64_t row, int64_t rows, const float* row_scale) {
  const NarrowRows& to = *a.out_narrow;
  if (!to.has_factors) return;
  for (int64_t r = 0; r < rows; ++r) {
    char* at = to.data + (row + r) * to.stride;
    float factor = row_scale != nullptr ? row_scale[r] : 1.0f;
    if (a.narrow_factor != nullptr) factor *= a.narrow_factor[row + r];
    std::memcpy(at, &factor, sizeof(factor));
    if (!to.odd) continue;
    char* halves = at + to.halves_at();
    if (to.shorts) {
      reinterpret_cast<int16_t*>(halves)[a.out_features] = 1;
    } else {
      halves[a.out_features] = 1;
    }
  }
}

// Rows of at most eight outputs: the lanes are the outputs, pairs of words at a time.
template <class T, int N>
void multiply_few(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t rows) {
  const NarrowRows& to = *a.out_narrow;
  for (int64_t r = 0; r < rows; ++r, x += words) {
    EightCounts counts = zero_counts();
    for (int64_t w = 0; w < words; w += 2) {
      uint64_t pair = 0;
      std::memcpy(&pair, x + w, w + 1 < words ? sizeof(pair) : sizeof(int32_t));
      count_differences(counts, pair, a.few_panel + w * 4);
    }
    char* halves = to.data + (row + r) * to.stride + to.halves_at();
    store_halves<N>(reinterpret_cast<T*>(halves), counts, a.size);
  }
}

inline void multiply_few(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row,
                         int64_t rows) {
  if (a.out_narrow->shorts) {
    a.out_features <= 4 ? multiply_few<int16_t, 4>(a, x, words, row, rows)
                        : multiply_few<int16_t, 8>(a, x, words, row, rows);
  } else {
    a.out_features <= 4 ? multiply_few<int8_t, 4>(a, x, words, row, rows)
                        : multiply_few<int8_t, 8>(a, x, words, row, rows);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
