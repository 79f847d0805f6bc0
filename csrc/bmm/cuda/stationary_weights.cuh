// Products of tiles of 16 short packed rows with the weights of 32 outputs, which a warp keeps in
// registers: no shared memory, no barriers.
#pragma once

#include <algorithm>

#include "bmm/arguments.h"
#include "bmm/cuda/short_rows.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kWordFragments = static_cast<int>(kWordBits) / kMmaColumns;
constexpr int kStationaryMostSteps = 2;  // of 256 bits of a row

// Sums count popc(~x & w), so dot = size - 2 |x| + 2 |w| - 4 sum. A sum reinterpreted as a float is
// sum * 2^-149; multiplying by kMinusFour gives -4 sum in units of kTermUnit, in which column terms
// are exact too, and multiplying by kTermScale converts back to units of one.
constexpr float kMinusFour = -0x1p127f;
constexpr float kTermUnit = 0x1p-24f;
constexpr float kTermScale = 0x1p24f;

// Fragments of 8 outputs; outputs past the last one repeat it.
template <int kSteps>
using StationaryWeights = uint32_t[kSteps][kWordFragments][2];

// Values for pairs of a lane's columns, 8 j + 2 q + e of the word.
using ColumnPairs = float2[kWordFragments];

__device__ __forceinline__ float of_pair(const float2& values, int e) {
  return e == 0 ? values.x : values.y;
}

template <int kSteps>
__device__ __forceinline__ void load_stationary_weights(StationaryWeights<kSteps>& w,
                                                        const BmmArgs& a, int words, bool vectors,
                                                        int64_t first_column, int lane) {
#pragma unroll
  for (int j = 0; j < kWordFragments; ++j) {
    const int64_t column =
        min(first_column + j * kMmaColumns + fragment_group(lane), a.out_features - 1);
    ShortRow<kSteps> row;
    load_short_row<kSteps>(row, a.w + column * words, words, vectors, fragment_quad(lane));
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 2; ++i) w[step][j][i] = row[2 * step + i];
    }
  }
}

// Sets 2 |w| - least of the lane's columns, in units of kTermUnit; lane l passes `least` of column
// l.
template <int kSteps>
__device__ __forceinline__ void set_column_terms(ColumnPairs& terms,
                                                 const StationaryWeights<kSteps>& w, int32_t least,
                                                 int lane) {
  const uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
#pragma unroll
  for (int j = 0; j < kWordFragments; ++j) {
    int32_t counts[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) mma_and_popc(counts, ones, w[step][j]);
    const auto term = [&](int e) {
      const int column = j * kMmaColumns + fragment_quad(lane) * 2 + e;
      return __int2float_rn(2 * counts[e] - __shfl_sync(kFullWarp, least, column)) * kTermUnit;
    };
    const float first = term(0), second = term(1);
    terms[j] = make_float2(first, second);
  }
}

// Loads the lane's words of rows g and g + 8 of a tile; rows past the last one repeat it.
template <int kSteps>
__device__ __forceinline__ void load_tile_rows(ShortRow<kSteps> (&x)[2], const BmmArgs& a,
                                               int words, bool vectors, int tile, int lane) {
  const auto row_bytes = static_cast<uint32_t>(words) * static_cast<uint32_t>(sizeof(uint32_t));
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = min(tile * kMmaRows + fragment_group(lane) + half * (kMmaRows / 2),
                        static_cast<int>(a.rows) - 1);
    const char* from = reinterpret_cast<const char*>(a.x) +
                       static_cast<uint64_t>(static_cast<uint32_t>(row)) * row_bytes;
    load_short_row<kSteps>(x[half], reinterpret_cast<const int32_t*>(from), words, vectors,
                           fragment_quad(lane));
  }
}

using TileSums = int32_t[kWordFragments][4];

