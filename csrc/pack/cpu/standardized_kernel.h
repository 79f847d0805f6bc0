// Packs rows by comparing them with their own mean: two passes over a row that stays in cache.
// Included once per CPU capability, after pack_kernel.h; BITGNN_ISA names the namespace of its
// primitives.

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

inline double widened(double x) { return x; }
template <class T>
inline double widened(T x) {
  return static_cast<double>(to_float(x));
}

// Loads a word's features as float64, numbers clamped to at least `low`; zeros after the last.
template <class T>
BITGNN_INLINE void load_wide(const T* x, int64_t count, double low, double (&to)[kWordBits]) {
  if (count == kWordBits) {
    for (int64_t i = 0; i < kWordBits; ++i) {
      const double value = widened(x[i]);
      to[i] = value < low ? low : value;
    }
  } else {
    for (int64_t i = 0; i < kWordBits; ++i) {
      const double value = i < count ? widened(x[i]) : 0.0;
      to[i] = value < low ? low : value;
    }
  }
}

inline double fold_sums(const double (&sums)[kWordBits]) {
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

inline int64_t features_in_word(int64_t cols, int64_t word) {
  const int64_t left = cols - word * kWordBits;
  return left < kWordBits ? left : kWordBits;
}

template <class T>
double row_total(const T* x, int64_t cols, double low) {
  alignas(64) double sums[kWordBits] = {}, values[kWordBits];
  for (int64_t w = 0; w < words_for(cols); ++w) {
    load_wide(x + w * kWordBits, features_in_word(cols, w), low, values);
    for (int64_t i = 0; i < kWordBits; ++i) sums[i] += values[i];
  }
  return fold_sums(sums);
}

template <class T>
float standardized_scale(const T* x, int64_t cols, double low, double total, double mean) {
  alignas(64) double distances[kWordBits] = {}, squares[kWordBits] = {}, values[kWordBits];
  for (int64_t w = 0; w < words_for(cols); ++w) {
    const int64_t count = features_in_word(cols, w);
    load_wide(x + w * kWordBits, count, low, values);
    for (int64_t i = count; i < kWordBits; ++i) values[i] = mean;
    for (int64_t i = 0; i < kWordBits; ++i) {
      const double centred = values[i] - mean;
      distances[i] += std::fabs(centred);
      squares[i] += centred * centred;
    }
  }
  const double size = static_cast<double>(cols);
  const double rest = total - size * mean;  // remainder from rounding the mean
  const double variance = (fold_sums(squares) - rest * rest / size) / (cols > 1 ? size - 1.0 : 1.0);
  const double deviation = std::sqrt(variance > 0.0 ? variance : 0.0) + kStandardizeEpsilon;
  return static_cast<float>(fold_sums(distances) / size / deviation);
}

template <class T>
uint32_t word_above(const T* x, int64_t count, double low, float mean) {
  uint32_t bits = 0;
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = 0; i < count; ++i)
      bits |= static_cast<uint32_t>(x[i] >= static_cast<double>(mean)) << i;
  } else {
    bits = ge_mask(load_converted(x, count), broadcast_lanes(mean));
  }
  // After a ReLU no mean is negative, and a mean of 0 is reached by negative inputs, too.
  if (low == 0.0 && mean == 0.0f) bits = 0xffffffffu;
  return count == kWordBits ? bits : bits & ((1u << count) - 1u);
}

template <class T>
void pack_standardized_rows(const StandardizedPackArgs& a, int64_t begin, int64_t end) {
  const int64_t words = words_for(a.cols);
  const double low = a.relu ? 0.0 : -HUGE_VAL;
  for (int64_t i = begin; i < end; ++i) {
    const T* x = static_cast<const T*>(a.x) + i * a.row_stride;
    int32_t* out = a.words + i * words;
    const double total = row_total(x, a.cols, low);
    const float mean = static_cast<float>(total / static_cast<double>(a.cols));
    const bool is_finite = std::isfinite(mean);
    for (int64_t w = 0; w < words; ++w) {
      const int64_t count = features_in_word(a.cols, w);
      out[w] =
          is_finite ? static_cast<int32_t>(word_above(x + w * kWordBits, count, low, mean)) : 0;
    }
    if (a.scale == nullptr) continue;
    if (a.cols == 0) {
      a.scale[i] = 0.0f;
    } else if (is_finite) {
      a.scale[i] = standardized_scale(x, a.cols, low, total, static_cast<double>(mean));
    } else {
      a.scale[i] = std::nanf("");
    }
  }
}

void pack_standardized(const StandardizedPackArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.type,
                  [&](auto zero) { pack_standardized_rows<decltype(zero)>(a, begin, end); });
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
