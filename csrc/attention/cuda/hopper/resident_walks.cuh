// The two passes of attention on bits over a head's resident keys: one sums powers, the other makes
// the bits and their product with the values. In the first, the tensor cores compute the next
// columns of scores while a warp processes the previous ones.
// Bound by instructions, about 3.5 per score in the first pass and 1.7 in the second.
#pragma once

#include "attention/cuda/bits.cuh"
#include "attention/cuda/hopper/resident_tiles.cuh"

namespace bitgnn::cuda::attention {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// State of a lane's two query rows.
struct ResidentRows {
  uint32_t query[4];
  float sum[2] = {};
  int masked[2] = {};  // masked keys, which were summed as score 0
  int last_key[2];
  int set[2] = {};  // number of set bits
};

// Keys seen by the rows of a warpgroup: `chunks` chunks, of which the first `whole` in full.
struct ResidentKeys {
  uint64_t keys, values;  // descriptors
  const uint32_t* valid;
  uint32_t ragged;  // chunks with keys that may not be attended to
  int chunks, whole;

  __device__ __forceinline__ bool has_edge(int chunk) const {
    return chunk >= whole || (ragged >> chunk & 1) != 0;
  }
};

// Of eight scores, this many get their power from the table, the others from the special function
// units. Every other address and exponent is computed by multiplication, the rest by shifts, on two
// pipes of half rate each.
constexpr int kResidentLookups = 7;

// Constants hidden from the compiler, which would otherwise choose one pipe for all operations or
// copy constants.
struct OpaqueNumbers {
  uint32_t four, zero, exponent, offset;  // bits of 128.0f: offset, and its upper half exponent

  __device__ __forceinline__ explicit OpaqueNumbers(const AttentionPlan& plan)
      : four(static_cast<uint32_t>(plan.four)),
        zero(four - 4),
        exponent(four * 0x10c0u),
        offset(four * 0x10c00000u) {}

  // 4 * score
  __device__ __forceinline__ uint32_t address(uint32_t score, bool multiplied) const {
    if (multiplied) return score * four;
    uint32_t shifted;
    asm("shf.l.wrap.b32 %0, %1, %2, 2;" : "=r"(shifted) : "r"(zero), "r"(score));
    return shifted;
  }
  // 128 + score
  __device__ __forceinline__ float value(uint32_t score, bool multiplied) const {
    return __uint_as_float(multiplied ? score * 65536u + offset
                                      : __byte_perm(score, exponent, 0x5044));
  }
};

// Adds the powers of half a tile's columns, which hold a lane's scores from kFirst on. last: the
// rows' last keys, relative to the lane's first key of this tile.
template <int kFirst, bool kEdge>
__device__ __forceinline__ void sum_powers(float (&sum)[2][2], const int32_t (&score)[32],
                                           const AttentionPlan& plan, uint32_t table,
                                           const int (&last)[2]) {
  const OpaqueNumbers numbers(plan);
#pragma unroll
  for (int v = 0; v < 16; ++v) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto s = static_cast<uint32_t>(score[score_index(v, r)]);
      const int place = (2 * v + r) * 3 % 8;
      const bool multiplied = place % 2 == 0;
      const float power =
          place < kResidentLookups
              ? load_power(numbers.address(s, multiplied) + table)
              : exp2_approximate(__fmaf_rn(numbers.value(s, multiplied), plan.slope, plan.addend));
      const bool seen = !kEdge || (kFirst + v) / 8 * 32 + v % 8 <= last[r];
      sum[r][v % 2] = __fadd_rn(sum[r][v % 2], seen ? power : 0.0f);
    }
  }
}

// Adds the powers of a chunk of keys. last: the rows' last keys, relative to the lane's first key
// of the chunk.
template <bool kEdge>
__device__ __forceinline__ void sum_chunk(ResidentRows& rows, const AttentionPlan& plan,
                                          uint32_t table, uint64_t keys, const int (&last)[2]) {
  constexpr int kHalves = 8;
  float sum[2][2] = {};
  int32_t score[2][32];
  const auto multiply = [&](int half) {
    wgmma_fence();
    wgmma_and_popc(score[half % 2], rows.query, keys + half_of_tile(half / 2, half % 2), false);
    wgmma_commit();
  };
  multiply(0);
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    if (half + 1 < kHalves) {
      multiply(half + 1);
      products_wait<1>(score[half % 2]);
    } else {
      products_wait<0>(score[half % 2]);
    }
    const int later = first_bit_of_tile(half / 2);
    const int here[2] = {last[0] - later, last[1] - later};
    if (half % 2 == 0)
      sum_powers<0, kEdge>(sum, score[0], plan, table, here);
    else
      sum_powers<16, kEdge>(sum, score[1], plan, table, here);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) rows.sum[r] += sum[r][0] + sum[r][1];
}

