// Aggregation of ternary rows over a 0/1 pattern: two bit-sliced counters count the neighbours' +1
// and -1, and the sum is their difference. Signs of sums are computed on the bit planes. Included
// once per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include "bspmm/cpu/aggregate_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Bits of a >= b for two numbers given as planes, from the lowest up: the majority of (a, not b,
// result so far) is the complemented borrow of their difference.
template <class B>
inline B reaches(const B* a, const B* b, int count) {
  B result = B::ones();
  for (int p = 0; p < count; ++p) result = B::carry(a[p], b[p] ^ B::ones(), result);
  return result;
}

// The count + 1 planes of a - b + 2^count: a plus the complement of b plus one.
template <class B>
inline void shifted_difference(const B* a, const B* b, int count, B* to) {
  B carry = B::ones();
  for (int p = 0; p < count; ++p) {
    const B complement = b[p] ^ B::ones();
    to[p] = B::sum(a[p], complement, carry);
    carry = B::carry(a[p], complement, carry);
  }
  to[count] = carry;
}

struct TernaryCounter {
  template <class B>
  static void run(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin, int64_t end) {
    a.out_bits != nullptr ? rows<B, true>(a, first_word, words, begin, end)
                          : rows<B, false>(a, first_word, words, begin, end);
  }

 private:
  template <class B, bool kBits>
  static void rows(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin,
                   int64_t end) {
    const auto tail = B::tail(words);
    const B valid = valid_bits<B>(a.features, first_word, words, tail);
    const int32_t* const pos = a.x_bits() + first_word;
    const Neighbours plus{a.indices, pos, a.x_stride};
    const Neighbours minus{a.indices, pos + words_for(a.features), a.x_stride};
    const int64_t prefetch_end = a.prefetch ? a.row_begin(end) : 0;
    for (int64_t row = begin, e = a.row_begin(begin); row < end; ++row) {
      const int64_t next = a.row_begin(row + 1), degree = next - e;
      B of_plus[kMaxPlanes], of_minus[kMaxPlanes];
      int count = kFewPlanes;
      if (kBits && degree != 0 && degree <= kFewEdges) {
        count_few_bits<B>(plus, tail, e, degree, of_plus);
        count_few_bits<B>(minus, tail, e, degree, of_minus);
      } else {
        count = count_bits<B>(plus, tail, e, next, prefetch_end, of_plus);
        count_bits<B>(minus, tail, e, next, 0, of_minus);
      }
      finish<B>(a, row, of_plus, of_minus, count, first_word, words, tail, valid);
      e = next;
    }
  }

  template <class B>
  static void finish(const CsrArgs& a, int64_t row, const B* plus, const B* minus, int count,
                     int64_t first_word, int64_t words, typename B::Tail tail, const B& valid) {
    constexpr int kBytePlanes = 6;  // counts below 64: twice their difference fits in a byte
    const float scale = a.row_scale != nullptr ? a.row_scale[row] : 1.0f;
    if (a.out_bits != nullptr && a.threshold == nullptr && std::isfinite(scale)) {
      B bits = B::ones();
      if (scale > 0) bits = reaches(plus, minus, count);
      if (scale < 0) bits = reaches(minus, plus, count);
      B::store(a.out_bits + row * words_for(a.features) + first_word, bits & valid, tail);
      return;
    }
    B planes[kMaxPlanes + 1];
    shifted_difference(plus, minus, count, planes);
    alignas(64) int32_t plane_words[kMaxPlanes + 1][B::kWords];
    const auto all = B::tail(B::kWords);
    for (int p = 0; p <= count; ++p) B::store(plane_words[p], planes[p], all);
    // Twice the shifted number minus twice the shift is twice the sum.
    const int64_t shift = int64_t{2} << count;
    for (int64_t w = 0; w < words; w += 2) {
      const int32_t* at = &plane_words[0][0] + w;
      if (count <= kBytePlanes) {
        const BytePair sums = signed_byte_sums(at, B::kWords, count + 1, shift);
        finish_sums(a, row, first_word + w, halved(sums.first()));
        if (w + 1 < words) finish_sums(a, row, first_word + w + 1, halved(sums.second()));
        continue;
      }
      for (int64_t k = w; k < words && k < w + 2; ++k)
        finish_sums(a, row, first_word + k,
                    halved(signed_sums(at + k - w, B::kWords, count + 1, shift)));
    }
  }
};

void aggregate_ternary(const CsrArgs& a, int64_t begin, int64_t end) {
  for_word_chunks<TernaryCounter>(a, a.features, begin, end);
  if (a.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
