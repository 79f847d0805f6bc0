// Launches the products of packed ternary and boolean rows that load operands straight from memory.
#include <algorithm>

#include "core/cuda/shared_memory.h"
#include "ternary/cuda/matmul/few_columns.cuh"
#include "ternary/cuda/matmul/routes.h"
#include "ternary/cuda/matmul/short_rows.cuh"
#include "ternary/cuda/with_result_type.h"

namespace bitgnn::cuda::ternary {
namespace {

template <class T, int kPairs>
cudaError_t multiply_short(const TernaryMatmulArgs& a, const Context& context) {
  // More row steps per block once the grid exceeds what can be resident at a time.
  constexpr int64_t kMostSteps = 8, kResident = 4;
  const int64_t heights = ceil_div(a.rows, kMmaRows);
  const int64_t widths = ceil_div(a.columns, kShortWarps * kShortColumns);
  const int64_t batches = a.batches[0] * a.batches[1];
  const int64_t steps = std::min(
      ceil_div(batches * heights * widths, kResident * context.device.sm_count), kMostSteps);
  const ShortPlan plan{static_cast<int>(ceil_div(heights, steps)), static_cast<int>(widths),
                       static_cast<int>(steps),
                       a.y.counts_row_stride == 1 && a.y.counts_batch_strides[0] % 4 == 0 &&
                           a.y.counts_batch_strides[1] % 4 == 0 && is_aligned(a.y.counts),
                       stores_eights(a)};
  const bool vector = words_for(a.size) == 2 * kPairs && begins_at(a.x, 2) && begins_at(a.y, 2);
  const auto kernel =
      vector ? ternary_short_kernel<T, kPairs, true> : ternary_short_kernel<T, kPairs, false>;
  const int64_t blocks = batches * plan.row_blocks * plan.column_blocks;
  return launch_dependent(kernel, dim3(grid_size(blocks)), kShortWarps * kWarp, 0, context, a,
                          plan);
}

template <class T>
cudaError_t multiply_short(const TernaryMatmulArgs& a, const Context& context) {
  return words_for(a.size) <= 2 ? multiply_short<T, 1>(a, context)
                                : multiply_short<T, 2>(a, context);
}

template <class T, class Form, bool kVector>
cudaError_t launch_narrow(const TernaryMatmulArgs& a, const Context& context) {
  const NarrowPlan plan{static_cast<int>(ceil_div(a.rows, Form::kBlockRows)),
                        static_cast<int>(ceil_div(a.columns, kNarrowColumns)), stores_eights(a)};
  const auto kernel = ternary_narrow_kernel<T, Form, kVector>;
  constexpr int64_t kBytes = Form::kSharedWords * int64_t{sizeof(int32_t)};
  const cudaError_t status = grant_shared_memory(kernel, kBytes);
  if (status != cudaSuccess) return status;
  const int64_t blocks = a.batches[0] * a.batches[1] * plan.row_blocks * plan.column_blocks;
  return launch_dependent(kernel, dim3(grid_size(blocks)), Form::kThreads, kBytes, context, a,
                          plan);
}

template <class T>
cudaError_t multiply_narrow(const TernaryMatmulArgs& a, const Context& context) {
  const int64_t words = words_for(a.size);
  const auto begin_at = [&](int64_t count) {
    return words % count == 0 && begins_at(a.x, count) && begins_at(a.y, count);
  };
  // Warps, warps sharing rows, 16-row tiles, words per lane.
  using Few = NarrowForm<4, 4, 1, 2>;
  using Long = NarrowForm<8, 8, 1, 4>;
  using LongSome = NarrowForm<4, 4, 1, 4>;
  using Many = NarrowForm<4, 1, 2, 2>;
  constexpr int64_t kManyHeights = 8, kLongWords = 64;
  if (!begin_at(2)) return launch_narrow<T, Few, false>(a, context);
  const int64_t heights = a.batches[0] * a.batches[1] * ceil_div(a.rows, kMmaRows) *
                          ceil_div(a.columns, kNarrowColumns);
  if (heights >= kManyHeights * context.device.sm_count)
    return launch_narrow<T, Many, true>(a, context);
  if (words < kLongWords || !begin_at(4)) return launch_narrow<T, Few, true>(a, context);
  return heights > context.device.sm_count ? launch_narrow<T, LongSome, true>(a, context)
                                           : launch_narrow<T, Long, true>(a, context);
}

}  // namespace

cudaError_t multiply_ternary_short(const TernaryMatmulArgs& a, const Context& context) {
  return with_float_result(a.type,
                           [&](auto zero) { return multiply_short<decltype(zero)>(a, context); });
}

cudaError_t multiply_ternary_narrow(const TernaryMatmulArgs& a, const Context& context) {
  return with_float_result(a.type,
                           [&](auto zero) { return multiply_narrow<decltype(zero)>(a, context); });
}

}  // namespace bitgnn::cuda::ternary
