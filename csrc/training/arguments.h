// Arguments of the quantisation operators used in training (BWTA), for activations and weights, and
// the element functions shared by every backend.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/kernel.h"

#if defined(__CUDACC__)
#define BITGNN_BOTH_SIDES __host__ __device__ __forceinline__
#else
#define BITGNN_BOTH_SIDES inline
#endif

namespace bitgnn {

// out[i] = x[i] / scale, rounded to the nearest integer (halves up), clamped to [lowest, highest];
// 0 for NaN. If highest is 1, decided by x >= 0.5f * scale and x < -0.5f * scale, as in packing.
struct RoundLevelsArgs {
  const float* x;
  const float* scale;  // a single number
  float* out;
  int64_t count;
  int lowest, highest;
};

// With v = x / scale: grad_x = g where lowest <= v <= highest, else 0. Without a gain, g = grad /
// scale and grad_scale = -sum(grad_x * v). With one, q is the rounded level, or the sign of x, g =
// gain * grad and grad_scale = sum(g * q - grad_x * v) * factor(). Terms are rounded to float32,
// their sum is taken in float64 and rounded once.
struct ClipGradientsArgs {
  const float* grad;
  const float* x;
  const float* scale;  // a single number
  const float* gain;   // a single number, or null
  float* grad_x;
  float* grad_scale;  // a single number
  int64_t count;
  float lowest, highest;
  bool is_sign;

  // Of LSQ: 1 / sqrt(n L).
  BITGNN_BOTH_SIDES double factor() const {
    const double values = static_cast<double>(count > 0 ? count : 1);
    return gain == nullptr ? 1.0 : 1.0 / sqrt(values * static_cast<double>(highest));
  }
};

// With mu the mean of the weights (summed in float64, rounded once): signs = +1 where w - mu >= 0,
// else -1; scale = the mean of |w - mu|, computed likewise.
struct ShiftSignsArgs {
  const float* weight;
  float* signs;
  float* scale;  // a single number
  int64_t count;

  constexpr double divisor() const { return static_cast<double>(count > 0 ? count : 1); }
};

// out = (grad - mu) * factor, mu the mean of all of grad, summed in float64 and rounded once.
struct CentreGradientsArgs {
  const float* grad;
  const float* factor;  // a single number
  float* out;
  int64_t count;

  constexpr double divisor() const { return static_cast<double>(count > 0 ? count : 1); }
};

// out = (scale * weight_scale) * sums + bias, each step rounded; the bias is that of the column.
struct ScaleSumsArgs {
  const float* sums;
  const float* scale;         // a single number
  const float* weight_scale;  // a single number
  const float* bias;          // [columns], or null
  float* out;
  int64_t count, columns;
};

// The functions below have no branches that depend on values: a CPU mispredicts them.

// `value` if the condition holds, else 0.
BITGNN_BOTH_SIDES float kept_if(bool condition, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  bits &= 0u - static_cast<uint32_t>(condition);
  memcpy(&value, &bits, sizeof bits);
  return value;
}

BITGNN_BOTH_SIDES float rounded_level(float x, float scale, float lowest, float highest) {
  if (highest == 1.0f) {
    const float half = 0.5f * scale;
    const bool above = x >= half, below = (lowest < 0.0f) & (x < -half);
    return static_cast<float>(static_cast<int>(above) - static_cast<int>(below));
  }
  const float level = floorf(x / scale + 0.5f);
  if (level != level) return 0.0f;
  return level < lowest ? lowest : level > highest ? highest : level;
}

// Returns the gradient of x; `term` receives its contribution to the gradient of the scale.
// `gain` is the number that a.gain points to, if it does.
BITGNN_BOTH_SIDES float clipped_gradient(const ClipGradientsArgs& a, float grad, float x,
                                         float scale, float gain, float* term) {
  const float v = x / scale;
  const bool inside = (v >= a.lowest) & (v <= a.highest);
  if (a.gain == nullptr) {
    const float passed = kept_if(inside, grad) / scale;
    *term = -(passed * kept_if(inside, v));
    return passed;
  }
  const float wide = gain * grad, passed = kept_if(inside, wide);
  const float level = a.is_sign ? 1.0f - 2.0f * static_cast<float>(!(x >= 0.0f))
                                : rounded_level(x, scale, a.lowest, a.highest);
  *term = wide * level - passed * kept_if(inside, v);
  return passed;
}

BITGNN_KERNEL(training, round_levels, const RoundLevelsArgs& args);
BITGNN_KERNEL(training, clip_gradients, const ClipGradientsArgs& args);
BITGNN_KERNEL(training, shift_signs, const ShiftSignsArgs& args);
BITGNN_KERNEL(training, centre_gradients, const CentreGradientsArgs& args);
BITGNN_KERNEL(training, scale_sums, const ScaleSumsArgs& args);

}  // namespace bitgnn
