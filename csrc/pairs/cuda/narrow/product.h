// Products that become narrow rows, and the aggregation of those: launches by form of row.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::pairs {

// The factors of a product's rows: both, one or none of them.
struct NarrowFactors {
  const float* x_scale;
  const float* col_scale;

  bool exist() const { return x_scale != nullptr || col_scale != nullptr; }
};

// Writes the halves of a product of packed rows, without scales, as the rows that
// with_factored_form() or with_plain_form() chooses; `table` has room for every chunk.
cudaError_t narrow_product(const BmmArgs& product, const NarrowFactors& factors, char* table,
                           const Context& context);

}  // namespace bitgnn::cuda::pairs
