// Aggregation of narrow rows in the order of bitgnn/narrow_sums.h: the lanes are a row's features,
// or those of the rows of two or four slots where they are few, and every slot has lanes of its
// own. Bound by the gathered lines where the table exceeds the cache, else by conversions and sums.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include "bitgnn/cpu/kernel_table.h"
#include "bitgnn/narrow_sums.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kNarrowAhead = 12;  // edges between a row's prefetch and its use

// One row's sum of a chunk of features: E edges share a vector, W vectors hold an edge's features.
// kFactors: float sums in slots; else exact integer ones.
template <class T, int E, int W, bool kFactors>
struct NarrowSum {
  static constexpr int kGroups = kSumSlots / E;
  static constexpr int64_t kChunkBytes = W * kHalfLanes / E * static_cast<int64_t>(sizeof(T));
  using Value = std::conditional_t<kFactors, HalfLanes, HalfIntLanes>;

  const NarrowCsrArgs& a;
  int64_t chunk_at;  // bytes from a row's start to the chunk
  Value slots[kGroups][W];

  NarrowSum(const NarrowCsrArgs& args, int64_t first)
      : a(args), chunk_at(a.rows.halves_at() + first * static_cast<int64_t>(sizeof(T))) {}

  static Value zero() {
    if constexpr (kFactors) {
      return half_lanes(0.0f);
    } else {
      return Value{};
    }
  }
  const char* row(int64_t edge) const { return a.rows.data + a.csr.indices[edge] * a.rows.stride; }

  // Adds edges [edge, edge + E) of those below `end` to slots [g * E, g * E + E). What is missing
  // reads as zeros, which leave a sum that began with zero as it is.
  template <bool kWhole>
  BITGNN_INLINE void add_edges(int g, int64_t edge, int64_t end) {
    alignas(64) static const char kZeros[W * kHalfLanes * sizeof(T)] = {};
    const char* held[E];
    float factors[E];
#pragma GCC unroll 4
    for (int i = 0; i < E; ++i) {
      const bool there = kWhole || edge + i < end;
      const char* whole = row(there ? edge + i : end - 1);
      held[i] = there ? whole + chunk_at : kZeros;
      factors[i] = 0.0f;
      if (kFactors && there) std::memcpy(factors + i, whole, sizeof(float));
    }
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      const T* parts[E];
      for (int i = 0; i < E; ++i)
        parts[i] = reinterpret_cast<const T*>(held[i]) + w * kHalfLanes / E;
      const HalfIntLanes halves = load_rows(parts);
      if constexpr (kFactors) {
        slots[g][w] = multiply_add(spread(factors), to_half_lanes(halves), slots[g][w]);
      } else {
        slots[g][w] = add(slots[g][w], halves);
      }
    }
  }

  // Edges [begin, end), at most a piece.
  BITGNN_INLINE void add_piece(int64_t begin, int64_t end, int64_t prefetch_end, Value* total) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g)
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) slots[g][w] = zero();
    int64_t e = begin;
    for (; e + kSumSlots <= end; e += kSumSlots) {
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) {
        for (int i = 0; i < E; ++i) {
          const int64_t ahead = e + g * E + i + kNarrowAhead;
          if (ahead >= prefetch_end) continue;
          for (int64_t b = 0; b < kChunkBytes; b += 64) prefetch(row(ahead) + chunk_at + b);
        }
        add_edges<true>(g, e + g * E, end);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g)
      if (e + g * E < end) add_edges<false>(g, e + g * E, end);
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
    for (int w = 0; w < W; ++w) total[w] = zero();
    for (int64_t e = begin; e < end; e += kSumPiece)
      add_piece(e, e + kSumPiece < end ? e + kSumPiece : end, prefetch_end, total);
  }
};

