// Bit outputs that depend on the row through its dot product alone. The number of features that
// agree, popc(x & w) + popc(~x & ~w), starts at minus the smallest number that sets the bit, so the
// sign of the sum is the bit.
#pragma once

#include "bmm/cuda/floats/epilogue.cuh"
#include "bmm/cuda/output.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kAgreementColumns = 64;  // columns per pass
constexpr int kAgreementFragments = kAgreementColumns / kMmaColumns;

// Per-column data in shared memory.
struct AgreementTable {
  int2* starts;     // start values of columns 2 i and 2 i + 1, stored twice
  uint32_t* flips;  // per 32 columns: where a negative sum is a clear bit
  uint32_t* masks;  // per 32 columns: which ones exist

  // Size in words, for a number of columns rounded up to whole passes.
  __host__ __device__ static constexpr int words(int columns) {
    return 2 * columns + 2 * columns / kWordBits;
  }
};

__device__ __forceinline__ AgreementTable agreement_table(uint32_t* memory, int columns) {
  return {reinterpret_cast<int2*>(memory), memory + 2 * columns,
          memory + 2 * columns + columns / kWarp};
}

// Start value of the agreements of rows of `width` bits, zero-padded past the features, whose sum
// has the sign of dot >= least: (size + dot) / 2 features agree, and so do all padding bits.
__device__ __forceinline__ int32_t agreement_start(const BmmArgs& a, int32_t least, int width) {
  const auto size = static_cast<int32_t>(a.size);
  return -((least + size + 1) >> 1) - (width - size);
}

// Fills one column of the table. All lanes of a warp participate, with consecutive columns.
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

// True if the bits of a column are flipped.
__device__ __forceinline__ bool flips_column(const BmmArgs& a, int column) {
  return a.flip != nullptr && column < a.out_features && a.flip[column];
}

// Fills the table from column `first` on; all warps of the block participate.
__device__ __forceinline__ void set_agreements(const AgreementTable& table, const BmmArgs& a,
                                               int columns, int width, int threads, int lane,
                                               int first = 0) {
  for (int c = first + static_cast<int>(threadIdx.x); c < columns; c += threads)
    set_agreement(table, a, c, column_terms(a, c, 0), flips_column(a, c), width, lane);
}

// Agreements of 16 rows with the columns of a pass.
using AgreementSums = int32_t[kAgreementFragments][4];

// Adds the agreements of one 256-bit step. `w` is the lane's load_matrices() address of the
// weights, `pair_bytes` the distance between groups of 16 columns. The first step starts from
// `start` for all columns or, unless kSame, from `starts`.
template <bool kSame, bool kFirst>
__device__ __forceinline__ void add_agreements(AgreementSums& sum, const uint32_t (&x)[4],
                                               uint32_t w, uint32_t pair_bytes, int32_t start,
                                               const int4* starts, int quad) {
  constexpr int kTogether = 4;  // column fragments, to space out products into the same sums
  uint32_t inverse[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) inverse[k] = ~x[k];
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
      if constexpr (kFirst)
        mma_and_popc(sum[j + e], x, b[e], first);
      else
        mma_and_popc(sum[j + e], x, b[e]);
    }
#pragma unroll
    for (int e = 0; e < kTogether; ++e) {
      b[e][0] = ~b[e][0];
      b[e][1] = ~b[e][1];
      mma_and_popc(sum[j + e], inverse, b[e]);
    }
  }
}

// Collects the signs of 16 rows: byte 2 h + v is row g + 8 h and word v, its bit 2 j + e is column
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

// Writes the two sign words of pass `pass` to a row.
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
