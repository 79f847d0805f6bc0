// CPU backend of running statistics of columns.
#include <algorithm>
#include <atomic>

#include "core/cpu/backend.h"
#include "training/column_arguments.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kColumns = 64;  // counted side by side

void keep_held(const MergeColumnsArgs& a) {
  std::copy_n(a.held.mean, a.cols, a.out.mean);
  std::copy_n(a.held.variance, a.cols, a.out.variance);
  std::copy_n(a.held.present, a.cols, a.out.present);
  *a.out.negative = *a.held.negative;
  *a.out.rows = *a.held.rows;
}

}  // namespace

void merge_columns(const MergeColumnsArgs& a) {
  *a.finite = 1.0f;
  if (!a.is_due()) return keep_held(a);
  std::atomic<int64_t> negative{0};
  std::atomic<bool> is_finite{true};
  split((a.cols + kColumns - 1) / kColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kColumns; first < std::min(end * kColumns, a.cols);
         first += kColumns) {
      const int64_t number = std::min(kColumns, a.cols - first);
      ColumnCounts counts[kColumns] = {};
      for (int64_t row = 0; row < a.rows; ++row) {
        const float* const x = a.x + row * a.row_stride + first;
        for (int64_t i = 0; i < number; ++i) count_value(x[i], a.x[first + i], &counts[i]);
      }
      int64_t below = 0;
      for (int64_t i = 0; i < number; ++i) {
        below += counts[i].negative;
        if (!merge_column(a, first + i, counts[i])) is_finite = false;
      }
      negative += below;
    }
  });
  merge_entries(a, negative);
  if (is_finite) return;
  *a.finite = 0.0f;
  keep_held(a);
}

}  // namespace bitgnn::cpu
