// Batched products of ternary or boolean rows with ternary rows.
// Included once per instruction set; BITGNN_ISA names the namespace of its primitives.
#pragma once

#include "ternary/cpu/values.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// First word of a row of matrix (b0, b1).
inline const int32_t* row_words(const TernaryOperand& t, int64_t b0, int64_t b1, int64_t row) {
  return t.words + b0 * t.batch_strides[0] + b1 * t.batch_strides[1] + row * t.row_stride;
}

void pair_panels(const PairPanels& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t matrix = i / p.per_batch(), first = i % p.per_batch() * kWordBits;
    const int64_t b0 = matrix / p.batches[1], b1 = matrix % p.batches[1];
    int32_t* const panel = p.panels + i * p.panel_words();
    for (int64_t l = 0; l < kWordBits; ++l) {
      const bool there = first + l < p.rows;
      const int32_t* pos = there ? row_words(*p.y, b0, b1, first + l) : nullptr;
      for (int64_t w = 0; w < p.words; ++w) {
        int32_t* to = panel + w * 2 * kWordBits + l;
        to[0] = there ? pos[w] | pos[p.words + w] : 0;
        to[kWordBits] = there ? pos[w] : 0;
      }
    }
  }
}

// to[r][o] = popcount(a[r] & pos[o]) - popcount(a[r] & neg[o]) over the first `words` words, for at
// most 32 rows o of y, whose planes have `plane` words.
template <int R>
inline void boolean_dots(const int32_t* a, int64_t a_stride, const int32_t* y, int64_t y_stride,
                         int64_t plane, int64_t outputs, int64_t words, int32_t (*to)[kWordBits]) {
  for (int64_t o = 0; o < outputs; ++o) {
    const int32_t* pos = y + o * y_stride;
    SetBits plus[R], minus[R];
    for (int r = 0; r < R; ++r) {
      plus[r].clear();
      minus[r].clear();
    }
    for (int64_t k = 0; k < words; k += RowWords::kWords) {
      const auto tail = RowWords::tail(words - k);
      const RowWords p = RowWords::load(pos + k, tail);
      const RowWords n = RowWords::load(pos + plane + k, tail);
      for (int r = 0; r < R; ++r) {
        const RowWords x = RowWords::load(a + r * a_stride + k, tail);
        plus[r].add(x & p);
        minus[r].add(x & n);
      }
    }
    for (int r = 0; r < R; ++r) to[r][o] = plus[r].sum() - minus[r].sum();
  }
}

// Epilogue: (scale * y_scale) * dot.
struct MatmulEpilogue {
  const TernaryMatmulArgs& a;
  Lanes scale;

  explicit MatmulEpilogue(const TernaryMatmulArgs& args)
      : a(args),
        scale(broadcast_lanes((a.scale != nullptr ? *a.scale : 1.0f) *
                              (a.y_scale != nullptr ? *a.y_scale : 1.0f))) {}

  // Stores columns [first, first + 32) of a row, which is numbered across all batches.
  void operator()(int64_t row, int64_t first, const IntLanes& dot) const {
    const int64_t at = row * a.columns + first, count = std::min(kWordBits, a.columns - first);
    if (a.type == ValueType::kInt32) return store_sums(a.out, at, dot, count);
    Lanes v = to_lanes(dot);
    if (a.scale != nullptr || a.y_scale != nullptr) v = mul(scale, v);
    store_values(a.out, a.type, at, v, count);
  }
};

// Computes R rows of one matrix, starting at `row`.
template <int R>
void matmul_tile(const TernaryMatmulArgs& a, const int32_t* panels, int64_t matrix, int64_t row,
                 const MatmulEpilogue& epilogue) {
  const int64_t b0 = matrix / a.batches[1], b1 = matrix % a.batches[1], words = words_for(a.size);
  const int32_t* x = row_words(a.x, b0, b1, row);
  const int64_t at = matrix * a.rows + row, panel_words = words * 2 * kWordBits;
  for (int64_t first = 0; first < a.columns; first += kWordBits) {
    if (a.boolean) {
      alignas(64) int32_t dots[R][kWordBits] = {};
      boolean_dots<R>(x, a.x.row_stride, row_words(a.y, b0, b1, first), a.y.row_stride, words,
                      std::min(kWordBits, a.columns - first), words, dots);
      for (int r = 0; r < R; ++r) epilogue(at + r, first, load_ints(dots[r]));
      continue;
    }
    const int64_t panel = matrix * words_for(a.columns) + first / kWordBits;
    pair_dots<R>(x, x + words, a.x.row_stride, panels + panel * panel_words, words,
                 [&](int r, const IntLanes& dot) { epilogue(at + r, first, dot); });
  }
}

void matmul_ternary(const TernaryMatmulArgs& a, const int32_t* panels, int64_t begin, int64_t end) {
  const MatmulEpilogue epilogue(a);
  const int64_t tiles = (a.rows + kTernaryRows - 1) / kTernaryRows;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t matrix = i / tiles, row = i % tiles * kTernaryRows;
    if (row + kTernaryRows <= a.rows) {
      matmul_tile<kTernaryRows>(a, panels, matrix, row, epilogue);
    } else {
      for (int64_t r = row; r < a.rows; ++r) matmul_tile<1>(a, panels, matrix, r, epilogue);
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
