// Signs of sums of bit rows over the entries of a sparse matrix, as they lie in torch's CSR: the
// first product of sparse features. Rows that are patterns, with columns that ascend and values
// that all count, are summed as they lie where byte counts exist; other rows become 32-bit columns
// first, block by block. Bound by reading the entries once. Included once per CPU capability;
// BITGNN_ISA names the namespace of its primitives.

#include "bspmm/cpu/aggregate_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int64_t kBlockEntries = 1 << 13;  // columns of a block, which stay in a core's cache
constexpr int64_t kEntryStep = 8;           // entries that are checked at once
constexpr int64_t kEntriesAhead = 256;      // between the prefetch of an entry and its use

// The rows of one thread. Sums of entries that share a place are of float32, of float64 entries
// float64.
template <class T, class Index>
class EntryRows {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

 public:
  explicit EntryRows(const EntriesArgs& a)
      : a_(a),
        indices_(static_cast<const Index*>(a.indices)),
        values_(static_cast<const T*>(a.values)) {}

  // False if a column lies outside of the matrix.
  bool sum(int64_t begin, int64_t end) {
    constexpr bool kCounts = HasByteCounts<Bits2>::value && std::is_same_v<T, float>;
    if constexpr (kCounts) {
      if (a_.is_uniform) return sum_patterns<Bits2>(begin, end);
    }
    for (int64_t first = begin, last = begin; first < end; first = last) {
      const int64_t start = row_begin(first);
      do ++last;
      while (last < end && row_begin(last + 1) - start <= kBlockEntries);
      if (!sum_block(first, last)) return false;
    }
    return true;
  }

