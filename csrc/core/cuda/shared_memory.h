// Leave for kernels to ask for more shared memory than a block gets by default.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace bitgnn::cuda {

// Lets `kernel` be launched with `bytes` of dynamic shared memory. What it was granted before is
// never taken back: captured graphs that replay it with more rely on that.
template <class Kernel>
cudaError_t grant_shared_memory(Kernel* kernel, int64_t bytes) {
  cudaFuncAttributes granted{};
  const cudaError_t status = cudaFuncGetAttributes(&granted, kernel);
  if (status != cudaSuccess || granted.maxDynamicSharedSizeBytes >= bytes) return status;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

}  // namespace bitgnn::cuda
