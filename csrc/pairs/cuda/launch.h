// Products whose results are aggregated, and sums to which products are added, on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "int8/arguments.h"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

// True if the lanes that sum a row hold all of its features, as a head requires.
bool suits_head(const NarrowArgs& args);

// See NarrowCall.
cudaError_t aggregate_narrow(const NarrowCall& call, const Context& context);

// Bits of an aggregation of bits plus a product without addend. The sums' row_scale and bias apply;
// the comparison and the output are the product's.
cudaError_t aggregate_product(const AggregateArgs& sums, const BmmArgs& product,
                              const Context& context);
cudaError_t aggregate_product_int8(const AggregateArgs& sums, const Int8BmmArgs& product,
                                   const Context& context);
cudaError_t aggregate_product_sliced(const SlicedArgs& sums, const BmmArgs& product,
                                     const Context& context);

}  // namespace bitgnn::cuda::pairs
