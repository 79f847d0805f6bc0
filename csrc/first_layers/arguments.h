// Arguments of first layers, shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "conv/arguments.h"
#include "core/kernel.h"

namespace bitgnn {

// The first layer of a network: fixed-point images times weights of +-1. With
//   q = clamp(round_half_to_even(x / step), -32768, 32767), NaN as 0 (uint8 as it is, step 1),
//   dot = sum of q * w over the taps inside the image, an exact integer below 2^31,
//   v = out_scale * (step * dot) + bias, with every step rounded to float;
// then as in ConvArgs.
struct FixedConvArgs {
  ConvArgs conv;   // without x; one group; `prepared` as in ConvArgs; out_int holds dot
  const void* x;   // channel c of pixel p of image i at [i * image_stride + c * channel_stride +
  FloatType type;  //                                   p * pixel_stride]; any type but float64
  int64_t image_stride;
  int64_t channel_stride;
  int64_t pixel_stride;
  float step;  // a power of two
};

// `prepared` is as for convolve(), of which only the last two columns are used; on CUDA, it and the
// weights must be written as early.
BITGNN_KERNEL(first_layers, convolve_fixed, const FixedConvArgs& args);

}  // namespace bitgnn
