// Computes per-tap popcounts and comparison limits if the caller did not cache them; one warp per
// output.
#pragma once

#include "conv/cuda/outputs.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::conv {

constexpr int kPrepareThreads = 128;

// Smallest dot in [-most, most + 1] from which the comparison holds or, for a negative scale, no
// longer holds.
__device__ __forceinline__ void prepare_comparison(const ConvArgs& c, int channel, int32_t most,
                                                   int32_t* limit, int32_t* turned) {
  const bool flip = c.flip != nullptr && c.flip[channel];
  if (c.bias == nullptr && c.threshold == nullptr) {
    *limit = 0;
    *turned = flip;
    return;
  }
  const float threshold = c.threshold != nullptr ? c.threshold[channel] : 0.0f;
  const auto holds = [&](int32_t dot) {
    return conv_value(c.out_scale, c.bias, channel, dot) >= threshold;
  };
  // The comparison holds at one end only, at both, or nowhere.
  const bool falls = holds(-most) && !holds(most);
  int64_t low = -static_cast<int64_t>(most), high = static_cast<int64_t>(most) + 1;
  while (low < high) {
    const int64_t middle = low + ((high - low) >> 1);
    if (holds(static_cast<int32_t>(middle)) != falls)
      high = middle;
    else
      low = middle + 1;
  }
  *limit = static_cast<int32_t>(low);
  *turned = flip != falls;
}

__global__ void __launch_bounds__(kPrepareThreads)
    conv_prepare_kernel(const ConvArgs c, int words, bool compares, int32_t* prepared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int channel = static_cast<int>((blockIdx.x * kPrepareThreads + threadIdx.x) / kWarp);
  let_next_start();
  wait_for_previous();
  if (channel >= c.out_channels) return;
  const int taps = static_cast<int>(c.taps());
  const int32_t* w = c.w + static_cast<int64_t>(channel) * taps * words;
  int32_t* to = prepared + static_cast<int64_t>(channel) * (taps + kPreparedExtra);
  for (int t = 0; t < taps; ++t) {
    int count = 0;
    for (int i = lane; i < words; i += kWarp)
      count += __popc(static_cast<uint32_t>(w[static_cast<int64_t>(t) * words + i]));
    count = static_cast<int>(__reduce_add_sync(kFullWarp, static_cast<unsigned>(count)));
    if (lane == 0) to[t] = count;
  }
  if (lane != 0) return;
  if (compares) {
    prepare_comparison(c, channel, static_cast<int32_t>(taps * (c.channels / c.groups)), to + taps,
                       to + taps + 1);
  } else {
    // The convolution kernels copy whole rows of `prepared`, so no entry may stay uninitialised.
    to[taps] = 0;
    to[taps + 1] = 0;
  }
}

// `compares`: also compute the limits.
inline cudaError_t launch_conv_prepare(const ConvArgs& args, bool compares, int32_t* prepared,
                                       const Context& context) {
  const int words = static_cast<int>(words_for(args.channels / args.groups));
  const dim3 grid(grid_size(ceil_div(args.out_channels * kWarp, kPrepareThreads)));
  return launch_dependent(conv_prepare_kernel, grid, kPrepareThreads, 0, context, args, words,
                          compares, prepared);
}

}  // namespace bitgnn::cuda::conv
