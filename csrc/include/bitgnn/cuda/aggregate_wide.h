// BMM + BSpMM whose rows are too wide for the narrow form and have factors.
#pragma once

#include "bitgnn/cuda/narrow_product.h"

namespace bitgnn::cuda {

// args.product multiplies packed rows and has no scale but out_scale; one factor exists at least.
cudaError_t aggregate_wide(const NarrowArgs& args, const NarrowFactors& factors,
                           const Context& context);

}  // namespace bitgnn::cuda
