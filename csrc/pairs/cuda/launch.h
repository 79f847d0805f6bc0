// Products whose results are aggregated, and sums that products are added to, on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "pairs/arguments.h"

namespace bitgnn::cuda::pairs {

// Whether the product is held as narrow integers. Rows of more than 48 features that few edges read
// are wide ones, or without factors floats: from CSR, without a head.
bool stays_narrow(const NarrowArgs& args);

// Whether the lanes that add up a row hold all of its features, as a head needs.
bool holds_whole_rows(const NarrowArgs& args);

// See NarrowCall.
cudaError_t aggregate_narrow(const NarrowCall& call, const Context& context);

// Turns column blocks into CSR: rowptr [rows + 1] and indices [edges] of `pattern`, whose rowptr is
// that of the blocks.
cudaError_t csr_of_blocks(const AggregateArgs& pattern, const ColumnBlocks& blocks, int64_t* rowptr,
                          int32_t* indices, const Context& context);

// Bits of the sum of an aggregation of bits (its row_scale and bias act, its outputs do not) and a
// product without addend, whose comparison and output count.
cudaError_t aggregate_product(const AggregateArgs& sums, const BmmArgs& product,
                              const Context& context);
cudaError_t aggregate_product_sliced(const SlicedArgs& sums, const BmmArgs& product,
                                     const Context& context);

}  // namespace bitgnn::cuda::pairs
