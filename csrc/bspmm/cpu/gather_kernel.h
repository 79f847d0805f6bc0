// Aggregation with a float operand: weighted sums of float rows or of -1/+1 rows, in edge order.
// Bound by the bytes of the gathered rows. Accumulates in float32 without contraction, edge by
// edge, so that all backends and the reference round alike. Included once per CPU capability;
// BITGNN_ISA names the namespace of its primitives.

#include "bspmm/cpu/aggregate_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Factor of a neighbour's float row: 1 if the edge has neither a value nor a column factor.
inline float edge_factor(const CsrArgs& a, int64_t edge) {
  if (a.values != nullptr) return a.values[edge];
  return a.col_scale != nullptr ? a.col_scale[a.indices[edge]] : 1.0f;
}

constexpr int64_t kGatherAhead = 8;  // edges between a row's prefetch and its use

// Sums W words of float features from `first_word` on, in registers over the row's edges.
template <int W>
void gather_floats(const CsrArgs& a, int64_t first_word, int64_t begin, int64_t end) {
  const int64_t first = first_word * kWordBits;
  const int64_t prefetch_end = a.prefetch ? a.row_begin(end) : 0;
  const bool scaled = a.values != nullptr || a.col_scale != nullptr;
  for (int64_t row = begin; row < end; ++row) {
    Lanes sum[W];
    for (auto& s : sum) s = zero_lanes();
    const int64_t last = a.row_begin(row + 1);
    for (int64_t e = a.row_begin(row); e < last; ++e) {
      const float* x = a.x_float() + a.indices[e] * a.x_stride + first;
      if (e + kGatherAhead < prefetch_end) {
        const float* later = a.x_float() + a.indices[e + kGatherAhead] * a.x_stride + first;
        for (int w = 0; w < 2 * W; ++w) prefetch(later + 16 * w);
      }
      const Lanes factor = broadcast_lanes(edge_factor(a, e));
      for (int w = 0; w < W; ++w) {
        const Lanes v = load_some(x + w * kWordBits, a.features - first - w * kWordBits);
        sum[w] = add(sum[w], scaled ? mul(factor, v) : v);
      }
    }
    for (int w = 0; w < W; ++w) finish_values(a, row, first_word + w, sum[w]);
  }
}

// Rows of at most 16 floats, such as class scores: half the lanes of the general case.
void gather_narrow(const CsrArgs& a, int64_t begin, int64_t end) {
  const bool scaled = a.values != nullptr || a.col_scale != nullptr;
  for (int64_t row = begin; row < end; ++row) {
    HalfLanes sum = half_lanes(0.0f);
    const int64_t last = a.row_begin(row + 1);
    for (int64_t e = a.row_begin(row); e < last; ++e) {
      const HalfLanes v = load_half(a.x_float() + a.indices[e] * a.x_stride, a.features);
      sum = add(sum, scaled ? mul(half_lanes(edge_factor(a, e)), v) : v);
    }
    finish_values(a, row, 0, widen(sum));
  }
}

// Sums W words of -1/+1 features, each neighbour weighted by its edge value.
template <int W>
void gather_bits(const CsrArgs& a, int64_t first_word, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    Lanes sum[W];
    for (auto& s : sum) s = zero_lanes();
    const int64_t last = a.row_begin(row + 1);
    for (int64_t e = a.row_begin(row); e < last; ++e) {
      const int64_t j = a.indices[e];
      const int32_t* x = a.x_bits() + j * a.x_stride + first_word;
      const float value = a.col_scale != nullptr ? a.values[e] * a.col_scale[j] : a.values[e];
      for (int w = 0; w < W; ++w)
        sum[w] = add(sum[w], signed_lanes(static_cast<uint32_t>(x[w]), value));
    }
    for (int w = 0; w < W; ++w) finish_values(a, row, first_word + w, sum[w]);
  }
}

template <int W>
void gather_columns(const CsrArgs& a, int64_t first_word, int64_t begin, int64_t end) {
  a.x_type == RowType::kFloat32 ? gather_floats<W>(a, first_word, begin, end)
                                : gather_bits<W>(a, first_word, begin, end);
}

// Exact sums of small-integer rows, one word of features at a time; beyond int32 they wrap.
template <class T>
void gather_integers(const CsrArgs& a, int64_t begin, int64_t end) {
  const T* const table = static_cast<const T*>(a.x);
  for (int64_t w = 0; w < words_for(a.features); ++w) {
    const int64_t first = w * kWordBits;
    const int64_t count = a.features - first < kWordBits ? a.features - first : kWordBits;
    for (int64_t row = begin; row < end; ++row) {
      alignas(64) int32_t sums[kWordBits] = {};
      const int64_t last = a.row_begin(row + 1);
      for (int64_t e = a.row_begin(row); e < last; ++e) {
        const T* x = table + a.indices[e] * a.x_stride + first;
        for (int64_t l = 0; l < count; ++l)
          sums[l] = static_cast<int32_t>(static_cast<uint32_t>(sums[l]) +
                                         static_cast<uint32_t>(static_cast<int32_t>(x[l])));
      }
      finish_sums(a, row, w, load_ints(sums));
    }
  }
}

void aggregate_float(const CsrArgs& a, int64_t begin, int64_t end) {
  if (a.x_type == RowType::kInt8 || a.x_type == RowType::kInt16) {
    a.x_type == RowType::kInt8 ? gather_integers<int8_t>(a, begin, end)
                               : gather_integers<int16_t>(a, begin, end);
    if (a.stream) stream_fence();
    return;
  }
  fetch_table(a);
  if (a.x_type == RowType::kFloat32 && a.features <= kWordBits / 2)
    return gather_narrow(a, begin, end);
  const int64_t words = words_for(a.features);
  int64_t w = 0;
  for (; w + 4 <= words; w += 4) gather_columns<4>(a, w, begin, end);
  switch (words - w) {
    case 3:
      gather_columns<3>(a, w, begin, end);
      break;
    case 2:
      gather_columns<2>(a, w, begin, end);
      break;
    case 1:
      gather_columns<1>(a, w, begin, end);
      break;
    default:
      break;
  }
  if (a.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
