// BMM + BSpMM for rows that are too wide for the narrow form and have scales or factors.
#pragma once

#include "pairs/arguments.h"
#include "pairs/cuda/narrow/product.h"

namespace bitgnn::cuda::pairs {

// args.product multiplies packed rows; its only scale is out_scale, which multiplies sums.
cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context);

}  // namespace bitgnn::cuda::pairs
