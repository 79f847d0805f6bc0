// CPU backend of the quantisation of activations and weights in training, and of its gradients.
#include <algorithm>
#include <vector>

#include "core/cpu/backend.h"
#include "training/arguments.h"

namespace bitgnn::cpu {
namespace {

// Values per partial sum. It is fixed, so that sums do not depend on the number of threads.
constexpr int64_t kPiece = 1 << 13;
constexpr int64_t kLanes = 8;
constexpr int64_t kPiecesPerThread = 4;

int64_t pieces_of(int64_t count) { return (count + kPiece - 1) / kPiece; }

// The sum of work(begin, end) over all pieces, added in order.
template <class Work>
double sum_of_pieces(int64_t count, const Work& work) {
  std::vector<double> partial(static_cast<size_t>(pieces_of(count)));
  split(pieces_of(count), kPiecesPerThread, [&](int64_t first, int64_t last) {
    for (int64_t piece = first; piece < last; ++piece)
      partial[static_cast<size_t>(piece)] =
          work(piece * kPiece, std::min(count, (piece + 1) * kPiece));
  });
  double sum = 0.0;
  for (const double part : partial) sum += part;
  return sum;
}

// Sum of term(i) over [begin, end), in kLanes parallel partial sums.
template <class Term>
double sum_of_terms(int64_t begin, int64_t end, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(term(i + lane));
  for (; i < end; ++i) lanes[0] += static_cast<double>(term(i));
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

void round_levels(const RoundLevelsArgs& a) {
  const float scale = *a.scale;
  const auto lowest = static_cast<float>(a.lowest), highest = static_cast<float>(a.highest);
  split(a.count, kPiece * kPiecesPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.out[i] = rounded_level(a.x[i], scale, lowest, highest);
  });
}

void clip_gradients(const ClipGradientsArgs& a) {
  const float scale = *a.scale, gain = a.gain == nullptr ? 1.0f : *a.gain;
  const double sum = sum_of_pieces(a.count, [&](int64_t begin, int64_t end) {
    return sum_of_terms(begin, end, [&](int64_t i) {
      float term;
      a.grad_x[i] = clipped_gradient(a, a.grad[i], a.x[i], scale, gain, &term);
      return term;
    });
  });
  *a.grad_scale = static_cast<float>(sum * a.factor());
}

void shift_signs(const ShiftSignsArgs& a) {
  const double sum = sum_of_pieces(a.count, [&](int64_t begin, int64_t end) {
    return sum_of_terms(begin, end, [&](int64_t i) { return a.weight[i]; });
  });
  const auto mean = static_cast<float>(sum / a.divisor());
  const double magnitudes = sum_of_pieces(a.count, [&](int64_t begin, int64_t end) {
    return sum_of_terms(begin, end, [&](int64_t i) {
      const float centred = a.weight[i] - mean;
      a.signs[i] = centred >= 0.0f ? 1.0f : -1.0f;
      return std::abs(centred);
    });
  });
  *a.scale = static_cast<float>(magnitudes / a.divisor());
}

void centre_gradients(const CentreGradientsArgs& a) {
  const double sum = sum_of_pieces(a.count, [&](int64_t begin, int64_t end) {
    return sum_of_terms(begin, end, [&](int64_t i) { return a.grad[i]; });
  });
  const float mean = static_cast<float>(sum / a.divisor()), factor = *a.factor;
  split(a.count, kPiece * kPiecesPerThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a.out[i] = (a.grad[i] - mean) * factor;
  });
}

void scale_sums(const ScaleSumsArgs& a) {
  const float factor = *a.scale * *a.weight_scale;
  const int64_t columns = std::max<int64_t>(a.columns, 1);
  split(a.count / columns, std::max<int64_t>(kPiece / columns, 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const sums = a.sums + row * columns;
      float* const out = a.out + row * columns;
      for (int64_t i = 0; i < columns; ++i) out[i] = factor * sums[i];
      if (a.bias == nullptr) continue;
      for (int64_t i = 0; i < columns; ++i) out[i] += a.bias[i];
    }
  });
}

}  // namespace bitgnn::cpu
