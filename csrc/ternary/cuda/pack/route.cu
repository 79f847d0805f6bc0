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

template <class T, PackedPlanes kPlanes>
cudaError_t launch_pack(const TernaryPackArgs& a, const Context& context) {
  const bool aligned = has_aligned_rows(a.x, a.type, a.strides);
  const int64_t rows = a.rows();
  if (a.size <= kMostNarrowFloats && rows <= std::numeric_limits<int32_t>::max()) {
    int row_lanes = 4;
    while (row_lanes * kPieceFloats < a.size) row_lanes *= 2;
    const int64_t block_rows = int64_t{kNarrowBatch} * kTernaryPackWarps * (kWarp / row_lanes);
    const auto narrow = aligned ? ternary_pack_narrow_kernel<T, kPlanes, true>
                                : ternary_pack_narrow_kernel<T, kPlanes, false>;
    return launch_dependent(narrow, dim3(grid_size(ceil_div(rows, block_rows))),
                            kTernaryPackWarps * kWarp, 0, context, a, row_lanes);
  }
  const bool few = has_few_rows(rows, context);
  const int64_t blocks = few ? rows : ceil_div(rows, kTernaryPackWarps);
  const auto kernel = few ? (aligned ? ternary_pack_kernel<T, kPlanes, kTernaryPackWarps, true>
                                     : ternary_pack_kernel<T, kPlanes, kTernaryPackWarps, false>)
                          : (aligned ? ternary_pack_kernel<T, kPlanes, 1, true>
                                     : ternary_pack_kernel<T, kPlanes, 1, false>);
  return launch_dependent(kernel, dim3(grid_size(blocks)), kTernaryPackWarps * kWarp, 0, context,
                          a);
}

}  // namespace

cudaError_t pack_ternary_planes(const TernaryPackArgs& args, const Context& context) {
  if (args.rows() == 0) return cudaSuccess;
  return with_quantised_type(args.type, [&](auto zero) {
    return launch_pack<decltype(zero), PackedPlanes::kTernary>(args, context);
  });
}

cudaError_t pack_ternary(const TernaryPackArgs& args, const Context& context) {
  if (!args.boolean) return pack_ternary_planes(args, context);
  if (args.rows() == 0) return cudaSuccess;
  return with_quantised_type(args.type, [&](auto zero) {
    return launch_pack<decltype(zero), PackedPlanes::kBoolean>(args, context);
  });
}

cudaError_t pack_ternary_columns(const TernaryColumnPackArgs& args, const Context& context) {
  const int64_t matrices = args.batches[0] * args.batches[1];
  if (matrices == 0 || args.features == 0) return cudaSuccess;
  return with_quantised_type(args.type, [&](auto zero) {
    using T = decltype(zero);
    const int64_t strides[] = {args.batch_strides[0], args.batch_strides[1], args.row_stride};
    const auto kernel = has_aligned_rows(args.x, args.type, strides)
                            ? ternary_pack_columns_kernel<T, true>
                            : ternary_pack_columns_kernel<T, false>;
    const auto warps = static_cast<int>(std::clamp<int64_t>(
        ceil_div(words_for(args.length), kColumnWords), kColumnLeastWarps, kColumnMostWarps));
    return launch_dependent(kernel,
                            dim3(grid_size(matrices * ceil_div(args.features, kColumnFeatures))),
                            warps * kWarp, 0, context, args);
  });
}

}  // namespace bitgnn::cuda::ternary
