// Kernels for binary convolutions besides the mma tiles; route.cu chooses among them. A plain
// convolution is ConvAddArgs{conv} without addend and sums.
#pragma once

#include "conv/arguments.h"
#include "conv/cuda/pooled_launch.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

// Hopper's kernel on boxes of pixels, for bits and residual sums of typical network layers.
// Whether conv_box() takes the problem and is worthwhile for it: sm_90, one group of 128 or a
// multiple of 256 channels, a multiple of 128 outputs, kernels of up to 3 x 3, strides of 1 and 2,
// no dilation, output bits or (`adds`) 16-bit addends and sums, enough pixels for the device.
bool conv_box_fits(const ConvAddArgs& args, bool adds, const Context& context);

// args.conv.prepared must be given: the tap popcounts are always used, the limits only for the bits
// of plain convolutions. `prefetches`: weights and `prepared` were written before the previous
// kernel.
cudaError_t conv_box(const ConvAddArgs& args, bool adds, bool prefetches, const Context& context);

// Hopper's kernel for large problems, on warpgroup products.
// Whether conv_wgmma() takes the problem and is worthwhile for it: sm_90, one group of 64 or a
// multiple of 128 channels, outputs in multiples of 32, kernels of up to 7 x 7, strides of 1 and 2,
// no dilation, 16-bit addends and sums, enough tiles for the device. A plain convolution is
// ConvAddArgs{conv} without addend and sums.
bool conv_wgmma_fits(const ConvAddArgs& args, const Context& context);

// `adds`: sums with an addend as in ConvAddArgs, otherwise a plain convolution. args.conv.prepared
// must be given: the tap popcounts are always used, the limits only for the bits of plain
// convolutions.
cudaError_t conv_wgmma(const ConvAddArgs& args, bool adds, const Context& context);

// Kernels for 3 x 3 convolutions with few channels in strips of pixels.
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
