// CPU backend of what products of looked-up bits take in training.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/cpu/backend.h"

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
void pack_floats(const Backend& backend, const float* x, int64_t rows, int64_t cols,
                 const float* threshold, int32_t* words) {
  if (rows * cols == 0) return;
  PackArgs a{};
  a.x = x;
  a.type = FloatType::kFloat32;
  a.row_stride = a.cols = cols;
  a.threshold = threshold;
  a.words = words;
  backend.pack(a, rows);
}

// The bits of up to 32 entries that are false.
uint32_t dropped_bits(const bool* mask, int64_t count) {
  constexpr uint64_t kLowBits = 0x0101010101010101, kGather = 0x0102040810204080;
  uint32_t bits = 0;
  for (int64_t first = 0; first < count; first += 8) {
    uint64_t eight = kLowBits;
    std::memcpy(&eight, mask + first, static_cast<size_t>(std::min<int64_t>(8, count - first)));
    bits |= static_cast<uint32_t>((~eight & kLowBits) * kGather >> 56) << first;
  }
  return bits;
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

void Backend::fold_weight(const FoldWeightArgs& a) const {
  pack_floats(*this, a.weight, a.outputs, a.size, nullptr, a.words);
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

void Backend::activation_bits(const ActivationBitsArgs& a) const {
  const std::vector<float> threshold(static_cast<size_t>(a.cols), a.threshold);
  pack_floats(*this, a.x, a.rows, a.cols, threshold.data(), a.words);
  std::vector<double> squares(static_cast<size_t>(a.rows));
  const int64_t words = words_for(a.cols);
  for_rows(a.rows, a.cols, [&](int64_t row) {
    for (int64_t word = 0; word < words; ++word) {
      const int64_t at = row * words + word, first = word * kWordBits;
      const uint32_t dropped =
          a.mask == nullptr
              ? 0
              : dropped_bits(a.mask + row * a.cols + first, std::min(kWordBits, a.cols - first));
      a.raised[at] = a.words[at] | static_cast<int32_t>(dropped);
    }
    // Squares of floats do not overflow in float64.
    const double sum = sum_of_squares(a.x + row * a.cols, a.cols);
    squares[static_cast<size_t>(row)] = sum;
    a.bad[row] = std::isfinite(sum) ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  });
  double sum = 0.0;
  for (const double square : squares) sum += square;
  *a.norm = static_cast<float>(std::sqrt(sum) * a.factor);
}

void Backend::kept_share(const KeptShareArgs& a) const {
  const int64_t words = words_for(a.size);
  std::vector<int64_t> set(static_cast<size_t>(a.rows));
  for_rows(a.rows, words, [&](int64_t row) {
    int64_t count = 0;
    for (int64_t i = row * words; i < (row + 1) * words; ++i)
      count += __builtin_popcount(static_cast<unsigned>(a.words[i]));
    set[static_cast<size_t>(row)] = count;
  });
  finish_kept_share(a, static_cast<double>(std::accumulate(set.begin(), set.end(), int64_t{0})));
}

void Backend::unpack_pair(const UnpackPairArgs& a) const {
  const int64_t words = words_for(a.cols);
  for_rows(a.rows, a.cols, [&](int64_t row) {
    float* out = a.out + row * a.cols;
    for (int64_t k = 0; k < a.cols; ++k)
      out[k] = sign_of_bit(a.words, row, k, words) + sign_of_bit(a.raised, row, k, words);
  });
}

void Backend::row_signs(const RowSignsArgs& a) const {
  for_rows(a.rows, a.cols, [&](int64_t row) {
    for (int64_t i = row * a.cols; i < (row + 1) * a.cols; ++i)
      a.out[i] = row_sign(a.x[i], a.total[row]);
  });
}

void Backend::straight_through(const StraightThroughArgs& a) const {
  const float window = a.window == nullptr ? 1.0f : *a.window;
  for_rows(a.rows, a.cols, [&](int64_t row) {
    for (int64_t i = row * a.cols; i < (row + 1) * a.cols; ++i)
      a.out[i] = passed_gradient(a, i, row, window);
  });
}

}  // namespace bitgnn::cpu
