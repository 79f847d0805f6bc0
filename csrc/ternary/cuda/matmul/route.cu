// Chooses and launches the kernel for batched products of ternary and boolean rows.
#include "ternary/cuda/launch.h"
#include "ternary/cuda/matmul/routes.h"
#include "ternary/cuda/matmul/tiles.cuh"
#include "ternary/cuda/with_result_type.h"

namespace bitgnn::cuda::ternary {
namespace {

template <class T>
cudaError_t multiply_tiles(const TernaryMatmulArgs& a, const Context& context) {
  const auto kernel = a.boolean ? ternary_matmul_kernel<T, true> : ternary_matmul_kernel<T, false>;
  const int64_t blocks = a.batches[0] * a.batches[1] * ceil_div(a.rows, kTernaryTile) *
                         ceil_div(a.columns, kTernaryTile);
  const auto in_vectors = [&](const TernaryOperand& x) {
    return words_for(a.size) % 4 == 0 && begins_at(x, 4);
  };
  return launch_dependent(kernel, dim3(grid_size(blocks)), kTernaryThreads, 0, context, a,
                          in_vectors(a.x), in_vectors(a.y));
}

}  // namespace

cudaError_t matmul_ternary(const TernaryMatmulArgs& a, const Context& context) {
  if (a.batches[0] * a.batches[1] * a.rows * a.columns == 0) return cudaSuccess;
  if (suits_ternary_short(a)) return multiply_ternary_short(a, context);
  // Warpgroup tiles have 128 ternary rows; with few columns most of a tile would be empty.
  constexpr int64_t kFewColumns = 64;
  const bool narrow = suits_ternary_narrow(a);
  if (narrow && a.columns <= kFewColumns) return multiply_ternary_narrow(a, context);
  if (suits_ternary_planes(a, context)) return multiply_ternary_planes(a, context);
  if (narrow) return multiply_ternary_narrow(a, context);
  return with_result_type(a.type,
                          [&](auto zero) { return multiply_tiles<decltype(zero)>(a, context); });
}

}  // namespace bitgnn::cuda::ternary
