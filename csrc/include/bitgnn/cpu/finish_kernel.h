// What follows the sums of an aggregation: values or bits from sums, or from bit planes of counts.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include <cmath>

#include "bitgnn/cpu/bmm_kernel.h"
#include "bitgnn/cpu/count_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// The epilogue of one word of features whose neighbour sums are `v`: a value or a compared bit.
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

// The same from integer sums, which may also be the result as they are.
BITGNN_INLINE void finish_sums(const CsrArgs& a, int64_t row, int64_t word, const IntLanes& sums) {
  if (a.out_int == nullptr) return finish_values(a, row, word, to_lanes(sums));
  const int64_t first = word * kWordBits;
  const int64_t count = a.features - first < kWordBits ? a.features - first : kWordBits;
  alignas(64) int32_t buffer[kWordBits];
  store_ints(buffer, sums);
  std::memcpy(a.out_int + row * a.features + first, buffer,
              static_cast<size_t>(count) * sizeof(int32_t));
}

// Thresholds as bounds on the neighbour count, one bit-sliced comparison a row: rows of equal
// degree and factor, such as all of one degree under symmetric normalisation, have the same bounds.
template <class B>
class CountBounds {
 public:
  // Complemented bit planes of the smallest count, for each feature, whose value reaches the
  // threshold; null where the row is better finished feature by feature.
  const B* find(const CsrArgs& a, int64_t degree, float scale, int64_t first_word, int64_t words,
                typename B::Tail tail) {
    if (degree >= kDegrees || !(scale > 0) || !std::isfinite(scale)) return nullptr;
    Entry& entry = entries_[degree];
    if (entry.fills > 0 && entry.scale == scale) return entry.planes;
    // Filling pays from the second use on, and never where every row has a factor of its own.
    const bool seen = entry.seen && entry.seen_scale == scale;
    entry.seen = true;
    entry.seen_scale = scale;
    if (!seen || entry.fills == kMaxFills) return nullptr;
    fill(a, entry, degree, scale, first_word, words, tail);
    return entry.planes;
  }
  // Planes that a bound, at most degree + 1, takes.
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

  // The bound is the number of counts that miss the threshold: the value grows with the count.
  static void fill(const CsrArgs& a, Entry& entry, int64_t degree, float scale, int64_t first_word,
                   int64_t words, typename B::Tail tail) {
    const int count = planes_for(degree);
    for (B& plane : entry.planes) plane = B::zero();
    for (int64_t c = 0; c <= degree; ++c) {
      const Lanes value = broadcast_lanes(scale * static_cast<float>(2 * c - degree));
      int32_t misses[B::kWords];
      for (int64_t w = 0; w < words; ++w) {
        const int64_t first = (first_word + w) * kWordBits;
        const Lanes threshold = a.threshold != nullptr
                                    ? load_some(a.threshold + first, a.features - first)
                                    : zero_lanes();
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

// Features [32 * first_word, ...) of a row from its planes, `words` of them in one vector.
template <class B>
BITGNN_INLINE void finish_planes(const CsrArgs& a, int64_t row, int64_t degree, const B* planes,
                                 int count, int bound_planes, int64_t first_word, int64_t words,
                                 typename B::Tail tail, const B& valid, CountBounds<B>& bounds) {
  const float scale = a.row_scale != nullptr ? a.row_scale[row] : 1.0f;
  if (a.out_bits != nullptr && a.threshold == nullptr && std::isfinite(scale)) {
    // scale * (2 count - degree) >= 0 without leaving the bits.
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
      // count >= bound from the lowest plane up: a higher plane decides unless the bits agree.
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

// The same as bits for up to 2^kPlanes - 1 edges: without thresholds too the bounds are looked up,
// since which of their bits are set is nothing that a processor could foresee either.
template <int kPlanes, class B>
BITGNN_INLINE void finish_few(const CsrArgs& a, int64_t row, int64_t degree, const B* planes,
                              int64_t first_word, int64_t words, typename B::Tail tail,
                              const B& valid, CountBounds<B>& bounds) {
  const float scale = a.row_scale != nullptr ? a.row_scale[row] : 1.0f;
  const bool signs = a.threshold == nullptr && scale > 0 && std::isfinite(scale);
  if (const B* bound = bounds.find(a, degree, signs ? 1.0f : scale, first_word, words, tail)) {
    B bits = B::ones();
    for (int p = 0; p < kPlanes; ++p) bits = B::carry(planes[p], bound[p], bits);
    bits = bits & bound[kPlanes];
    B::store(a.out_bits + row * words_for(a.features) + first_word, bits & valid, tail);
  } else {
    finish_planes<B>(a, row, degree, planes, kPlanes, kPlanes + 1, first_word, words, tail, valid,
                     bounds);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
