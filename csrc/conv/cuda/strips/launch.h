// Binary 3 x 3 convolutions with few channels in strips of pixels: requirements and launches.
#pragma once

#include "conv/arguments.h"
#include "conv/cuda/pooled_launch.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Whether the strip kernels take the problem: one group of 64, 128, 256 or 512 channels, outputs in
// multiples of 64, 3 x 3 kernels with at most one row or column of taps outside at each side,
// strides of 1 or 2; output bits, or 16-bit sums with a 16-bit addend. A plain convolution is
// ConvAddArgs{conv} without addend and sums.
bool conv_strips_fit(const ConvAddArgs& args, bool adds, const Context& context);

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
