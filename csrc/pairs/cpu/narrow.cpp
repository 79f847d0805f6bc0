// BMM + BSpMM with narrow integer intermediates, on the CPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bspmm/narrow_sums.h"
#include "core/cpu/backend.h"
#include "core/cpu/balanced_rows.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLaneIntegers = 16;
constexpr int64_t kSmallRow = 4, kLargeRow = kFewOutputs;  // words per row of few features

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Layout of rows of `features` products of K = `size` signs, crossing as few cache lines as
// possible.
NarrowRows narrow_rows(int64_t features, int64_t size, bool has_factors, bool has_shift) {
  NarrowRows rows{};
  rows.has_factors = has_factors;
  rows.odd = size % 2 != 0;
  rows.ones = has_factors && (rows.odd || has_shift);
  const int64_t words = features + (has_factors ? 1 : 0);
  if (words <= kLargeRow) {
    rows.half_bytes = sizeof(float);
    rows.stride = (words <= kSmallRow ? kSmallRow : kLargeRow) * rows.half_bytes;
    return rows;
  }
  rows.half_bytes = size > kMostByteFeatures ? 2 : 1;
  const int64_t halves = features + (rows.ones ? 1 : 0);
  const int64_t bytes = rows.halves_at() + round_up(halves, kLaneIntegers) * rows.half_bytes;
  rows.stride = kLaneIntegers;
  while (rows.stride < bytes) rows.stride += std::min(rows.stride, kLineBytes);
  return rows;
}

// Edges and rows that a thread takes at a time if it needs buffers of its own.
constexpr int64_t kTileEdges = 1 << 14;
constexpr int64_t kTileRows = 1 << 10;

int64_t entry(const AggregateArgs& a, int64_t place) {
  return a.rowptr64 ? static_cast<const int64_t*>(a.rowptr)[place]
                    : static_cast<const int32_t*>(a.rowptr)[place];
}

// CSR row pointer from column blocks: each block counts from the start of its first row.
void join_blocks(const AggregateArgs& a, const ColumnBlocks& blocks, int64_t* rowptr) {
  torch::stable::parallel_for(0, a.rows + 1, kTileRows, [&](int64_t begin, int64_t end) {
    std::fill(rowptr + begin, rowptr + end, 0);
    for (int64_t b = 0; b < blocks.count; ++b)
      for (int64_t row = begin; row < end; ++row)
        rowptr[row] += entry(a, b * a.rows + row) - entry(a, b * a.rows);
  });
}

// Column indices of rows [begin, end), row by row.
void read_columns(const AggregateArgs& a, const ColumnBlocks& blocks, int64_t begin, int64_t end,
                  int32_t* columns) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t b = 0; b < blocks.count; ++b) {
      const auto first = static_cast<int32_t>(b * blocks.size);
      const int64_t last = entry(a, b * a.rows + row + 1);
      for (int64_t e = entry(a, b * a.rows + row); e < last; ++e)
        *columns++ = first + blocks.local_indices[e];
    }
  }
}

// Maps a score to an integer ordered like torch.argmax: zeros are equal, NaN is above all.
int32_t order_of(float score) {
  if (std::isnan(score)) return std::numeric_limits<int32_t>::max();
  score += 0.0f;
  int32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  return bits < 0 ? bits ^ std::numeric_limits<int32_t>::max() : bits;
}

// Index of the largest score, the first among equals. Branch-free, since it is unpredictable which
// score exceeds all before it.
int64_t class_of(const float* scores, int64_t count) {
  int64_t best = 0;
  int32_t largest = order_of(scores[0]);
  for (int64_t k = 1; k < count; ++k) {
    const int32_t own = order_of(scores[k]);
    const bool exceeds = own > largest;
    largest = exceeds ? own : largest;
    best = exceeds ? k : best;
  }
  return best;
}

// Processes some rows at a time, whose columns or scores are not kept.
class NarrowTiles {
 public:
  NarrowTiles(const NarrowCall& call, const NarrowCsrArgs& a) : call_(call), a_(a) {}

