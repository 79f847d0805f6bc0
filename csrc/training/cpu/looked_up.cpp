// CPU backend of what products of looked-up bits take in training.
#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu/backend.h"
#include "pack/arguments.h"
#include "training/looked_up_arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;  // values per thread

// Calls work(row) for all rows, split over threads.
template <class Work>
void for_rows(int64_t rows, int64_t cols, const Work& work) {
  split(rows, grain(cols, kGrain), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(row);
  });
}

// Packs `rows` rows of floats with one threshold.
void pack_floats(const float* x, int64_t rows, int64_t cols, const float* threshold,
                 int32_t* words) {
  if (rows * cols == 0) return;
  PackArgs a{};
  a.x = x;
  a.type = FloatType::kFloat32;
  a.row_stride = a.cols = cols;
  a.threshold = threshold;
  a.words = words;
  pack(a, rows);
}

// Sum of squares in several lanes, which the compiler makes vectors of.
double sum_of_squares(const float* x, int64_t count) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      lanes[lane] += value * value;
    }
  for (; i < count; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void fold_weight(const FoldWeightArgs& a) {
  pack_floats(a.weight, a.outputs, a.size, nullptr, a.words);
  for_rows(a.outputs, a.size, [&](int64_t o) {
    const float* weight = a.weight + o * a.size;
    double signs = 0.0, offsets = 0.0;
    for (int64_t k = 0; k < a.size; ++k) {
      const double sign = weight[k] >= 0 ? 1.0 : -1.0;
      signs += sign;
      if (a.offset != nullptr) offsets += sign * static_cast<double>(a.offset[k]);
    }
    const double scale = folded_scale(a, o);
    a.scale[o] = static_cast<float>(scale);
    a.shift[o] = static_cast<float>(folded_shift(a, scale, signs, offsets));
  });
}

void activation_bits(const ActivationBitsArgs& a) {
  const std::vector<float> threshold(static_cast<size_t>(a.cols), a.threshold);
  pack_floats(a.x, a.rows, a.cols, threshold.data(), a.words);
  std::vector<double> squares(static_cast<size_t>(a.rows));
  for_rows(a.rows, a.cols, [&](int64_t row) {
    // Squares of floats do not overflow in float64.
    const double sum = sum_of_squares(a.x + row * a.cols, a.cols);
    squares[static_cast<size_t>(row)] = sum;
    a.bad[row] = std::isfinite(sum) ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  });
  double sum = 0.0;
  for (const double square : squares) sum += square;
  *a.norm = static_cast<float>(std::sqrt(sum) * a.factor);
}

void unpack_pair(const UnpackPairArgs& a) {
  const int64_t words = words_for(a.cols);
  for_rows(a.rows, a.cols, [&](int64_t row) {
    float* out = a.out + row * a.cols;
    for (int64_t k = 0; k < a.cols; ++k)
      out[k] = sign_of_bit(a.words, row, k, words) + sign_of_bit(a.raised, row, k, words);
  });
}

void row_signs(const RowSignsArgs& a) {
  for_rows(a.rows, a.cols, [&](int64_t row) {
    for (int64_t i = row * a.cols; i < (row + 1) * a.cols; ++i)
      a.out[i] = row_sign(a.x[i], a.total[row]);
  });
}

void straight_through(const StraightThroughArgs& a) {
  const float window = a.window == nullptr ? 1.0f : *a.window;
  for_rows(a.rows, a.cols, [&](int64_t row) {
    for (int64_t i = row * a.cols; i < (row + 1) * a.cols; ++i)
      a.out[i] = passed_gradient(a, i, row, window);
  });
}

}  // namespace bitgnn::cpu
