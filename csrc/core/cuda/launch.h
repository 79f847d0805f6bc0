// What every launch is given: the device, the stream and scratch memory. No torch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace bitgnn::cuda {

// What a launch needs to know of the device it runs on.
struct Device {
  int capability;       // 10 * major + minor
  int sm_count;         // multiprocessors
  int shared_bytes;     // shared memory a block may ask for
  int64_t cache_bytes;  // second-level cache
};

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
