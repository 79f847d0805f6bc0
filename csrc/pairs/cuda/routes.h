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
// or with_plain_form() chooses; `table` has room for all chunks. A root term, if it is not null, is
// a second product of as many features, written to `root_table` in the same form.
cudaError_t narrow_product(const BmmArgs& product, const NarrowFactors& factors, char* table,
                           const BmmArgs* root, char* root_table, const Context& context);

// BMM + BSpMM for rows that are too wide for the narrow form, in the same order.
// args.product multiplies packed rows; its only scale is out_scale, which multiplies sums.
cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context);

}  // namespace bitgnn::cuda::pairs