__device__ __forceinline__ void walk_powers(ResidentRows& rows, const ResidentKeys& k,
                                            const AttentionPlan& plan, uint32_t table) {
  const int quad = fragment_quad(static_cast<int>(threadIdx.x) % kWarp);
  int c = 0;
#pragma unroll 1
  for (; c < k.whole; ++c) sum_chunk<false>(rows, plan, table, k.keys + chunk_of_keys(c), {0, 0});
#pragma unroll 1
  for (; c < k.chunks; ++c) {
    const int first = first_key_of_lane(c, quad);
    sum_chunk<true>(rows, plan, table, k.keys + chunk_of_keys(c),
                    {rows.last_key[0] - first, rows.last_key[1] - first});
  }
  if (k.ragged == 0) return;
  for (c = 0; c < k.chunks; ++c) {
    if ((k.ragged >> c & 1) == 0) continue;
#pragma unroll
    for (int w = 0; w < kLaneWords; ++w)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        rows.masked[r] += __popc(
            ~k.valid[(c * 4 + quad) * kLaneWords + w] &
            // Keys past a row's last one were left out only in chunks that are not seen in full.
            (c < k.whole ? 0xffffffffu
                         : bits_through(rows.last_key[r] - first_key_of_lane(c, quad), w)));
  }
}

// Shifts packed scores up by one byte, to make room for the next.
__device__ __forceinline__ int32_t next_byte(int32_t packed, bool multiplied) {
  const auto bits = static_cast<uint32_t>(packed);
  return static_cast<int32_t>(multiplied ? bits * 256u : __byte_perm(bits, 0, 0x2104));
}

__device__ __forceinline__ void multiply_tile(int32_t (&score)[64], const ResidentRows& rows,
                                              const ResidentKeys& k, int chunk, int tile) {
  wgmma_fence();
  wgmma_and_popc(score, rows.query, k.keys + chunk_of_keys(chunk) + half_of_tile(tile, 0),
                 tile > 0);
  wgmma_commit();
  products_wait<0>(score);
}

// Computes the bits of a chunk of keys. The scores of its tiles share registers, one byte each; the
// addend makes the top bit of a byte the decision.
__device__ __forceinline__ void make_bits(uint32_t (&bits)[2][4], ResidentRows& rows,
                                          const ResidentKeys& k, const uint32_t (&addend)[2],
                                          int chunk) {
  const int quad = fragment_quad(static_cast<int>(threadIdx.x) % kWarp);
  int32_t score[64];
  multiply_tile(score, rows, k, chunk, 0);
#pragma unroll
  for (int tile = 1; tile < 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      if (tile < 3)
        score[i] = next_byte(score[i], tile == 2 || i % 2 == 0);
      else
        score[i] = static_cast<int32_t>(static_cast<uint32_t>(score[i]) * 256u + addend[i / 2 % 2]);
    }
    multiply_tile(score, rows, k, chunk, tile);
  }
#pragma unroll
  for (int w = 0; w < kLaneWords; ++w)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      uint32_t word = 0;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        word =
            (word >> 1) | (static_cast<uint32_t>(score[score_index(w * 8 + e, r)]) & 0x80808080u);
      bits[w / 2][w % 2 * 2 + r] = word;
    }
  if (k.has_edge(chunk)) {
#pragma unroll
    for (int w = 0; w < kLaneWords; ++w)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        bits[w / 2][w % 2 * 2 + r] &=
            k.valid[(chunk * 4 + quad) * kLaneWords + w] &
            bits_through(rows.last_key[r] - first_key_of_lane(chunk, quad), w);
  }
#pragma unroll
  for (int w = 0; w < kLaneWords; ++w)
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.set[r] += __popc(bits[w / 2][w % 2 * 2 + r]);
}

// Computes out, the product of the bits with the planes of the values.
__device__ __forceinline__ void walk_bits(int32_t (&out)[32], ResidentRows& rows,
                                          const ResidentKeys& k, const uint32_t (&addend)[2]) {
#pragma unroll
  for (int32_t& x : out) x = 0;
#pragma unroll 1
  for (int c = 0; c < k.chunks; ++c) {
    uint32_t bits[2][4];
    make_bits(bits, rows, k, addend, c);
    wgmma_fence();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int plane = 0; plane < 2; ++plane)
        wgmma_and_popc(out, bits[half], k.values + plane_of_values(c, half, plane), true);
    wgmma_commit();
    products_wait<0>(out);
  }
}

#endif

}  // namespace bitgnn::cuda::attention
