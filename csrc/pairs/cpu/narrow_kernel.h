// Aggregation of narrow rows in the order of bspmm/narrow_sums.h: the lanes are a row's features,
// or if they are few, those of the rows of two or four slots, and each slot has its own lanes.
// Bound by the gathered cache lines if the table exceeds the cache, otherwise by conversions and
// sums. Included once per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include "bspmm/narrow_sums.h"
#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kNarrowAhead = 24;  // edges between a row's prefetch and its use

// 16 lanes that sum edges: floats if edges have factors, otherwise exact integers.
template <bool kFactors>
using NarrowValue = std::conditional_t<kFactors, HalfLanes, HalfIntLanes>;

template <bool kFactors>
inline NarrowValue<kFactors> zero_value() {
  if constexpr (kFactors) {
    return half_lanes(0.0f);
  } else {
    return half_ints(0);
  }
}

inline const char* narrow_row(const NarrowCsrArgs& a, int64_t edge) {
  return a.rows.data + a.csr.indices[edge] * a.rows.stride;
}

// Rows of integers: W vectors of a row's features from `first` on. Edges from `end` on do not exist
// and leave the sum unchanged.
template <class T, int W, bool kWithFactors>
struct IntegerRows {
  static constexpr int kEdges = 1, kVectors = W;
  static constexpr bool kFactors = kWithFactors;
  static constexpr int64_t kBytes = W * kHalfLanes * static_cast<int64_t>(sizeof(T));

  const NarrowCsrArgs& a;
  int64_t at;  // byte offset of the part within a row

  IntegerRows(const NarrowCsrArgs& args, int64_t first)
      : a(args), at(a.rows.halves_at() + first * static_cast<int64_t>(sizeof(T))) {}

  void fetch(int64_t edge) const {
    for (int64_t b = 0; b < kBytes; b += 64) prefetch(narrow_row(a, edge) + at + b);
  }
  template <bool kWhole>
  BITGNN_INLINE void add_edges(int64_t edge, int64_t end, NarrowValue<kFactors>* slot) const {
    if (!kWhole && edge >= end) return;
    const char* whole = narrow_row(a, edge);
    const T* integers = reinterpret_cast<const T*>(whole + at);
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      const HalfIntLanes halves = load_integers(integers + w * kHalfLanes);
      if constexpr (kFactors) {
        float factor;
        std::memcpy(&factor, whole, sizeof(factor));
        slot[w] = multiply_add(half_lanes(factor), to_half_lanes(halves), slot[w]);
      } else {
        slot[w] = add(slot[w], halves);
      }
    }
  }
};

// Rows of 16 / E words, E edges side by side in a vector.
template <int E, bool kWithFactors, bool kOnes>
struct WordRows {
  static constexpr int kEdges = E, kVectors = 1;
  static constexpr bool kFactors = kWithFactors;
  using Word = std::conditional_t<kFactors, float, int32_t>;

  const NarrowCsrArgs& a;

  WordRows(const NarrowCsrArgs& args, int64_t) : a(args) {}

  void fetch(int64_t edge) const { prefetch(narrow_row(a, edge)); }
  template <bool kWhole>
  BITGNN_INLINE void add_edges(int64_t edge, int64_t end, NarrowValue<kFactors>* slot) const {
    alignas(64) static const char kZeros[kHalfLanes / E * sizeof(Word)] = {};
    const Word* rows[E];
#pragma GCC unroll 4
    for (int i = 0; i < E; ++i) {
      const bool there = kWhole || edge + i < end;
      const char* row = narrow_row(a, there ? edge + i : end - 1);
      rows[i] = reinterpret_cast<const Word*>(there ? row : kZeros);
    }
    const NarrowValue<kFactors> words = load_words(rows);
    if constexpr (kFactors) {
      const HalfLanes factors = spread_last<E>(words);
      // The last words then accumulate the factors.
      *slot = multiply_add(factors, kOnes ? with_last_one<E>(words) : words, *slot);
    } else {
      *slot = add(*slot, words);
    }
  }
};

