// Per-class terms that the sums of strips are compared with or added to. The class of a pixel says
// which of its 3 x 3 taps are inside the image.
#pragma once

#include "conv/cuda/mma_plan.h"
#include "conv/cuda/outputs.cuh"

namespace bitgnn::cuda::conv {

constexpr int kStripClasses = 9;

// Which of the three taps from `at` on are inside: 0 all but the first, 2 all but the last, 1 all.
__device__ __forceinline__ int strip_class(int at, int size) {
  return at < 0 ? 0 : at + 2 >= size ? 2 : 1;
}

// Calls put(class, channels * taps inside - 2 |b|) for every `step`-th class from `begin`; `step`
// threads divide the classes of a channel.
template <class Put>
__device__ __forceinline__ void for_strip_classes(const ConvArgs& c, int channel, int begin,
                                                  int step, const Put& put) {
  const int32_t* from = c.prepared + static_cast<int64_t>(channel) * (9 + kPreparedExtra);
  int32_t columns[3][3];  // sums of the inside taps in each kernel row, by column class
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int32_t left = from[i * 3], middle = from[i * 3 + 1], right = from[i * 3 + 2];
    columns[0][i] = middle + right;
    columns[1][i] = left + middle + right;
    columns[2][i] = left + middle;
  }
#pragma unroll
  for (int which = 0; which < kStripClasses; ++which) {
    if (which % step != begin) continue;
    const int y = which / 3, x = which % 3;
    const int32_t (&taps)[3] = columns[x];
    const int32_t set = taps[1] + (y != 0 ? taps[0] : 0) + (y != 2 ? taps[2] : 0);
    const int inside = (y == 1 ? 3 : 2) * (x == 1 ? 3 : 2);
    put(which, inside * static_cast<int32_t>(c.channels) - 2 * set);
  }
}

__device__ __forceinline__ int32_t prepared_limit(const ConvArgs& c, int channel) {
  return c.prepared[static_cast<int64_t>(channel) * (9 + kPreparedExtra) + 9];
}

// Terms of bits are stored in pairs of 16 bits, for the first and second half of the fragments,
// laid out so that the quads of a warp read theirs for even and odd |a| without bank conflicts.
template <int kFragments>
struct StripPairs {
  static constexpr int kClass = kFragments * 8;  // words per class

  // First word of the four pairs from `step` on for lane q of a quad.
  __device__ static int place(int which, int step, int quad, int odd) {
    return which * kClass + step / 4 * 32 + quad * 8 + odd * 4;
  }
};

constexpr int kPairBias = 0x8000;

// Values that p - h is compared with at pixels of each class, for even and odd |a|: bias - t.
template <int kFragments>
__device__ __forceinline__ void make_pair_terms(int32_t* terms, const ConvArgs& c, int first,
                                                int channel, int begin, int step) {
  const int32_t limit = prepared_limit(c, first + channel);
  // The lane and fragment that hold this channel; see strip_channel().
  const int quad = channel % 32 / 8, k = channel / 32 * 8 + channel % 8;
  const int high = k / kFragments, at = k % kFragments;
  for_strip_classes(c, first + channel, begin, step, [&](int which, int32_t base) {
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      // dot >= limit if and only if p >= h + ceil((limit - base + 2 e) / 4)
      const int32_t t = (limit - base + 3 + 2 * odd) >> 2;
      const int place = StripPairs<kFragments>::place(which, at, quad, odd) + at % 4;
      reinterpret_cast<uint16_t*>(terms)[place * 2 + high] =
          static_cast<uint16_t>(kPairBias - min(max(t, -kPairBias / 2), kPairBias / 2));
    }
  });
}

// Spreads bits 15 and 31 of two pairs over one byte each.
__device__ __forceinline__ uint32_t spread_signs(uint32_t first, uint32_t second) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, 0xfdb9;\n" : "=r"(bytes) : "r"(first), "r"(second));
  return bytes;
}

// The constant part of the dot at pixels of each class.
template <int kChannels>
__device__ __forceinline__ void make_sum_terms(int32_t* terms, const ConvArgs& c, int first,
                                               int channel, int begin, int step) {
  for_strip_classes(c, first + channel, begin, step,
                    [&](int which, int32_t base) { terms[which * kChannels + channel] = base; });
}

// The value that 2 p - |a| is compared with for bits, otherwise the constant part of the dot.
template <ConvResult kOutput, int kChannels>
__device__ __forceinline__ void make_dot_terms(int32_t* terms, const ConvArgs& c, int first,
                                               int channel, int begin, int step) {
  constexpr bool kCompares = kOutput == ConvResult::kBits;
  const int32_t limit = kCompares ? prepared_limit(c, first + channel) : 0;
  for_strip_classes(c, first + channel, begin, step, [&](int which, int32_t base) {
    terms[which * kChannels + channel] = kCompares ? ((limit - base + 1) >> 1) - 1 : base;
  });
}

// One less than the smallest integer at or above the threshold; the sum of a 16-bit addend and a
// dot stays within the bounds.
__device__ __forceinline__ int32_t total_limit(const float* threshold, int channel) {
  constexpr float kBound = 1 << 30;
  const float t = threshold != nullptr ? threshold[channel] : 0.0f;
  if (!(t <= kBound)) return 1 << 30;  // NaN too
  return static_cast<int32_t>(fmaxf(ceilf(t), -kBound)) - 1;
}

}  // namespace bitgnn::cuda::conv
