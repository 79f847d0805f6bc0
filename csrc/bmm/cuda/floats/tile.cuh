// Packs a tile of rows into shared memory, with their popcounts and scales.
#pragma once

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::bmm {

// A tile of packed rows in shared memory.
struct PackedTile {
  uint32_t* words;
  int pitch;        // words from one row to the next
  int rows;         // rows there is room for
  int32_t* counts;  // set bits of each row
  float* scales;    // of each row, if scales are measured
};

template <int kRows, int kWords, bool kScale, bool kShift, class Source>
__device__ __forceinline__ void pack_tile_shifted(const Source& source, const PackArgs& args,
                                                  const PackedTile& to, int64_t first_row,
                                                  int64_t rows, int warp, int warps, int lane) {
  using Tile = pack::PackTile<kRows, kWords>;
  const auto words = static_cast<int>(pack::word_count(args.cols));
  for (int r = warp * kRows; r < to.rows; r += warps * kRows) {
    if (first_row + r >= rows) break;
    const int row = r + Tile::word_row(lane);
    int count = 0;
    const float sum = pack::pack_rows<kRows, kWords, kScale, kShift>(
        source, args, first_row + r, rows, 0, words, lane,
        [&](int word, uint32_t bits, bool fresh) {
          if (!Tile::holds(lane) || !fresh) return;
          to.words[row * to.pitch + Tile::word_column(lane) + word] = bits;
          count += __popc(bits);
        });
#pragma unroll
    for (int step = 1; step < Tile::kSlots; step *= 2)
      count += __shfl_xor_sync(kFullWarp, count, step);
    if (Tile::word_row(lane) < kRows && Tile::word_column(lane) == 0) to.counts[row] = count;
    if constexpr (kScale) {
      const float mean = pack::mean_of(sum, args.cols);
      if (lane % Tile::kLanesPerRow == 0) to.scales[r + lane / Tile::kLanesPerRow] = mean;
    }
  }
}

// Packs the tile's rows from `first_row` on, kRows at a time by each of `warps` warps.
template <int kRows, int kWords, bool kScale, class Source>
__device__ __forceinline__ void pack_tile(const Source& source, const PackArgs& args,
                                          const PackedTile& to, int64_t first_row, int64_t rows,
                                          int warp, int warps, int lane) {
  if (args.threshold == nullptr && args.gain == nullptr)
    pack_tile_shifted<kRows, kWords, kScale, false>(source, args, to, first_row, rows, warp, warps,
                                                    lane);
  else
    pack_tile_shifted<kRows, kWords, kScale, true>(source, args, to, first_row, rows, warp, warps,
                                                   lane);
}

}  // namespace bitgnn::cuda::bmm