  void run(int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t first = a_.csr.row_begin(begin);
      int64_t last = begin + 1;
      while (last < end && last - begin < kTileRows &&
             a_.csr.row_begin(last + 1) - first <= kTileEdges)
        ++last;
      run_tile(begin, last);
      begin = last;
    }
  }

 private:
  void run_tile(int64_t begin, int64_t end) {
    const int64_t rows = end - begin, features = a_.csr.features;
    NarrowCsrArgs tile = a_;
    const int64_t first = a_.csr.row_begin(begin), edges = a_.csr.row_begin(end) - first;
    rowptr_.resize(static_cast<size_t>(rows) + 1);
    for (int64_t row = 0; row <= rows; ++row)
      rowptr_[static_cast<size_t>(row)] = a_.csr.row_begin(begin + row) - first;
    tile.csr.rowptr = rowptr_.data();
    tile.csr.rowptr64 = true;
    if (call_.blocks.local_indices != nullptr) {
      columns_.resize(static_cast<size_t>(edges));
      read_columns(call_.sums, call_.blocks, begin, end, columns_.data());
      tile.csr.indices = columns_.data();
    } else {
      tile.csr.indices += first;
    }
    if (tile.csr.row_scale != nullptr) tile.csr.row_scale += begin;
    const bool classes = call_.head == Head::kClasses;
    if (classes) {
      scores_.resize(static_cast<size_t>(rows * features));
      tile.csr.out_float = scores_.data();
    } else {
      tile.csr.out_float += begin * features;
    }
    kernels().aggregate_narrow(tile, 0, rows);
    for (int64_t row = 0; classes && row < rows; ++row)
      call_.classes[begin + row] = class_of(scores_.data() + row * features, features);
  }

  const NarrowCall& call_;
  const NarrowCsrArgs& a_;
  std::vector<int64_t> rowptr_;
  std::vector<int32_t> columns_;
  std::vector<float> scores_;
};

}  // namespace

void Backend::aggregate_narrow(const NarrowCall& given) const {
  bitgnn::BmmArgs product = given.product;
  const AggregateArgs& sums = given.sums;
  NarrowCsrArgs a{};
  NarrowRows& rows = a.rows;
  const bool has_factors =
      product.row_scale != nullptr || product.packed_scale || sums.col_scale != nullptr;
  rows =
      narrow_rows(product.out_features, product.size, has_factors, given.shift != nullptr);
  const Tensor table =
      empty({product.rows, rows.stride / static_cast<int64_t>(sizeof(int32_t))}, ScalarType::Int);
  rows.data = static_cast<char*>(table.data_ptr());
  a.out_scale = product.out_scale;
  a.shift = given.shift;
  product.out_scale = nullptr;
  multiply_narrow(product, rows, sums.col_scale);

  a.csr.rowptr = sums.rowptr;
  a.csr.rowptr64 = sums.rowptr64;
  a.csr.indices = sums.indices;
  a.csr.row_scale = sums.row_scale;
  a.csr.bias = sums.bias;
  a.csr.features = sums.features;
  a.csr.out_float = sums.out_float;
  a.csr.prefetch = product.rows * rows.stride >= kPrefetchBytes;
  std::vector<int64_t> rowptr;
  if (given.blocks.local_indices != nullptr) {
    rowptr.resize(static_cast<size_t>(sums.rows) + 1);
    join_blocks(sums, given.blocks, rowptr.data());
    a.csr.rowptr = rowptr.data();
    a.csr.rowptr64 = true;
  }
  const bool whole = given.blocks.local_indices == nullptr && given.head == Head::kNone;
  const auto kernel = kernels().aggregate_narrow;
  for_balanced_rows(a.csr, sums.rows, [&](int64_t begin, int64_t end) {
    whole ? kernel(a, begin, end) : NarrowTiles(given, a).run(begin, end);
  });
  if (given.root == nullptr) return;
  bitgnn::BmmArgs root = *given.root;
  root.addend = root.out_float = sums.out_float;
  multiply(root);
}

void Backend::csr_of_blocks(const AggregateArgs& pattern, const ColumnBlocks& blocks,
                            int64_t* rowptr, int32_t* indices) const {
  join_blocks(pattern, blocks, rowptr);
  torch::stable::parallel_for(0, pattern.rows, kTileRows, [&](int64_t begin, int64_t end) {
    read_columns(pattern, blocks, begin, end, indices + rowptr[begin]);
  });
}

}  // namespace bitgnn::cpu
