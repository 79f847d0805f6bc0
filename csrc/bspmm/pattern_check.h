// Host-side checks that a pattern keeps kernels inside their operands. Skipped if the caller
// vouches for the pattern, as BitAdjacency does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/check.h"
#include "core/common.h"

namespace bitgnn {

// A row pointer of either integer type.
struct RowPointers {
  const void* entries;
  bool wide;  // int64, else int32

  int64_t operator[](int64_t i) const {
    return wide ? static_cast<const int64_t*>(entries)[i] : static_cast<const int32_t*>(entries)[i];
  }
};

template <class Entry>
bool ascends_from_zero(const Entry* entries, int64_t count) {
  bool ascends = entries[0] == 0;
  for (int64_t i = 1; i < count; ++i) ascends = ascends & (entries[i - 1] <= entries[i]);
  return ascends;
}

// Requires `count` entries that start with 0, never descend and end with `end`.
inline void check_row_pointers(const RowPointers& p, int64_t count, int64_t end, const char* op,
                               const char* name) {
  const bool ascends = p.wide ? ascends_from_zero(static_cast<const int64_t*>(p.entries), count)
                              : ascends_from_zero(static_cast<const int32_t*>(p.entries), count);
  BITGNN_CHECK(ascends, op, ": ", name, " must begin with 0 and never descend");
  BITGNN_CHECK(p[count - 1] == end, op, ": the last entry of ", name, " must be ", end, ", got ",
               p[count - 1]);
}

// Requires every index to lie in [0, bound).
inline void check_indices(const int32_t* indices, int64_t count, int64_t bound, const char* op,
                          const char* name) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, static_cast<uint32_t>(indices[i]));
  if (count == 0 || static_cast<int64_t>(most) < bound) return;
  int64_t wrong = 0;
  while (indices[wrong] >= 0 && indices[wrong] < bound) ++wrong;
  fail(op, ": ", name, " must lie in [0, ", bound, "), got ", indices[wrong], " at ", wrong);
}

// The same for the 16-bit indices [begin, end) of one block of columns; `absent` marks a missing
// one.
inline void check_local_indices(const uint16_t* indices, int64_t begin, int64_t end, int64_t bound,
                                int64_t absent, const char* op) {
  for (int64_t i = begin; i < end; ++i)
    if (indices[i] >= bound && indices[i] != absent)
      fail(op, ": local_indices must be less than the ", bound, " columns of their block, got ",
           indices[i], " at ", i);
}

// Checks 4 x 4 FRDC tiles; bits may only stand for entries inside the matrix.
inline void check_tiles(const RowPointers& p, const int32_t* tile_cols, const int16_t* tiles,
                        int64_t count, int64_t rows, int64_t cols, const char* op) {
  const int64_t tile_rows = (rows + kTileDim - 1) / kTileDim;
  const int64_t tile_columns = (cols + kTileDim - 1) / kTileDim;
  check_row_pointers(p, tile_rows + 1, count, op, "tile_rowptr");
  check_indices(tile_cols, count, tile_columns, op, "tile_cols");
  const int64_t last_columns = cols - (tile_columns - 1) * kTileDim;
  const int64_t last_rows = rows - (tile_rows - 1) * kTileDim;
  const unsigned outside_columns = 0x1111u * (0xfu & (0xfu << last_columns));
  const unsigned outside_rows = 0xffffu & (0xffffu << (kTileDim * last_rows));
  bool inside = true;
  for (int64_t t = 0; t < count; ++t)
    inside = inside & (tile_cols[t] != tile_columns - 1 ||
                       (static_cast<uint16_t>(tiles[t]) & outside_columns) == 0);
  for (int64_t t = tile_rows > 0 ? p[tile_rows - 1] : 0; t < count; ++t)
    inside = inside & ((static_cast<uint16_t>(tiles[t]) & outside_rows) == 0);
  BITGNN_CHECK(inside, op, ": tiles must have no bits outside the ", rows, " x ", cols, " matrix");
}

// Tables of column slices with the sizes named in SlicedArgs, and the sizes not named there.
struct SlicedTables {
  const uint16_t* local_indices;
  const int32_t* group_steps;
  const int32_t* group_places;
  const int32_t* slice_groups;
  const int32_t* row_slots;
  const int32_t* row_items;
  int64_t steps;  // kSliceLanes * kSliceStepEdges local indices each
  int64_t groups;
  int64_t slices;
  int64_t rows;
  int64_t cols;
  int64_t items;
  int64_t slice_size;
  int64_t places;
};

// `entry` is twice the first of `lanes` consecutive places, plus 1 if each takes three units
// instead of two.
inline bool fits_places(int64_t entry, int64_t lanes, int64_t places) {
  return entry >= 0 && (entry >> 1) + lanes * (2 + (entry & 1)) <= places;
}

inline void check_slices(const SlicedTables& t, const char* op) {
  const auto ascends = [op](const int32_t* entries, int64_t count, int64_t most, const char* name) {
    BITGNN_CHECK(ascends_from_zero(entries, count), op, ": ", name,
                 " must begin with 0 and never descend");
    BITGNN_CHECK(entries[count - 1] <= most, op, ": ", name, " must end at ", most,
                 " or before, got ", entries[count - 1]);
  };
  ascends(t.group_steps, t.groups + 1, t.steps, "group_steps");
  ascends(t.slice_groups, t.slices + 1, t.groups, "slice_groups");
  ascends(t.row_slots, t.rows + 1, t.items, "row_slots");
  for (int64_t g = 0; g < t.groups; ++g)
    BITGNN_CHECK(fits_places(t.group_places[g], kSliceLanes, t.places), op,
                 ": group_places must lie inside ", t.places, " places, got ", t.group_places[g],
                 " at ", g);
  for (int64_t i = 0; i < t.items; ++i)
    BITGNN_CHECK(fits_places(t.row_items[i], 1, t.places), op, ": row_items must lie inside ",
                 t.places, " places, got ", t.row_items[i], " at ", i);
  constexpr int64_t kStep = kSliceLanes * kSliceStepEdges;
  for (int64_t s = 0; s < t.slices; ++s) {
    const int64_t begin = t.group_steps[t.slice_groups[s]] * kStep;
    const int64_t end = t.group_steps[t.slice_groups[s + 1]] * kStep;
    check_local_indices(t.local_indices, begin, end,
                        std::min(t.slice_size, t.cols - s * t.slice_size), t.slice_size, op);
  }
}

// Checks an order of the rows of a CSR: each row once, as its first edge and degree + row * 2^32.
inline void check_order(const RowPointers& p, const int64_t* order, int64_t rows, const char* op) {
  std::vector<bool> seen(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = order[2 * i + 1] >> 32;
    const bool fits = row >= 0 && row < rows && !seen[static_cast<size_t>(row)] &&
                      order[2 * i] == p[row] &&
                      (order[2 * i + 1] & 0xffffffff) == p[row + 1] - p[row];
    BITGNN_CHECK(fits, op, ": order must name every row once with its first edge and degree, ",
                 "entry ", i, " does not");
    seen[static_cast<size_t>(row)] = true;
  }
}

}  // namespace bitgnn
