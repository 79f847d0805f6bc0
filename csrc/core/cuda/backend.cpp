// CUDA backend: streams, scratch memory and launch errors.
#include "core/cuda/backend.h"

#include <map>
#include <mutex>

namespace bitgnn::cuda {
namespace {

int attribute(cudaDeviceAttr which, int32_t index) {
  int value = 0;
  check_status(cudaDeviceGetAttribute(&value, which, index), "reading a device property");
  return value;
}

int32_t cuda_index(const Tensor& t, const char* op, const char* name) {
  BITGNN_CHECK(t.is_cuda(), op, ": ", name,
               " must be on a CUDA device like the other arguments, got the CPU");
  return t.get_device_index();
}

cudaStream_t current_stream(int32_t index) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(index, &stream));
  return static_cast<cudaStream_t>(stream);
}

}  // namespace

Device as_compiled(Device device) {
#if !defined(BITGNN_HOPPER)
  if (device.is_hopper()) device.capability = kHopper - 1;
#endif
  return device;
}

const Device& device_properties(int32_t index) {
  static std::mutex mutex;
  static std::map<int32_t, Device> known;  // map nodes never move
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known.find(index);
  if (found != known.end()) return found->second;
  Device d{};
  d.capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                 attribute(cudaDevAttrComputeCapabilityMinor, index);
  d.sm_count = attribute(cudaDevAttrMultiProcessorCount, index);
  d.shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index);
  d.cache_bytes = attribute(cudaDevAttrL2CacheSize, index);
  return known.emplace(index, as_compiled(d)).first->second;
}

void* TensorWorkspace::take(size_t bytes) {
  const int64_t size = bytes > 0 ? static_cast<int64_t>(bytes) : 1;
  const int64_t stride = 1;
  AtenTensorHandle handle = nullptr;
  check_memory(aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(),
                                        aoti_torch_device_type_cuda(), device_index_, &handle),
               size, device_index_);
  held_.emplace_back(handle);
  return held_.back().data_ptr();
}

Backend::Backend(const Tensor& first, const char* op, const char* name)
    : index_(cuda_index(first, op, name)),
      guard_(std::in_place, index_),
      stream_(current_stream(index_)) {}

Tensor Backend::on_host(const Tensor& t, const char* op) const {
  BITGNN_CHECK(!is_dry_, op, ": trusted must be True in a dry run, got False");
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_status(cudaStreamIsCapturing(stream_, &status), "asking whether a stream is captured");
  BITGNN_CHECK(status == cudaStreamCaptureStatusNone, op,
               ": trusted must be True while a CUDA graph is captured, where a pattern cannot be "
               "checked, got False");
  return torch::stable::to(t, torch::stable::Device(torch::headeronly::DeviceType::CPU));
}

}  // namespace bitgnn::cuda
