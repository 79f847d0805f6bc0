// A row's neighbours in FRDC 4 x 4 tiles as a source of aggregate_rows.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/rows.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kTileThreads = 256;

// Edges of each row, a warp per tile row.
static __global__ void __launch_bounds__(kTileThreads)
    count_tile_edges(const FrdcArgs a, int64_t tile_rows, int32_t* degrees) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t tile_row = static_cast<int64_t>(blockIdx.x) * (kTileThreads / kWarp) +
                           static_cast<int>(threadIdx.x) / kWarp;
  if (tile_row >= tile_rows) return;
  const int64_t end = row_pointer(a.csr, tile_row + 1);
  int count[kTileDim] = {};
  for (int64_t t = row_pointer(a.csr, tile_row) + lane; t < end; t += kWarp) {
    const uint32_t tile = static_cast<uint16_t>(a.tiles[t]);
#pragma unroll
    for (int r = 0; r < kTileDim; ++r) count[r] += __popc(tile >> (kTileDim * r) & 0xfu);
  }
#pragma unroll
  for (int r = 0; r < kTileDim; ++r) {
    const int total = __reduce_add_sync(kFullWarp, count[r]);
    const int64_t row = tile_row * kTileDim + r;
    if (lane == 0 && row < a.csr.rows) degrees[row] = total;
  }
}

// A unit is a tile of the row's tile row, with up to four of its edges.
struct TileRows {
  static constexpr int kUnitPlanes = 3;
  static constexpr bool kHalved = false;

  FrdcArgs a;
  const int32_t* degrees;  // [rows]
  BoundTable bounds{};

  // `begin` is four times the first tile, plus the row's place in its tiles.
  __device__ __forceinline__ RowExtent extent(int64_t row) const {
    const int64_t begin = row_pointer(a.csr, row / kTileDim);
    const int64_t end = row_pointer(a.csr, row / kTileDim + 1);
    return {begin * kTileDim + row % kTileDim, static_cast<int>(end - begin), degrees[row]};
  }

  template <int kBatch, int kWords, int kPlanes>
  __device__ __forceinline__ void count(CountPlanes<kWords, kPlanes>& planes,
                                        const RowExtent& extent, int first, int end, int stride,
                                        int64_t first_word) const {
    static_assert(kBatch == kTileDim, "a batch is the columns of a tile");
    const uint32_t* table = static_cast<const uint32_t*>(a.csr.x) + first_word;
    const int64_t begin = extent.begin / kTileDim;
    const int shift = static_cast<int>(extent.begin % kTileDim) * kTileDim;
    for (int t = first; t < end; t += stride) {
      const uint32_t edges = static_cast<uint16_t>(a.tiles[begin + t]) >> shift & 0xfu;
      if (edges == 0) continue;
      const uint32_t* rows =
          table + static_cast<int64_t>(a.csr.indices[begin + t]) * kTileDim * a.csr.x_stride;
      WordVector<kWords> x[kBatch];
#pragma unroll
      for (int c = 0; c < kBatch; ++c) {
        x[c] = WordVector<kWords>{};
        if ((edges >> c & 1u) != 0) x[c] = load_words<kWords>(rows + c * a.csr.x_stride);
      }
      planes.add(x);
    }
  }
};

}  // namespace bitgnn::cuda::bspmm
