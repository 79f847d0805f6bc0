// OR over windows of packed pixels. Bound by reading the images once.
#pragma once

#include <algorithm>

#include "conv/arguments.h"
#include "core/cuda/common.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

constexpr int kPoolThreads = 128;

// Words of a pixel that a thread handles at once.
template <int kWords>
struct alignas(4 * kWords) PoolWords {
  uint32_t word[kWords];
};

// Each thread computes `kWords` words of one output pixel; kHeight x kWidth is the window, or 0 x 0
// to take it from the arguments.
template <int kWords, int kHeight, int kWidth>
__global__ void __launch_bounds__(kPoolThreads) pool_bits_kernel(const BitPoolArgs a) {
  using Words = PoolWords<kWords>;
  const int64_t vectors = a.words / kWords;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kPoolThreads + static_cast<int>(threadIdx.x);
  const int64_t pixel = index / vectors;
  const int64_t vector = index - pixel * vectors;
  const int64_t line = pixel / a.out_width;  // of all images
  const int64_t image = line / a.out_height;
  let_next_start();
  if (image >= a.images) return;
  const int64_t top = (line - image * a.out_height) * a.stride_height - a.padding_top;
  const int64_t left = (pixel - line * a.out_width) * a.stride_width - a.padding_left;
  const int64_t height = kHeight > 0 ? kHeight : a.kernel_height;
  const int64_t width = kWidth > 0 ? kWidth : a.kernel_width;
  const Words* x = reinterpret_cast<const Words*>(a.x) + image * a.height * a.width * vectors;
  wait_for_previous();
  Words flip{};
  if (a.flip != nullptr) flip = reinterpret_cast<const Words*>(a.flip)[vector];
  Words sum{};
  const auto add = [&](const Words& value) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) sum.word[k] |= value.word[k] ^ flip.word[k];
  };
  if constexpr (kHeight > 0) {
    // All reads are in flight together; a pixel outside the image is replaced by one of the
    // window's inside pixels, which does not change the OR.
    const int64_t first_y = max(top, int64_t{0}), last_y = min(top + height, a.height) - 1;
    const int64_t first_x = max(left, int64_t{0}), last_x = min(left + width, a.width) - 1;
    if (first_y <= last_y && first_x <= last_x) {
      Words values[kHeight][kWidth];
#pragma unroll
      for (int i = 0; i < kHeight; ++i) {
        const int64_t y = min(max(top + i, first_y), last_y);
#pragma unroll
        for (int j = 0; j < kWidth; ++j)
          values[i][j] = x[(y * a.width + min(max(left + j, first_x), last_x)) * vectors + vector];
      }
#pragma unroll
      for (int i = 0; i < kHeight; ++i) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) add(values[i][j]);
      }
    }
  } else {
    for (int64_t y = max(top, int64_t{0}); y < min(top + height, a.height); ++y) {
      for (int64_t column = max(left, int64_t{0}); column < min(left + width, a.width); ++column)
        add(x[(y * a.width + column) * vectors + vector]);
    }
  }
#pragma unroll
  for (int k = 0; k < kWords; ++k) sum.word[k] ^= flip.word[k];
  reinterpret_cast<Words*>(a.out)[index] = sum;
}

template <int kWords>
cudaError_t launch_pool_bits(const BitPoolArgs& a, const Context& context) {
  const int64_t threads = a.images * a.out_height * a.out_width * (a.words / kWords);
  auto kernel = pool_bits_kernel<kWords, 0, 0>;
  if (a.kernel_height == 2 && a.kernel_width == 2) kernel = pool_bits_kernel<kWords, 2, 2>;
  if (a.kernel_height == 3 && a.kernel_width == 3) kernel = pool_bits_kernel<kWords, 3, 3>;
  return launch_dependent(kernel, dim3(grid_size(ceil_div(threads, kPoolThreads))), kPoolThreads, 0,
                          context, a);
}

}  // namespace bitgnn::cuda::conv
