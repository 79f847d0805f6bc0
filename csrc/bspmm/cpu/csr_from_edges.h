// Builds a CSR pattern from edges in any order. Mini-batch graphs take two counting sorts: edges +
// rows + columns steps, bound by scattered 4-byte writes, which stay in cache. Larger graphs take
// one by rows, and a sort of each row: no memory but that of the result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bitgnn::cpu {

constexpr int64_t kCountedEdges = 1 << 22;  // up to which columns are counted, too

template <class Index>
struct EdgeArgs {
  const Index* sources;       // [edges], columns
  const Index* destinations;  // [edges], rows
  int64_t edges;
  int64_t rows;
  int64_t cols;
  bool self_loops;   // exactly one loop per row; needs as many columns as rows
  int32_t* rowptr;   // [rows + 1]
  int32_t* indices;  // [edges], plus rows with self_loops; ascending in each row
};

// Fills rowptr and indices; returns false if an index is out of range. Entries of indices after
// rowptr[rows] become 0. All counts must be below 2^31.
template <class Index>
bool csr_from_edges(const EdgeArgs<Index>& a) {
  const auto counts = [&](Index source, Index destination) {
    return !a.self_loops || source != destination;
  };
  const bool by_columns = a.edges <= kCountedEdges;
  // Start of each column; filling advances it to the column's end.
  std::vector<int32_t> column(by_columns ? static_cast<size_t>(a.cols) + 1 : 0, a.self_loops);
  for (int64_t i = 0; i <= a.rows; ++i) a.rowptr[i] = a.self_loops ? 1 : 0;
  for (int64_t e = 0; e < a.edges; ++e) {
    const Index source = a.sources[e], destination = a.destinations[e];
    if (source < 0 || source >= a.cols || destination < 0 || destination >= a.rows) return false;
    if (!counts(source, destination)) continue;
    if (by_columns) ++column[static_cast<size_t>(source)];
    ++a.rowptr[destination];
  }
  const auto to_starts = [](int32_t* entries, int64_t count) {
    int32_t start = 0;
    for (int64_t i = 0; i < count; ++i) start += std::exchange(entries[i], start);
    entries[count] = start;
  };
  to_starts(a.rowptr, a.rows);
  const int64_t total = a.rowptr[a.rows];
  // Either way row pointers become row ends.
  const auto for_entries = [&](const auto& place) {
    for (int64_t e = 0; e < a.edges; ++e)
      if (counts(a.sources[e], a.destinations[e])) place(a.sources[e], a.destinations[e]);
    if (a.self_loops)
      for (int64_t i = 0; i < a.rows; ++i) place(i, i);
  };
  if (by_columns) {
    to_starts(column.data(), a.cols);
    // The row of each edge, grouped by column; equal edges are alike, so their order is free.
    std::vector<int32_t> row_of(static_cast<size_t>(total));
    for_entries([&](int64_t source, int64_t destination) {
      row_of[static_cast<size_t>(column[static_cast<size_t>(source)]++)] =
          static_cast<int32_t>(destination);
    });
    // Visits columns in order, so that they ascend in every row.
    int64_t entry = 0;
    for (int64_t c = 0; c < a.cols; ++c)
      for (; entry < column[static_cast<size_t>(c)]; ++entry)
        a.indices[a.rowptr[row_of[static_cast<size_t>(entry)]]++] = static_cast<int32_t>(c);
  } else {
    for_entries([&](int64_t source, int64_t destination) {
      a.indices[a.rowptr[destination]++] = static_cast<int32_t>(source);
    });
    for (int64_t i = 0; i < a.rows; ++i) {
      int32_t* const begin = a.indices + (i == 0 ? 0 : a.rowptr[i - 1]);
      int32_t* const end = a.indices + a.rowptr[i];
      // Edges that come by ascending columns, as coalesced ones do, are sorted already.
      if (!std::is_sorted(begin, end)) std::sort(begin, end);
    }
  }
  for (int64_t i = a.rows; i > 0; --i) a.rowptr[i] = a.rowptr[i - 1];
  a.rowptr[0] = 0;
  const int64_t room = a.edges + (a.self_loops ? a.rows : 0);
  for (int64_t i = total; i < room; ++i) a.indices[i] = 0;
  return true;
}

}  // namespace bitgnn::cpu
