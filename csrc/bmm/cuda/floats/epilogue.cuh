// Epilogue of products that pack their activations: values, bits by integer comparison where
// possible, otherwise bits by comparing values.
#pragma once

#include <climits>

#include "bmm/cuda/output.cuh"
#include "core/cuda/mma_b1.cuh"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::bmm {

// kCompared: bits that depend on the row through its dot product alone. Every step from there to
// the bit is monotonic, so the bit compares the dot product with a per-column integer. kScaled:
// values with the scales measured while packing.
enum class PackingMode : int { kCompared, kValues, kScaled };

inline PackingMode packing_mode(const BmmArgs& a) {
  if (a.out_int != nullptr) return PackingMode::kValues;
  // A positive scale ahead of a comparison with zero has no effect and is dropped.
  const bool values = a.out_float != nullptr || a.addend != nullptr;
  const bool scales = values || a.bias != nullptr || a.threshold != nullptr;
  if (a.packed_scale && scales) return PackingMode::kScaled;
  return values || (a.row_scale != nullptr && scales) ? PackingMode::kValues
                                                      : PackingMode::kCompared;
}

// Epilogue terms of a column. Missing terms default to values that change no bit of the result: a
// scale of 1, a bias of -0, a threshold of 0.
struct ColumnTerms {
  float scale, bias, threshold;
  int32_t count;  // set bits of its weights
};

__device__ __forceinline__ ColumnTerms column_terms(const BmmArgs& a, int column, int32_t count) {
  ColumnTerms terms{1.0f, -0.0f, 0.0f, count};
  if (column < a.out_features) {
    if (a.out_scale != nullptr) terms.scale = __ldg(a.out_scale + column);
    if (a.bias != nullptr) terms.bias = __ldg(a.bias + column);
    if (a.threshold != nullptr) terms.threshold = __ldg(a.threshold + column);
  } else {
    terms.threshold = __int_as_float(0x7fffffff);  // NaN: no bit is set
  }
  return terms;
}

// (row_scale * scale) * dot + bias, rounded step by step like the reference.
__device__ __forceinline__ float column_value(const ColumnTerms& terms, float row_scale,
                                              int32_t dot) {
  return __fadd_rn(__fmul_rn(__fmul_rn(row_scale, terms.scale), __int2float_rn(dot)), terms.bias);
}

// Returns the number whose comparison dot >= number gives a column's bit, inverted if the bit falls
// as the dot product rises: every step from there to the bit is monotonic.
__device__ __forceinline__ int32_t least_dot(const BmmArgs& a, const ColumnTerms& terms,
                                             bool& inverted) {
  inverted = false;
  if (a.bias == nullptr && a.threshold == nullptr) return 0;
  const int32_t size = static_cast<int32_t>(a.size);
  const auto bit = [&](int32_t dot) { return column_value(terms, 1.0f, dot) >= terms.threshold; };
  inverted = bit(-size);
  int32_t below = -size, least = size + 1;  // the bit changes in (below, least]
  while (least - below > 1) {
    const int32_t middle = below + (least - below) / 2;
    if (bit(middle) != inverted)
      least = middle;
    else
      below = middle;
  }
  return least;
}

// With r and c set bits in row and column, dot = size - 2 r - 2 c + 4 popc(a & b) reaches `least`
// if and only if 2 popc(a & b) - r >= the returned limit.
__device__ __forceinline__ int32_t column_limit(const BmmArgs& a, const ColumnTerms& terms,
                                                bool& inverted) {
  return ((least_dot(a, terms, inverted) - static_cast<int32_t>(a.size) + 1) >> 1) + terms.count;
}

// Fills the tables of a column whose weights have `count` set bits. All lanes of a warp
// participate, with 32 consecutive columns. kCompared needs only the limits, the other modes the
// terms.
template <PackingMode kMode>
__device__ __forceinline__ void set_column(const BmmArgs& a, int column, int32_t count,
                                           int32_t* limits, ColumnTerms* terms,
                                           uint32_t* inversions, int lane) {
  const ColumnTerms own = column_terms(a, column, count);
  bool inverted = false;
  if constexpr (kMode == PackingMode::kCompared)
    limits[column] = column < a.out_features ? column_limit(a, own, inverted) : INT_MAX;
  else
    terms[column] = own;
  if (a.flip != nullptr && column < a.out_features) inverted ^= a.flip[column];
  const uint32_t vote = __ballot_sync(kFullWarp, inverted);
  if (lane == 0) inversions[column / kWarp] = vote;
}

