// Arguments of the quantisation operators used in training (BWTA), for activations and weights, and
// the element functions shared by every backend.
#pragma once

#include <cmath>
#include <cstdint>

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

// With v = x / scale: grad_x = grad / scale where lowest <= v <= highest, else 0; grad_scale =
// -sum(grad_x * v), with terms rounded to float32 and their sum taken in float64 and rounded once.
struct ClipGradientsArgs {
  const float* grad;
  const float* x;
  const float* scale;  // a single number
  float* grad_x;
  float* grad_scale;  // a single number
  int64_t count;
  float lowest, highest;
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

BITGNN_BOTH_SIDES float rounded_level(float x, float scale, float lowest, float highest) {
  if (highest == 1.0f) {
    const float half = 0.5f * scale;
    return (x >= half ? 1.0f : 0.0f) - (lowest < 0.0f && x < -half ? 1.0f : 0.0f);
  }
  const float level = floorf(x / scale + 0.5f);
  if (level != level) return 0.0f;
  return level < lowest ? lowest : level > highest ? highest : level;
}

// Returns the gradient of x; `term` receives its contribution to the gradient of the scale.
BITGNN_BOTH_SIDES float clipped_gradient(float grad, float x, float scale, float lowest,
                                         float highest, float* term) {
  const float v = x / scale;
  const bool inside = v >= lowest && v <= highest;
  const float passed = (inside ? grad : 0.0f) / scale;
  *term = passed * (inside ? v : 0.0f);
  return passed;
}

}  // namespace bitgnn
