// Epilogue of one sum of a first layer: a value, the integer itself, or a bit.
#pragma once

#include "core/cuda/launch.h"
#include "first_layers/arguments.h"
#include "first_layers/cuda/fixed_point.cuh"

namespace bitgnn::cuda::first_layers {

// An output channel; channels past the last have a zero bit and store nothing.
struct FixedOutput {
  int64_t channel;
  bool exists, prepared, turned = false;
  int32_t limit = 0;                                   // limit of the integer, if prepared
  float scale = 1.0f, bias = -0.0f, threshold = 0.0f;  // -0 changes no value

  __device__ FixedOutput(const FixedConvArgs& a, int64_t output)
      : channel(output),
        exists(output < a.conv.out_channels),
        prepared(a.conv.prepared != nullptr && a.conv.out_bits != nullptr) {
    if (!exists) return;
    if (prepared) {
      const int64_t taps = a.conv.kernel_height * a.conv.kernel_width;
      const int32_t* row = a.conv.prepared + channel * (taps + 2) + taps;
      limit = __ldg(row);
      turned = __ldg(row + 1) != 0;
      return;
    }
    if (a.conv.out_scale != nullptr) scale = a.conv.out_scale[channel];
    if (a.conv.bias != nullptr) bias = a.conv.bias[channel];
    if (a.conv.threshold != nullptr) threshold = a.conv.threshold[channel];
    if (a.conv.flip != nullptr) turned = a.conv.flip[channel];
  }

  // Rounds every step to float32, as the reference does.
  __device__ float value(const FixedConvArgs& a, int32_t dot) const {
    return __fadd_rn(__fmul_rn(scale, __fmul_rn(a.step, __int2float_rn(dot))), bias);
  }

  __device__ bool bit(const FixedConvArgs& a, int32_t dot) const {
    return exists && ((prepared ? dot >= limit : value(a, dot) >= threshold) != turned);
  }

  __device__ void store(const FixedConvArgs& a, int64_t pixel, int32_t dot) const {
    if (!exists) return;
    if (a.conv.out_int != nullptr) {
      a.conv.out_int[pixel * a.conv.out_channels + channel] = dot;
    } else {
      a.conv.out_float[pixel * a.conv.out_channels + channel] = value(a, dot);
    }
  }
};

}  // namespace bitgnn::cuda::first_layers
