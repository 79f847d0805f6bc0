// Bits of products in which nothing of the row takes part but the dot product: the number of
// features that agree, popc(x & w) + popc(~x & ~w), starts at minus the least that gives a set bit,
// so that its sign is the bit.
#pragma once

#include "bmm/cuda/floats/epilogue.cuh"
#include "bmm/cuda/output.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kAgreementColumns = 64;  // multiplied at a time
constexpr int kAgreementFragments = kAgreementColumns / kMmaColumns;

// What shared memory keeps of the columns.
struct AgreementTable {
  int2* starts;     // of columns 2 i and 2 i + 1, twice
  uint32_t* flips;  // a word of columns: where a negative sum is no set bit
  uint32_t* masks;  // likewise: which columns exist

  // In words, of columns rounded up to whole passes.
  __host__ __device__ static constexpr int words(int columns) {
    return 2 * columns + 2 * columns / kWordBits;
  }
};

__device__ __forceinline__ AgreementTable agreement_table(uint32_t* memory, int columns) {
  return {reinterpret_cast<int2*>(memory), memory + 2 * columns,
          memory + 2 * columns + columns / kWarp};
}

// Where the agreements of rows of `width` bits, zeros behind the features, start so that their sign
// tells of dot >= least: (size + dot) / 2 features agree, and so does all that is behind them.
__device__ __forceinline__ int32_t agreement_start(const BmmArgs& a, int32_t least, int width) {
  const auto size = static_cast<int32_t>(a.size);
  return -((least + size + 1) >> 1) - (width - size);
}

// Fills in a column of the table; all lanes of a warp take part, with neighbouring columns.
__device__ __forceinline__ void set_agreement(const AgreementTable& table, const BmmArgs& a,
                                              int column, const ColumnTerms& terms, bool flips,
                                              int width, int lane) {
  bool inverted = false;
  const int32_t start = agreement_start(a, least_dot(a, terms, inverted), width);
  const int32_t next = __shfl_xor_sync(kFullWarp, start, 1);
  table.starts[column] = column % 2 == 0 ? make_int2(start, next) : make_int2(next, start);
  inverted ^= flips;
  const uint32_t flip = __ballot_sync(kFullWarp, !inverted);
  const uint32_t mask = __ballot_sync(kFullWarp, column < a.out_features);
  if (lane == 0) {
    table.flips[column / kWarp] = flip;
    table.masks[column / kWarp] = mask;
  }
}

// Whether the bits of a column are turned round.
__device__ __forceinline__ bool flips_column(const BmmArgs& a, int column) {
  return a.flip != nullptr && column < a.out_features && a.flip[column];
}

// Fills the table from column `first` on; every warp of the block takes part.
__device__ __forceinline__ void set_agreements(const AgreementTable& table, const BmmArgs& a,
                                               int columns, int width, int threads, int lane,
                                               int first = 0) {
  for (int c = first + static_cast<int>(threadIdx.x); c < columns; c += threads)
    set_agreement(table, a, c, column_terms(a, c, 0), flips_column(a, c), width, lane);
}

// Agreements of 16 kTiles rows with the columns of a pass.
template <int kTiles>
using AgreementSums = int32_t[kTiles][kAgreementFragments][4];

// Adds the agreements of a step of 256 bits. `w` is where the lane's part of the weights starts,
// for load_matrices(), `pair_bytes` from 16 columns to the next. The first step begins at `start`
// for all columns or, unless kSame, at what `starts` holds.
template <bool kSame, bool kFirst, int kTiles>
__device__ __forceinline__ void add_agreements(AgreementSums<kTiles>& sum,
                                               const uint32_t (&x)[kTiles][4], uint32_t w,
                                               uint32_t pair_bytes, int32_t start,
                                               const int4* starts, int quad) {
  constexpr int kTogether = 4;  // columns' fragments, so that products of the same sums are apart
  uint32_t inverse[kTiles][4];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) inverse[i][k] = ~x[i][k];
  }
#pragma unroll
  for (int j = 0; j < kAgreementFragments; j += kTogether) {
    uint32_t b[kTogether][2];
    const uint32_t at = w + j / 2 * pair_bytes;
    load_matrices(at, b[0][0], b[0][1], b[1][0], b[1][1]);
    load_matrices(at + pair_bytes, b[2][0], b[2][1], b[3][0], b[3][1]);
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      int4 first = make_int4(start, start, start, start);
      if constexpr (kFirst && !kSame) first = starts[(j + e) * 4 + quad];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if constexpr (kFirst)
          mma_and_popc(sum[i][j + e], x[i], b[e], first);
        else
          mma_and_popc(sum[i][j + e], x[i], b[e]);
      }
    }
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      b[e][0] = ~b[e][0];
      b[e][1] = ~b[e][1];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) mma_and_popc(sum[i][j + e], inverse[i], b[e]);
    }
  }
}

// The signs of 16 rows: byte 2 h + v for row g + 8 h and word v, its bit 2 j + e for column
// 8 j + 2 q + e.
__device__ __forceinline__ uint32_t collect_signs(const int32_t (&sum)[kAgreementFragments][4]) {
  uint32_t bits[2] = {};
#pragma unroll
  for (int j = kAgreementFragments - 1; j >= 0; --j) {
#pragma unroll
    for (int e = 1; e >= 0; --e) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        bits[half] = __funnelshift_l(static_cast<uint32_t>(sum[j][half * 2 + e]), bits[half], 1);
    }
  }
  return __byte_perm(bits[0], bits[1], 0x5410);
}

// Writes two words of signs, those of pass `pass`, to a row.
__device__ __forceinline__ void store_agreements(const BmmArgs& a, const AgreementTable& table,
                                                 uint2 words, int64_t row, int pass) {
  const auto out_words = static_cast<int>(output_words(a));
  const int word = pass * (kAgreementColumns / kWordBits);
  const auto x = static_cast<int32_t>((words.x ^ table.flips[word]) & table.masks[word]);
  const auto y = static_cast<int32_t>((words.y ^ table.flips[word + 1]) & table.masks[word + 1]);
  int32_t* out = a.out_bits + row * out_words + word;
  if (out_words % 2 == 0) {
    *reinterpret_cast<int2*>(out) = make_int2(x, y);
  } else {
    out[0] = x;
    if (word + 1 < out_words) out[1] = y;
  }
}

}  // namespace bitgnn::cuda::bmm
