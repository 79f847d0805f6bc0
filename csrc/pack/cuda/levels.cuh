// Thermometer bits: a lane makes one word of several rows, of columns and thresholds in shared
// memory. Adjacent bits of one feature read it once, and the lanes of a warp read adjacent
// features.
#pragma once

#include <limits>

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kLevelThreads = 256;
constexpr int kLevelWarps = kLevelThreads / kWarp;

// One bit of each of a warp's words a row; the odd width keeps both uses free of bank conflicts.
struct LevelTable {
  float thresholds[kWordBits][kWarp + 1];
  int32_t columns[kWordBits][kWarp + 1];

  // Of words first_word to first_word + 31; what lies past the end is reached by no value.
  __device__ __forceinline__ void load(const LevelPackArgs& a, int64_t first_word) {
    for (int i = threadIdx.x; i < kWordBits * kWarp; i += kLevelThreads) {
      const int64_t bit = first_word * kWordBits + i;
      const bool exists = bit < a.size;
      thresholds[i % kWordBits][i / kWordBits] = exists ? __ldg(a.thresholds + bit) : nanf("");
      columns[i % kWordBits][i / kWordBits] = exists ? static_cast<int32_t>(a.columns[bit]) : 0;
    }
    __syncthreads();
  }
};

// Blocks of one range of 32 words stand side by side and share out the rows.
template <int kRows, class T>
__global__ void __launch_bounds__(kLevelThreads)
    pack_levels_kernel(const LevelPackArgs a, int64_t rows, unsigned blocks_per_range) {
  using Value = typename DenseRows<T>::Value;
  __shared__ LevelTable table;
  const int lane = threadIdx.x % kWarp;
  const int64_t first_word = static_cast<int64_t>(blockIdx.x / blocks_per_range) * kWarp;
  table.load(a, first_word);
  const int64_t words = word_count(a.size);
  const int64_t word = first_word + lane;
  if (word >= words) return;
  const int64_t warp = static_cast<int64_t>(blockIdx.x % blocks_per_range) * kLevelWarps +
                       static_cast<int>(threadIdx.x) / kWarp;
  const int64_t step = static_cast<int64_t>(blocks_per_range) * kLevelWarps * kRows;
  for (int64_t first_row = warp * kRows; first_row < rows; first_row += step) {
    const T* row[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      row[r] = static_cast<const T*>(a.x) + min(first_row + r, rows - 1) * a.row_stride;
    Value value[kRows];
    uint32_t bits[kRows] = {};
    int held = -1;  // column of the values
#pragma unroll
    for (int bit = 0; bit < kWordBits; ++bit) {
      const int column = table.columns[bit][lane];
      if (column != held) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) value[r] = to_value(__ldg(row[r] + column));
        held = column;
      }
      const Value threshold = static_cast<Value>(table.thresholds[bit][lane]);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (value[r] >= threshold) bits[r] |= 1u << bit;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (first_row + r < rows)
        a.words[(first_row + r) * words + word] = static_cast<int32_t>(bits[r]);
  }
}

// Blocks whose warps take `rows_of_warp` rows.
inline int64_t level_blocks(const LevelPackArgs& a, int64_t rows, int64_t rows_of_warp) {
  return ceil_div(word_count(a.size), kWarp) * ceil_div(rows, kLevelWarps * rows_of_warp);
}

template <int kRows, class T>
cudaError_t launch_pack_levels(const LevelPackArgs& a, int64_t rows, int64_t passes,
                               const Context& context) {
  const int64_t ranges = ceil_div(word_count(a.size), kWarp);
  const int64_t blocks = ceil_div(rows, kLevelWarps * kRows * passes);
  const int64_t grid = ranges * blocks;
  if (grid > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidValue;
  pack_levels_kernel<kRows, T><<<static_cast<unsigned>(grid), kLevelThreads, 0, context.stream>>>(
      a, rows, static_cast<unsigned>(blocks));
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack
