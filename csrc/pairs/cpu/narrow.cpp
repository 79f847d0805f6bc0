// BMM + BSpMM with narrow integer intermediates, on the CPU.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "bmm/cpu/panels.h"
#include "bspmm/cpu/balanced_rows.h"
#include "bspmm/narrow_sums.h"
#include "capabilities/cpu/kernel_table.h"
#include "core/cpu/backend.h"
#include "pairs/arguments.h"

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

constexpr int64_t kTileRows = 1 << 10;  // rows whose scores a thread holds at a time

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

// The classes of rows [begin, end), whose scores are not kept.
void find_classes(const NarrowCsrArgs& a, int64_t* classes, int64_t begin, int64_t end) {
  const int64_t features = a.csr.features;
  const size_t pointer_bytes = a.csr.rowptr64 ? sizeof(int64_t) : sizeof(int32_t);
  std::vector<float> scores(static_cast<size_t>(std::min(end - begin, kTileRows) * features));
  for (int64_t first = begin; first < end; first += kTileRows) {
    const int64_t rows = std::min(end - first, kTileRows);
    NarrowCsrArgs tile = a;
    tile.csr.rowptr =
        static_cast<const char*>(a.csr.rowptr) + static_cast<size_t>(first) * pointer_bytes;
    if (tile.csr.row_scale != nullptr) tile.csr.row_scale += first;
    tile.csr.out_float = scores.data();
    kernels().aggregate_narrow(tile, 0, rows);
    for (int64_t row = 0; row < rows; ++row)
      classes[first + row] = class_of(scores.data() + row * features, features);
  }
}

}  // namespace

// Only argmax is fused: torch's softmax is as fast after the kernels, but its argmax takes many
// times as long.
void suits_head(const NarrowCall&, Head head, bool* holds) { *holds = head == Head::kClasses; }

void aggregate_narrow(const NarrowCall& given) {
  bitgnn::BmmArgs product = given.product;
  const AggregateArgs& sums = given.sums;
  NarrowCsrArgs a{};
  NarrowRows& rows = a.rows;
  const bool has_factors =
      product.row_scale != nullptr || product.packed_scale || sums.col_scale != nullptr;
  rows = narrow_rows(product.out_features, product.size, has_factors, given.shift != nullptr);
  const Tensor table = Backend::empty(
      {product.rows, rows.stride / static_cast<int64_t>(sizeof(int32_t))}, ScalarType::Int);
  rows.data = static_cast<char*>(table.data_ptr());
  a.out_scale = product.out_scale;
  a.shift = given.shift;
  product.out_scale = nullptr;
  multiply(product, &rows, sums.col_scale);

  static_cast<AggregateArgs&>(a.csr) = sums;
  a.csr.prefetch = product.rows * rows.stride >= kPrefetchBytes;
  if (given.head == Head::kClasses)
    split_balanced(a.csr, sums.rows, find_classes, a, given.classes);
  else
    split_balanced(a.csr, sums.rows, kernels().aggregate_narrow, a);
  if (given.root == nullptr) return;
  bitgnn::BmmArgs root = *given.root;
  root.addend = root.out_float = sums.out_float;
  bmm(root);
}

}  // namespace bitgnn::cpu
