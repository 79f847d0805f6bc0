// Fallback convolution of fixed-point images for shapes and steps that the tensor-core kernel does
// not take.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "first_layers/arguments.h"
#include "first_layers/cuda/outputs.cuh"

namespace bitgnn::cuda::first_layers {

constexpr int kFixedPlainThreads = 256;

// A warp computes 32 outputs of a pixel: lanes read 32 channels of a tap together and exchange them
// by shuffles.
template <class T>
__global__ void __launch_bounds__(kFixedPlainThreads)
    fixed_conv_plain_kernel(const FixedConvArgs a) {
  const ConvArgs& c = a.conv;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t out_words = pack::word_count(c.out_channels),
                tap_words = pack::word_count(c.channels);
  const int64_t items = c.images * c.out_height * c.out_width * out_words;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * (kFixedPlainThreads / kWarp);
  let_next_start();
  wait_for_previous();
  for (int64_t item = static_cast<int64_t>(blockIdx.x) * (kFixedPlainThreads / kWarp) +
                      static_cast<int>(threadIdx.x) / kWarp;
       item < items; item += stride) {
    const int64_t pixel = item / out_words;
    const FixedOutput output(a, item % out_words * kWordBits + lane);
    const int64_t image = pixel / (c.out_height * c.out_width);
    const int64_t top = pixel / c.out_width % c.out_height * c.stride_height - c.padding_top;
    const int64_t left = pixel % c.out_width * c.stride_width - c.padding_left;
    const T* x = static_cast<const T*>(a.x) + image * a.image_stride;
    const int32_t* w =
        c.w + (output.exists ? output.channel : 0) * c.kernel_height * c.kernel_width * tap_words;
    int32_t dot = 0;
    for (int64_t i = 0; i < c.kernel_height; ++i) {
      const int64_t y = top + i * c.dilation_height;
      if (y < 0 || y >= c.height) continue;
      for (int64_t j = 0; j < c.kernel_width; ++j) {
        const int64_t column = left + j * c.dilation_width;
        if (column < 0 || column >= c.width) continue;
        const T* from = x + (y * c.width + column) * a.pixel_stride;
        for (int64_t word = 0; word < tap_words; ++word) {
          const int64_t own = word * kWordBits + lane;
          int q = 0;
          if (own < c.channels)
            q = static_cast<int16_t>(fixed_pair(from[own * a.channel_stride], T{}, 1.0f / a.step));
          const auto bits = static_cast<uint32_t>(w[(i * c.kernel_width + j) * tap_words + word]);
#pragma unroll
          for (int k = 0; k < static_cast<int>(kWordBits); ++k) {
            const int32_t other = __shfl_sync(kFullWarp, q, k);
            dot += (bits >> k & 1u) != 0 ? other : -other;
          }
        }
      }
    }
    if (c.out_bits != nullptr) {
      const uint32_t bits = __ballot_sync(kFullWarp, output.bit(a, dot));
      if (lane == 0) c.out_bits[item] = static_cast<int32_t>(bits);
    } else {
      output.store(a, pixel, dot);
    }
  }
}

template <class T>
cudaError_t launch_fixed_conv_plain(const FixedConvArgs& a, const Context& context) {
  const int64_t items = a.conv.pixels() * words_for(a.conv.out_channels);
  constexpr int64_t kMostBlocks = 1 << 20;
  const int64_t blocks = std::min(ceil_div(items, kFixedPlainThreads / kWarp), kMostBlocks);
  return launch_dependent(fixed_conv_plain_kernel<T>, dim3(grid_size(blocks)), kFixedPlainThreads,
                          0, context, a);
}

}  // namespace bitgnn::cuda::first_layers
