// Chooses and launches the kernel of batched products of ternary and boolean rows.
#include <cuda.h>

#include "bitgnn/cuda/tensor_map.h"
#include "bitgnn/cuda/ternary_matmul.cuh"
#include "bitgnn/cuda/ternary_matmul_wgmma.cuh"

namespace bitgnn::cuda {
namespace {

bool in_vectors(const TernaryOperand& x, int64_t words) {
  return words % 4 == 0 && x.batch_strides[0] % 4 == 0 && x.batch_strides[1] % 4 == 0 &&
         x.row_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.words) % 16 == 0;
}

#ifdef BITGNN_HOPPER
// Whether rows are what bulk copies can read: no dimension is repeated in place.
bool copyable(const TernaryOperand& x, const int64_t (&batches)[2], int64_t rows, int64_t words) {
  return in_vectors(x, words) && (rows == 1 || x.row_stride != 0) &&
         (batches[0] == 1 || x.batch_strides[0] != 0) &&
         (batches[1] == 1 || x.batch_strides[1] != 0);
}

PlanesMap planes_of(const TernaryMatmulArgs& a, const TernaryOperand& x, int64_t rows, int planes) {
  return {x.words,
          words_for(a.size),
          planes,
          rows,
          x.row_stride,
          {a.batches[0], a.batches[1]},
          {x.batch_strides[0], x.batch_strides[1]}};
}

template <class T, bool kBoolean>
cudaError_t launch_wgmma(const TernaryMatmulArgs& a, const Context& context) {
  const TernaryOperand& rows = kBoolean ? a.y : a.x;
  const TernaryOperand& columns = kBoolean ? a.x : a.y;
  PlanesPlan plan{};
  plan.rows = kBoolean ? a.columns : a.rows;
  plan.columns = kBoolean ? a.rows : a.columns;
  plan.batches1 = a.batches[1];
  plan.chunks = static_cast<int>(ceil_div(words_for(a.size), kChunkWords));
  plan.row_tiles = static_cast<int>(ceil_div(plan.rows, kPlaneRows));
  plan.column_tiles = static_cast<int>(ceil_div(plan.columns, kPlaneColumns));
  plan.counts = columns.counts;
  plan.counts_batch_strides[0] = columns.counts_batch_strides[0];
  plan.counts_batch_strides[1] = columns.counts_batch_strides[1];
  plan.counts_stride = columns.counts_row_stride;
  plan.scale = a.scale;
  plan.out = a.out;
  plan.vector = a.columns % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 8 == 0;

  CUtensorMap row_map, column_map;
  cudaError_t status = encode_planes(row_map, planes_of(a, rows, plan.rows, 2), kPlaneRows);
  if (status != cudaSuccess) return status;
  status = encode_planes(column_map, planes_of(a, columns, plan.columns, kBoolean ? 1 : 2),
                         kPlaneColumns);
  if (status != cudaSuccess) return status;
  const auto kernel = ternary_matmul_wgmma_kernel<T, kBoolean>;
  constexpr size_t kBytes = sizeof(PlanesShared<kBoolean>) + 1024;  // and its alignment
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(kBytes));
  if (status != cudaSuccess) return status;
  const int64_t blocks = a.batches[0] * a.batches[1] * plan.row_tiles * plan.column_tiles;
  return launch_dependent(kernel, dim3(grid_size(blocks)), kPlaneThreads, kBytes, context, plan,
                          row_map, column_map);
}
#endif

template <class T>
cudaError_t launch(const TernaryMatmulArgs& a, const Context& context) {
  const int64_t words = words_for(a.size);
  const int64_t batches = a.batches[0] * a.batches[1];
#ifdef BITGNN_HOPPER
  // Large tiles where they keep at least half the multiprocessors busy.
  const int64_t tiles = batches * ceil_div(a.boolean ? a.columns : a.rows, kPlaneRows) *
                        ceil_div(a.boolean ? a.rows : a.columns, kPlaneColumns);
  if (context.device.capability == 90 && a.size > 0 && 2 * tiles >= context.device.sm_count &&
      copyable(a.x, a.batches, a.rows, words) && copyable(a.y, a.batches, a.columns, words))
    return a.boolean ? launch_wgmma<T, true>(a, context) : launch_wgmma<T, false>(a, context);
#endif
  const auto kernel = a.boolean ? ternary_matmul_kernel<T, true> : ternary_matmul_kernel<T, false>;
  const int64_t blocks =
      batches * ceil_div(a.rows, kTernaryTile) * ceil_div(a.columns, kTernaryTile);
  return launch_dependent(kernel, dim3(grid_size(blocks)), kTernaryThreads, 0, context, a,
                          in_vectors(a.x, words), in_vectors(a.y, words));
}

}  // namespace

cudaError_t matmul_ternary(const TernaryMatmulArgs& a, const Context& context) {
  if (a.batches[0] * a.batches[1] * a.rows * a.columns == 0) return cudaSuccess;
  switch (a.type) {
    case ValueType::kFloat32:
      return launch<float>(a, context);
    case ValueType::kFloat16:
      return launch<__half>(a, context);
    case ValueType::kBFloat16:
      return launch<__nv_bfloat16>(a, context);
    default:
      return launch<int32_t>(a, context);
  }
}

}  // namespace bitgnn::cuda
