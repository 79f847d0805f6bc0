// BMM + BSpMM with narrow integers in between on the CPU.
#include <algorithm>

#include "bitgnn/narrow_sums.h"
#include "cpu/backend.h"
#include "cpu/balanced_rows.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kLaneFeatures = 16;  // features of a row that a vector of it alone holds

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes of a row whose gathers read whole vectors; rows cross as few cache lines as they can.
int64_t narrow_stride(int64_t halves, int64_t half_bytes, int64_t factor_bytes) {
  int64_t padded = round_up(halves, kLaneFeatures);
  if (halves <= 8) padded = halves <= 4 ? 4 : 8;
  const int64_t bytes = factor_bytes + padded * half_bytes;
  if (bytes > kLineBytes) return round_up(bytes, kLineBytes);
  int64_t stride = 4;
  while (stride < bytes) stride *= 2;
  return stride;
}

}  // namespace

void Backend::aggregate_narrow(const NarrowArgs& given) const {
  bitgnn::BmmArgs product = given.product;
  const AggregateArgs& sums = given.sums;
  NarrowCsrArgs a{};
  NarrowRows& rows = a.rows;
  rows.shorts = product.size > kMostByteFeatures;
  rows.has_factors =
      product.row_scale != nullptr || product.packed_scale || sums.col_scale != nullptr;
  rows.odd = product.size % 2 != 0;
  rows.stride = narrow_stride(product.out_features + (rows.has_factors && rows.odd ? 1 : 0),
                              rows.shorts ? 2 : 1, rows.halves_at());
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
