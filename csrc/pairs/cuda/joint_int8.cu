// A sum of packed neighbours plus a product of 8-bit rows: the sums pass from one kernel to the
// next as 16-bit integers where the product takes them, half the bytes of floats.
#include "bspmm/arguments.h"
#include "int8/cuda/routes.h"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

cudaError_t aggregate_product_int8(const AggregateArgs& sums, const Int8BmmArgs& product,
                                   const Context& context) {
  AggregateArgs a = sums;
  Int8BmmArgs p = product;
  if (a.rows == 0 || a.features == 0) return cudaSuccess;
  const auto take = [&](int64_t rows, size_t element) {
    return context.workspace.take(static_cast<size_t>(rows * a.features) * element);
  };
  if (int8::adds_neighbour_sums(p, context)) {
    a.out_short = static_cast<int16_t*>(take(a.rows, sizeof(int16_t)));
    a.out_int = static_cast<int32_t*>(take(long_row_place(a.edges) + 1, sizeof(int32_t)));
    a.row_scale = a.bias = nullptr;
    p.neighbours = {a.out_short, a.out_int, a.rowptr, a.rowptr64, sums.row_scale, sums.bias};
  } else {
    p.addend = a.out_float = static_cast<float*>(take(a.rows, sizeof(float)));
  }
  const cudaError_t status = bspmm::aggregate_bits(a, context);
  return status == cudaSuccess ? int8::multiply_int8(p, context) : status;
}

}  // namespace bitgnn::cuda::pairs
