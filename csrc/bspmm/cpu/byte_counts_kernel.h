// Signs of neighbour sums from one-byte counts, which take two operations per neighbour: no planes
// to combine, and no branch except at the end of a row. Included once per CPU capability;
// BITGNN_ISA names the namespace of its primitives. Bit vectors without Counts do not use it.

#include <limits>

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

template <class B, class = void>
struct HasByteCounts : std::false_type {};
template <class B>
struct HasByteCounts<B, std::void_t<typename B::Counts>> : std::true_type {};

// True if all factors are positive and finite, so that none of them changes a sign.
inline bool keep_signs(const float* factors, int64_t begin, int64_t end) {
  bool keep = true;
  for (int64_t i = begin; i < end; ++i)
    keep &= factors[i] > 0.0f && factors[i] <= std::numeric_limits<float>::max();
  return keep;
}

// Bits of one chunk of words, one Word per row, over the rows of a pattern.
template <class Counts, class Word, class Offset, bool kPrefetch>
class SignsOfCounts {
 public:
  SignsOfCounts(const CsrArgs& a, int64_t first_word)
      : rowptr_(static_cast<const Offset*>(a.rowptr)),
        indices_(a.indices),
        table_(a.x_bits() + first_word),
        stride_(a.x_stride),
        out_(a.out_bits + first_word),
        out_stride_(words_for(a.features)) {
    const int64_t first = first_word * kWordBits;
    for (int64_t k = 0; k < Counts::kBytes; ++k) {
      const bool exists = first + k < a.features;
      valid_ |= static_cast<uint64_t>(exists) << k;
      bounds_[k] =
          exists && a.threshold != nullptr ? bound_below(a.threshold[first + k]) : int8_t{-1};
    }
  }

  // Adds the rows of x that columns name; finish() stores the bits of a row.
  template <class Index>
  BITGNN_INLINE Counts add(Counts counts, const Index* columns, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) {
      Word bits;
      std::memcpy(&bits, table_ + static_cast<int64_t>(columns[i]) * stride_, sizeof(bits));
      counts = Counts::add(counts, bits);
    }
    return counts;
  }
  void finish(const Counts& counts, int64_t row, int64_t degree) const {
    const auto bits =
        static_cast<Word>(Counts::exceed(counts, degree, Counts::load(bounds_)) & valid_);
    std::memcpy(out_ + row * out_stride_, &bits, sizeof(bits));
  }

  static constexpr int64_t kMaxDegree = 127;

  // Processes rows [begin, end); calls rest(row) for rows with more edges than a byte can count.
  template <class Rest>
  void run(int64_t begin, int64_t end, const Rest& rest) const {
    const Counts bounds = Counts::load(bounds_);
    const int64_t prefetch_end = rowptr_[end];
    int64_t edge = rowptr_[begin];
    for (int64_t row = begin; row < end; ++row) {
      const int64_t last = rowptr_[row + 1], degree = last - edge;
      if (degree > kMaxDegree) {
        rest(row);
        edge = last;
        continue;
      }
      Counts counts = Counts::zero();
      for (; edge < last; ++edge) {
        if (kPrefetch && edge + kAhead < prefetch_end) prefetch(neighbour(edge + kAhead));
        Word bits;
        std::memcpy(&bits, neighbour(edge), sizeof(bits));
        counts = Counts::add(counts, bits);
      }
      const auto bits = static_cast<Word>(Counts::exceed(counts, degree, bounds) & valid_);
      std::memcpy(out_ + row * out_stride_, &bits, sizeof(bits));
    }
  }

 private:
  static constexpr int64_t kAhead = 24;  // edges between a row's prefetch and its use

  // The largest byte that misses the threshold; no sum reaches NaN or a threshold above all sums.
  static int8_t bound_below(float threshold) {
    const float below = std::ceil(threshold) - 1.0f;
    if (!(below < 127.0f)) return 127;
    return below > -128.0f ? static_cast<int8_t>(below) : int8_t{-128};
  }

  const int32_t* neighbour(int64_t edge) const { return table_ + indices_[edge] * stride_; }

  const Offset* rowptr_;
  const int32_t* indices_;
  const int32_t* table_;
  int64_t stride_;
  int32_t* out_;
  int64_t out_stride_;
  uint64_t valid_ = 0;
  alignas(64) int8_t bounds_[Counts::kBytes];
};

// True if a row's sum alone decides its bits, whatever its factor.
inline bool sums_decide(const CsrArgs& a, int64_t begin, int64_t end) {
  if (a.out_bits == nullptr) return false;
  if (a.row_scale == nullptr) return true;
  return a.threshold == nullptr && keep_signs(a.row_scale, begin, end);
}

// Processes `words` words (one or two) from `first_word` on, for rows [begin, end).
template <class Counts, class Rest>
void count_bytes(const CsrArgs& a, int64_t first_word, int64_t words, int64_t begin, int64_t end,
                 const Rest& rest) {
  const auto run = [&](auto offset, auto word, auto ahead) {
    const SignsOfCounts<Counts, decltype(word), decltype(offset), decltype(ahead)::value> signs(
        a, first_word);
    signs.run(begin, end, rest);
  };
  const auto run_words = [&](auto offset, auto word) {
    a.prefetch ? run(offset, word, std::true_type{}) : run(offset, word, std::false_type{});
  };
  const auto run_offsets = [&](auto offset) {
    words == 1 ? run_words(offset, uint32_t{}) : run_words(offset, uint64_t{});
  };
  a.rowptr64 ? run_offsets(int64_t{}) : run_offsets(int32_t{});
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
