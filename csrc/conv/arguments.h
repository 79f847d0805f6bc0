// Arguments of binary convolution, shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// A convolution of packed images: dot is the sum of the products of +-1 over the kernel taps that
// lie inside the image, v = out_scale * dot + bias, and the output is a value or a bit. Outputs
// [g * out_channels / groups, (g + 1) * out_channels / groups) read channels
// [g * channels / groups, (g + 1) * channels / groups), which need not start on a word boundary.
struct ConvArgs : ImageWindow {
  const int32_t* x;  // [images, height, width, words_for(channels)], padding bits 0
  const int32_t* w;  // [out_channels, kernel_height, kernel_width, words_for(channels / groups)]
  int64_t channels;  // a multiple of groups, at least one per group
  int64_t out_channels;
  int64_t groups;
  const float* out_scale;   // [out_channels] or null
  const float* bias;        // [out_channels] or null
  const float* threshold;   // [out_channels] or null (0); bit = v >= threshold
  const bool* flip;         // [out_channels] or null; inverts the bit
  float* out_float;         // [images, out_height, out_width, out_channels]; exactly one of the
  int32_t* out_int;         // three outputs is given; out_int holds dot
  int32_t* out_bits;        // [images, out_height, out_width, words_for(out_channels)]
  const int32_t* prepared;  // what the backend precomputed from w and the comparison, or null
};

// A convolution with a residual addend: with dot as in ConvArgs,
//   total = dot + (c < addend_channels ? addend[i, y * addend_stride_height,
//                                               x * addend_stride_width, c] : 0),
// which is stored as an integer, compared with the threshold, or both. out_scale, bias and the
// outputs of `conv` are null except out_bits, whose bit is (total >= threshold) ^ flip; it may be
// null too.
struct ConvAddArgs {
  ConvArgs conv;
  const void* addend;  // [images, addend_height, addend_width, addend_channels] or null
  bool addend_wide;    // int32, otherwise int16
  int64_t addend_height;
  int64_t addend_width;
  int64_t addend_channels;  // at most conv.out_channels
  int64_t addend_stride_height;
  int64_t addend_stride_width;
  void* sums;      // [images, out_height, out_width, out_channels] or null
  bool sums_wide;  // int32, otherwise int16 with totals clamped to its range
};

// Max pooling of bits: OR over the window's pixels inside the image. flip inverts the bits before
// and after, which turns the maximum into a minimum. There is no dilation.
struct BitPoolArgs : ImageWindow {
  const int32_t* x;  // [images, height, width, words]
  int64_t words;
  const int32_t* flip;  // [words] or null
  int32_t* out;         // [images, out_height, out_width, words]
};

// `prepared` is int32 [out_channels, taps + 2]: the popcount of the weights at each tap, the
// smallest dot that satisfies the comparison (taps * channels / groups + 1: none does), and whether
// the bit is inverted. On CUDA, if it is given, `prepared`, weights, threshold and flip must have
// been written before the previous kernel in the stream started, because they are read while that
// kernel runs.
BITGNN_KERNEL(conv, convolve, const ConvArgs& args);
// Only the popcounts of `prepared` are used.
BITGNN_KERNEL(conv, convolve_add, const ConvAddArgs& args);
// The bits pooled in the same launch, or nothing where `*pools` becomes false: there is no such
// kernel. The flip of `pool` must be written as early as `prepared`.
BITGNN_KERNEL(conv, convolve_pooled, const ConvArgs& args, const BitPoolArgs& pool, bool* pools);
BITGNN_KERNEL(conv, pool_bits, const BitPoolArgs& args);

}  // namespace bitgnn
