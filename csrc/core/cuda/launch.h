// Context of every launch: the device, the stream and scratch memory. Does not depend on torch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/cuda/device.h"

namespace bitgnn::cuda {

// True if the pointer is a multiple of `bytes`.
inline bool is_aligned(const void* p, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Stream-ordered scratch memory from the caller's allocator; never returns null.
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
