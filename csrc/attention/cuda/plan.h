// Computes AttentionPlan, the constants that kernels of attention on bits take with the arguments.
#pragma once

#include <algorithm>
#include <cmath>

#include "attention/cuda/limits.cuh"

namespace bitgnn::cuda::attention {

// With exponents between -kPowerRange and kPowerRange, powers and their sums stay normal numbers.
constexpr double kPowerRange = 100.0;

// True if powers must be taken relative to the largest score of a row.
template <int kDim>
bool needs_shifted_powers(const TernaryAttentionArgs& a) {
  return !(a.scale * M_LOG2E * kDim <= kPowerRange);
}

// additions: the most float32 additions that a power passes through on its way into a sum.
template <int kDim>
AttentionPlan plan_attention(const TernaryAttentionArgs& a, double additions) {
  constexpr double kLeastLogThreshold = -900.0;  // below it, powers of the definition are 0
  constexpr double kRounding = 0x1p-24;
  const double slope = a.scale * M_LOG2E;
  AttentionPlan plan{};
  plan.slope = static_cast<float>(slope);
  plan.addend = static_cast<float>(-slope * (kScoreOffset<kDim> + kDim));
  plan.base = -(static_cast<double>(plan.slope) * kScoreOffset<kDim> + plan.addend);
  plan.step = slope;
  plan.highest = std::exp2(slope * 2 * kDim - plan.base);
  plan.inverse = 1.0 / slope;
  plan.log_threshold = std::log2(0.5 * a.bool_scale);
  // ex2's own error is below 2^-22. The exponent, at most slope * kDim, is rounded once, and so is
  // the slope, which is multiplied by up to 2 * kDim: together less than four roundings (ln 2 is
  // 0.7).
  const double exponent = std::min(slope * kDim, kPowerRange);
  plan.error = 0x1p-21 + (4.0 * exponent + additions) * kRounding;
  plan.four = 4;
  plan.exact = !(plan.log_threshold > kLeastLogThreshold) || !(slope < 1e30);
  const int64_t each = a.type == ValueType::kFloat32 ? 4 : 8;
  plan.vector_out = a.size == kDim && is_aligned(a.out) && a.out_strides[0] % each == 0 &&
                    a.out_strides[1] % each == 0 && a.out_strides[2] % each == 0;
  return plan;
}

}  // namespace bitgnn::cuda::attention
