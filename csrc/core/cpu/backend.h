// CPU backend of the operators; core/operands.h describes the backend interface.
#pragma once

#include <cstdint>
#include <vector>

#include "core/cpu/buffer_cache.h"
#include "core/operands.h"

namespace bitgnn::cpu {

using ops::ScalarType;
using ops::Tensor;

class Backend {
 public:
  static constexpr bool kIsHost = true, kIsDry = false;

  Backend() = default;
  Backend(const Tensor& first, const char* op, const char* name) { check(first, op, name); }

  void check(const Tensor& t, const char* op, const char* name) const {
    BITGNN_CHECK(t.is_cpu(), op, ": ", name,
                 " must be on the CPU like the other arguments, got another device");
  }

  template <size_t N>
  static Tensor empty(const int64_t (&sizes)[N], ScalarType dtype) {
    int64_t strides[N];
    return new_tensor(sizes, strides, N, dtype);
  }

  static Tensor empty_of(const std::vector<int64_t>& sizes, ScalarType dtype) {
    std::vector<int64_t> strides(sizes.size());
    return new_tensor(sizes.data(), strides.data(), sizes.size(), dtype);
  }

  static const Tensor& on_host(const Tensor& t, const char*) { return t; }

  // Calls a kernel, which splits its work over threads.
  template <class Kernel, class... Args>
  static void launch(const Kernel& kernel, const Args&... args) {
    kernel(args...);
  }

 private:
  // Allocates a contiguous tensor and fills the strides. The shim call costs a tenth of a
  // dispatcher call; large tensors come from the buffer cache.
  static Tensor new_tensor(const int64_t* sizes, int64_t* strides, size_t count, ScalarType dtype) {
    const auto bytes = static_cast<size_t>(ops::contiguous_strides(sizes, count, dtype, strides));
    if (is_cached(bytes)) {
      void* data = take_buffer(bytes);
      BITGNN_CHECK(data != nullptr, "bitgnn: no memory for a result of ", bytes, " bytes");
      return torch::stable::from_blob(data, {sizes, count}, {strides, count},
                                      torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                      dtype, return_buffer);
    }
    AtenTensorHandle handle = nullptr;
    const AOTITorchError status =
        aoti_torch_empty_strided(static_cast<int64_t>(count), sizes, strides,
                                 ops::dtype_code(dtype), aoti_torch_device_type_cpu(), 0, &handle);
    BITGNN_CHECK(status == 0, "bitgnn: no memory for a result of ", bytes, " bytes");
    return Tensor(handle);
  }
};

// Minimum number of rows per thread for which starting a thread pays off.
inline int64_t grain(int64_t work_per_row, int64_t least_work) {
  return work_per_row >= least_work ? 1 : least_work / (work_per_row + 1) + 1;
}

// Calls kernel(args..., begin, end) for ranges of [0, count), split over threads.
template <class Kernel, class... Args>
void split(int64_t count, int64_t grain_size, const Kernel& kernel, const Args&... args) {
  torch::stable::parallel_for(0, count, grain_size,
                              [&](int64_t begin, int64_t end) { kernel(args..., begin, end); });
}

// The same for kernels that take ranges of rows and of panels: splits the rows or the panels.
template <class Kernel, class... Args>
void split_either(bool by_rows, int64_t rows, int64_t row_grain, int64_t panels,
                  int64_t panel_grain, const Kernel& kernel, const Args&... args) {
  if (by_rows) {
    split(rows, row_grain,
          [&](int64_t begin, int64_t end) { kernel(args..., begin, end, 0, panels); });
  } else {
    split(panels, panel_grain,
          [&](int64_t begin, int64_t end) { kernel(args..., 0, rows, begin, end); });
  }
}

}  // namespace bitgnn::cpu
