// Sums of narrow rows over column blocks, and conversion of column blocks to CSR.
#include "pairs/cuda/launch.h"
#include "pairs/cuda/narrow/sums_launch.cuh"

namespace bitgnn::cuda::pairs {
namespace {

constexpr int kCopyThreads = 256;

// One warp per row; one more writes the last row pointer. Bound by the bytes of the indices.
__global__ void __launch_bounds__(kCopyThreads)
    csr_of_blocks_kernel(const __grid_constant__ AggregateArgs a,
                         const __grid_constant__ ColumnBlocks blocks, int64_t* rowptr,
                         int32_t* indices) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kCopyThreads + threadIdx.x;
  const int64_t row = thread / kWarp;
  const auto lane = static_cast<int>(thread % kWarp);
  if (row > a.rows) return;
  int64_t begin = 0;
  for (int64_t b = 0; b < blocks.count; ++b)
    begin += bspmm::edge_begin(a, b * a.rows + row) - bspmm::edge_begin(a, b * a.rows);
  if (lane == 0) rowptr[row] = begin;
  if (row == a.rows) return;
  for (int64_t b = 0; b < blocks.count; ++b) {
    const int64_t first = bspmm::edge_begin(a, b * a.rows + row);
    const int64_t count = bspmm::edge_begin(a, b * a.rows + row + 1) - first;
    for (int64_t e = lane; e < count; e += kWarp)
      indices[begin + e] = static_cast<int32_t>(b * blocks.size + blocks.local_indices[first + e]);
    begin += count;
  }
}

}  // namespace

cudaError_t launch_blocked_sums(const NarrowLaunch& d, int64_t size, bool has_factors,
                                const Context& context) {
  return launch_narrow_sums<BlockedPattern, true>(d, size, has_factors, context);
}

cudaError_t csr_of_blocks(const AggregateArgs& pattern, const ColumnBlocks& blocks, int64_t* rowptr,
                          int32_t* indices, const Context& context) {
  const int64_t threads = (pattern.rows + 1) * kWarp;
  csr_of_blocks_kernel<<<grid_size(ceil_div(threads, kCopyThreads)), kCopyThreads, 0,
                         context.stream>>>(pattern, blocks, rowptr, indices);
  return cudaPeekAtLastError();
}

}  // namespace bitgnn::cuda::pairs
