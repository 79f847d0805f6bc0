// Epilogue of a warp's slab: turns 16 rows by kColumns columns of sums into bits or values.
#pragma once

#include "bmm/cuda/slab_values.cuh"

namespace bitgnn::cuda::bmm {

// Transposes a 4 x 4 matrix of 2-bit elements whose rows are bytes.
__device__ __forceinline__ uint32_t transpose_pairs(uint32_t v) {
  uint32_t t = (v ^ (v >> 12)) & 0x0000f0f0u;
  v ^= t ^ (t << 12);
  t = (v ^ (v >> 6)) & 0x00cc00ccu;
  return v ^ t ^ (t << 6);
}

// Assembles eight words from the lanes of a quad, each of which holds 8 bits of every word: byte i
// of `low` belongs to word i, byte i of `high` to word i + 4, and bit 2 j + e of the byte is bit 8
// j + 2 q + e of the word. Lane q gets the complete words 2 q and 2 q + 1.
__device__ __forceinline__ uint2 gather_words(uint32_t low, uint32_t high, int quad) {
  const bool upper = (quad & 2) != 0;
  const bool odd = (quad & 1) != 0;
  const uint32_t mine = upper ? high : low;
  const uint32_t other = __shfl_xor_sync(kFullWarp, upper ? low : high, 2);
  const uint32_t first_two = __byte_perm(mine, other, 0x5410);
  const uint32_t last_two = __byte_perm(mine, other, 0x7632);
  const uint32_t keep = odd ? last_two : first_two;
  const uint32_t got = __shfl_xor_sync(kFullWarp, odd ? first_two : last_two, 1);
  // Bytes arrive in the order of lanes q, q ^ 1, q ^ 2, q ^ 3; byte p of a word comes from lane p.
  const uint32_t order = quad == 0 ? 0x3210 : quad == 1 ? 0x2301 : quad == 2 ? 0x1032 : 0x0123;
  return make_uint2(transpose_pairs(__byte_perm(__byte_perm(keep, got, 0x6240), 0, order)),
                    transpose_pairs(__byte_perm(__byte_perm(keep, got, 0x7351), 0, order)));
}

// Returns a lane's bits for 64 columns from `first`, or 32 if there are no more: bit 8 w + 2 j + e
// is column 32 w + 8 j + 2 q + e of row g; 16 bits higher is the same for row g + 8.
template <int kColumns>
__device__ __forceinline__ uint32_t sign_bits(const ColumnTable<kColumns>& table,
                                              const SlabRows& rows,
                                              const int32_t (&sum)[kColumns / 2], int first,
                                              int quad) {
  constexpr uint32_t kTops = 0x80008000u;
  constexpr int kPairs = kColumns < 64 ? kColumns / 8 : 8;
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int2 term = *reinterpret_cast<const int2*>(table.term + first + j * 8 + quad * 2);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int32_t* of = sum + (first / 8 + j) * 4 + e;
      const int32_t both = of[2] * 0x10000 + of[0];
      const auto dots =
          static_cast<uint32_t>(both * 4 + ((e == 0 ? term.x : term.y) + rows.term[0]));
      bits = ((bits >> 1) & ~kTops) | (dots & kTops);
    }
  }
  return kPairs == 8 ? bits : (bits >> 8) & 0x00ff00ffu;
}

template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ uint32_t value_bits(const SlabTarget& target,
                                               const ColumnTable<kColumns>& table,
                                               const SlabRows& rows,
                                               const int32_t (&sum)[kColumns / 2], int first,
                                               int lane) {
  constexpr int kPairs = kColumns < 64 ? kColumns / 8 : 8;
  const int quad = fragment_quad(lane);
  const float* addends[2];  // of the lane's rows; null past the last row
  if constexpr (adds(kOutput)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = fragment_group(lane) + half * 8;
      addends[half] = row < target.rows ? target.addend + row * target.addend_pitch : nullptr;
    }
  }
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < kPairs; ++j) {
    const int at = first + j * 8 + quad * 2;
    const int2 terms = *reinterpret_cast<const int2*>(table.term + at);
    const float2 scales = *reinterpret_cast<const float2*>(table.scale + at);
    const float2 biases = *reinterpret_cast<const float2*>(table.bias + at);
    const float2 thresholds = *reinterpret_cast<const float2*>(table.threshold + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = i / 2;
      const bool even = i % 2 == 0;
      const int32_t dot =
          4 * sum[(first / 8 + j) * 4 + i] + ((even ? terms.x : terms.y) + rows.term[half]);
      float v =
          slab_value(rows.scale[half], even ? scales.x : scales.y, even ? biases.x : biases.y, dot);
      if constexpr (adds(kOutput)) {
        if (addends[half] != nullptr && at + i % 2 < target.columns)
          v = __fadd_rn(v, __ldg(addends[half] + at + i % 2));
      }
      if (v >= (even ? thresholds.x : thresholds.y)) bits |= 1u << (16 * half + 2 * j + i % 2);
    }
  }
  return bits;
}

