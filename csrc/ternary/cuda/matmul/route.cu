// Chooses and launches the kernel for batched products of ternary and boolean rows.
#include "core/cuda/variants.h"
#include "ternary/arguments.h"
#include "ternary/cuda/matmul/routes.h"
#include "ternary/cuda/matmul/tiles.cuh"

namespace bitgnn::cuda::ternary {
namespace {

// True if offsets across `rows` rows fit in 32 bits.
bool has_near_rows(const TernaryOperand& x, int64_t rows) {
  constexpr int64_t kMost = int64_t{1} << 31;
  return (x.row_stride + 1) * rows < kMost && (x.counts_row_stride + 1) * rows < kMost;
}

// True for floats of ternary rows of few words. Integers, which nothing but a comparison of
// products asks for, are left to the kernel for any shape.
bool suits_short(const TernaryMatmulArgs& a) {
  constexpr int64_t kMostWords = 4;
  return !a.boolean && a.type != ValueType::kInt32 && words_for(a.size) <= kMostWords &&
         has_near_rows(a.x, 1 << 8) && has_near_rows(a.y, 1 << 8);
}

bool suits_narrow(const TernaryMatmulArgs& a) {
  return a.boolean && a.type != ValueType::kInt32 && has_near_rows(a.x, 1 << 8) &&
         has_near_rows(a.y, 1 << 8);
}

cudaError_t multiply_tiles(const TernaryMatmulArgs& a, const Context& context) {
  const auto kernel = a.boolean ? ternary_matmul_kernel<true> : ternary_matmul_kernel<false>;
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
  if (takes("ternary/matmul/short_rows", suits_short(a))) return multiply_ternary_short(a, context);
  if (takes("ternary/matmul/few_columns", suits_narrow(a)))
    return multiply_ternary_narrow(a, context);
  return multiply_tiles(a, context);
}

}  // namespace bitgnn::cuda::ternary
