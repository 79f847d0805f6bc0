// Packs rows given by their entries on the CPU, bound by reading the entries once.
#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "bspmm/pattern_check.h"
#include "core/cpu/backend.h"
#include "core/cpu/float_types.h"

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
  CsrRows(const CsrPackArgs& a, const int32_t* empty_row)
      : a_(a),
        empty_row_(empty_row),
        indices_(static_cast<const Index*>(a.indices)),
        values_(static_cast<const T*>(a.values)) {}

  // False if a column lies outside of the matrix.
  bool pack(int64_t row, int64_t begin, int64_t end) {
    const int64_t words = words_for(a_.cols);
    int32_t* out = a_.words + row * words;
    std::copy_n(empty_row_, words, out);
    bool inside = true, ascends = true;
    int64_t before = -1;
    for (int64_t e = begin; e < end; ++e) {
      const auto column = static_cast<int64_t>(indices_[e]);
      if (static_cast<uint64_t>(column) >= static_cast<uint64_t>(a_.cols)) {
        inside = false;
        continue;
      }
      ascends = ascends && before < column;
      before = column;
      decide(out, column, value(e));
    }
    if (inside && !ascends) add_up(out, begin, end);
    return inside;
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
  const Index* indices_;
  const T* values_;
  std::vector<Sum> sums_;  // zeros between rows
};

template <class T, class Index>
void pack_rows(const CsrPackArgs& a, const RowPointers& rowptr, const int32_t* empty_row) {
  std::atomic<bool> inside{true};
  const int64_t work = words_for(a.cols) + a.entries / std::max<int64_t>(a.rows, 1);
  split(a.rows, grain(work, kGrain), [&](int64_t begin, int64_t end) {
    CsrRows<T, Index> rows(a, empty_row);
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

void Backend::pack_csr(const CsrPackArgs& a) const {
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
