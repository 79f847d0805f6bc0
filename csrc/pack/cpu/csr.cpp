// Packs rows given by their entries on the CPU, bound by reading the entries once.
#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "bspmm/pattern_check.h"
#include "core/cpu/backend.h"
#include "core/cpu/float_types.h"
#include "pack/arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kGrain = 1 << 13;  // entries and words per thread

void set_bit(int32_t* words, uint64_t column, bool value) {
  int32_t& word = words[column / kWordBits];
  const uint32_t bit = 1u << (column % kWordBits);
  const auto held = static_cast<uint32_t>(word);
  word = static_cast<int32_t>(value ? held | bit : held & ~bit);
}

// The rows of one thread. Sums are of float32, of float64 entries float64.
template <class T, class Index>
class CsrRows {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

 public:
  // `threshold` is that of all columns if it is above 0.
  CsrRows(const CsrPackArgs& a, const int32_t* empty_row, float threshold)
      : a_(a),
        empty_row_(empty_row),
        threshold_(threshold),
        indices_(static_cast<const Index*>(a.indices)),
        values_(static_cast<const T*>(a.values)) {}

  // False if a column lies outside of the matrix.
  bool pack(int64_t row, int64_t begin, int64_t end) {
    const int64_t words = words_for(a_.cols);
    int32_t* out = a_.words + row * words;
    std::copy_n(empty_row_, words, out);
    bool ascends = true;
    for (int64_t e = begin + 1; e < end; ++e) ascends = ascends & (indices_[e - 1] < indices_[e]);
    bool inside = begin == end || (is_column(begin) && is_column(end - 1));
    if (!ascends)
      for (int64_t e = begin; e < end; ++e) inside = inside & is_column(e);
    if (!inside) return false;
    if (!ascends) {
      add_up(out, begin, end);
    } else if (threshold_ > 0.0f) {
      set_present(out, begin, end);
    } else {
      for (int64_t e = begin; e < end; ++e) decide(out, indices_[e], value(e));
    }
    return true;
  }

 private:
  Sum value(int64_t e) const {
    if constexpr (std::is_same_v<T, double>) return values_[e];
    return to_float(values_[e]);
  }

  void decide(int32_t* out, int64_t column, Sum sum) const {
    const float threshold = a_.threshold == nullptr ? 0.0f : a_.threshold[column];
    set_bit(out, static_cast<uint64_t>(column), sum >= static_cast<Sum>(threshold));
  }

  bool is_column(int64_t e) const {
    return static_cast<uint64_t>(static_cast<int64_t>(indices_[e])) <
           static_cast<uint64_t>(a_.cols);
  }

  // A row that is 0 but for values above one threshold. Neighbours share a word, and each waits for
  // the one before: several parts of the row side by side do not.
  void set_present(int32_t* out, int64_t begin, int64_t end) const {
    constexpr int kParts = 4;
    const int64_t part = (end - begin) / kParts;
    const auto set = [&](int64_t e) {
      const auto column = static_cast<uint64_t>(indices_[e]);
      const auto bit = static_cast<uint32_t>(value(e) >= static_cast<Sum>(threshold_));
      int32_t& word = out[column / kWordBits];
      word = static_cast<int32_t>(static_cast<uint32_t>(word) | bit << (column % kWordBits));
    };
    for (int64_t e = begin; e < begin + part; ++e)
      for (int p = 0; p < kParts; ++p) set(e + p * part);
    for (int64_t e = begin + kParts * part; e < end; ++e) set(e);
  }

  // A row whose columns may occur twice.
  void add_up(int32_t* out, int64_t begin, int64_t end) {
    sums_.resize(static_cast<size_t>(a_.cols));
    const auto sum = [&](int64_t e) -> Sum& { return sums_[static_cast<size_t>(indices_[e])]; };
    for (int64_t e = begin; e < end; ++e) sum(e) += value(e);
    for (int64_t e = begin; e < end; ++e) decide(out, indices_[e], sum(e));
    for (int64_t e = begin; e < end; ++e) sum(e) = Sum{};
  }

  const CsrPackArgs& a_;
  const int32_t* empty_row_;
  float threshold_;
  const Index* indices_;
  const T* values_;
  std::vector<Sum> sums_;  // zeros between rows
};

template <class T, class Index>
void pack_rows(const CsrPackArgs& a, const RowPointers& rowptr, const int32_t* empty_row) {
  const float* threshold = a.threshold;
  const bool is_one = threshold != nullptr && a.cols > 0 &&
                      std::all_of(threshold, threshold + a.cols,
                                  [&](float entry) { return entry == threshold[0]; });
  std::atomic<bool> inside{true};
  const int64_t work = words_for(a.cols) + a.entries / std::max<int64_t>(a.rows, 1);
  split(a.rows, grain(work, kGrain), [&](int64_t begin, int64_t end) {
    CsrRows<T, Index> rows(a, empty_row, is_one ? threshold[0] : 0.0f);
    bool fits = true;
    for (int64_t row = begin; row < end; ++row)
      fits = rows.pack(row, rowptr[row], rowptr[row + 1]) && fits;
    if (!fits) inside = false;
  });
  if (inside) return;
  const auto* indices = static_cast<const Index*>(a.indices);
  int64_t wrong = 0;
  while (indices[wrong] >= 0 && static_cast<int64_t>(indices[wrong]) < a.cols) ++wrong;
  fail("pack_csr: indices must lie in [0, ", a.cols, "), got ",
       static_cast<int64_t>(indices[wrong]), " at ", wrong);
}

}  // namespace

void pack_csr(const CsrPackArgs& a) {
  const RowPointers rowptr{a.rowptr, a.rowptr64};
  check_row_pointers(rowptr, a.rows + 1, a.entries, "pack_csr", "rowptr");
  std::vector<int32_t> empty_row(static_cast<size_t>(words_for(a.cols)));
  if (a.cols > 0) {
    const std::vector<float> zeros(static_cast<size_t>(a.cols));
    PackArgs row{};
    row.x = zeros.data();
    row.type = FloatType::kFloat32;
    row.row_stride = row.cols = a.cols;
    row.threshold = a.threshold;
    row.words = empty_row.data();
    pack(row, 1);
  }
  with_float_type(a.type, [&](auto zero) {
    using T = decltype(zero);
    a.indices64 ? pack_rows<T, int64_t>(a, rowptr, empty_row.data())
                : pack_rows<T, int32_t>(a, rowptr, empty_row.data());
  });
}

}  // namespace bitgnn::cpu
