// Packs float rows into bits: one compare per feature, bound by reading the input. Included once
// per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/float_types.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Canonical order of summing the row scale: 32 lanes summed word by word, then folded as a tree, so
// that all backends round alike.
inline float fold_lanes(const Lanes& lanes) {
  alignas(64) float v[kWordBits];
  store_lanes(v, lanes);
  for (int step = kWordBits / 2; step > 0; step /= 2)
    for (int i = 0; i < step; ++i) v[i] += v[i + step];
  return v[0];
}

template <class T>
inline void convert(const T* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(x[i]);
}

template <class T>
inline Lanes load_converted(const T* x, int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return count == kWordBits ? load_lanes(x) : load_lanes(x, count);
  } else {
    alignas(64) float buffer[kWordBits] = {};
    convert(x, count, buffer);
    return load_lanes(buffer);
  }
}

// Packs one word of up to 32 features; adds |(x - threshold) * gain| to `sum` if kScale.
template <class T, bool kThreshold, bool kScale>
inline uint32_t pack_word(const PackArgs& a, const T* x, int64_t column, int64_t count,
                          Lanes& sum) {
  const Lanes value = load_converted(x + column, count);
  Lanes threshold = zero_lanes();
  if constexpr (kThreshold)
    threshold = count == kWordBits ? load_lanes(a.threshold + column)
                                   : load_lanes(a.threshold + column, count);
  uint32_t bits;
  if constexpr (std::is_same_v<T, double>) {
    bits = 0;  // compared in double: rounding to float could move a value across the threshold
    for (int64_t i = 0; i < count; ++i) {
      const double t = kThreshold ? static_cast<double>(a.threshold[column + i]) : 0.0;
      bits |= static_cast<uint32_t>(x[column + i] >= t) << i;
    }
  } else {
    bits = ge_mask(value, threshold);
  }
  if constexpr (kScale) {
    Lanes distance = kThreshold ? sub(value, threshold) : value;
    if (a.gain != nullptr)
      distance = mul(distance, count == kWordBits ? load_lanes(a.gain + column)
                                                  : load_lanes(a.gain + column, count));
    sum = add(sum, abs(distance));
  }
  return count == kWordBits ? bits : bits & ((1u << count) - 1u);
}

// Packs R rows, `apart` rows from one another, side by side; thresholds are loaded once.
template <class T, bool kThreshold, bool kScale, int R>
void pack_side_by_side(const PackArgs& a, int64_t row, int64_t apart) {
  const int64_t words = words_for(a.cols);
  const int64_t full = a.cols / kWordBits;
  const T* x = static_cast<const T*>(a.x) + row * a.row_stride;
  int32_t* out = a.words + row * words;
  const int64_t x_step = apart * a.row_stride, out_step = apart * words;
  Lanes sums[R];
  for (auto& sum : sums) sum = zero_lanes();
  for (int64_t w = 0; w < full; ++w)
    for (int r = 0; r < R; ++r)
      out[r * out_step + w] = static_cast<int32_t>(
          pack_word<T, kThreshold, kScale>(a, x + r * x_step, w * kWordBits, kWordBits, sums[r]));
  if (full < words)
    for (int r = 0; r < R; ++r)
      out[r * out_step + full] = static_cast<int32_t>(pack_word<T, kThreshold, kScale>(
          a, x + r * x_step, full * kWordBits, a.cols % kWordBits, sums[r]));
  if constexpr (kScale)
    for (int r = 0; r < R; ++r)
      a.scale[row + r * apart] =
          a.cols == 0 ? 0.0f : fold_lanes(sums[r]) / static_cast<float>(a.cols);
}

// Each quarter of the rows is a separate stream: a core reads four streams faster than one, but not
// four adjacent rows, between which every stream would jump.
template <class T, bool kThreshold, bool kScale>
void pack_rows(const PackArgs& a, int64_t begin, int64_t end) {
  constexpr int kStreams = 4;
  const int64_t apart = (end - begin) / kStreams;
  for (int64_t i = begin; i < begin + apart; ++i)
    pack_side_by_side<T, kThreshold, kScale, kStreams>(a, i, apart);
  for (int64_t i = begin + kStreams * apart; i < end; ++i)
    pack_side_by_side<T, kThreshold, kScale, 1>(a, i, 0);
}

template <class T>
void pack_typed(const PackArgs& a, int64_t begin, int64_t end) {
  if (a.scale != nullptr) {
    a.threshold ? pack_rows<T, true, true>(a, begin, end)
                : pack_rows<T, false, true>(a, begin, end);
  } else {
    a.threshold ? pack_rows<T, true, false>(a, begin, end)
                : pack_rows<T, false, false>(a, begin, end);
  }
}

inline const void* advance(const PackArgs& a, int64_t rows) {
  return static_cast<const char*>(a.x) + rows * a.row_stride * element_bytes(a.type);
}

void pack(const PackArgs& a, int64_t begin, int64_t end) {
  with_float_type(a.type, [&](auto zero) { pack_typed<decltype(zero)>(a, begin, end); });
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
