// Aggregation of packed rows over a 0/1 pattern: a sum of -1/+1 neighbours is 2 count - degree.
// Bound by the gathers of packed rows if the table exceeds the cache, otherwise by the adders.
// Included once per CPU capability; BITGNN_ISA names the namespace of its primitives.
#pragma once

#include <cmath>

#include "bmm/cpu/bmm_kernel.h"
#include "bspmm/cpu/byte_counts_kernel.h"
#include "bspmm/cpu/count_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Epilogue for one word of features with neighbour sums `v`: stores values or threshold bits.
BITGNN_INLINE void finish_values(const CsrArgs& a, int64_t row, int64_t word, Lanes v) {
  const int64_t first = word * kWordBits;
  const int64_t count = a.features - first < kWordBits ? a.features - first : kWordBits;
  if (a.row_scale != nullptr) v = mul(broadcast_lanes(a.row_scale[row]), v);
  if (a.bias != nullptr) v = add(v, load_some(a.bias + first, count));
  if (a.out_float != nullptr) {
    float* out = a.out_float + row * a.features + first;
    return a.stream ? stream_lanes(out, v) : store_some(out, v, count);
  }
  const Lanes threshold =
      a.threshold != nullptr ? load_some(a.threshold + first, count) : zero_lanes();
  uint32_t bits = ge_mask(v, threshold);
  if (count < kWordBits) bits &= (1u << count) - 1u;
  a.out_bits[row * words_for(a.features) + word] = static_cast<int32_t>(bits);
}

// The same for integer sums, which may also be stored unchanged.
BITGNN_INLINE void finish_sums(const CsrArgs& a, int64_t row, int64_t word, const IntLanes& sums) {
  if (a.out_int == nullptr) return finish_values(a, row, word, to_lanes(sums));
  const int64_t first = word * kWordBits;
  const int64_t count = a.features - first < kWordBits ? a.features - first : kWordBits;
  alignas(64) int32_t buffer[kWordBits];
  store_ints(buffer, sums);
  std::memcpy(a.out_int + row * a.features + first, buffer,
              static_cast<size_t>(count) * sizeof(int32_t));
}

// Thresholds as bounds on the neighbour count, so that a row takes one bit-sliced comparison. Rows
// of equal degree and factor share the bounds, as under symmetric normalisation.
template <class B>
class CountBounds {
 public:
  // Complemented bit planes of the smallest count, per feature, whose value reaches the threshold;
  // null if the row is better finished feature by feature.
  const B* find(const CsrArgs& a, int64_t degree, float scale, int64_t first_word, int64_t words,
                typename B::Tail tail) {
    if (degree >= kDegrees || !(scale > 0) || !std::isfinite(scale)) return nullptr;
    Entry& entry = entries_[degree];
    if (entry.fills > 0 && entry.scale == scale) return entry.planes;
    // Filling pays from the second use on, and never if every row has its own factor.
    const bool seen = entry.seen && entry.seen_scale == scale;
    entry.seen = true;
    entry.seen_scale = scale;
    if (!seen || entry.fills == kMaxFills) return nullptr;
    fill(a, entry, degree, scale, first_word, words, tail);
    return entry.planes;
  }
  // Number of planes of a bound, which is at most degree + 1.
  static int planes_for(int64_t degree) { return bit_length(static_cast<uint64_t>(degree + 1)); }

 private:
  static constexpr int64_t kDegrees = 64;
  static constexpr int kBoundPlanes = 7;
  static constexpr int kMaxFills = 4;

  struct Entry {
    bool seen = false;
    int fills = 0;
    float seen_scale = 0.0f, scale = 0.0f;
    B planes[kBoundPlanes];
  };

  // The bound is the number of counts that miss the threshold, as the value grows with the count.
  static void fill(const CsrArgs& a, Entry& entry, int64_t degree, float scale, int64_t first_word,
                   int64_t words, typename B::Tail tail) {
    const int count = planes_for(degree);
    for (B& plane : entry.planes) plane = B::zero();
    for (int64_t c = 0; c <= degree; ++c) {
      const Lanes value = broadcast_lanes(scale * static_cast<float>(2 * c - degree));
      int32_t misses[B::kWords];
      for (int64_t w = 0; w < words; ++w) {
        const int64_t first = (first_word + w) * kWordBits;
        const Lanes threshold = load_some(a.threshold + first, a.features - first);
        misses[w] = static_cast<int32_t>(~ge_mask(value, threshold));
      }
      B carry = B::load(misses, tail);
      for (int p = 0; p < count; ++p) {
        const B next = entry.planes[p] & carry;
        entry.planes[p] = entry.planes[p] ^ carry;
        carry = next;
      }
    }
    for (B& plane : entry.planes) plane = plane ^ B::ones();
    entry.scale = scale;
    ++entry.fills;
  }

  Entry entries_[kDegrees];
};

