// Encodes tensor maps through the driver's entry point, which is looked up by the runtime.
#include "core/cuda/hopper/tensor_map.h"

#include "core/cuda/dry_run.h"

namespace bitgnn::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              12000, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<EncodeTiled>(found);
}

}  // namespace

cudaError_t encode_rows(CUtensorMap& map, const int32_t* from, int64_t rows, int64_t words,
                        int box_rows) {
  if (is_dry_run()) return cudaSuccess;
  static const EncodeTiled encode = find_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(words), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(words) * sizeof(int32_t)};
  const cuuint32_t box[2] = {32, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, const_cast<int32_t*>(from), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t encode_weights(CUtensorMap& map, const int32_t* from, int64_t rows, int64_t words,
                           int columns, int chunk, bool ordered) {
  if (is_dry_run()) return cudaSuccess;
  static const EncodeTiled encode = find_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto row = static_cast<cuuint64_t>(words) * sizeof(int32_t);
  const auto lane = static_cast<cuuint64_t>(chunk);
  const cuuint64_t sizes[5] = {static_cast<cuuint64_t>(words), 2, 4, lane / 2,
                               static_cast<cuuint64_t>(rows) / (4 * lane)};
  const cuuint64_t strides[4] = {row, (ordered ? 2 : lane) * row, (ordered ? 8 : 2) * row,
                                 4 * lane * row};
  const cuuint32_t box[5] = {32, 2, 4, static_cast<cuuint32_t>(chunk / 2),
                             static_cast<cuuint32_t>(columns / (4 * chunk))};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 5, const_cast<int32_t*>(from), sizes, strides,
             box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t encode_boxes(CUtensorMap& map, const BoxedTensor& t) {
  if (is_dry_run()) return cudaSuccess;
  static const EncodeTiled encode = find_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5], steps[5];
  for (int i = 0; i < 5; ++i) {
    sizes[i] = static_cast<cuuint64_t>(t.size[i]);
    box[i] = static_cast<cuuint32_t>(t.box[i]);
    steps[i] = static_cast<cuuint32_t>(t.step[i]);
  }
  for (int i = 0; i < 4; ++i) strides[i] = static_cast<cuuint64_t>(t.stride[i]);
  const auto type = t.element_bytes == 2   ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                    : t.element_bytes == 4 ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                           : CU_TENSOR_MAP_DATA_TYPE_INT64;
  const CUresult result =
      encode(&map, type, 5, const_cast<void*>(t.from), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE,
             t.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace bitgnn::cuda
