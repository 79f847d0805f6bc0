// CUDA kernels of running statistics of columns: x is read once, its parts are added up in order.
#include <algorithm>

#include "training/column_arguments.h"
#include "training/cuda/block_sum.cuh"

namespace bitgnn::cuda::training {
namespace {

constexpr int kRowsAtOnce = kQuantiseThreads / kWarp;
constexpr int64_t kPart = 128;        // rows of a part at least
constexpr int64_t kMostParts = 1024;  // parts of a column at most: one thread adds them up

// Counts of 32 columns in one part of the rows; and of their entries below 0.
__global__ void __launch_bounds__(kQuantiseThreads)
    count_columns_kernel(const MergeColumnsArgs a, int64_t part, ColumnCounts* parts,
                         int64_t* negative) {
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *a.finite = 1.0f;
  if (!a.is_due()) return;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const int64_t begin = blockIdx.y * part, end = min(begin + part, a.rows);
  ColumnCounts counts{};
  if (column < a.cols) {
    const float first = a.x[column];
    for (int64_t row = begin + warp; row < end; row += kRowsAtOnce)
      count_value(a.x[row * a.row_stride + column], first, &counts);
  }
  __shared__ ColumnCounts warps[kRowsAtOnce][kWarp];
  warps[warp][lane] = counts;
  __syncthreads();
  if (warp != 0) return;
  for (int i = 1; i < kRowsAtOnce; ++i) add_counts(warps[i][lane], &counts);
  if (column < a.cols) parts[blockIdx.y * a.cols + column] = counts;
  int below = counts.negative;
  for (int step = kWarp / 2; step > 0; step /= 2) below += __shfl_down_sync(kFullWarp, below, step);
  if (lane == 0) negative[blockIdx.y * static_cast<int64_t>(gridDim.x) + blockIdx.x] = below;
}

// A thread to a column; the first block adds up the entries below 0.
__global__ void __launch_bounds__(kQuantiseThreads)
    merge_columns_kernel(const MergeColumnsArgs a, const ColumnCounts* parts, int64_t part_count,
                         const int64_t* negative, int64_t negatives) {
  if (!a.is_due()) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kQuantiseThreads + threadIdx.x;
  if (column < a.cols) {
    ColumnCounts counts{};
    for (int64_t i = 0; i < part_count; ++i) add_counts(parts[i * a.cols + column], &counts);
    if (!merge_column(a, column, counts)) *a.finite = 0.0f;
  }
  if (blockIdx.x != 0) return;
  double below = 0.0;  // sums of so many integers are exact
  for (int64_t i = threadIdx.x; i < negatives; i += kQuantiseThreads)
    below += static_cast<double>(negative[i]);
  below = block_sum(below);
  if (threadIdx.x == 0) merge_entries(a, static_cast<int64_t>(below));
}

// The held statistics where nothing is merged.
__global__ void __launch_bounds__(kQuantiseThreads) keep_columns_kernel(const MergeColumnsArgs a) {
  if (a.is_due() && *a.finite > 0.0f) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kQuantiseThreads + threadIdx.x;
  if (column < a.cols) {
    a.out.mean[column] = a.held.mean[column];
    a.out.variance[column] = a.held.variance[column];
    a.out.present[column] = a.held.present[column];
  }
  if (column == 0) {
    *a.out.negative = *a.held.negative;
    *a.out.rows = *a.held.rows;
  }
}

}  // namespace

cudaError_t merge_columns(const MergeColumnsArgs& a, const Context& context) {
  const int64_t part = std::max(kPart, ceil_div(a.rows, kMostParts));
  const int64_t parts = std::max<int64_t>(ceil_div(a.rows, part), 1);
  const int64_t groups = std::max<int64_t>(ceil_div(a.cols, kWarp), 1);
  const auto blocks =
      static_cast<unsigned>(std::max<int64_t>(ceil_div(a.cols, kQuantiseThreads), 1));
  auto* const counts = static_cast<ColumnCounts*>(
      context.workspace.take(static_cast<size_t>(parts * a.cols) * sizeof(ColumnCounts)));
  auto* const negative = static_cast<int64_t*>(
      context.workspace.take(static_cast<size_t>(parts * groups) * sizeof(int64_t)));
  const dim3 grid(static_cast<unsigned>(groups), static_cast<unsigned>(parts));
  count_columns_kernel<<<grid, kQuantiseThreads, 0, context.stream>>>(a, part, counts, negative);
  merge_columns_kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a, counts, parts, negative,
                                                                        parts * groups);
  keep_columns_kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::training
