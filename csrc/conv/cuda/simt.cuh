// Binary convolution of any shape with LOP3 and POPC: a warp computes 32 outputs, one per lane, for
// a few pixels. Bound by the gathers of weights. Used for groups whose channels do not fill whole
// words and for devices without b1 tensor cores.
#pragma once

#include <algorithm>

#include "conv/cuda/outputs.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::conv {

constexpr int kSimtThreads = 128;
constexpr int kSimtPixels = 4;

// Bits [bit, bit + 32) of a pixel's row of `words` words; bits past the row are 0.
__device__ __forceinline__ uint32_t bits_from(const int32_t* row, int words, int bit) {
  const int at = bit / static_cast<int>(kWordBits);
  const auto low = static_cast<uint32_t>(row[at]);
  const int shift = bit % static_cast<int>(kWordBits);
  if (shift == 0) return low;
  const uint32_t high = at + 1 < words ? static_cast<uint32_t>(row[at + 1]) : 0u;
  return __funnelshift_r(low, high, static_cast<unsigned>(shift));
}

__global__ void __launch_bounds__(kSimtThreads)
    conv_simt_kernel(const ConvAddArgs a, bool adds, int64_t tasks) {
  const ConvArgs& c = a.conv;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto out_words = static_cast<int64_t>((c.out_channels + kWordBits - 1) / kWordBits);
  const auto size = static_cast<int>(c.channels / c.groups);
  const int words = static_cast<int>((size + kWordBits - 1) / kWordBits);
  const int pixel_words = static_cast<int>((c.channels + kWordBits - 1) / kWordBits);
  const int64_t pixels = c.pixels();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kSimtThreads / kWarp;
  let_next_start();
  wait_for_previous();
  int64_t task = (static_cast<int64_t>(blockIdx.x) * kSimtThreads + threadIdx.x) / kWarp;
  for (; task < tasks; task += step) {
    const int64_t word = task % out_words, first = task / out_words * kSimtPixels;
    const int64_t channel = word * kWordBits + lane;
    const bool exists = channel < c.out_channels;
    const int64_t own = exists ? channel : 0;
    const int64_t group = own / (c.out_channels / c.groups);
    const int32_t* w = c.w + own * c.taps() * words;
    int64_t image[kSimtPixels], y[kSimtPixels], x[kSimtPixels];
    int32_t dot[kSimtPixels] = {};
#pragma unroll
    for (int p = 0; p < kSimtPixels; ++p) {
      const int64_t pixel = min(first + p, pixels - 1);
      x[p] = pixel % c.out_width;
      y[p] = pixel / c.out_width % c.out_height;
      image[p] = pixel / c.out_width / c.out_height;
    }
    for (int64_t i = 0; i < c.kernel_height; ++i) {
      for (int64_t j = 0; j < c.kernel_width; ++j, w += words) {
        const int32_t* from[kSimtPixels];
#pragma unroll
        for (int p = 0; p < kSimtPixels; ++p) {
          const int64_t at_y = y[p] * c.stride_height - c.padding_top + i * c.dilation_height;
          const int64_t at_x = x[p] * c.stride_width - c.padding_left + j * c.dilation_width;
          const bool inside = at_y >= 0 && at_y < c.height && at_x >= 0 && at_x < c.width;
          from[p] = inside ? c.x + ((image[p] * c.height + at_y) * c.width + at_x) * pixel_words
                           : nullptr;
          if (inside) dot[p] += size;
        }
        for (int k = 0; k < words; ++k) {
          const auto weights = static_cast<uint32_t>(w[k]);
          const int left = size - k * static_cast<int>(kWordBits);
          const uint32_t mask = left < kWordBits ? (1u << left) - 1u : ~0u;
          const int bit = static_cast<int>(group) * size + k * static_cast<int>(kWordBits);
#pragma unroll
          for (int p = 0; p < kSimtPixels; ++p) {
            if (from[p] == nullptr) continue;
            dot[p] -= 2 * __popc((bits_from(from[p], pixel_words, bit) ^ weights) & mask);
          }
        }
      }
    }
    const ConvChannel out = load_conv_channel(c, adds, static_cast<int>(own), exists);
    ConvChannel place = out;
    place.channel = static_cast<int>(channel);
#pragma unroll
    for (int p = 0; p < kSimtPixels; ++p) {
      if (first + p >= pixels) break;
      const int32_t addend =
          adds ? load_addend(a, addend_offset(a, image[p], y[p], x[p]), place.channel) : 0;
      const uint32_t bits = finish_conv(a, adds, place, first + p, addend, dot[p]);
      if (c.out_bits != nullptr && lane == 0)
        c.out_bits[(first + p) * out_words + word] = static_cast<int32_t>(bits);
    }
  }
}

inline cudaError_t launch_conv_simt(const ConvAddArgs& args, bool adds, const Context& context) {
  constexpr int64_t kMostBlocks = 1 << 20;
  const ConvArgs& c = args.conv;
  const int64_t tasks = ceil_div(c.pixels(), kSimtPixels) * words_for(c.out_channels);
  const int64_t blocks = std::min(ceil_div(tasks * kWarp, kSimtThreads), kMostBlocks);
  return launch_dependent(conv_simt_kernel, dim3(grid_size(blocks)), kSimtThreads, 0, context, args,
                          adds, tasks);
}

}  // namespace bitgnn::cuda::conv