// Computes the sums of a tile with the warp's columns, and size - 2 |x| of rows g and g + 8.
template <int kSteps>
__device__ __forceinline__ void multiply_tile(TileSums& sum, int32_t (&row_terms)[2],
                                              const ShortRow<kSteps> (&rows)[2],
                                              const StationaryWeights<kSteps>& w, int64_t size) {
  constexpr int kWidth = kSteps * kMmaWords * static_cast<int>(kWordBits);
  const uint32_t ones[2] = {~0u, ~0u};
  int32_t clear[4] = {};  // clear bits, including padding
#pragma unroll
  for (int j = 0; j < kWordFragments; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[j][i] = 0;
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t x[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) x[k] = ~rows[k % 2][2 * step + k / 2];
    mma_and_popc(clear, x, ones);
#pragma unroll
    for (int j = 0; j < kWordFragments; ++j) mma_and_popc(sum[j], x, w[step][j]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
    row_terms[half] = static_cast<int32_t>(size) - 2 * kWidth + 2 * clear[half * 2];
}

// A column's part of the comparison: dot - size + 2 |x| - least in units of kTermUnit.
__device__ __forceinline__ float column_part(int32_t sum, float term) {
  return __fmaf_rn(__int_as_float(sum), kMinusFour, term);
}

// Merges the bits 8 j + e of a quad's lanes into the words of rows g and g + 8; each lane gets
// both.
__device__ __forceinline__ void share_tile_bits(uint32_t (&bits)[2], int quad) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    bits[half] <<= 2 * quad;
    bits[half] |= __shfl_xor_sync(kFullWarp, bits[half], 1);
    bits[half] |= __shfl_xor_sync(kFullWarp, bits[half], 2);
  }
}

// Assignment of words and tiles to warps: the warps of a block share tiles, and blockIdx.y counts
// chunks of words.
struct StationaryPlan {
  int words;       // of a packed row
  int out_words;   // of an output row
  int word_warps;  // warps of a block that split a tile's output words
  int tiles;
};

inline StationaryPlan stationary_plan(const BmmArgs& a, int warps) {
  StationaryPlan plan{};
  plan.words = static_cast<int>(words_for(a.size));
  plan.out_words = static_cast<int>(words_for(a.out_features));
  plan.word_warps = 1;
  while (plan.word_warps < std::min(plan.out_words, warps)) plan.word_warps *= 2;
  plan.tiles = static_cast<int>(ceil_div(a.rows, kMmaRows));
  return plan;
}

// Where a lane writes: lanes 0 and 1 of a quad write one row each.
struct TileTarget {
  char* word;
  uint32_t row_bytes;
  int row;       // within the tile
  int last_row;  // of the matrix

  __device__ __forceinline__ TileTarget(const BmmArgs& a, int out_words, int at, int lane)
      : word(reinterpret_cast<char*>(a.out_bits + at)),
        row_bytes(static_cast<uint32_t>(out_words) * static_cast<uint32_t>(sizeof(int32_t))),
        row(fragment_group(lane) + (fragment_quad(lane) & 1) * (kMmaRows / 2)),
        last_row(fragment_quad(lane) < 2 ? static_cast<int>(a.rows) - 1 : -1) {}

  __device__ __forceinline__ void store(int tile, uint32_t bits, bool wanted) const {
    const int at = tile * kMmaRows + row;
    if (at <= last_row && wanted)
      *reinterpret_cast<uint32_t*>(word + static_cast<uint64_t>(static_cast<uint32_t>(at)) *
                                              row_bytes) = bits;
  }
};

// Masks of a word's columns that exist and that are flipped; all lanes participate.
struct WordFlips {
  uint32_t flip, exists;

  __device__ __forceinline__ WordFlips(const BmmArgs& a, int64_t first_column, bool inverted,
                                       int lane) {
    const int64_t own = first_column + lane;
    const bool flips = own < a.out_features && a.flip != nullptr && a.flip[own];
    flip = __ballot_sync(kFullWarp, flips != inverted);
    exists = __ballot_sync(kFullWarp, own < a.out_features);
  }
  __device__ __forceinline__ uint32_t apply(uint32_t bits) const { return (bits ^ flip) & exists; }
};

}  // namespace bitgnn::cuda::bmm
