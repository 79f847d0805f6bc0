// Launches the wgmma products of packed ternary and boolean rows on Hopper.
#include "core/cuda/hopper/tensor_map.h"
#include "core/cuda/shared_memory.h"
#include "ternary/cuda/hopper/matmul_resident.cuh"
#include "ternary/cuda/hopper/matmul_wgmma.cuh"
#include "ternary/cuda/matmul/routes.h"
#include "ternary/cuda/with_result_type.h"

namespace bitgnn::cuda::ternary {
namespace {

static_assert(kPassRows == kPlaneRows && kPassColumns == kPlaneColumns, "the same tiles");

#ifdef BITGNN_HOPPER

// A product from the kernels' view: `rows` is the ternary operand, in registers; `columns` the
// other operand.
struct Roles {
  const TernaryOperand& rows;
  const TernaryOperand& columns;
  PlanesPlan plan;

  explicit Roles(const TernaryMatmulArgs& a)
      : rows(a.boolean ? a.y : a.x), columns(a.boolean ? a.x : a.y), plan{} {
    plan.rows = a.boolean ? a.columns : a.rows;
    plan.columns = a.boolean ? a.rows : a.columns;
    plan.batches1 = a.batches[1];
    plan.chunks = static_cast<int>(ceil_div(words_for(a.size), kChunkWords));
    plan.row_tiles = static_cast<int>(ceil_div(plan.rows, kPlaneRows));
    plan.column_tiles = static_cast<int>(ceil_div(plan.columns, kPlaneColumns));
    plan.counts = columns.counts;
    plan.counts_batch_strides[0] = columns.counts_batch_strides[0];
    plan.counts_batch_strides[1] = columns.counts_batch_strides[1];
    plan.counts_stride = columns.counts_row_stride;
    plan.scale = a.scale;
    plan.y_scale = a.y_scale;
    plan.out = a.out;
    plan.vector = a.columns % 4 == 0 && is_aligned(a.out, 8);
  }
};

PlanesMap planes_of(const TernaryMatmulArgs& a, const TernaryOperand& x, int64_t rows, int planes) {
  return {x.words,
          words_for(a.size),
          planes,
          rows,
          x.row_stride,
          {a.batches[0], a.batches[1]},
          {x.batch_strides[0], x.batch_strides[1]}};
}

// Tensor map with the coordinates of encode_planes() and 128-byte boxes.
cudaError_t encode_wide_planes(CUtensorMap& map, const PlanesMap& planes, int64_t box_rows) {
  constexpr int64_t kWordBytes = sizeof(int32_t), kLeast = 16;
  // A dimension of size one takes any legal stride.
  const auto stride = [&](int64_t words, int64_t size) {
    return size > 1 ? words * kWordBytes : kLeast;
  };
  return encode_boxes(
      map, {planes.from,
            kWordBytes,
            {planes.words, planes.planes, planes.rows, planes.batches[1], planes.batches[0]},
            {planes.words * kWordBytes, stride(planes.row_stride, planes.rows),
             stride(planes.batch_strides[1], planes.batches[1]),
             stride(planes.batch_strides[0], planes.batches[0])},
            {kPassChunkWords, 1, box_rows, 1, 1},
            {1, 1, 1, 1, 1},
            true});
}

unsigned blocks_of(const TernaryMatmulArgs& a, const PlanesPlan& plan) {
  return grid_size(a.batches[0] * a.batches[1] * plan.row_tiles * plan.column_tiles);
}

template <class T, bool kBoolean>
cudaError_t multiply_ring(const TernaryMatmulArgs& a, const Context& context) {
  const Roles roles(a);
  CUtensorMap row_map, column_map;
  const PlanesMap row_planes = planes_of(a, roles.rows, roles.plan.rows, 2);
  const PlanesMap column_planes = planes_of(a, roles.columns, roles.plan.columns, kBoolean ? 1 : 2);
  cudaError_t status = encode_planes(row_map, row_planes, kPlaneRows);
  if (status != cudaSuccess) return status;
  status = encode_planes(column_map, column_planes, kPlaneColumns);
  if (status != cudaSuccess) return status;
  const auto kernel = ternary_matmul_wgmma_kernel<T, kBoolean>;
  constexpr size_t kBytes = sizeof(PlanesShared<kBoolean>) + 1024;  // plus slack for alignment
  status = grant_shared_memory(kernel, kBytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, dim3(blocks_of(a, roles.plan)), kPlaneThreads, kBytes, context,
                          roles.plan, row_map, column_map);
}

template <class Form>
cudaError_t multiply_passes(const TernaryMatmulArgs& a, const Context& context) {
  const Roles roles(a);
  CUtensorMap row_map, column_map, out_map;
  const PlanesMap row_planes = planes_of(a, roles.rows, roles.plan.rows, 2);
  const PlanesMap column_planes = planes_of(a, roles.columns, roles.plan.columns, Form::kPlanes);
  cudaError_t status = encode_wide_planes(row_map, row_planes, kPassRows);
  if (status != cudaSuccess) return status;
  status = encode_wide_planes(column_map, column_planes, kStagedColumns);
  if (status != cudaSuccess) return status;
  const int64_t row_bytes = a.columns * 2, matrix_bytes = a.rows * row_bytes;
  status = encode_boxes(out_map, {a.out,
                                  2,
                                  {a.columns, a.rows, a.batches[0] * a.batches[1], 1, 1},
                                  {row_bytes, matrix_bytes, matrix_bytes, matrix_bytes},
                                  {kStagedColumns, Form::kBoolean ? 64 : 16, 1, 1, 1},
                                  {1, 1, 1, 1, 1},
                                  true});
  if (status != cudaSuccess) return status;
  const auto kernel = ternary_passes_kernel<Form>;
  constexpr size_t kBytes = sizeof(PassShared<Form>) + 1024;  // plus slack for alignment
  status = grant_shared_memory(kernel, kBytes);
  if (status != cudaSuccess) return status;
  return launch_dependent(kernel, dim3(blocks_of(a, roles.plan)), kPassThreads, kBytes, context,
                          roles.plan, row_map, column_map, out_map);
}

// Products per step of ternary rows with ternary columns.
constexpr int kTernaryProducts = 4;

template <class T, int kProducts>
cudaError_t multiply_halves(const TernaryMatmulArgs& a, const Context& context) {
  const int64_t words = words_for(a.size);
  if (words > kMostPassWords || !stores_eights(a))
    return multiply_ring<T, kProducts == 2>(a, context);
  return words > kPassChunkWords ? multiply_passes<PassForm<T, kProducts, 2>>(a, context)
                                 : multiply_passes<PassForm<T, kProducts, 1>>(a, context);
}

template <bool kBoolean>
cudaError_t multiply(const TernaryMatmulArgs& a, const Context& context) {
  constexpr int kProducts = kBoolean ? 2 : kTernaryProducts;
  return with_result_type(a.type, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2)
      return multiply_halves<T, kProducts>(a, context);
    else
      return multiply_ring<T, kBoolean>(a, context);
  });
}

#endif

}  // namespace

cudaError_t multiply_ternary_planes([[maybe_unused]] const TernaryMatmulArgs& a,
                                    [[maybe_unused]] const Context& context) {
#ifdef BITGNN_HOPPER
  return a.boolean ? multiply<true>(a, context) : multiply<false>(a, context);
#else
  return cudaErrorNotSupported;
#endif
}

}  // namespace bitgnn::cuda::ternary
