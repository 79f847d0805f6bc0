// Arguments of what products of looked-up bits take in training, and the element functions shared
// by every backend. All matrices are contiguous.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/kernel.h"
#include "training/arguments.h"

namespace bitgnn {

// Weights [outputs, size] to words, with scale and shift of their product: with
// s = unit * step * exp(log_gain), scale[o] = s and shift[o] = s * sum_k sgn(W[o, k]) *
// (zero_one + offset[k] / step), in float64 and rounded once. Offsets are multiples of a power of
// two, so that their sums are exact in any order. Optional: offset, log_gain. Outputs are divided
// into parts of equal size, one for each log_gain.
struct FoldWeightArgs {
  const float* weight;
  const float* unit;      // a single number
  const float* offset;    // [size]
  const float* log_gain;  // [parts]
  int32_t* words;
  float* scale;
  float* shift;
  int64_t outputs, size, parts;
  double step;
  bool zero_one;
};

// x [rows, cols] to words x >= threshold; bad[i] is 0, or NaN if row i has NaN or infinity; norm =
// factor * sqrt(sum of x^2), summed in float64.
struct ActivationBitsArgs {
  const float* x;
  int32_t* words;
  float* bad;
  float* norm;  // a single number
  int64_t rows, cols;
  float threshold;
  double factor;
};

// out = the sum of two matrices of signs [rows, cols].
struct UnpackPairArgs {
  const int32_t* words;
  const int32_t* raised;
  float* out;
  int64_t rows, cols;
};

// out = sgn(x), NaN in rows where total is not finite.
struct RowSignsArgs {
  const float* x;
  const float* total;  // [rows]
  float* out;
  int64_t rows, cols;
};

// out = grad * (scale[row] * slope) where |x| <= window, else 0. Null: no scale, a window of 1.
struct StraightThroughArgs {
  const float* grad;
  const float* x;
  const float* window;  // a single number
  const float* scale;   // [rows]
  float* out;
  int64_t rows, cols;
  float slope;
};

// Scale of the outputs of one part.
BITGNN_BOTH_SIDES double folded_scale(const FoldWeightArgs& a, int64_t output) {
  const double scale = static_cast<double>(*a.unit) * a.step;
  if (a.log_gain == nullptr) return scale;
  return scale * exp(static_cast<double>(a.log_gain[output / (a.outputs / a.parts)]));
}

// The shift from the sum of an output's signs and that of its signs times offsets.
BITGNN_BOTH_SIDES double folded_shift(const FoldWeightArgs& a, double scale, double signs,
                                      double offsets) {
  return scale * ((a.zero_one ? signs : 0.0) + offsets / a.step);
}

BITGNN_BOTH_SIDES float sign_of_bit(const int32_t* words, int64_t row, int64_t column,
                                    int64_t words_per_row) {
  const auto word = static_cast<uint32_t>(words[row * words_per_row + column / 32]);
  return (word >> (column % 32) & 1u) != 0 ? 1.0f : -1.0f;
}

BITGNN_BOTH_SIDES float row_sign(float x, float total) {
  // A number that is not finite gives NaN, not 0.
  return (x >= 0.0f ? 1.0f : -1.0f) + total * 0.0f;
}

BITGNN_BOTH_SIDES float passed_gradient(const StraightThroughArgs& a, int64_t i, int64_t row,
                                        float window) {
  const float factor = a.scale == nullptr ? a.slope : a.scale[row] * a.slope;
  return fabsf(a.x[i]) <= window ? a.grad[i] * factor : 0.0f;
}

BITGNN_KERNEL(training, fold_weight, const FoldWeightArgs& args);
BITGNN_KERNEL(training, activation_bits, const ActivationBitsArgs& args);
BITGNN_KERNEL(training, unpack_pair, const UnpackPairArgs& args);
BITGNN_KERNEL(training, row_signs, const RowSignsArgs& args);
BITGNN_KERNEL(training, straight_through, const StraightThroughArgs& args);

}  // namespace bitgnn