 private:
  // As they lie; a row that is no pattern, or too long for bytes, is a block of its own.
  template <class B>
  bool sum_patterns(int64_t begin, int64_t end) {
    using Counts = typename B::Counts;
    using Two = SignsOfCounts<Counts, uint64_t, int64_t, false>;
    using One = SignsOfCounts<Counts, uint32_t, int64_t, false>;
    const int64_t words = words_for(a_.sums.features);
    std::vector<Two> pairs;
    std::vector<One> rest;
    for (int64_t w = 0; w + 2 <= words; w += 2) pairs.emplace_back(a_.sums, w);
    if (words % 2 != 0) rest.emplace_back(a_.sums, words - 1);
    const Two* first = pairs.empty() ? nullptr : pairs.data();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t from = row_begin(row), degree = row_begin(row + 1) - from;
      bool is_pattern = degree <= Two::kMaxDegree;
      if (is_pattern && first != nullptr) {
        const auto counts = checked_counts<Counts>(*first, from, degree, &is_pattern);
        if (is_pattern) first->finish(counts, row, degree);
      } else if (is_pattern) {
        const auto counts = checked_counts<Counts>(rest[0], from, degree, &is_pattern);
        if (is_pattern) rest[0].finish(counts, row, degree);
      }
      if (!is_pattern) {
        if (!sum_block(row, row + 1)) return false;
        continue;
      }
      const auto finish = [&](const auto& chunk) {
        chunk.finish(chunk.add(Counts::zero(), indices_ + from, degree), row, degree);
      };
      for (size_t c = 1; c < pairs.size(); ++c) finish(pairs[c]);
      if (first != nullptr && !rest.empty()) finish(rest[0]);
    }
    return true;
  }

  template <class Counts, class Signs>
  BITGNN_INLINE Counts checked_counts(const Signs& signs, int64_t from, int64_t degree,
                                      bool* fits) const {
    const float threshold = column_threshold(0);
    const Index* columns = indices_ + from;
    const T* values = values_ + from;
    Counts counts = Counts::zero();
    int64_t e = 0;
    for (; e + kEntryStep <= degree; e += kEntryStep) {
      prefetch(columns + e + kEntriesAhead);
      prefetch(values + e + kEntriesAhead);
      if (!Counts::entries_fit(columns + e, values + e, kEntryStep, e == 0, a_.sums.cols,
                               threshold)) {
        *fits = false;
        return counts;
      }
      counts = signs.add(counts, columns + e, kEntryStep);
    }
    if (e == degree) return counts;
    *fits =
        Counts::entries_fit(columns + e, values + e, degree - e, e == 0, a_.sums.cols, threshold);
    return *fits ? signs.add(counts, columns + e, degree - e) : counts;
  }

  bool sum_block(int64_t first, int64_t last) {
    columns_.resize(static_cast<size_t>(row_begin(last) - row_begin(first)));
    if (!take_as_they_are(first, last) && !take_row_by_row(first, last)) return false;
    CsrArgs block = a_.sums;
    block.rowptr = offsets_.data();
    block.rowptr64 = true;
    block.indices = columns_.data();
    block.rows = last - first;
    block.out_bits += first * words_for(block.features);
    aggregate_bits(block, 0, block.rows);
    return true;
  }

  // Takes all entries of rows [first, last) if they lie inside, ascend, and reach the threshold.
  bool take_as_they_are(int64_t first, int64_t last) {
    if (!a_.is_uniform) return false;
    offsets_.assign(1, 0);
    const int64_t start = row_begin(first), count = row_begin(last) - start;
    const Index* from = indices_ + start;
    const T* values = values_ + start;
    int32_t* to = columns_.data();
    const auto cols = static_cast<int32_t>(a_.sums.cols);
    const Sum threshold = column_threshold(0);
    // Inside: the high half of no column has a bit, the low half is not negative, and less the
    // number of columns it is.
    uint64_t high = 0;
    int32_t low = 0, less = -1, misses = 0;
    for (int64_t e = 0; e < count; ++e) {
      const auto column = static_cast<int32_t>(from[e]);
      if constexpr (sizeof(Index) > sizeof(column)) high |= static_cast<uint64_t>(from[e]) >> 32;
      low |= column;
      less &= static_cast<int32_t>(static_cast<uint32_t>(column) - static_cast<uint32_t>(cols));
      to[e] = column;
    }
    for (int64_t e = 0; e < count; ++e) misses += !(sum_of(values[e]) >= threshold);
    // Columns descend only where a row begins.
    int32_t descents = 0;
    for (int64_t e = 1; e < count; ++e) descents += to[e] <= to[e - 1];
    for (int64_t row = first; row < last; ++row) {
      const int64_t own = row_begin(row) - start;
      const int64_t next = row_begin(row + 1) - start;
      if (own > 0 && own < next) descents -= to[own] <= to[own - 1];
      offsets_.push_back(next);
    }
    return high == 0 && low >= 0 && less < 0 && misses == 0 && descents == 0;
  }

  // Takes the columns whose entries add up to their threshold, each once.
  bool take_row_by_row(int64_t first, int64_t last) {
    sums_.resize(static_cast<size_t>(a_.sums.cols));
    is_taken_.resize(static_cast<size_t>(a_.sums.cols));
    offsets_.assign(1, 0);
    int64_t count = 0;
    for (int64_t row = first; row < last; ++row) {
      const int64_t begin = row_begin(row), end = row_begin(row + 1);
      bool inside = true;
      for (int64_t e = begin; e < end; ++e)
        inside = inside & (static_cast<uint64_t>(static_cast<int64_t>(indices_[e])) <
                           static_cast<uint64_t>(a_.sums.cols));
      if (!inside) return false;
      for (int64_t e = begin; e < end; ++e) sums_[place(e)] += sum_of(values_[e]);
      for (int64_t e = begin; e < end; ++e) {
        if (is_taken_[place(e)] != 0) continue;
        is_taken_[place(e)] = 1;
        columns_[static_cast<size_t>(count)] = static_cast<int32_t>(indices_[e]);
        count += sums_[place(e)] >= column_threshold(place(e));
      }
      for (int64_t e = begin; e < end; ++e) {
        sums_[place(e)] = Sum{};
        is_taken_[place(e)] = 0;
      }
      offsets_.push_back(count);
    }
    return true;
  }

  static Sum sum_of(T value) {
    if constexpr (std::is_same_v<T, double>) return value;
    return to_float(value);
  }
  int64_t row_begin(int64_t row) const { return a_.sums.row_begin(row); }
  size_t place(int64_t e) const { return static_cast<size_t>(indices_[e]); }
  Sum column_threshold(size_t column) const {
    return static_cast<Sum>(a_.entry_threshold == nullptr ? 0.0f : a_.entry_threshold[column]);
  }

  const EntriesArgs& a_;
  const Index* indices_;
  const T* values_;
  std::vector<int32_t> columns_;
  std::vector<int64_t> offsets_;
  std::vector<Sum> sums_;          // zeros between rows
  std::vector<uint8_t> is_taken_;  // zeros between rows
};

bool aggregate_entries(const EntriesArgs& a, int64_t begin, int64_t end) {
  bool inside = false;
  with_float_type(a.type, [&](auto zero) {
    using T = decltype(zero);
    inside = a.indices64 ? EntryRows<T, int64_t>(a).sum(begin, end)
                         : EntryRows<T, int32_t>(a).sum(begin, end);
  });
  return inside;
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
