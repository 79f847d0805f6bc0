// Arguments of the nearest codes by Hamming distance, shared by the kernels of all backends.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// The k codes nearest to each query, nearest first, of equally near ones the smaller index first.
// Padding bits count nowhere, set or not.
struct HammingArgs {
  const int32_t* queries;  // [num_queries, words_for(size)]
  const int32_t* codes;    // [num_codes, words_for(size)]
  int64_t num_queries;
  int64_t num_codes;
  int64_t size;        // bits of a code
  int64_t k;           // at most num_codes
  int32_t* distances;  // [num_queries, k]
  int64_t* indices;    // [num_queries, k]
};

BITGNN_KERNEL(hamming, hamming_topk, const HammingArgs& args);

}  // namespace bitgnn
