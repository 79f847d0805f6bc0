// Arguments of binary convolution that the kernels of every backend share.
#pragma once

#include <cstdint>

#include "bitgnn/common.h"

namespace bitgnn {

// A convolution of packed images: with dot the sum of the products of +-1 over the taps of the
// kernel that lie inside the image, v = out_scale * dot + bias, then a value or a bit. Tap (i, j)
// of output pixel (y, x) reads input pixel
//   (y * stride_height - padding_top + i * dilation_height,
//    x * stride_width - padding_left + j * dilation_width);
// taps outside add nothing. What is padded below and to the right follows from the output's size.
// Outputs [g * out_channels / groups, (g + 1) * out_channels / groups) read the channels
// [g * channels / groups, (g + 1) * channels / groups), which need not begin a word.
struct ConvArgs {
  const int32_t* x;  // [images, height, width, words_for(channels)], padding bits 0
  const int32_t* w;  // [out_channels, kernel_height, kernel_width, words_for(channels / groups)]
  int64_t images;
  int64_t height;
  int64_t width;
  int64_t channels;  // a multiple of groups, at least one a group
  int64_t out_channels;
  int64_t kernel_height;
  int64_t kernel_width;
  int64_t stride_height;
  int64_t stride_width;
  int64_t padding_top;
  int64_t padding_left;
  int64_t dilation_height;
  int64_t dilation_width;
  int64_t groups;
  int64_t out_height;
  int64_t out_width;
  const float* out_scale;  // [out_channels] or null
  const float* bias;       // [out_channels] or null
  const float* threshold;  // [out_channels] or null (0); bit = v >= threshold
  const bool* flip;        // [out_channels] or null; turns the bit round
  float* out_float;        // [images, out_height, out_width, out_channels]; exactly one of the
  int32_t* out_int;        // three outputs is given; out_int holds dot
  int32_t* out_bits;       // [images, out_height, out_width, words_for(out_channels)]

  int64_t pixels() const { return images * out_height * out_width; }
  int64_t taps() const { return kernel_height * kernel_width; }
};

// Float images to packed ones: bit = x >= threshold of the channel.
struct ImagePackArgs {
  const void* x;  // [images, channels, pixels], contiguous
  FloatType type;
  int64_t images;
  int64_t channels;
  int64_t pixels;
  const float* threshold;  // [channels] or null (0)
  int32_t* words;          // [images, pixels, words_for(channels)]
};

}  // namespace bitgnn
