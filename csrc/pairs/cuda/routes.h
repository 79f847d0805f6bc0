// Products that become narrow rows, and sums of rows that are too wide for that.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

// Factors of a product's rows: both, one or neither.
struct NarrowFactors {
  const float* x_scale;
  const float* col_scale;

  bool exist() const { return x_scale != nullptr || col_scale != nullptr; }
};

// Writes the halves of an unscaled product of packed rows in the row form that with_factored_form()
// or with_plain_form() chooses; `table` has room for all chunks.
cudaError_t narrow_product(const BmmArgs& product, const NarrowFactors& factors, char* table,
                           const Context& context);

// BMM + BSpMM for rows that are too wide for the narrow form and have scales or factors.
// args.product multiplies packed rows; its only scale is out_scale, which multiplies sums.
cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context);

}  // namespace bitgnn::cuda::pairs
