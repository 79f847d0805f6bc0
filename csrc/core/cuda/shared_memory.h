// Raises a kernel's dynamic shared-memory limit above the default.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace bitgnn::cuda {

// Allows launching `kernel` with `bytes` of dynamic shared memory. The limit is never lowered:
// captured graphs that replay the kernel with more rely on that.
template <class Kernel>
cudaError_t grant_shared_memory(Kernel* kernel, int64_t bytes) {
  cudaFuncAttributes granted{};
  const cudaError_t status = cudaFuncGetAttributes(&granted, kernel);
  if (status != cudaSuccess || granted.maxDynamicSharedSizeBytes >= bytes) return status;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace bitgnn::cuda
