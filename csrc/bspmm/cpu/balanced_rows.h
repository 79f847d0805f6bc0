// Splits the rows of a pattern over threads by neighbours, not by row count: a graph's longest row
// can hold hundreds of times the mean.
#pragma once

#include <algorithm>

#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"

namespace bitgnn::cpu {

// Neighbours per thread, about 10 us: below that, moving the operands between cores costs more than
// a second core gains.
constexpr int64_t kEdgeGrain = 1 << 13;
constexpr int64_t kPrefetchBytes = int64_t{512} << 10;  // tables this large are prefetched
constexpr int64_t kRowCost = 6;                         // a row's fixed cost, in neighbours

// Calls kernel(args..., first, last) for each thread's rows of [0, rows).
template <class Kernel, class... Args>
void split_balanced(const CsrArgs& a, int64_t rows, const Kernel& kernel, const Args&... args) {
  if (rows == 0) return;
  const int64_t total = a.row_begin(rows) + rows * kRowCost;
  const int64_t parts = std::min<int64_t>(torch::stable::get_num_threads(), total / kEdgeGrain + 1);
  if (parts <= 1) return kernel(args..., int64_t{0}, rows);
  const auto boundary = [&](int64_t part) {
    const int64_t target = total / parts * part;
    int64_t low = 0, high = rows;
    if (part == parts) return rows;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (a.row_begin(middle) + middle * kRowCost < target) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  split(parts, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = boundary(begin), last = boundary(end);
    if (first < last) kernel(args..., first, last);
  });
}

}  // namespace bitgnn::cpu
