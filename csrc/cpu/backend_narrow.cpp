// BMM + BSpMM with narrow integers in between on the CPU.
#include <algorithm>

#include "bitgnn/narrow_sums.h"
#include "cpu/backend.h"
#include "cpu/balanced_rows.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLaneIntegers = 16;
constexpr int64_t kSmallRow = 4, kLargeRow = kFewOutputs;  // words of a row of few features

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Rows of `features` products of K = `size` signs; they cross as few cache lines as they can.
NarrowRows narrow_rows(int64_t features, int64_t size, bool has_factors) {
  NarrowRows rows{};
  rows.has_factors = has_factors;
  rows.odd = size % 2 != 0;
  const int64_t words = features + (has_factors ? 1 : 0);
  if (words <= kLargeRow) {
    rows.half_bytes = sizeof(float);
    rows.stride = (words <= kSmallRow ? kSmallRow : kLargeRow) * rows.half_bytes;
    return rows;
  }
  rows.half_bytes = size > kMostByteFeatures ? 2 : 1;
  const int64_t halves = features + (has_factors && rows.odd ? 1 : 0);
  const int64_t bytes = rows.halves_at() + round_up(halves, kLaneIntegers) * rows.half_bytes;
  rows.stride = kLaneIntegers;
  while (rows.stride < bytes) rows.stride += std::min(rows.stride, kLineBytes);
  return rows;
}

}  // namespace

void Backend::aggregate_narrow(const NarrowArgs& given) const {
  bitgnn::BmmArgs product = given.product;
  const AggregateArgs& sums = given.sums;
  NarrowCsrArgs a{};
  NarrowRows& rows = a.rows;
  rows = narrow_rows(
      product.out_features, product.size,
      product.row_scale != nullptr || product.packed_scale || sums.col_scale != nullptr);
  const Tensor table =
      empty({product.rows, rows.stride / static_cast<int64_t>(sizeof(int32_t))}, ScalarType::Int);
  rows.data = static_cast<char*>(table.data_ptr());
  a.out_scale = product.out_scale;
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
  const auto kernel = kernels().aggregate_narrow;
  for_balanced_rows(a.csr, sums.rows, [&](int64_t begin, int64_t end) { kernel(a, begin, end); });
}

}  // namespace bitgnn::cpu