// The sum of one row, slot by slot.
template <class Rows>
struct NarrowSum {
  static constexpr int E = Rows::kEdges, W = Rows::kVectors, kGroups = kSumSlots / E;
  using Value = NarrowValue<Rows::kFactors>;

  Rows rows;
  Value slots[kGroups][W];

  // Adds edges [begin, end), at most a piece.
  BITGNN_INLINE void add_piece(int64_t begin, int64_t end, int64_t prefetch_end, Value* total) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) slots[g][w] = zero_value<Rows::kFactors>();
    int64_t e = begin;
    for (; e + kSumSlots <= end; e += kSumSlots) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        for (int i = g * E; i < (g + 1) * E; ++i)
          if (e + i + kNarrowAhead < prefetch_end) rows.fetch(e + i + kNarrowAhead);
        rows.template add_edges<true>(e + g * E, end, slots[g]);
      }
    }
    if (e < end) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) rows.template add_edges<false>(e + g * E, end, slots[g]);
    }
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
#pragma GCC unroll 4
      for (int half = kGroups / 2; half > 0; half /= 2)
#pragma GCC unroll 4
        for (int g = 0; g < half; ++g) slots[g][w] = add(slots[g][w], slots[g + half][w]);
      if constexpr (E >= 2) slots[0][w] = fold<8>(slots[0][w]);
      if constexpr (E == 4) slots[0][w] = fold<4>(slots[0][w]);
      total[w] = add(total[w], slots[0][w]);
    }
  }

  BITGNN_INLINE void add_row(int64_t begin, int64_t end, int64_t prefetch_end, Value* total) {
    for (int w = 0; w < W; ++w) total[w] = zero_value<Rows::kFactors>();
    for (int64_t e = begin; e < end; e += kSumPiece)
      add_piece(e, e + kSumPiece < end ? e + kSumPiece : end, prefetch_end, total);
  }
};

// Finishes up to 16 features; `v` is the sum of the products, `ones` that of the factors.
BITGNN_INLINE void finish_narrow(const NarrowCsrArgs& a, int64_t row, int64_t first, HalfLanes v,
                                 float ones) {
  const CsrArgs& csr = a.csr;
  const int64_t left = csr.features - first;
  const int64_t count = left < kHalfLanes ? left : kHalfLanes;
  if (csr.row_scale != nullptr) {
    HalfLanes scale = half_lanes(csr.row_scale[row]);
    if (a.out_scale != nullptr) scale = mul(scale, load_half(a.out_scale + first, count));
    v = mul(scale, v);
  } else if (a.out_scale != nullptr) {
    v = mul(load_half(a.out_scale + first, count), v);
  }
  if (a.shift != nullptr) {
    HalfLanes shift = load_half(a.shift + first, count);
    if (csr.row_scale != nullptr) shift = mul(half_lanes(csr.row_scale[row]), shift);
    v = add(v, mul(shift, half_lanes(ones)));
  }
  if (csr.bias != nullptr) v = add(v, load_half(csr.bias + first, count));
  store_half(csr.out_float + row * csr.features + first, v, count);
}