// Writes eight words, of which lane q holds words 2 q and 2 q + 1: kWords (2, 4 or 8) per row from
// `row` on, first for row g, then for row g + 8.
template <int kWords, int kColumns>
__device__ __forceinline__ void store_words(const SlabTarget& target,
                                            const ColumnTable<kColumns>& table, uint2 words,
                                            int row, int lane) {
  const int index = fragment_quad(lane) * 2;
  const int word = index % kWords;
  row += fragment_group(lane) + index / kWords * 8;
  if (index >= 2 * kWords || row >= target.rows || word * 32 >= target.columns) return;
  const uint32_t x = (words.x ^ table.flip[word]) & table.exists[word];
  const uint32_t y = (words.y ^ table.flip[word + 1]) & table.exists[word + 1];
  int32_t* to = target.to + row * target.pitch + word;
  if ((target.pitch & 1) == 0) {
    *reinterpret_cast<uint2*>(to) = make_uint2(x, y);
  } else {
    to[0] = static_cast<int32_t>(x);
    if (word * 32 + 32 < target.columns) to[1] = static_cast<int32_t>(y);
  }
}

// Parts of 64 columns whose bits a lane holds in a word each, in the order of sign_bits().
constexpr int slab_parts(int columns) { return (columns + 63) / 64; }

// Writes the bits of a slab.
template <int kColumns>
__device__ __forceinline__ void store_parts(const SlabTarget& target,
                                            const ColumnTable<kColumns>& table,
                                            const uint32_t (&bits)[slab_parts(kColumns)],
                                            int lane) {
  const int quad = fragment_quad(lane);
  if constexpr (kColumns == 256) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t order = half == 0 ? 0x5410 : 0x7632;
      const uint2 words = gather_words(__byte_perm(bits[0], bits[1], order),
                                       __byte_perm(bits[2], bits[3], order), quad);
      store_words<8>(target, table, words, half * 8, lane);
    }
  } else if constexpr (kColumns == 128) {
    const uint2 words = gather_words(__byte_perm(bits[0], bits[1], 0x5410),
                                     __byte_perm(bits[0], bits[1], 0x7632), quad);
    store_words<4>(target, table, words, 0, lane);
  } else if constexpr (kColumns == 64) {
    store_words<2>(target, table, gather_words(bits[0], 0, quad), 0, lane);
  } else {
    static_assert(kColumns == 32, "a slab has 32, 64, 128 or 256 columns");
    const uint2 words = gather_words(__byte_perm(bits[0], 0, 0x4420), 0, quad);
    const uint32_t pair[2] = {words.x, words.y};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = fragment_group(lane) + half * 8;
      if (quad == 0 && row < target.rows && target.columns > 0)
        target.to[row * target.pitch] =
            static_cast<int32_t>((pair[half] ^ table.flip[0]) & table.exists[0]);
    }
  }
}

template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ void store_slab_bits(const SlabTarget& target,
                                                const ColumnTable<kColumns>& table,
                                                const SlabRows& rows,
                                                const int32_t (&sum)[kColumns / 2], int lane) {
  uint32_t bits[slab_parts(kColumns)];
#pragma unroll
  for (int part = 0; part < slab_parts(kColumns); ++part) {
    if constexpr (kOutput == BmmOutput::kSigns) {
      bits[part] = sign_bits<kColumns>(table, rows, sum, part * 64, fragment_quad(lane));
    } else {
      bits[part] = value_bits<kOutput, kColumns>(target, table, rows, sum, part * 64, lane);
    }
  }
  store_parts(target, table, bits, lane);
}

// Writes a slab. sum[4 j + i] is element i of the accumulator fragment of columns 8 j to 8 j + 7;
// `staged` is kStagedWords of the warp's shared memory, 16-byte aligned, unused if bits are
// written. All lanes of the warp participate.
template <BmmOutput kOutput, int kColumns>
__device__ __forceinline__ void store_slab(const SlabTarget& target,
                                           const ColumnTable<kColumns>& table, const SlabRows& rows,
                                           const int32_t (&sum)[kColumns / 2], int32_t* staged,
                                           int lane) {
  if constexpr (writes_bits(kOutput)) {
    store_slab_bits<kOutput, kColumns>(target, table, rows, sum, lane);
  } else {
    store_slab_values<kOutput, kColumns>(target, table, rows, sum, staged, lane);
  }
}

}  // namespace bitgnn::cuda::bmm
