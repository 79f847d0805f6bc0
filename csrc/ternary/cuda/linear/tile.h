// Tile shapes of the ternary tile product and the layout of its shared memory.
#pragma once

#include <cstdint>

namespace bitgnn::cuda::ternary {

// A chunk is 512 features: a lane loads four consecutive words of a weight row, enough for two mma
// steps. In shared memory a row is a sequence of groups of 64 features: two words of pos, then two
// of neg; lane q of a quad reads groups 2 q (first step) and 2 q + 1 (second step) of a chunk.
constexpr int kChunkWords = 16;
constexpr int kChunkGroups = kChunkWords / 2;
constexpr int kGroupWords = 4;
constexpr int kChunkPitch = kChunkGroups * kGroupWords;  // words of both planes

// A warp multiplies kRowTiles tiles of eight rows with kOutputTiles tiles of 16 outputs. A block
// has kRowWarps x kOutputWarps such warps, times kPartWarps that split the chunks of a row. A warp
// loads kStages chunks of weights at a time, a thread kBatch pieces of rows.
template <int kRowTiles_, int kRowWarps_, int kOutputTiles_, int kOutputWarps_, int kPartWarps_,
          int kStages_, int kBatch_>
struct TernaryTile {
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kRowWarps = kRowWarps_;
  static constexpr int kOutputTiles = kOutputTiles_;
  static constexpr int kOutputWarps = kOutputWarps_;
  static constexpr int kPartWarps = kPartWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kBatch = kBatch_;
  static constexpr int kWarps = kRowWarps * kOutputWarps * kPartWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kRowTiles * kRowWarps * 8;
  static constexpr int kOutputs = kOutputTiles * kOutputWarps * 16;
  static constexpr int kTiles = kRowTiles * kOutputTiles;  // per warp
};

// Tiles of products of packed rows, by the number of rows.
using TernaryFewTile = TernaryTile<1, 1, 2, 4, 3, 2, 2>;
using TernarySomeTile = TernaryTile<4, 1, 2, 4, 2, 3, 5>;
using TernaryManyTile = TernaryTile<4, 2, 2, 4, 1, 2, 4>;

// Computes floor(n / divisor) for n * divisor < 2^32 with one multiplication.
struct FastDivisor {
  uint32_t divisor, reciprocal;

  FastDivisor() = default;
  explicit FastDivisor(int64_t d)
      : divisor(static_cast<uint32_t>(d)),
        reciprocal(static_cast<uint32_t>(((int64_t{1} << 32) + d - 1) / d)) {}
#if defined(__CUDACC__)
  __device__ __forceinline__ uint32_t divide(uint32_t n) const {
    return divisor == 1 ? n : __umulhi(n, reciprocal);
  }
#endif
};

struct TernaryTilePlan {
  int words;               // per plane of a row
  int chunks;              // per row
  int pitch;               // of a row in shared memory, in words
  FastDivisor row_groups;  // groups of 64 features in the chunks of a row

  // Words of shared memory: planes and counts of the rows, and the sums exchanged between parts.
  template <class Tile>
  int64_t shared_words() const {
    return int64_t{Tile::kRows} * (pitch + 1) +
           (Tile::kPartWarps > 1 ? Tile::kWarps * Tile::kTiles * 32 * 4 : 0);
  }
};

}  // namespace bitgnn::cuda::ternary
