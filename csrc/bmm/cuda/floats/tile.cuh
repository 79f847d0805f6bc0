// Packs a tile of rows into shared memory, with their popcounts and scales.
#pragma once

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::bmm {

// Shared-memory results of packing a tile of rows, besides the words.
struct PackedTerms {
  int rows;         // rows there is room for
  int32_t* counts;  // set bits of each row
  float* scales;    // of each row, if scales are measured
  float* lanes;     // [rows, 32] partial sums of the scales; null if rows are packed at once
};

// Words of rows `pitch` words apart.
struct PitchedRows {
  uint32_t* words;
  int pitch;
  __device__ __forceinline__ uint32_t* place(int row, int word) const {
    return words + row * pitch + word;
  }
};

template <int kRows, int kWords, bool kScale, bool kShift, class Source, class Rows>
__device__ __forceinline__ void pack_tile_shifted(const Source& source, const PackArgs& args,
                                                  const Rows& packed, const PackedTerms& to,
                                                  int64_t first_row, int64_t rows, int first_word,
                                                  int last_word, int warp, int warps, int lane) {
  using Tile = pack::PackTile<kRows, kWords>;
  const bool begins = first_word == 0;
  const bool ends = to.lanes == nullptr || last_word == pack::word_count(args.cols);
  for (int r = warp * kRows; r < to.rows; r += warps * kRows) {
    if (first_row + r >= rows) break;
    const int row = r + Tile::word_row(lane);
    const int column = Tile::word_column(lane) - first_word;
    int count = 0;
    float sum[kRows] = {};
    if (kScale && !begins) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sum[i] = to.lanes[(r + i) * kWarp + lane];
    }
    pack::pack_words<kRows, kWords, kScale, kShift>(source, args, first_row + r, rows, first_word,
                                                    last_word, lane, sum,
                                                    [&](int word, uint32_t bits, bool fresh) {
                                                      if (!Tile::holds(lane) || !fresh) return;
                                                      *packed.place(row, column + word) = bits;
                                                      count += __popc(bits);
                                                    });
#pragma unroll
    for (int step = 1; step < Tile::kSlots; step *= 2)
      count += __shfl_xor_sync(kFullWarp, count, step);
    if (Tile::word_row(lane) < kRows && Tile::word_column(lane) == 0)
      to.counts[row] = begins ? count : to.counts[row] + count;
    if constexpr (kScale) {
      if (ends) {
        const float mean = pack::mean_of(pack::fold_lanes(sum, lane), args.cols);
        if (lane % Tile::kLanesPerRow == 0) to.scales[r + lane / Tile::kLanesPerRow] = mean;
      } else {
#pragma unroll
        for (int i = 0; i < kRows; ++i) to.lanes[(r + i) * kWarp + lane] = sum[i];
      }
    }
  }
}

// Packs words [first_word, last_word) of the tile's rows, kRows at a time by each of `warps` warps;
// word first_word goes to the start of the row. Pieces of a row start at multiples of kWords and
// are packed from left to right by the same warps.
template <int kRows, int kWords, bool kScale, class Source, class Rows>
__device__ __forceinline__ void pack_tile(const Source& source, const PackArgs& args,
                                          const Rows& packed, const PackedTerms& to,
                                          int64_t first_row, int64_t rows, int first_word,
                                          int last_word, int warp, int warps, int lane) {
  if (args.threshold == nullptr && args.gain == nullptr)
    pack_tile_shifted<kRows, kWords, kScale, false>(source, args, packed, to, first_row, rows,
                                                    first_word, last_word, warp, warps, lane);
  else
    pack_tile_shifted<kRows, kWords, kScale, true>(source, args, packed, to, first_row, rows,
                                                   first_word, last_word, warp, warps, lane);
}

}  // namespace bitgnn::cuda::bmm
