// Adds near codes by counting differing bits, for rows of any length and any device: bound by
// population counts.
#pragma once

#include "hamming/cuda/nearest.cuh"

namespace bitgnn::cuda::hamming {

constexpr int kScanThreads = 256;
constexpr int kScanQueries = 8;  // of a thread

// A thread takes a code at a time; blocks along y take kScanQueries queries each.
__global__ void __launch_bounds__(kScanThreads) scan_popcounts(const Round r) {
  const int64_t first_query = static_cast<int64_t>(blockIdx.y) * kScanQueries;
  const int64_t last_query = r.num_queries - 1;
  for (int64_t code = r.begin + static_cast<int64_t>(blockIdx.x) * kScanThreads + threadIdx.x;
       code < r.end; code += static_cast<int64_t>(gridDim.x) * kScanThreads) {
    int counts[kScanQueries] = {};
    for (int64_t word = 0; word < r.words; ++word) {
      const auto bits = static_cast<uint32_t>(r.codes[code * r.words + word]);
#pragma unroll
      for (int q = 0; q < kScanQueries; ++q) {
        const int64_t query = min(first_query + q, last_query);
        const auto other = static_cast<uint32_t>(r.queries[query * r.words + word]);
        counts[q] += __popc((bits ^ other) & r.valid(word));
      }
    }
#pragma unroll
    for (int q = 0; q < kScanQueries; ++q)
      if (first_query + q < r.num_queries) r.add(first_query + q, counts[q], code);
  }
}

}  // namespace bitgnn::cuda::hamming
