// Epilogue of a warp's tile of the ternary product: sums to values or bits, without shared memory.
// Lane 4 g + q holds outputs g and g + 8 of rows 2 q and 2 q + 1: sum[2 * h + r] is output g + 8 h
// of row 2 q + r.
#pragma once

#include "core/cuda/mma_b1.cuh"
#include "ternary/cuda/values.cuh"
#include "ternary/cuda/words.cuh"

namespace bitgnn::cuda::ternary {

// Transposes an 8 x 8 matrix of 16-bit values, of which each lane holds two of a row.
__device__ __forceinline__ uint32_t transpose_halves(uint32_t v) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(turned) : "r"(v));
  return turned;
}

// Position of a tile of 16 outputs by eight rows.
struct TilePlace {
  int64_t row;
  int64_t output;
};

// Stores 16-bit values, transposed across lanes so that each holds two outputs of a row.
template <class T>
__device__ __forceinline__ void store_halves(const TernaryBmmArgs& a, const TilePlace& at,
                                             const float (&v)[4], int lane) {
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  T* to = static_cast<T*>(a.out) + (at.row + group) * a.out_features + at.output + quad * 2;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const T pair[2] = {rounded<T>(v[2 * h]), rounded<T>(v[2 * h + 1])};
    uint32_t word;
    memcpy(&word, pair, sizeof(word));
    word = transpose_halves(word);
    const int64_t left = a.out_features - (at.output + quad * 2 + 8 * h);
    if (at.row + group >= a.rows || left <= 0) continue;
    if (a.out_features % 2 == 0) {
      *reinterpret_cast<uint32_t*>(to + 8 * h) = word;
    } else {
      T one[2];
      memcpy(one, &word, sizeof(word));
      to[8 * h] = one[0];
      if (left > 1) to[8 * h + 1] = one[1];
    }
  }
}

// Terms, threshold and flip of a lane's two outputs.
struct LaneTerms {
  LoadedTerms value[2];
  float threshold[2] = {0.0f, 0.0f};
  bool flip[2] = {false, false};

  template <bool kBits>
  __device__ __forceinline__ void load(const TernaryBmmArgs& a, int output) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int at = min(output + 8 * h, static_cast<int>(a.out_features) - 1);
      value[h].load(a, at);
      if constexpr (kBits) {
        if (a.threshold != nullptr) threshold[h] = load_in_place(a.threshold + at);
        if (a.flip != nullptr) flip[h] = *(static_cast<const volatile bool*>(a.flip) + at);
      }
    }
  }
};

// Stores 16-bit values where rows consist of whole groups of four at 8-byte addresses: lane 4 g + q
// stores four outputs of row g, from the first eight if q is even, otherwise from the second.
struct FourValues {
  char* to;
  int64_t row_bytes;
  int rows, outputs;  // left from the lane's own position on
  bool odd;

  __device__ __forceinline__ FourValues(const TernaryBmmArgs& a, int64_t row, int output,
                                        int lane) {
    const int group = fragment_group(lane), quad = fragment_quad(lane);
    odd = quad % 2 != 0;
    output += (odd ? 8 : 0) + quad / 2 * 4;
    row_bytes = a.out_features * 2;
    to = static_cast<char*>(a.out) + (row + group) * row_bytes + output * 2;
    rows = static_cast<int>(a.rows - row) - group;
    outputs = static_cast<int>(a.out_features) - output;
    make_ready(to);
    make_ready(rows);
    make_ready(outputs);
  }
  // Stores the tile that lies `row` rows and `output` outputs further on.
  template <class T>
  __device__ __forceinline__ void store(int row, int output, const LaneTerms& terms,
                                        const int32_t (&dot)[4]) const {
    uint32_t word[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const TernaryTerms t = terms.value[h].terms();
      const T pair[2] = {rounded<T>(t.value(dot[2 * h])), rounded<T>(t.value(dot[2 * h + 1]))};
      memcpy(&word[h], pair, sizeof(word[h]));
      word[h] = transpose_halves(word[h]);
    }
    const uint32_t keep = odd ? word[1] : word[0];
    const uint32_t got = __shfl_xor_sync(kFullWarp, odd ? word[0] : word[1], 1);
    if (row < rows && output < outputs)
      *reinterpret_cast<uint2*>(to + row * row_bytes + output * 2) =
          odd ? make_uint2(got, keep) : make_uint2(keep, got);
  }
};

template <class T>
__device__ __forceinline__ void store_words(const TernaryBmmArgs& a, const TilePlace& at,
                                            const T (&v)[4], int lane) {
  const int group = fragment_group(lane), quad = fragment_quad(lane);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int64_t row = at.row + quad * 2 + k % 2, output = at.output + group + k / 2 * 8;
    if (row < a.rows && output < a.out_features)
      static_cast<T*>(a.out)[row * a.out_features + output] = v[k];
  }
}

template <class T>
__device__ __forceinline__ void store_tile_values(const TernaryBmmArgs& a, const TilePlace& at,
                                                  const LaneTerms& terms, const int32_t (&dot)[4],
                                                  int lane) {
  if constexpr (std::is_same_v<T, int32_t>) {
    store_words(a, at, dot, lane);
  } else {
    float v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) v[k] = terms.value[k / 2].terms().value(dot[k]);
    if constexpr (sizeof(T) == 4)
      store_words(a, at, v, lane);
    else
      store_halves<T>(a, at, v, lane);
  }
}

// Stores 16 bits, half an output word, for each of eight rows.
__device__ __forceinline__ void store_tile_bits(const TernaryBmmArgs& a, const TilePlace& at,
                                                const LaneTerms& terms, const int32_t (&dot)[4],
                                                int lane) {
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float v = terms.value[k / 2].terms().value(dot[k]);
    const bool bit = (v >= terms.threshold[k / 2]) != terms.flip[k / 2];
    if (bit && at.output + group + k / 2 * 8 < a.out_features) bits |= 1u << (8 * k + group);
  }
#pragma unroll
  for (int step = 4; step < kWarp; step *= 2) bits |= __shfl_xor_sync(kFullWarp, bits, step);
  // Byte k of `bits` belongs to sum k; the lanes of groups 0 and 1 write one row each.
  const int64_t row = at.row + quad * 2 + group;
  const int64_t words = ceil_div(a.out_features, kWordBits);
  if (group >= 2 || row >= a.rows || at.output / kWordBits >= words) return;
  const uint32_t half = group == 0 ? __byte_perm(bits, 0, 0x4420) : __byte_perm(bits, 0, 0x4431);
  reinterpret_cast<uint16_t*>(a.out_bits)[row * words * 2 + at.output / 16] =
      static_cast<uint16_t>(half);
}

}  // namespace bitgnn::cuda::ternary
