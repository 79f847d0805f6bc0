// BMM + BSpMM with narrow integers in between on the CPU.
#include "bitgnn/cpu/narrow_kernel.h"
#include "cpu/backend.h"

namespace bitgnn::cpu {
namespace {

constexpr int64_t kRowGrain = 64;  // rows a thread takes at least

}  // namespace

void Backend::aggregate_narrow(const NarrowArgs& given) const {
  bitgnn::BmmArgs product = given.product;
  const AggregateArgs& sums = given.sums;
  ops::Bits bits;
  if (product.pack != nullptr) {
    bits = ops::binarise(*this, *product.pack, product.rows, product.packed_scale);
    product.x = bits.words.const_data_ptr<int32_t>();
    if (product.packed_scale) product.row_scale = bits.scale->const_data_ptr<float>();
    product.pack = nullptr;
    product.packed_scale = false;
  }
  Tensor factors;
  const float* factor = product.row_scale != nullptr ? product.row_scale : sums.col_scale;
  if (product.row_scale != nullptr && sums.col_scale != nullptr) {
    factors = empty({product.rows}, ScalarType::Float);
    float* both = factors.mutable_data_ptr<float>();
    for (int64_t i = 0; i < product.rows; ++i) both[i] = product.row_scale[i] * sums.col_scale[i];
    factor = both;
  }
  Tensor table = empty({product.rows, product.out_features}, ScalarType::Int);
  int32_t* dots = table.mutable_data_ptr<int32_t>();
  const float* out_scale = product.out_scale;
  product.row_scale = product.out_scale = nullptr;
  product.out_int = dots;
  multiply(product);
  const bool halved = factor != nullptr;
  if (halved)
    for (int64_t i = 0; i < product.rows * product.out_features; ++i) dots[i] >>= 1;
  const NarrowTable rows{dots, factor, halved && product.size % 2 != 0};
  CsrArgs a{};
  a.rowptr = sums.rowptr;
  a.rowptr64 = sums.rowptr64;
  a.indices = sums.indices;
  a.row_scale = sums.row_scale;
  a.bias = sums.bias;
  a.features = sums.features;
  a.out_float = sums.out_float;
  torch::stable::parallel_for(0, sums.rows, kRowGrain, [&](int64_t begin, int64_t end) {
    aggregate_narrow_rows(a, out_scale, rows, begin, end);
  });
}

}  // namespace bitgnn::cpu
