// Ternary rows times +-1 weights: dot = 2 popcount(w ? pos : neg) - count, 32 outputs across lanes.
// Selecting pos or neg by the weight's bit merges the two AND products of a word into one popcount.
// Included once per instruction set; BITGNN_ISA names the namespace of its primitives.

#include "ternary/cpu/values.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Epilogue of the products of one panel of 32 outputs.
struct TernaryEpilogue {
  const TernaryBmmArgs& a;
  int64_t panel, first, count;
  uint32_t valid, flip;
  bool scaled;
  Lanes factor, bias, threshold;

  TernaryEpilogue(const TernaryProduct& product, int64_t panel_index)
      : a(*product.args),
        panel(panel_index),
        first(panel * kWordBits),
        count(std::min(kWordBits, a.out_features - first)),
        valid(count < kWordBits ? (1u << count) - 1u : 0xffffffffu),
        flip(product.flip != nullptr ? static_cast<uint32_t>(product.flip[panel]) : 0u),
        scaled(a.x_scale != nullptr || a.w_scale != nullptr),
        factor(vector_or(a.w_scale_stride != 0 ? a.w_scale : nullptr,
                         a.w_scale != nullptr ? *a.w_scale : 1.0f)),
        bias(vector_or(a.bias, 0.0f)),
        threshold(vector_or(a.threshold, 0.0f)) {
    if (a.x_scale == nullptr) return;
    const Lanes x_scale = broadcast_lanes(*a.x_scale);
    factor = a.w_scale != nullptr ? mul(x_scale, factor) : x_scale;
  }

  Lanes vector_or(const float* p, float value) const {
    if (p == nullptr) return broadcast_lanes(value);
    return count == kWordBits ? load_lanes(p + first) : load_lanes(p + first, count);
  }

  void operator()(int64_t row, const IntLanes& counts) const {
    const IntLanes dot = twice_less(counts, a.counts[row]);
    const int64_t at = row * a.out_features + first;
    if (a.out_bits == nullptr && a.type == ValueType::kInt32)
      return store_sums(a.out, at, dot, count);
    Lanes v = to_lanes(dot);
    const bool bare = a.bias == nullptr && a.threshold == nullptr;
    if (a.out_bits == nullptr || !bare) {
      if (scaled) v = mul(factor, v);
      if (a.bias != nullptr) v = add(v, bias);
    }
    if (a.out_bits == nullptr) return store_values(a.out, a.type, at, v, count);
    a.out_bits[row * words_for(a.out_features) + panel] =
        static_cast<int32_t>((ge_mask(v, threshold) ^ flip) & valid);
  }
};

constexpr int64_t kTernaryRowBlock = 32;  // rows whose words stay in L1 along with a panel

void multiply_ternary_panels(const TernaryProduct& product, int64_t begin, int64_t end,
                             int64_t panel_begin, int64_t panel_end) {
  const TernaryBmmArgs& a = *product.args;
  const int64_t words = words_for(a.size), stride = 2 * words;
  for (int64_t block = begin; block < end; block += kTernaryRowBlock) {
    const int64_t last = std::min(end, block + kTernaryRowBlock);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      const TernaryEpilogue epilogue(product, panel);
      const int32_t* weights = product.panels + panel * words * kWordBits;
      int64_t row = block;
      const auto emit = [&](int r, const IntLanes& counts) { epilogue(row + r, counts); };
      for (; row + kSelectRows <= last; row += kSelectRows) {
        const int32_t* x = a.x + row * stride;
        select_dots<kSelectRows>(x, x + words, stride, weights, words, emit);
      }
      for (; row < last; ++row) {
        const int32_t* x = a.x + row * stride;
        select_dots<1>(x, x + words, stride, weights, words, emit);
      }
    }
  }
}

// Set bits of the words that O rows of weights, read once, select from each of R rows. Counts of
// successive rows are kWordBits apart in `to`.
template <int R, int O>
inline void chosen_bits(const int32_t* x, int64_t x_stride, const int32_t* w, int64_t words,
                        int32_t* to) {
  SetBits bits[R][O];
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) bits[r][o].clear();
  for (int64_t k = 0; k < words; k += RowWords::kWords) {
    const auto tail = RowWords::tail(words - k);
    RowWords weights[O];
    for (int o = 0; o < O; ++o) weights[o] = RowWords::load(w + o * words + k, tail);
    for (int r = 0; r < R; ++r) {
      const RowWords pos = RowWords::load(x + r * x_stride + k, tail);
      const RowWords neg = RowWords::load(x + r * x_stride + words + k, tail);
      for (int o = 0; o < O; ++o) bits[r][o].add(select(weights[o], pos, neg));
    }
  }
  for (int r = 0; r < R; ++r)
    for (int o = 0; o < O; ++o) to[r * kWordBits + o] = bits[r][o].sum();
}

template <int R>
inline void multiply_rows_in_place(const TernaryBmmArgs& a, int64_t row,
                                   const TernaryEpilogue& epilogue) {
  constexpr int kOutputs = 4;
  const int64_t words = words_for(a.size);
  alignas(64) int32_t counts[R * kWordBits] = {};
  const int32_t* x = a.x + row * 2 * words;
  const int32_t* w = a.w + epilogue.first * words;
  int64_t o = 0;
  for (; o + kOutputs <= epilogue.count; o += kOutputs)
    chosen_bits<R, kOutputs>(x, 2 * words, w + o * words, words, counts + o);
  for (; o < epilogue.count; ++o) chosen_bits<R, 1>(x, 2 * words, w + o * words, words, counts + o);
  for (int r = 0; r < R; ++r) epilogue(row + r, load_ints(counts + r * kWordBits));
}

// For few rows: reads the weights in place, output by output, at memory bandwidth.
void multiply_ternary_in_place(const TernaryProduct& product, int64_t begin, int64_t end,
                               int64_t panel_begin, int64_t panel_end) {
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const TernaryEpilogue epilogue(product, panel);
    int64_t row = begin;
    for (; row + 2 <= end; row += 2) multiply_rows_in_place<2>(*product.args, row, epilogue);
    for (; row < end; ++row) multiply_rows_in_place<1>(*product.args, row, epilogue);
  }
}

void multiply_ternary(const TernaryProduct& product, int64_t begin, int64_t end,
                      int64_t panel_begin, int64_t panel_end) {
  (product.panels != nullptr ? multiply_ternary_panels : multiply_ternary_in_place)(
      product, begin, end, panel_begin, panel_end);
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
