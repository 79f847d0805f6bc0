// Orders rows by degree in two passes over the row pointer: blocks count their rows per degree
// class, then each block derives the places of its own rows from all counts.
#include "bspmm/arguments.h"
#include "bspmm/cuda/row_order.cuh"

namespace bitgnn::cuda::bspmm {
namespace {

constexpr int kOrderThreads = 1024;
constexpr int64_t kOrderBlocks = 128;
constexpr int32_t kUnorderedHeavy = 128;   // degree from which a block is faster than a group
constexpr int64_t kOrderEdges = 1 << 18;   // with fewer edges the two passes do not pay
constexpr int64_t kEdgesPerHeavy = 25000;  // edges gathered in the time a warp takes for one

// Calls take(row) for the rows of a block, one per thread.
template <class Take>
__device__ __forceinline__ void for_block_rows(int64_t rows, const Take& take) {
  const int64_t each = (rows + gridDim.x - 1) / gridDim.x;
  const int64_t begin = blockIdx.x * each;
  const int64_t end = min(begin + each, rows);
  for (int64_t row = begin + threadIdx.x; row < end; row += kOrderThreads) take(row);
}

// counts: [gridDim.x][kDegreeClasses].
__global__ void __launch_bounds__(kOrderThreads)
    count_degrees_kernel(const __grid_constant__ AggregateArgs a, uint32_t* counts) {
  __shared__ uint32_t count[kDegreeClasses];
  if (threadIdx.x < kDegreeClasses) count[threadIdx.x] = 0;
  __syncthreads();
  for_block_rows(a.rows, [&](int64_t row) {
    atomicAdd(&count[degree_class(edge_begin(a, row + 1) - edge_begin(a, row))], 1u);
  });
  __syncthreads();
  if (threadIdx.x < kDegreeClasses)
    counts[blockIdx.x * kDegreeClasses + threadIdx.x] = count[threadIdx.x];
}

__global__ void __launch_bounds__(kOrderThreads)
    order_rows_kernel(const __grid_constant__ AggregateArgs a, const uint32_t* counts,
                      RowSpan* order) {
  constexpr int kParts = kOrderThreads / kDegreeClasses;
  __shared__ uint32_t total[kDegreeClasses];
  __shared__ uint32_t next[kDegreeClasses];  // where the block's next row of each class goes
  const int own = static_cast<int>(threadIdx.x) % kDegreeClasses;
  if (threadIdx.x < kDegreeClasses) total[own] = next[own] = 0;
  __syncthreads();
  uint32_t all = 0;
  uint32_t before = 0;
  for (unsigned block = threadIdx.x / kDegreeClasses; block < gridDim.x; block += kParts) {
    const uint32_t count = __ldg(counts + block * kDegreeClasses + own);
    all += count;
    if (block < blockIdx.x) before += count;
  }
  atomicAdd(&total[own], all);
  atomicAdd(&next[own], before);
  __syncthreads();
  if (threadIdx.x < kWarp) {
    // Start of each class: a lane adds up a few of them.
    constexpr int kEach = kDegreeClasses / kWarp;
    uint32_t sum = 0;
    for (int i = 0; i < kEach; ++i) sum += total[threadIdx.x * kEach + i];
    uint32_t start = sum;
    for (int step = 1; step < kWarp; step *= 2) {
      const uint32_t below = __shfl_up_sync(kFullWarp, start, step);
      if (static_cast<int>(threadIdx.x) >= step) start += below;
    }
    start -= sum;
    for (int i = 0; i < kEach; ++i) {
      next[threadIdx.x * kEach + i] += start;
      start += total[threadIdx.x * kEach + i];
    }
  }
  __syncthreads();
  for_block_rows(a.rows, [&](int64_t row) {
    const int64_t begin = edge_begin(a, row);
    const auto degree = static_cast<int32_t>(edge_begin(a, row + 1) - begin);
    order[atomicAdd(&next[degree_class(degree)], 1u)] = {begin, degree, static_cast<int32_t>(row)};
  });
}

}  // namespace

// Powers of two start a class, so that no light row precedes a heavy one.
int32_t heavy_degree(int64_t gathered) {
  int32_t heavy = 128;
  while (heavy < 8192 && heavy * kEdgesPerHeavy < gathered) heavy *= 2;
  return heavy;
}

cudaError_t order_rows(const AggregateArgs& a, int64_t pieces, const Context& context,
                       RowOrder* order) {
  *order = {nullptr, kUnorderedHeavy, 0};
  if (a.edges < kOrderEdges || a.rows > 0x7fffffff) return cudaSuccess;
  const int64_t needed = ceil_div(a.rows, kOrderThreads);
  const int64_t blocks = needed < kOrderBlocks ? needed : kOrderBlocks;
  auto* counts = static_cast<uint32_t*>(
      context.workspace.take(static_cast<size_t>(blocks) * kDegreeClasses * sizeof(uint32_t)));
  auto* rows =
      static_cast<RowSpan*>(context.workspace.take(static_cast<size_t>(a.rows) * sizeof(RowSpan)));
  const auto grid = static_cast<unsigned>(blocks);
  count_degrees_kernel<<<grid, kOrderThreads, 0, context.stream>>>(a, counts);
  order_rows_kernel<<<grid, kOrderThreads, 0, context.stream>>>(a, counts, rows);
  *order = {rows, heavy_degree(a.edges * pieces), static_cast<unsigned>(context.device.sm_count)};
  return cudaPeekAtLastError();
}

}  // namespace bitgnn::cuda::bspmm