// The rows of one iteration.
struct PackingTile {
  int64_t first_row;
  int rows;               // rows that exist
  const int32_t* counts;  // set bits of each row
  const float* scales;    // of each row, or null
};

// Merges the words of four lanes, each holding columns 8 j + 2 q + e in bits 8 j + e, and writes
// them for rows g and g + 8 of the fragment.
__device__ __forceinline__ void store_words(const BmmArgs& a, const PackingTile& tile, int row,
                                            int column, uint32_t inversion, uint32_t (&word)[2],
                                            int lane) {
  const int quad = fragment_quad(lane);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    word[half] <<= quad * 2;
    word[half] |= __shfl_xor_sync(kFullWarp, word[half], 1);
    word[half] |= __shfl_xor_sync(kFullWarp, word[half], 2);
  }
  const int at = row + fragment_group(lane) + (quad & 1) * 8;
  if (quad < 2 && at < tile.rows)
    a.out_bits[(tile.first_row + at) * output_words(a) + column / kWarp] =
        static_cast<int32_t>((quad == 0 ? word[0] : word[1]) ^ inversion);
}

// Writes 16 rows by 32 columns from `column` on, held by a warp as four fragments `sum` of popc(a &
// b); `limits` are those of the columns.
__device__ __forceinline__ void store_compared(const BmmArgs& a, const PackingTile& tile, int row,
                                               int column, const int32_t* limits,
                                               uint32_t inversion, const int32_t (&sum)[4][4],
                                               int lane) {
  const int32_t* counts = tile.counts + row + fragment_group(lane);
  const int32_t count[2] = {counts[0], counts[8]};
  const int2* own = reinterpret_cast<const int2*>(limits) + fragment_quad(lane);
  uint32_t word[2] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int2 limit = own[j * (kMmaColumns / 2)];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (2 * sum[j][half * 2] - count[half] >= limit.x) word[half] |= 1u << (j * kMmaColumns);
      if (2 * sum[j][half * 2 + 1] - count[half] >= limit.y) word[half] |= 2u << (j * kMmaColumns);
    }
  }
  store_words(a, tile, row, column, inversion, word, lane);
}

// Writes up to two adjacent columns, of which `left` exist.
template <class T>
__device__ __forceinline__ void store_two(T* out, const T (&value)[2], int left) {
  if (left > 0) out[0] = value[0];
  if (left > 1) out[1] = value[1];
}

// The same for values and their bits.
__device__ __forceinline__ void store_values(const BmmArgs& a, const PackingTile& tile, int row,
                                             int column, const ColumnTerms* terms,
                                             uint32_t inversion, const int32_t (&sum)[4][4],
                                             int lane) {
  const int out_features = static_cast<int>(a.out_features);
  const bool whole = out_features % 2 == 0;  // column pairs are complete and 8-byte aligned
  const int at = row + fragment_group(lane);
  const int left = out_features - column - fragment_quad(lane) * 2;  // columns left for the lane
  const int64_t first = (tile.first_row + at) * out_features + column + fragment_quad(lane) * 2;
  int32_t row_term[2];
  float scale[2];
  bool exists[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    exists[half] = at + half * 8 < tile.rows;
    row_term[half] = static_cast<int32_t>(a.size) - 2 * tile.counts[at + half * 8];
    scale[half] = tile.scales != nullptr && exists[half] ? tile.scales[at + half * 8] : 1.0f;
  }
  uint32_t word[2] = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const ColumnTerms* own = terms + j * kMmaColumns + fragment_quad(lane) * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t element =
          first + half * 8 * static_cast<int64_t>(out_features) + j * kMmaColumns;
      const int existing = exists[half] ? left - j * kMmaColumns : 0;
      float value[2];
      int32_t dot[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        dot[e] = 4 * sum[j][half * 2 + e] + (row_term[half] - 2 * own[e].count);
        value[e] = column_value(own[e], scale[half], dot[e]);
        if (a.addend != nullptr && existing > e)
          value[e] = __fadd_rn(value[e], __ldg(a.addend + element + e));
        if (value[e] >= own[e].threshold) word[half] |= (1u + e) << (j * kMmaColumns);
      }
      if (a.out_float != nullptr) {
        if (whole && existing > 0)
          *reinterpret_cast<float2*>(a.out_float + element) = make_float2(value[0], value[1]);
        else
          store_two(a.out_float + element, value, existing);
      } else if (a.out_int != nullptr) {
        store_two(a.out_int + element, dot, existing);
      }
    }
  }
  if (a.out_bits != nullptr) store_words(a, tile, row, column, inversion, word, lane);
}

}  // namespace bitgnn::cuda::bmm