// Finishes features [32 * first_word, ...) of a row from its planes, `words` words per vector.
template <class B>
BITGNN_INLINE void finish_planes(const CsrArgs& a, int64_t row, int64_t degree, const B* planes,
                                 int count, int bound_planes, int64_t first_word, int64_t words,
                                 typename B::Tail tail, const B& valid, CountBounds<B>& bounds) {
  const float scale = a.row_scale != nullptr ? a.row_scale[row] : 1.0f;
  if (a.out_bits != nullptr && a.threshold == nullptr && std::isfinite(scale)) {
    // scale * (2 count - degree) >= 0, evaluated on the bit planes.
    B bits = B::ones();
    if (scale > 0) {
      bits = at_least(planes, count, static_cast<uint64_t>((degree + 1) / 2));
    } else if (scale < 0) {
      bits = at_least(planes, count, static_cast<uint64_t>(degree / 2 + 1)) ^ B::ones();
    }
    B::store(a.out_bits + row * words_for(a.features) + first_word, bits & valid, tail);
    return;
  }
  if (a.out_bits != nullptr && a.threshold != nullptr) {
    if (const B* bound = bounds.find(a, degree, scale, first_word, words, tail)) {
      // count >= bound from the lowest plane up: a higher plane decides unless its bits agree.
      B bits = B::ones();
      for (int p = 0; p < bound_planes; ++p)
        bits = B::carry(p < count ? planes[p] : B::zero(), bound[p], bits);
      B::store(a.out_bits + row * words_for(a.features) + first_word, bits & valid, tail);
      return;
    }
  }
  alignas(64) int32_t plane_words[kMaxPlanes][B::kWords];
  const auto all = B::tail(B::kWords);
  for (int p = 0; p < count; ++p) B::store(plane_words[p], planes[p], all);
  if (degree > kMaxByteDegree) {
    for (int64_t w = 0; w < words; ++w)
      finish_sums(a, row, first_word + w,
                  signed_sums(&plane_words[0][0] + w, B::kWords, count, degree));
    return;
  }
  for (int64_t w = 0; w < words; w += 2) {
    const BytePair sums = signed_byte_sums(&plane_words[0][0] + w, B::kWords, count, degree);
    finish_sums(a, row, first_word + w, sums.first());
    if (w + 1 < words) finish_sums(a, row, first_word + w + 1, sums.second());
  }
}

// A vector with the bits of existing features set; it clears the padding bits of the last word.
template <class B>
inline B valid_bits(int64_t features, int64_t first_word, int64_t words, typename B::Tail tail) {
  int32_t mask[B::kWords];
  for (int64_t w = 0; w < words; ++w) {
    const bool last = first_word + w == words_for(features) - 1;
    mask[w] = static_cast<int32_t>(last ? last_word_mask(features) : 0xffffffffu);
  }
  return B::load(mask, tail);
}

// Rows with few edges take their own path if the result is bits. Float results are bound by their
// stores, which hide the mispredicted branches.
struct CsrCounter {
  template <class B>
  static void run(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin, int64_t end) {
    if constexpr (HasByteCounts<B>::value) {
      if (sums_decide(a, begin, end))
        return count_bytes<typename B::Counts>(a, first_word, words, begin, end, [&](int64_t row) {
          rows<B, true>(a, first_word, words, row, row + 1);
        });
    }
    a.out_bits != nullptr ? rows<B, true>(a, first_word, words, begin, end)
                          : rows<B, false>(a, first_word, words, begin, end);
  }

 private:
  template <class B, bool kBits>
  static void rows(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin,
                   int64_t end) {
    const auto tail = B::tail(words);
    const B valid = valid_bits<B>(a.features, first_word, words, tail);
    const Neighbours n{a.indices, a.x_bits() + first_word, a.x_stride};
    CountBounds<B> bounds;
    const int64_t prefetch_end = a.prefetch ? a.row_begin(end) : 0;
    int64_t e = a.row_begin(begin);
    for (int64_t row = begin; row < end; ++row) {
      const int64_t next = a.row_begin(row + 1), degree = next - e;
      B planes[kMaxPlanes];
      if (kBits && degree != 0 && degree <= kFewEdges) {
        count_few_bits<B>(n, tail, e, degree, planes);
        finish_planes<B>(a, row, degree, planes, kFewPlanes, kFewPlanes + 1, first_word, words,
                         tail, valid, bounds);
      } else {
        const int count = count_bits<B>(n, tail, e, next, prefetch_end, planes);
        finish_planes<B>(a, row, degree, planes, count, bounds.planes_for(degree), first_word,
                         words, tail, valid, bounds);
      }
      e = next;
    }
  }
};

// Calls Kernel::run with the vector type that fits each chunk of a row's words.
template <class Kernel, class Args>
void for_word_chunks(const Args& a, int64_t features, int64_t begin, int64_t end) {
  const int64_t total = words_for(features);
  for (int64_t first = 0; first < total;) {
    const int64_t left = total - first;
    if (left > 8) {
      const int64_t words = left < 16 ? left : 16;
      Kernel::template run<Bits16>(a, first, words, begin, end);
      first += words;
    } else if (left > 4) {
      Kernel::template run<Bits8>(a, first, left, begin, end);
      first = total;
    } else if (left > 2) {
      Kernel::template run<Bits4>(a, first, left, begin, end);
      first = total;
    } else {
      Kernel::template run<Bits2>(a, first, left, begin, end);
      first = total;
    }
  }
}

// Prefetches a small table as a whole. Another core has often just written half of it, and fetching
// lines one by one as random neighbours need them would take longer than the aggregation.
inline void fetch_table(const CsrArgs& a) {
  if (a.prefetch) return;
  const char* table = static_cast<const char*>(a.x);
  for (int64_t offset = 0; offset < a.x_bytes; offset += 64) prefetch(table + offset);
}

void aggregate_bits(const CsrArgs& a, int64_t begin, int64_t end) {
  fetch_table(a);
  for_word_chunks<CsrCounter>(a, a.features, begin, end);
  if (a.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
