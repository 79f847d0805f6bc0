// What every launch is given: the device, the stream and scratch memory. No torch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/device.h"

namespace bitgnn::cuda {

// Whether a pointer is a multiple of so many bytes.
inline bool is_aligned(const void* p, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Scratch memory in the stream's order, from the caller's allocator; never fails with null.
class Workspace {
 public:
  virtual void* take(size_t bytes) = 0;

 protected:
  ~Workspace() = default;
};

struct Context {
  const Device& device;
  cudaStream_t stream;
  Workspace& workspace;
};

}  // namespace bitgnn::cuda
