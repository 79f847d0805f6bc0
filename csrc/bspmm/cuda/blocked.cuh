// A row's neighbours in column-blocked order as a source of aggregate_rows.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/rows.cuh"

namespace bitgnn::cuda::bspmm {

// A row's neighbours are numbered through its segments, one per column block.
struct BlockedRows {
  static constexpr int kUnitPlanes = 1;
  static constexpr bool kHalved = false;

  BlockedArgs a;

  __device__ __forceinline__ int64_t segment(int64_t block, int64_t row) const {
    return row_pointer(a.csr, block * a.csr.rows + row);
  }

  __device__ __forceinline__ RowExtent extent(int64_t row) const {
    int64_t degree = 0;
    for (int64_t b = 0; b < a.num_blocks; ++b) degree += segment(b, row + 1) - segment(b, row);
    return {row, static_cast<int>(degree), static_cast<int>(degree)};
  }

  template <int kBatch, int kWords, int kPlanes>
  __device__ __forceinline__ void count(CountPlanes<kWords, kPlanes>& planes,
                                        const RowExtent& extent, int first, int end, int stride,
                                        int64_t first_word) const {
    const uint32_t* table = static_cast<const uint32_t*>(a.csr.x) + first_word;
    const int64_t row = extent.begin;
    int64_t position = first, before = 0;
    for (int64_t b = 0; b < a.num_blocks && position < end; ++b) {
      const int64_t begin = segment(b, row), size = segment(b, row + 1) - begin;
      const uint16_t* indices = a.local_indices + begin - before;
      const uint32_t* block_table = table + b * a.block_size * a.csr.x_stride;
      const int64_t limit = min(before + size, static_cast<int64_t>(end));
      while (position < limit) {
        WordVector<kWords> x[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          x[k] = WordVector<kWords>{};
          if (position < limit) {
            x[k] = load_words<kWords>(block_table + indices[position] * a.csr.x_stride);
            position += stride;
          }
        }
        planes.add(x);
      }
      before += size;
    }
  }
};

}  // namespace bitgnn::cuda::bspmm
