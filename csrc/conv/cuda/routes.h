// Kernels for binary convolutions besides the mma tiles; route.cu chooses among them. A plain
// convolution is ConvAddArgs{conv} without addend and sums.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// 2 x 2 max pooling with stride 2: OR of the bits, inverted by flip before and after.
// ConvArgs::out_bits then holds [images, out_height / 2, out_width / 2, words].
struct ConvPool {
  bool pools;
  const int32_t* flip;  // [words_for(out_channels)] or null
};

// Hopper's kernel on boxes of pixels, for bits and residual sums of typical network layers.
// args.conv.prepared must be given: the tap popcounts are always used, the limits only for the bits
// of plain convolutions. `prefetches`: weights and `prepared` were written before the previous
// kernel.
cudaError_t conv_box(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context);

// Hopper's kernel for large problems, on warpgroup products.
// `adds`: sums with an addend as in ConvAddArgs, otherwise a plain convolution. args.conv.prepared
// must be given: the tap popcounts are always used, the limits only for the bits of plain
// convolutions.
cudaError_t conv_wgmma(const ConvAddArgs& args, bool adds, const Context& context);

// Kernels for 3 x 3 convolutions with few channels in strips of pixels.
// Same results as convolve() and convolve_add(); conv.prepared must be given. `prefetches`:
// weights, prepared, threshold and flips were written before the previous kernel.
cudaError_t conv_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                             const Context& context);
cudaError_t conv_strips_sums(const ConvAddArgs& args, bool prefetches, const Context& context);

// The same for 512 channels, which are split among the warps.
cudaError_t conv_split_strips_bits(const ConvArgs& args, const ConvPool& pool, bool prefetches,
                                   const Context& context);
cudaError_t conv_split_strips_sums(const ConvAddArgs& args, bool prefetches,
                                   const Context& context);

}  // namespace bitgnn::cuda::conv
