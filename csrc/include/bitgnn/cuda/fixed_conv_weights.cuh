// What a block of the fixed-point convolution keeps of its output channels: weights as bytes, the
// places of the products in the region, what sums are compared with.
#pragma once

#include "bitgnn/cuda/fixed_conv_plan.h"
#include "bitgnn/cuda/fixed_point.cuh"

namespace bitgnn::cuda {

// Step `step`, words 2 * pair and 2 * pair + 1 of a channel. Pairs of every fourth channel change
// places, so that channels next to each other are written without bank conflicts.
__device__ __forceinline__ int weight_place(const FixedPlan& plan, int step, int channel,
                                            int pair) {
  return (step * plan.block_channels + channel) * kFixedStepWords + (pair ^ (channel / 4 % 4)) * 2;
}

__device__ __forceinline__ void put_weights(uint32_t* to, const FixedPlan& plan, int word,
                                            int channel, uint32_t bytes) {
  to[weight_place(plan, word / kFixedStepWords, channel, word % kFixedStepWords / 2) + word % 2] =
      bytes;
}

// A thread makes one segment of one channel; every tap is one word of w.
__device__ __forceinline__ void expand_weights(uint32_t* to, const FixedConvArgs& a,
                                               const FixedPlan& plan, int first_channel) {
  constexpr int kTaps = 12;  // read at once
  const int taps = plan.taps;
  const int bits_of_tap = static_cast<int>(a.conv.channels);
  const int items = plan.segments * plan.block_channels;
  for (int item = static_cast<int>(threadIdx.x); item < items; item += kFixedThreads) {
    const int segment = item / plan.block_channels, channel = item % plan.block_channels;
    const bool exists = first_channel + channel < a.conv.out_channels;
    const int32_t* from = a.conv.w + static_cast<int64_t>(first_channel + channel) * taps +
                          segment * plan.segment_taps;
    uint64_t bits = 0;  // read, but not written yet
    int count = 0;
    int word = segment * plan.segment_words;
    const int last_word =
        segment + 1 < plan.segments ? word + plan.segment_words : plan.steps * kFixedStepWords;
    for (int first = 0; exists && first < plan.segment_taps; first += kTaps) {
      uint32_t values[kTaps];
#pragma unroll
      for (int j = 0; j < kTaps; ++j)
        values[j] =
            first + j < plan.segment_taps ? static_cast<uint32_t>(__ldg(from + first + j)) : 0u;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        if (first + j >= plan.segment_taps) break;
        bits |= static_cast<uint64_t>(values[j]) << count;
        count += bits_of_tap;
        for (; count >= 4; count -= 4, bits >>= 4)
          put_weights(to, plan, word++, channel, weight_bytes(static_cast<uint32_t>(bits)));
      }
    }
    if (count > 0)
      put_weights(to, plan, word++, channel, weight_bytes(static_cast<uint32_t>(bits), count));
    for (; word < last_word; ++word) put_weights(to, plan, word, channel, 0);
  }
}

// Bytes from a pixel's first q to those of every word, or of every product.
__device__ __forceinline__ void set_places(int32_t* places, const FixedConvArgs& a,
                                           const FixedPlan& plan) {
  const int channels = static_cast<int>(a.conv.channels);
  const int width = static_cast<int>(a.conv.kernel_width);
  const int rows = plan.pitch * static_cast<int>(a.conv.dilation_height);
  const int columns = channels * static_cast<int>(a.conv.dilation_width);
  for (int i = static_cast<int>(threadIdx.x); i < plan.place_words(); i += kFixedThreads) {
    int element = 0;  // where there is no product the weights are 0
    if (plan.aligned) {
      if (i < plan.segments * plan.segment_words)
        element = i / plan.segment_words * rows + i % plan.segment_words * 4;
    } else if (i < plan.taps * channels) {
      const int tap = i / channels;
      element = tap / width * rows + tap % width * columns + i % channels;
    }
    places[i] = element * 2;
  }
}

// starts[c] is what a sum starts from so that it ends below 0 where the comparison fails; masks
// turn the bits of failures of 32 channels into those of the result.
__device__ __forceinline__ void set_comparison(int32_t* starts, uint32_t* masks,
                                               const FixedConvArgs& a, const FixedPlan& plan,
                                               int first_channel) {
  const int taps = plan.taps;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // No sum is larger: beyond it limits are alike, and differences stay below 2^31.
  const int most = taps * static_cast<int>(a.conv.channels) * 32768 + 1;
  for (int i = static_cast<int>(threadIdx.x); i < plan.block_channels; i += kFixedThreads) {
    const int channel = first_channel + i;
    const bool exists = channel < a.conv.out_channels;
    int32_t start = 0;
    bool turned = false;
    if (exists && a.conv.prepared != nullptr && a.conv.out_bits != nullptr) {
      const int32_t* row = a.conv.prepared + static_cast<int64_t>(channel) * (taps + 2);
      start = -max(-most, min(most, __ldg(row + taps)));
      turned = __ldg(row + taps + 1) != 0;
    } else if (exists && a.conv.flip != nullptr) {
      turned = a.conv.flip[channel];
    }
    starts[i] = start;
    const uint32_t mask = __ballot_sync(kFullWarp, exists && !turned);
    if (lane == 0) masks[i / kWarp] = mask;
  }
}

}  // namespace bitgnn::cuda