// Aggregates as many features of `row` from `first` on as Rows holds. If factors are summed, `rest`
// is their sum, taken from feature `rest_at` if that is among these.
template <class Rows>
BITGNN_INLINE void aggregate_narrow_part(const NarrowCsrArgs& a, int64_t row, int64_t first,
                                         int64_t prefetch_end, int64_t rest_at, float* rest) {
  constexpr int W = Rows::kVectors;
  NarrowSum<Rows> sum{Rows(a, first), {}};
  const int64_t begin = a.csr.row_begin(row), end = a.csr.row_begin(row + 1);
  NarrowValue<Rows::kFactors> total[W];
  sum.add_row(begin, end, prefetch_end, total);
  if constexpr (Rows::kFactors) {
    if (a.rows.ones && rest_at >= first && rest_at < first + W * kHalfLanes) {
      float sums[W * kHalfLanes];
      for (int w = 0; w < W; ++w) store_half(sums + w * kHalfLanes, total[w], kHalfLanes);
      *rest = sums[rest_at - first];
    }
  }
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) {
    if (first + w * kHalfLanes >= a.csr.features) return;
    HalfLanes v;
    float ones = *rest;
    if constexpr (Rows::kFactors) {
      v = mul(half_lanes(2.0f), total[w]);
      if (a.rows.odd) v = add(v, half_lanes(ones));
    } else {
      HalfIntLanes dots = add(total[w], total[w]);
      if (a.rows.odd) dots = add(dots, half_ints(static_cast<int32_t>(end - begin)));
      v = to_half_lanes(dots);
      ones = static_cast<float>(end - begin);
    }
    finish_narrow(a, row, first + w * kHalfLanes, v, ones);
  }
}

template <class T, bool kFactors>
void aggregate_integers(const NarrowCsrArgs& a, int64_t begin, int64_t end, int64_t prefetch_end) {
  constexpr int64_t kChunk = kNarrowVectors * kHalfLanes;
  const int64_t features = a.csr.features, width = features + (kFactors && a.rows.ones ? 1 : 0);
  float rest = 0.0f;
  for (int64_t row = begin; row < end; ++row) {
    // Start with the last chunk, which holds the sum of the factors.
    for (int64_t first = (width - 1) / kChunk * kChunk; first >= 0; first -= kChunk) {
      const int64_t vectors = (width - first + kHalfLanes - 1) / kHalfLanes;
      const auto add_part = [&](auto rows) {
        aggregate_narrow_part<decltype(rows)>(a, row, first, prefetch_end, features, &rest);
      };
      if (vectors >= kNarrowVectors) {
        add_part(IntegerRows<T, kNarrowVectors, kFactors>(a, first));
      } else if (vectors == 2) {
        add_part(IntegerRows<T, 2, kFactors>(a, first));
      } else {
        add_part(IntegerRows<T, 1, kFactors>(a, first));
      }
    }
  }
}

template <int E, bool kFactors, bool kOnes>
void aggregate_words(const NarrowCsrArgs& a, int64_t begin, int64_t end, int64_t prefetch_end) {
  float rest = 0.0f;
  for (int64_t row = begin; row < end; ++row)
    aggregate_narrow_part<WordRows<E, kFactors, kOnes>>(a, row, 0, prefetch_end, kHalfLanes / E - 1,
                                                        &rest);
}

template <int E>
void aggregate_few(const NarrowCsrArgs& a, int64_t begin, int64_t end, int64_t prefetch_end) {
  if (!a.rows.has_factors) return aggregate_words<E, false, false>(a, begin, end, prefetch_end);
  a.rows.ones ? aggregate_words<E, true, true>(a, begin, end, prefetch_end)
              : aggregate_words<E, true, false>(a, begin, end, prefetch_end);
}

void aggregate_narrow(const NarrowCsrArgs& a, int64_t begin, int64_t end) {
  const int64_t prefetch_end = a.csr.prefetch ? a.csr.row_begin(end) : 0;
  const bool factors = a.rows.has_factors;
  if (a.rows.half_bytes == 4) {
    a.rows.stride == 16 ? aggregate_few<4>(a, begin, end, prefetch_end)
                        : aggregate_few<2>(a, begin, end, prefetch_end);
  } else if (a.rows.half_bytes == 2) {
    factors ? aggregate_integers<int16_t, true>(a, begin, end, prefetch_end)
            : aggregate_integers<int16_t, false>(a, begin, end, prefetch_end);
  } else {
    factors ? aggregate_integers<int8_t, true>(a, begin, end, prefetch_end)
            : aggregate_integers<int8_t, false>(a, begin, end, prefetch_end);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