// The value of up to 16 features from 2 * sum + rest.
BITGNN_INLINE void finish_narrow(const NarrowCsrArgs& a, int64_t row, int64_t first, HalfLanes v) {
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
  if (csr.bias != nullptr) v = add(v, load_half(csr.bias + first, count));
  store_half(csr.out_float + row * csr.features + first, v, count);
}

template <class T, int E, int W, bool kFactors>
void aggregate_narrow_chunk(const NarrowCsrArgs& a, int64_t row, int64_t first,
                            int64_t prefetch_end, float* rest) {
  NarrowSum<T, E, W, kFactors> sum(a, first);
  const int64_t begin = a.csr.row_begin(row), end = a.csr.row_begin(row + 1);
  typename NarrowSum<T, E, W, kFactors>::Value total[W];
  sum.add_row(begin, end, prefetch_end, total);
  const int64_t last = a.csr.features - first;  // place of the factors' sum in the last chunk
  if (kFactors && a.rows.odd && last < W * kHalfLanes) {
    float sums[W * kHalfLanes];
    if constexpr (kFactors)
      for (int w = 0; w < W; ++w) store_half(sums + w * kHalfLanes, total[w], kHalfLanes);
    *rest = sums[last];
  }
  for (int w = 0; w < W && w * kHalfLanes < last; ++w) {
    HalfLanes v;
    if constexpr (kFactors) {
      v = mul(half_lanes(2.0f), total[w]);
      if (a.rows.odd) v = add(v, half_lanes(*rest));
    } else {
      HalfIntLanes dots = add(total[w], total[w]);
      if (a.rows.odd) dots = add(dots, half_ints(static_cast<int32_t>(end - begin)));
      v = to_half_lanes(dots);
    }
    finish_narrow(a, row, first + w * kHalfLanes, v);
  }
}

template <class T, bool kFactors>
void aggregate_narrow_rows(const NarrowCsrArgs& a, int64_t begin, int64_t end) {
  const int64_t width = a.csr.features + (kFactors && a.rows.odd ? 1 : 0);
  const int64_t prefetch_end = a.csr.prefetch ? a.csr.row_begin(end) : 0;
  constexpr int64_t kChunk = kNarrowVectors * kHalfLanes;
  float rest = 0.0f;
  if (width <= 4) {
    for (int64_t row = begin; row < end; ++row)
      aggregate_narrow_chunk<T, 4, 1, kFactors>(a, row, 0, prefetch_end, &rest);
  } else if (width <= 8) {
    for (int64_t row = begin; row < end; ++row)
      aggregate_narrow_chunk<T, 2, 1, kFactors>(a, row, 0, prefetch_end, &rest);
  } else {
    // From the last chunk down: it holds the sum of the factors.
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t first = (width - 1) / kChunk * kChunk; first >= 0; first -= kChunk) {
        const int64_t vectors = (width - first + kHalfLanes - 1) / kHalfLanes;
        if (vectors >= 3 && kNarrowVectors >= 3) {
          aggregate_narrow_chunk<T, 1, kNarrowVectors, kFactors>(a, row, first, prefetch_end,
                                                                 &rest);
        } else if (vectors >= 2 && kNarrowVectors >= 2) {
          aggregate_narrow_chunk<T, 1, (kNarrowVectors + 1) / 2, kFactors>(a, row, first,
                                                                           prefetch_end, &rest);
        } else {
          aggregate_narrow_chunk<T, 1, 1, kFactors>(a, row, first, prefetch_end, &rest);
        }
      }
    }
  }
}

void aggregate_narrow(const NarrowCsrArgs& a, int64_t begin, int64_t end) {
  if (a.rows.shorts) {
    a.rows.has_factors ? aggregate_narrow_rows<int16_t, true>(a, begin, end)
                       : aggregate_narrow_rows<int16_t, false>(a, begin, end);
  } else {
    a.rows.has_factors ? aggregate_narrow_rows<int8_t, true>(a, begin, end)
                       : aggregate_narrow_rows<int8_t, false>(a, begin, end);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
