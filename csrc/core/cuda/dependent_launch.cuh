// Programmatic dependent launch: a kernel's start overlaps the end of the previous kernel in the
// stream, and it waits for that kernel's results before touching memory.
#pragma once

#include "core/cuda/launch.h"

namespace bitgnn::cuda {

// What kernels launched by launch_dependent() do first: let_next_start() lets the next kernel
// start, wait_for_previous() waits until all earlier work is visible. No-ops on older
// architectures.
__device__ __forceinline__ void let_next_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

constexpr unsigned grid_size(int64_t blocks) { return static_cast<unsigned>(blocks); }

template <class... Parameters, class... Arguments>
cudaError_t launch_dependent(void (*kernel)(Parameters...), dim3 blocks, int threads,
                             size_t shared_bytes, const Context& context,
                             const Arguments&... arguments) {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  config.attrs = &attribute;
  if (context.device.is_hopper()) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace bitgnn::cuda
