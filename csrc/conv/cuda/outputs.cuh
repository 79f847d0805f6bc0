// Convolution outputs from integer products, 32 channels of a pixel at a time.
#pragma once

#include "conv/arguments.h"
#include "core/cuda/common.cuh"

namespace bitgnn::cuda::conv {

// Columns of `prepared` after the tap counts.
constexpr int kPreparedExtra = 2;

// The value in float32, with every step rounded as in the reference.
__device__ __forceinline__ float conv_value(const float* scale, const float* bias, int channel,
                                            int32_t dot) {
  float v = __int2float_rn(dot);
  if (scale != nullptr) v = __fmul_rn(scale[channel], v);
  return bias != nullptr ? __fadd_rn(v, bias[channel]) : v;
}

// Per-channel epilogue parameters, loaded before the products are ready.
struct ConvChannel {
  int channel;
  bool exists;
  bool turned;
  int32_t limit;    // smallest dot that gives a set bit, unless inverted
  float threshold;  // of sums with an addend
};

// Sums with an addend are compared as floats; others use the prepared limit if there is one.
__device__ __forceinline__ ConvChannel load_conv_channel(const ConvArgs& c, bool adds, int channel,
                                                         bool exists) {
  ConvChannel own{channel, exists, false, 0, 0.0f};
  if (!exists || c.out_bits == nullptr) return own;
  if (c.prepared != nullptr && !adds) {
    const int taps = static_cast<int>(c.taps());
    const int32_t* from =
        c.prepared + static_cast<int64_t>(channel) * (taps + kPreparedExtra) + taps;
    own.limit = from[0];
    own.turned = from[1] != 0;
  } else {
    own.threshold = c.threshold != nullptr ? c.threshold[channel] : 0.0f;
    own.turned = c.flip != nullptr && c.flip[channel];
  }
  return own;
}

// Writes the requested output of each lane's product and returns the word of bits, the same in all
// lanes. `addend` is the channel's addend.
__device__ __forceinline__ uint32_t finish_conv(const ConvAddArgs& a, bool adds,
                                                const ConvChannel& own, int64_t pixel,
                                                int64_t addend, int32_t dot) {
  const ConvArgs& c = a.conv;
  const int64_t at = pixel * c.out_channels + own.channel;
  if (c.out_int != nullptr) {
    if (own.exists) c.out_int[at] = dot;
    return 0;
  }
  if (c.out_float != nullptr) {
    if (own.exists) c.out_float[at] = conv_value(c.out_scale, c.bias, own.channel, dot);
    return 0;
  }
  bool bit;
  if (adds) {
    const int32_t total = dot + addend;
    if (a.sums != nullptr && own.exists) {
      if (a.sums_wide)
        static_cast<int32_t*>(a.sums)[at] = total;
      else
        static_cast<int16_t*>(a.sums)[at] = static_cast<int16_t>(min(max(total, -32768), 32767));
    }
    bit = __int2float_rn(total) >= own.threshold;
  } else if (c.prepared != nullptr) {
    bit = dot >= own.limit;
  } else {
    bit = own.exists && conv_value(c.out_scale, c.bias, own.channel, dot) >= own.threshold;
  }
  return __ballot_sync(kFullWarp, (bit != own.turned) && own.exists);
}

// Offset of the addend of an output pixel.
__device__ __forceinline__ int64_t addend_offset(const ConvAddArgs& a, int64_t image, int64_t y,
                                                 int64_t x) {
  return ((image * a.addend_height + y * a.addend_stride_height) * a.addend_width +
          x * a.addend_stride_width) *
         a.addend_channels;
}

// Loads the addend of a channel; `offset` is the start of its pixel.
__device__ __forceinline__ int32_t load_addend(const ConvAddArgs& a, int64_t offset, int channel) {
  if (a.addend == nullptr || channel >= a.addend_channels) return 0;
  return a.addend_wide ? static_cast<const int32_t*>(a.addend)[offset + channel]
                       : static_cast<const int16_t*>(a.addend)[offset + channel];
}

// Shifts in the sign bit of n from the right.
__device__ __forceinline__ uint32_t push_sign(uint32_t bits, int32_t n) {
  return __funnelshift_l(static_cast<uint32_t>(n), bits, 1);
}

// Packs two integers, clamped to 16 bits.
__device__ __forceinline__ int32_t clamp_halves(int32_t low, int32_t high) {
  int32_t both;
  asm("cvt.pack.sat.s16.s32 %0, %1, %2;\n" : "=r"(both) : "r"(high), "r"(low));
  return both;
}

}  // namespace bitgnn::cuda::conv
