// Data that a block of the fixed-point convolution keeps across tiles: weights as bytes, offsets of
// the words to multiply, and comparison limits.
#pragma once

#include "first_layers/arguments.h"
#include "first_layers/cuda/conv_plan.h"
#include "first_layers/cuda/fixed_point.cuh"

namespace bitgnn::cuda::first_layers {

// Expands weights to bytes. Word `word` of a channel is word % 8 of step word / 8:
// [step][channel][8]. Lanes take adjacent words, warps take channels.
__device__ __forceinline__ void expand_weights(uint32_t* to, const FixedConvArgs& a,
                                               const FixedPlan& plan, int first_channel) {
  constexpr int kLoads = 8;  // in flight per thread
  constexpr int kWarps = kFixedThreads / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int existing =
      min(plan.block_channels, static_cast<int>(a.conv.out_channels) - first_channel);
  for (int word = lane; word < plan.steps * kFixedStepWords; word += kWarp) {
    const int tap = plan.channel_words == 1 ? word : word / plan.channel_words;
    const int part = word - tap * plan.channel_words;
    const int count = tap < plan.taps ? static_cast<int>(a.conv.channels) - part * 4 : 0;
    const int32_t* from = a.conv.w + static_cast<int64_t>(first_channel) * plan.taps + tap;
    uint32_t* place = to + word / kFixedStepWords * plan.step_words() + word % kFixedStepWords;
    for (int first = warp; first < plan.block_channels; first += kLoads * kWarps) {
      uint32_t bits[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int channel = first + j * kWarps;
        bits[j] = channel < existing && count > 0
                      ? static_cast<uint32_t>(__ldg(from + channel * plan.taps)) >> (part * 4)
                      : 0u;
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int channel = first + j * kWarps;
        place[channel * kFixedStepWords] = weight_bytes(bits[j], channel < existing ? count : 0);
      }
    }
  }
}

// Byte offsets from a pixel's first word to each of its words; for words that do not exist the
// weights are 0.
__device__ __forceinline__ void set_places(int32_t* places, const FixedConvArgs& a,
                                           const FixedPlan& plan) {
  const auto width = static_cast<int>(a.conv.kernel_width);
  const auto down = static_cast<int>(a.conv.dilation_height) * plan.pitch;
  const auto across = static_cast<int>(a.conv.dilation_width);
  for (int i = static_cast<int>(threadIdx.x); i < plan.place_words(); i += kFixedThreads) {
    const int tap = i / plan.channel_words, part = i - tap * plan.channel_words;
    const int word =
        part * plan.region_height * plan.pitch + tap / width * down + tap % width * across;
    places[i] = tap < plan.taps ? word * 4 : 0;
  }
}

// For every pixel of the tile: the byte offset of its first word in the region, and its row and
// column. Entries past the last pixel read the same as the last one and have a row that no tile
// has.
__device__ __forceinline__ void set_pixels(int2* pixels, const FixedConvArgs& a,
                                           const FixedPlan& plan) {
  for (int i = static_cast<int>(threadIdx.x); i < plan.slabs() * kFixedWarpPixels;
       i += kFixedThreads) {
    const int pixel = min(i, plan.pixels() - 1);
    const int row = pixel / plan.tile_width, column = pixel - row * plan.tile_width;
    const int word = row * static_cast<int>(a.conv.stride_height) * plan.pitch +
                     column * static_cast<int>(a.conv.stride_width) + plan.shift;
    pixels[i] = make_int2(word * 4, i < plan.pixels() ? row << 16 | column : 0x7fff << 16);
  }
}

// starts[c] is the initial value that makes a sum end below 0 if the comparison fails; masks
// convert the failure bits of 32 channels into result bits.
__device__ __forceinline__ void set_comparison(int32_t* starts, uint32_t* masks,
                                               const FixedConvArgs& a, const FixedPlan& plan,
                                               int first_channel) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // No sum is larger, so limits beyond it are equivalent; clamping keeps differences below 2^31.
  const int most = plan.taps * static_cast<int>(a.conv.channels) * 32768 + 1;
  for (int i = static_cast<int>(threadIdx.x); i < plan.block_channels; i += kFixedThreads) {
    const int channel = first_channel + i;
    const bool exists = channel < a.conv.out_channels;
    int32_t start = 0;
    bool turned = false;
    if (exists && a.conv.prepared != nullptr && a.conv.out_bits != nullptr) {
      const int32_t* row = a.conv.prepared + static_cast<int64_t>(channel) * (plan.taps + 2);
      start = -max(-most, min(most, __ldg(row + plan.taps)));
      turned = __ldg(row + plan.taps + 1) != 0;
    } else if (exists && a.conv.flip != nullptr) {
      turned = a.conv.flip[channel];
    }
    starts[i] = start;
    const uint32_t mask = __ballot_sync(kFullWarp, exists && !turned);
    if (lane == 0) masks[i / kWarp] = mask;
  }
}

}  // namespace bitgnn::cuda::first_layers
