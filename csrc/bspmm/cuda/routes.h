// Kernels of aggregations of packed rows over CSR that route.cu and classes.cu choose among.
#pragma once

#include "bspmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bspmm {

struct BoundTable;

// True if a copy with aligned rows pays: its rows are read often, and there is much to read.
inline bool suits_padding(const AggregateArgs& a) {
  constexpr int64_t kLeastUses = 4;         // reads per row of the table
  constexpr int64_t kLeastReads = 1 << 21;  // words
  const int64_t words = words_for(a.features);
  return words > 2 && a.edges >= kLeastUses * a.cols && a.edges * words >= kLeastReads;
}

// Sums of rows of up to eight words whose table exceeds the L2 cache.
cudaError_t aggregate_beyond_cache(const AggregateArgs& args, const BoundTable& bounds,
                                   const Context& context);

}  // namespace bitgnn::cuda::bspmm
