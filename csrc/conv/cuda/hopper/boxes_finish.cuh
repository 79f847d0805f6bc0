// Epilogues of the box convolution: turn a warpgroup's sums of a unit into bits or residual sums.
#pragma once

#include "conv/cuda/hopper/boxes_terms.cuh"
#include "conv/cuda/hopper/wgmma_epilogue.cuh"
#include "core/cuda/hopper/async_copy.cuh"

namespace bitgnn::cuda::conv {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

using BoxSums = int32_t[kBoxProductColumns / 2];

// Popcount of the window of a lane's row: the first column of ones.
__device__ __forceinline__ int window_count(const BoxSums& sum, int half) {
  return sum[kBoxColumns / 2 + 2 * half];
}

// Bits of a lane's 32 outputs of one row. Two sums share a register, 16 bits each:
//   0x8000 + 2 popc(a & b) - |a| - m,
// whose top bit is the output bit. A sign-replicating byte permutation takes four of them at a
// time: bit 8 e + i belongs to column 16 i + 8 (e / 2) + e % 2 from the lane's first on.
__device__ __forceinline__ uint32_t box_bits(const BoxSums& sum, const uint32_t* terms, int half) {
  const uint32_t count = static_cast<uint32_t>(window_count(sum, half)) * 0x10001u;
  const auto pair = [&](uint32_t term, int32_t low, int32_t high) {
    return static_cast<uint32_t>(low) * 2 + static_cast<uint32_t>(high) * 0x20000u + (term - count);
  };
  uint32_t bits = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const uint4 term = reinterpret_cast<const uint4*>(terms)[k];
    const int32_t* s = sum + 16 * k + 2 * half;
    uint32_t even, odd;
    asm("prmt.b32 %0, %1, %2, 0xfdb9;\n"
        : "=r"(even)
        : "r"(pair(term.x, s[0], s[1])), "r"(pair(term.y, s[4], s[5])));
    asm("prmt.b32 %0, %1, %2, 0xfdb9;\n"
        : "=r"(odd)
        : "r"(pair(term.z, s[8], s[9])), "r"(pair(term.w, s[12], s[13])));
    bits |= even & (0x01010101u << (2 * k));
    bits |= odd & (0x02020202u << (2 * k));
  }
  return bits;
}

__device__ __forceinline__ void store_box_bits(const ConvArgs& a, const uint32_t* turned,
                                               const unsigned char* terms, const BoxSums& sum,
                                               const BoxRow (&row)[2], const BoxLane& lane,
                                               int column_tile) {
  const int words = static_cast<int>(a.out_channels / 32);
  const auto* own = reinterpret_cast<const uint32_t*>(terms) + lane.quad * kBoxQuadPitch;
  const uint32_t turn = turned[lane.quad];
  int32_t* const to = a.out_bits + column_tile * (kBoxColumns / 32) + lane.quad;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t bits = box_bits(sum, own + row[half].index * kBoxBitPitch, half) ^ turn;
    if (row[half].pixel >= 0) to[int64_t{row[half].pixel} * words] = static_cast<int32_t>(bits);
  }
}

// Shifts in the bits of four totals, set where a total exceeds its limit; the last one first.
__device__ __forceinline__ uint32_t push_above(uint32_t bits, int4 limit, int4 total) {
  bits = push_sign(bits, limit.w - total.w);
  bits = push_sign(bits, limit.z - total.z);
  bits = push_sign(bits, limit.y - total.y);
  return push_sign(bits, limit.x - total.x);
}

// Adds a unit's sums to its addends in shared memory, of which the first `parts` parts are present,
// and writes the bits. A part is 64 channels of the unit's pixels, 128 bytes each, in 128-byte
// swizzle order; a lane holds eight consecutive outputs of every 32.
__device__ __forceinline__ void add_box_sums(const ConvArgs& a, const uint32_t* turned,
                                             const unsigned char* terms, unsigned char* addends,
                                             int parts, const BoxSums& sum, const BoxRow (&row)[2],
                                             const BoxLane& lane, const ConvBoxPlan& plan,
                                             int column_tile) {
  constexpr int kChunk = 8;
  const auto* own = reinterpret_cast<const int32_t*>(terms) + lane.quad * kChunk;
  const int32_t* limits = own + plan.classes * kBoxSumPitch;
  const int width = min(plan.out_width, kBoxUnitRows);
  uint32_t bits[2] = {0, 0};
#pragma unroll
  for (int chunk = kBoxColumns / 32 - 1; chunk >= 0; --chunk) {
    const int4 low_limit = *reinterpret_cast<const int4*>(limits + chunk * 32);
    const int4 high_limit = *reinterpret_cast<const int4*>(limits + chunk * 32 + 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = row[half].pixel >= 0;
      const int place = exists ? lane.y[half] * width + lane.x[half] : 0;
      auto* const at = reinterpret_cast<int4*>(addends + chunk / 2 * plan.part_pitch + place * 128 +
                                               ((chunk % 2 * 4 + lane.quad) ^ (place & 7)) * 16);
      const int32_t* s = sum + chunk * 16 + half * 2;
      const int32_t* term = own + row[half].index * kBoxSumPitch + chunk * 32;
      const int count = window_count(sum, half);
      const int4 v = exists && chunk / 2 < parts ? *at : make_int4(0, 0, 0, 0);
      const int4 low =
          add_pairs(conv_dots(make_int4(s[0], s[1], s[4], s[5]), term, count), v.x, v.y);
      const int4 high =
          add_pairs(conv_dots(make_int4(s[8], s[9], s[12], s[13]), term + 4, count), v.z, v.w);
      if (exists)
        *at = make_int4(clamp_halves(low.x, low.y), clamp_halves(low.z, low.w),
                        clamp_halves(high.x, high.y), clamp_halves(high.z, high.w));
      bits[half] = push_above(bits[half], high_limit, high);
      bits[half] = push_above(bits[half], low_limit, low);
    }
  }
  if (a.out_bits != nullptr)
    store_total_bits<kBoxColumns>(a, turned, bits[0], bits[1], column_tile * kBoxColumns,
                                  row[0].pixel, row[1].pixel, lane.quad);
}

#endif

}  // namespace bitgnn::cuda::conv
