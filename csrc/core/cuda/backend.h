// CUDA backend of the operators; core/operands.h describes the backend interface.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>
#include <vector>

#include "core/cuda/dry_run.h"
#include "core/operands.h"

namespace bitgnn::cuda {

using ops::ScalarType;
using ops::Tensor;

// The device as this library sees it: if it is built without Hopper's own instructions, it treats
// Hopper like its predecessor.
Device as_compiled(Device device);

// Properties of a device, read once.
const Device& device_properties(int32_t index);

inline void check_status(cudaError_t status, const char* what) {
  BITGNN_CHECK(status == cudaSuccess, "bitgnn: ", what, " failed: ", cudaGetErrorString(status));
}

// Raises an error that names the allocation that failed.
inline void check_memory(AOTITorchError status, int64_t bytes, int32_t index) {
  BITGNN_CHECK(status == 0, "bitgnn: CUDA out of memory: no ", bytes, " bytes on cuda:", index,
               " for a result or its scratch memory");
}

// Scratch memory from torch's allocator, which reuses it only after this stream's work.
class TensorWorkspace final : public Workspace {
 public:
  explicit TensorWorkspace(int32_t device_index) : device_index_(device_index) {}
  void* take(size_t bytes) override;

 private:
  int32_t device_index_;
  std::vector<Tensor> held_;
};

// Makes the first operand's device current for its lifetime, and uses that device's current stream.
class Backend {
 public:
  static constexpr bool kIsHost = false, kIsDry = false;

  Backend(const Tensor& first, const char* op, const char* name);

  void check(const Tensor& t, const char* op, const char* name) const {
    if (is_dry_) return;
    BITGNN_CHECK(t.is_cuda(), op, ": ", name,
                 " must be on a CUDA device like the other arguments, got the CPU");
    BITGNN_CHECK(t.get_device_index() == index_, op, ": ", name, " must be on cuda:", index_,
                 " like the first operand, got cuda:", t.get_device_index());
  }

  template <size_t N>
  Tensor empty(const int64_t (&sizes)[N], ScalarType dtype) const {
    int64_t strides[N];
    return new_tensor(sizes, strides, N, dtype);
  }

  Tensor empty_of(const std::vector<int64_t>& sizes, ScalarType dtype) const {
    std::vector<int64_t> strides(sizes.size());
    return new_tensor(sizes.data(), strides.data(), sizes.size(), dtype);
  }

  // Returns a copy, for which the host waits; an error during stream capture.
  Tensor on_host(const Tensor& t, const char* op) const;

  // Calls a kernel with a context behind its arguments, and raises the error it returns.
  template <class Kernel, class... Args>
  void launch(const Kernel& kernel, const Args&... args) const {
    if (is_dry_) {
      CountingWorkspace workspace;
      const DryRun dry;
      return check_status(kernel(args..., Context{dry_device(), nullptr, workspace}), "a dry run");
    }
    TensorWorkspace workspace(index_);
    const Context context{device_properties(index_), stream_, workspace};
    check_status(kernel(args..., context), "launching a CUDA kernel");
  }

 private:
  // Allocates a contiguous tensor and fills the strides.
  Tensor new_tensor(const int64_t* sizes, int64_t* strides, size_t count, ScalarType dtype) const {
    const int64_t bytes = ops::contiguous_strides(sizes, count, dtype, strides);
    if (is_dry_) return imagined_tensor(sizes, strides, count, dtype, static_cast<size_t>(bytes));
    const auto dims = static_cast<int64_t>(count);
    const int32_t code = ops::dtype_code(dtype);
    AtenTensorHandle handle = nullptr;
    const AOTITorchError status = aoti_torch_empty_strided(
        dims, sizes, strides, code, aoti_torch_device_type_cuda(), index_, &handle);
    check_memory(status, bytes, index_);
    return Tensor(handle);
  }

  // Counted from here until its last reference goes.
  static Tensor imagined_tensor(const int64_t* sizes, const int64_t* strides, size_t count,
                                ScalarType dtype, size_t bytes) {
    const auto let_go = [bytes](void*) { count_returned(bytes); };
    Tensor made = torch::stable::from_blob(
        imagined_memory(), {sizes, count}, {strides, count},
        torch::stable::Device(torch::headeronly::DeviceType::CPU), dtype, let_go);
    count_taken(bytes);
    return made;
  }

  bool is_dry_ = false;
  int32_t index_ = 0;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_ = nullptr;

 protected:
  Backend() : is_dry_(true) {}
};

// Runs launchers without a device, see DryRun. Operands lie anywhere; nothing reads them.
class DryBackend : public Backend {
 public:
  static constexpr bool kIsDry = true;

  DryBackend(const Tensor&, const char*, const char*) {}
};

}  // namespace bitgnn::cuda
