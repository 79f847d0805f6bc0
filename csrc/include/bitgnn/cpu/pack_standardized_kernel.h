// Packing rows by comparison with their own mean: two passes over a row that the cache holds.
// Included once a capability behind pack_kernel.h, with BITGNN_ISA naming the namespace of its
// primitives.

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kSumLanes = 16;  // float64 sums side by side

inline double fold_sums(const double (&sums)[kSumLanes]) {
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

// x in float64, at least `low` where it is a number.
template <class T>
inline double bounded(T x, double low) {
  double value;
  if constexpr (std::is_same_v<T, double>) {
    value = x;
  } else {
    value = static_cast<double>(to_float(x));
  }
  return value < low ? low : value;
}

// Calls visit(lane, column) for every column, in groups that vectors can take.
template <class Visit>
BITGNN_INLINE void for_lanes(int64_t cols, const Visit& visit) {
  int64_t k = 0;
  for (; k + kSumLanes <= cols; k += kSumLanes)
    for (int64_t l = 0; l < kSumLanes; ++l) visit(l, k + l);
  for (int64_t l = 0; k + l < cols; ++l) visit(l, k + l);
}

template <class T>
double row_total(const T* x, int64_t cols, double low) {
  double sums[kSumLanes] = {};
  for_lanes(cols, [&](int64_t l, int64_t k) { sums[l] += bounded(x[k], low); });
  return fold_sums(sums);
}

template <class T>
float standardized_scale(const T* x, int64_t cols, double low, double total, double mean) {
  double distances[kSumLanes] = {}, squares[kSumLanes] = {};
  for_lanes(cols, [&](int64_t l, int64_t k) {
    const double centred = bounded(x[k], low) - mean;
    distances[l] += std::fabs(centred);
    squares[l] += centred * centred;
  });
  const double size = static_cast<double>(cols);
  const double rest = total - size * mean;  // what rounding the mean left over
  const double variance = (fold_sums(squares) - rest * rest / size) / (cols > 1 ? size - 1.0 : 1.0);
  const double deviation = std::sqrt(variance > 0.0 ? variance : 0.0) + kStandardizeEpsilon;
  return static_cast<float>(fold_sums(distances) / size / deviation);
}

template <class T>
uint32_t word_above(const T* x, int64_t count, double low, float mean) {
  uint32_t bits = 0;
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = 0; i < count; ++i)
      bits |= static_cast<uint32_t>(bounded(x[i], low) >= static_cast<double>(mean)) << i;
  } else {
    bits = ge_mask(load_converted(x, count), broadcast_lanes(mean));
    // Behind a ReLU no mean is negative, and one of 0 is reached by what was negative too.
    if (low == 0.0 && mean == 0.0f) bits = 0xffffffffu;
  }
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
      const int64_t column = w * kWordBits;
      const int64_t count = a.cols - column < kWordBits ? a.cols - column : kWordBits;
      out[w] = is_finite ? static_cast<int32_t>(word_above(x + column, count, low, mean)) : 0;
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
  switch (a.type) {
    case FloatType::kFloat32:
      return pack_standardized_rows<float>(a, begin, end);
    case FloatType::kFloat64:
      return pack_standardized_rows<double>(a, begin, end);
    case FloatType::kFloat16:
      return pack_standardized_rows<Half>(a, begin, end);
    case FloatType::kBFloat16:
      return pack_standardized_rows<BFloat16>(a, begin, end);
    case FloatType::kUInt8:
      return pack_standardized_rows<uint8_t>(a, begin, end);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
