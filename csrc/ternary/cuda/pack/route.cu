// Chooses and launches the kernel that packs floats into ternary or boolean bits, by row or column.
#include <algorithm>
#include <limits>

#include "core/cuda/with_quantised_type.h"
#include "ternary/arguments.h"
#include "ternary/cuda/pack/columns.cuh"
#include "ternary/cuda/pack/narrow.cuh"
#include "ternary/cuda/pack/rows.cuh"
#include "ternary/cuda/routes.h"

namespace bitgnn::cuda::ternary {
namespace {

template <class T>
cudaError_t launch_pack(const TernaryPackArgs& a, PackedPlanes planes, const Context& context) {
  const bool aligned = has_aligned_rows(a.x, a.type, a.strides);
  const int64_t rows = a.rows();
  if (a.size <= kMostNarrowFloats && rows <= std::numeric_limits<int32_t>::max()) {
    int row_lanes = 4;
    while (row_lanes * kPieceFloats < a.size) row_lanes *= 2;
    const int64_t block_rows = int64_t{kNarrowBatch} * kTernaryPackWarps * (kWarp / row_lanes);
    return launch_dependent(ternary_pack_narrow_kernel<T>,
                            dim3(grid_size(ceil_div(rows, block_rows))), kTernaryPackWarps * kWarp,
                            0, context, a, planes, aligned, row_lanes);
  }
  const bool few = has_few_rows(rows, context);
  const int64_t blocks = few ? rows : ceil_div(rows, kTernaryPackWarps);
  const auto kernel = few ? ternary_pack_kernel<T, kTernaryPackWarps> : ternary_pack_kernel<T, 1>;
  return launch_dependent(kernel, dim3(grid_size(blocks)), kTernaryPackWarps * kWarp, 0, context, a,
                          planes, aligned);
}

cudaError_t launch_pack(const TernaryPackArgs& args, PackedPlanes planes, const Context& context) {
  if (args.rows() == 0) return cudaSuccess;
  return with_quantised_type(
      args.type, [&](auto zero) { return launch_pack<decltype(zero)>(args, planes, context); });
}

}  // namespace

cudaError_t pack_ternary_planes(const TernaryPackArgs& args, const Context& context) {
  return launch_pack(args, PackedPlanes::kTernary, context);
}

cudaError_t pack_ternary(const TernaryPackArgs& args, const Context& context) {
  return launch_pack(args, args.boolean ? PackedPlanes::kBoolean : PackedPlanes::kTernary, context);
}

cudaError_t pack_ternary_columns(const TernaryColumnPackArgs& args, const Context& context) {
  const int64_t matrices = args.batches[0] * args.batches[1];
  if (matrices == 0 || args.features == 0) return cudaSuccess;
  return with_quantised_type(args.type, [&](auto zero) {
    using T = decltype(zero);
    const int64_t strides[] = {args.batch_strides[0], args.batch_strides[1], args.row_stride};
    const auto warps = static_cast<int>(std::clamp<int64_t>(
        ceil_div(words_for(args.length), kColumnWords), kColumnLeastWarps, kColumnMostWarps));
    return launch_dependent(ternary_pack_columns_kernel<T>,
                            dim3(grid_size(matrices * ceil_div(args.features, kColumnFeatures))),
                            warps * kWarp, 0, context, args,
                            has_aligned_rows(args.x, args.type, strides));
  });
}

}  // namespace bitgnn::cuda::ternary
