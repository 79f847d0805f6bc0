// One-byte neighbour counts in global memory, between an aggregation and the product adding them.
#pragma once

#include "bmm/cuda/epilogue.cuh"
#include "bspmm/cuda/bits.cuh"

namespace bitgnn::cuda::pairs {

constexpr int kStagedPlanes = 8;                       // counts fit in a byte,
constexpr int kStagedMost = (1 << kStagedPlanes) - 1;  // so rows of more neighbours are hubs
constexpr int kStagedPieces = 8;                       // 4-byte pieces of a word's counts
constexpr int kStagedParts = 2;                        // 16-byte parts of them

// A row's data besides its counts, read in one access.
struct alignas(16) StagedRow {
  float scale;      // of the product
  float sum_scale;  // of the sum
  int degree;       // beyond kStagedMost the row's bits are already written
};

// Counts of tiles of 16 rows: [tiles, words, kStagedParts, 16], 16 bytes each, so that adjacent
// rows are written and read side by side. Byte j of piece s, with four pieces per part, is the
// count of the word's feature 8 j + s: a lane of a fragment finds its columns together.
struct StagedCounts {
  uint4* counts;
  StagedRow* rows;

  // Tiles are whole; entries past the last row are never used.
  __host__ __device__ static int64_t tiles(int64_t rows) {
    return (rows + kMmaRows - 1) / kMmaRows;
  }
  __host__ __device__ static size_t counts_bytes(int64_t rows, int64_t words) {
    return static_cast<size_t>(tiles(rows) * words) * kStagedParts * kMmaRows * sizeof(uint4);
  }
  __host__ __device__ static size_t rows_bytes(int64_t rows) {
    return static_cast<size_t>(tiles(rows)) * kMmaRows * sizeof(StagedRow);
  }
};

// Bits of `low` where the mask is set, of `high` elsewhere.
__device__ __forceinline__ uint32_t merge_fields(uint32_t low, uint32_t high, uint32_t mask) {
  return (low & mask) | (high & ~mask);
}

// Transposes the planes of a word's counts to bytes, in the order of StagedCounts.
template <int kPlanes>
__device__ __forceinline__ void count_bytes(uint32_t (&piece)[kStagedPieces],
                                            const uint32_t (&plane)[kPlanes]) {
  constexpr uint32_t kPairs = 0x55555555u, kNibbles = 0x33333333u, kBytes = 0x0f0f0f0fu;
  uint32_t nibble[2][4];  // of planes 4 h to 4 h + 3: field k of [h][r] is feature 4 k + r
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const auto at = [&](int p) { return 4 * h + p < kPlanes ? plane[(4 * h + p) % kPlanes] : 0u; };
    uint32_t pair[2][2];  // of planes 2 i and 2 i + 1, of even and odd features
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pair[i][0] = merge_fields(at(2 * i), at(2 * i + 1) << 1, kPairs);
      pair[i][1] = merge_fields(at(2 * i) >> 1, at(2 * i + 1), kPairs);
    }
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      nibble[h][odd] = merge_fields(pair[0][odd], pair[1][odd] << 2, kNibbles);
      nibble[h][odd + 2] = merge_fields(pair[0][odd] >> 2, pair[1][odd], kNibbles);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    piece[r] = merge_fields(nibble[0][r], nibble[1][r] << 4, kBytes);
    piece[r + 4] = merge_fields(nibble[0][r] >> 4, nibble[1][r], kBytes);
  }
}

// Writes the counts of a row's words that the lane keeps; none reaches 2^kStagedPlanes.
template <class Lanes, int kPlanes>
__device__ __forceinline__ void stage_counts(
    const StagedCounts& to, int64_t words, const Lanes& lanes,
    const bspmm::CountPlanes<Lanes::kKept, kPlanes>& planes, int64_t row, int64_t chunk) {
  if (!lanes.owns_words()) return;
#pragma unroll
  for (int w = 0; w < Lanes::kKept; ++w) {
    const int64_t word = chunk + lanes.kept_word() + w;
    if (word >= words) break;
    constexpr int kHeld = kPlanes < kStagedPlanes ? kPlanes : kStagedPlanes;
    uint32_t plane[kHeld], piece[kStagedPieces];
#pragma unroll
    for (int p = 0; p < kHeld; ++p) plane[p] = planes.plane[p][w];
    count_bytes(piece, plane);
    uint4* target =
        to.counts + ((row / kMmaRows * words + word) * kStagedParts * kMmaRows + row % kMmaRows);
    target[0] = make_uint4(piece[0], piece[1], piece[2], piece[3]);
    target[kMmaRows] = make_uint4(piece[4], piece[5], piece[6], piece[7]);
  }
}

}  // namespace bitgnn::cuda::pairs
