// Sums of +-1 in 16 bits from bit planes, 32 features of a lane at once: planes are transposed to
// bytes by exchanging bits between words, a quarter of the instructions of taking four bits of
// every plane apart.
#pragma once

#include "bspmm/arguments.h"
#include "bspmm/cuda/count_planes.cuh"

namespace bitgnn::cuda::bspmm {

constexpr int kMostShortPlanes = 8;  // a count is a byte
constexpr int kShortRun = 8;         // features of a 16-byte store
constexpr uint32_t kEvenNibbles = 0x0f0f0f0fu;

// Gives word j of four the bits 4 m + j of each of four planes, as nibble m.
__device__ __forceinline__ void make_nibbles(uint32_t (&nibbles)[4], uint32_t p0, uint32_t p1,
                                             uint32_t p2, uint32_t p3) {
  constexpr uint32_t kBits = 0x55555555u, kPairs = 0x33333333u;
  const uint32_t even01 = (p0 & kBits) | ((p1 & kBits) << 1);
  const uint32_t odd01 = ((p0 >> 1) & kBits) | (p1 & ~kBits);
  const uint32_t even23 = (p2 & kBits) | ((p3 & kBits) << 1);
  const uint32_t odd23 = ((p2 >> 1) & kBits) | (p3 & ~kBits);
  nibbles[0] = (even01 & kPairs) | ((even23 & kPairs) << 2);
  nibbles[1] = (odd01 & kPairs) | ((odd23 & kPairs) << 2);
  nibbles[2] = ((even01 >> 2) & kPairs) | (even23 & ~kPairs);
  nibbles[3] = ((odd01 >> 2) & kPairs) | (odd23 & ~kPairs);
}

// Counts of a word's features: byte b of counts[e] is that of feature 8 b + e.
template <int kPlanes>
__device__ __forceinline__ void make_bytes(uint32_t (&counts)[8],
                                           const uint32_t (&plane)[kPlanes]) {
  static_assert(kPlanes <= kMostShortPlanes, "a byte holds a count");
  const auto at = [&](int p) { return p < kPlanes ? plane[p < kPlanes ? p : 0] : 0u; };
  uint32_t low[4], high[4];
  make_nibbles(low, at(0), at(1), at(2), at(3));
  make_nibbles(high, at(4), at(5), at(6), at(7));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    counts[j] = (low[j] & kEvenNibbles) | ((high[j] & kEvenNibbles) << 4);
    counts[j + 4] = ((low[j] >> 4) & kEvenNibbles) | (high[j] & ~kEvenNibbles);
  }
}

// 2 count - degree of features 2 t and 2 t + 1 of eight, byte `run` of their counts; `offset` is
// short_offset(degree). The halves of a word stay positive, so that neither borrows.
__device__ __forceinline__ uint32_t short_pair(uint32_t even, uint32_t odd, int run,
                                               uint32_t offset) {
  const auto from = static_cast<uint32_t>(run);
  const uint32_t both =
      __byte_perm(even, odd, from | from << 4 | (from + 4) << 8 | (from + 4) << 12);
  return (2 * (both & 0x00ff00ffu) + offset) ^ 0x80008000u;
}

__device__ __forceinline__ uint32_t short_offset(int degree) {
  return 0x80008000u - static_cast<uint32_t>(degree) * 0x10001u;
}

// Whether rows consist of whole aligned stores.
__device__ __forceinline__ bool stores_short_runs(const AggregateArgs& a) {
  return a.features % kShortRun == 0 && reinterpret_cast<uintptr_t>(a.out_short) % 16 == 0;
}

// Writes the sums of a warp's rows, whose columns are pairs of adjacent lanes. Two lanes exchange
// every second run of eight features, so that together they fill 32 bytes at once.
template <class Lanes, int kPlanes>
__device__ __forceinline__ void finish_short_runs(const AggregateArgs& a, const Lanes& lanes,
                                                  const CountPlanes<Lanes::kKept, kPlanes>& planes,
                                                  int64_t row, int degree, bool wanted,
                                                  int64_t chunk) {
  static_assert(Lanes::kSplits == 1 && Lanes::kColumns % 2 == 0, "adjacent lanes share a row");
  const bool odd = lanes.lane % 2 != 0;
  const uint32_t offset = short_offset(degree);
  int16_t* const to = a.out_short + row * a.features;
#pragma unroll
  for (int k = 0; k < Lanes::kKept; ++k) {
    uint32_t mixed[kPlanes], counts[8];
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) {
      const uint32_t own = planes.plane[p][k];
      const uint32_t other = __shfl_xor_sync(kFullWarp, own, 1);
      mixed[p] = odd ? __byte_perm(other, own, 0x7531) : __byte_perm(own, other, 0x6420);
    }
    make_bytes(counts, mixed);
#pragma unroll
    for (int run = 0; run < 4; ++run) {
      const int64_t word =
          chunk + lanes.word() - (odd ? Lanes::kWords : 0) + run / 2 * Lanes::kWords;
      const int64_t feature =
          (word + k) * kWordBits + run % 2 * 2 * kShortRun + (odd ? kShortRun : 0);
      if (!wanted || feature >= a.features) continue;
      *reinterpret_cast<uint4*>(to + feature) =
          make_uint4(short_pair(counts[0], counts[1], run, offset),
                     short_pair(counts[2], counts[3], run, offset),
                     short_pair(counts[4], counts[5], run, offset),
                     short_pair(counts[6], counts[7], run, offset));
    }
  }
}

}  // namespace bitgnn::cuda::bspmm
