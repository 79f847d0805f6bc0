// Packs patches of few-channel images into words, on CUDA.

#include <algorithm>

#include "core/cuda/common.cuh"
#include "core/cuda/dependent_launch.cuh"
#include "pack/arguments.h"

namespace bitgnn::cuda::pack {

namespace {

constexpr int kThreads = 128;

// Each thread makes both words of one output pixel and channel. Adjacent threads have adjacent
// pixels, so reads of a patch after the first come from the L1 cache. Bound by writing.
__global__ void __launch_bounds__(kThreads) pack_patches_kernel(const PatchArgs a) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  const int64_t pixel = index / a.channels, channel = index - pixel * a.channels;
  const int64_t line = pixel / a.out_width, image = line / a.out_height;
  let_next_start();
  if (image >= a.images) return;
  const int64_t top = (line - image * a.out_height) * a.stride_height - a.padding_top;
  const int64_t left = (pixel - line * a.out_width) * a.stride_width - a.padding_left;
  wait_for_previous();
  const float threshold = a.threshold != nullptr ? a.threshold[channel] : 0.0f;
  const float* x = a.x + (image * a.channels + channel) * a.height * a.width;
  uint32_t above = 0, below = 0;
  int bit = 0;
  for (int64_t i = 0; i < a.kernel_height; ++i) {
    const int64_t y = top + i * a.dilation_height;
    for (int64_t j = 0; j < a.kernel_width; ++j, ++bit) {
      const int64_t column = left + j * a.dilation_width;
      if (y < 0 || y >= a.height || column < 0 || column >= a.width) continue;
      if (x[y * a.width + column] >= threshold)
        above |= 1u << bit;
      else
        below |= 1u << bit;
    }
  }
  a.words[2 * index] = static_cast<int32_t>(above);
  a.words[2 * index + 1] = static_cast<int32_t>(below);
}

}  // namespace

cudaError_t pack_patches(const PatchArgs& args, const Context& context) {
  const int64_t threads = args.images * args.out_height * args.out_width * args.channels;
  if (threads == 0) return cudaSuccess;
  return launch_dependent(pack_patches_kernel, dim3(grid_size(ceil_div(threads, kThreads))),
                          kThreads, 0, context, args);
}

}  // namespace bitgnn::cuda::pack
