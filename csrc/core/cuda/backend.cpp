// CUDA backend: streams, scratch memory and launch errors.
#include "core/cuda/backend.h"

#include <map>
#include <mutex>

namespace bitgnn::cuda {
namespace {

void check_status(cudaError_t status, const char* what) {
  BITGNN_CHECK(status == cudaSuccess, "bitgnn: ", what, " failed: ", cudaGetErrorString(status));
}

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

template <class Launch>
void Backend::run(const Launch& launch) const {
  if (is_dry_) {
    CountingWorkspace workspace;
    const DryRun dry;
    return check_status(launch(Context{dry_device(), nullptr, workspace}), "a dry run");
  }
  TensorWorkspace workspace(index_);
  const Context context{device_properties(index_), stream_, workspace};
  check_status(launch(context), "launching a CUDA kernel");
}

void Backend::pack(const PackArgs& a, int64_t rows) const {
  run([&](const Context& c) { return pack::pack(a, rows, c); });
}

void Backend::pack_standardized(const StandardizedPackArgs& a, int64_t rows) const {
  run([&](const Context& c) { return pack::pack_standardized(a, rows, c); });
}

void Backend::pack_levels(const LevelPackArgs& a, int64_t rows) const {
  run([&](const Context& c) { return pack::pack_levels(a, rows, c); });
}

void Backend::unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale,
                     float* out) const {
  run([&](const Context& c) { return pack::unpack(words, rows, size, scale, out, c); });
}

void Backend::transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out) const {
  run([&](const Context& c) { return pack::transpose_bits(words, rows, size, out, c); });
}

void Backend::multiply(const BmmArgs& a) const {
  run([&](const Context& c) { return bmm::bmm(a, c); });
}

void Backend::convolve(const ConvArgs& a) const {
  run([&](const Context& c) { return conv::convolve(a, c); });
}

bool Backend::convolve_pooled(const ConvArgs& a, const BitPoolArgs& pool) const {
  bool pools = false;
  run([&](const Context& c) {
    pools = conv::suits_pooled_convolution(a, pool, c);
    return pools ? conv::convolve_pooled(a, pool.flip, c) : cudaSuccess;
  });
  return pools;
}

void Backend::convolve_add(const ConvAddArgs& a) const {
  run([&](const Context& c) { return conv::convolve_add(a, c); });
}

void Backend::aggregate_bits(const AggregateArgs& a) const {
  run([&](const Context& c) { return bspmm::aggregate_bits(a, c); });
}

void Backend::aggregate_ternary(const AggregateArgs& a) const {
  run([&](const Context& c) { return bspmm::aggregate_ternary(a, c); });
}

void Backend::aggregate_dense(const AggregateArgs& a) const {
  run([&](const Context& c) { return bspmm::aggregate_dense(a, c); });
}

void Backend::aggregate_frdc(const FrdcArgs& a) const {
  run([&](const Context& c) { return bspmm::aggregate_frdc(a, c); });
}

void Backend::check_slice_size(const SlicedArgs& a, const char* op) const {
  // Holds a slice of 16-byte pieces, followed by a row of zeros.
  const int64_t largest = device().shared_bytes / 16 - 1;
  BITGNN_CHECK(a.slice_size <= largest, op, ": slice_size must be at most ", largest,
               " on this device, got ", a.slice_size);
}

void Backend::aggregate_narrow(const NarrowCall& a) const {
  run([&](const Context& c) { return pairs::aggregate_narrow(a, c); });
}

void Backend::aggregate_sliced(const SlicedArgs& a) const {
  check_slice_size(a, "bspmm_*_sliced");
  run([&](const Context& c) { return bspmm::aggregate_sliced(a, c); });
}

void Backend::aggregate_product(const AggregateArgs& sums, const BmmArgs& product) const {
  run([&](const Context& c) { return pairs::aggregate_product(sums, product, c); });
}

void Backend::aggregate_product(const SlicedArgs& sums, const BmmArgs& product) const {
  check_slice_size(sums, "bspmm_bmm_sliced");
  run([&](const Context& c) { return pairs::aggregate_product_sliced(sums, product, c); });
}

void Backend::pack_images(const ImagePackArgs& a) const {
  run([&](const Context& c) { return pack::pack_images(a, c); });
}

void Backend::pool_bits(const BitPoolArgs& a) const {
  run([&](const Context& c) { return conv::pool_bits(a, c); });
}

void Backend::pack_patches(const PatchArgs& a) const {
  run([&](const Context& c) { return pack::pack_patches(a, c); });
}

void Backend::convolve_fixed(const FixedConvArgs& a) const {
  run([&](const Context& c) { return first_layers::convolve_fixed(a, c); });
}

void Backend::bits_linear(const BitsLinearArgs& a) const {
  run([&](const Context& c) { return bmm::bits_linear(a, c); });
}

void Backend::aggregate_slots(const SlotSumsArgs& a) const {
  run([&](const Context& c) { return bspmm::aggregate_slots(a, c); });
}

void Backend::linear_chain(const LinearChainArgs& a) const {
  run([&](const Context& c) {
    BITGNN_CHECK(whole_model::suits_linear_chain(a, c),
                 "linear_chain: layers must have weights that ",
                 "fit the shared memory of a cluster of blocks, on a device of compute ",
                 "capability 9.0, got more, or another device");
    return whole_model::linear_chain(a, c);
  });
}

void Backend::round_levels(const RoundLevelsArgs& a) const {
  run([&](const Context& c) { return training::round_levels(a, c); });
}

void Backend::clip_gradients(const ClipGradientsArgs& a) const {
  run([&](const Context& c) { return training::clip_gradients(a, c); });
}

void Backend::shift_signs(const ShiftSignsArgs& a) const {
  run([&](const Context& c) { return training::shift_signs(a, c); });
}

void Backend::pack_ternary(const TernaryPackArgs& a) const {
  run([&](const Context& c) { return ternary::pack_ternary(a, c); });
}

void Backend::pack_ternary_columns(const TernaryColumnPackArgs& a) const {
  run([&](const Context& c) { return ternary::pack_ternary_columns(a, c); });
}

void Backend::multiply_ternary(const TernaryBmmArgs& a) const {
  run([&](const Context& c) { return ternary::multiply_ternary(a, c); });
}

void Backend::linear_ternary(const TernaryLinearArgs& a) const {
  run([&](const Context& c) { return ternary::linear_ternary(a, c); });
}

void Backend::add(const JoinArgs& a) const {
  run([&](const Context& c) { return pack::add(a, c); });
}

void Backend::concat(const JoinArgs& a) const {
  run([&](const Context& c) { return pack::concat(a, c); });
}

void Backend::matmul_ternary(const TernaryMatmulArgs& a) const {
  run([&](const Context& c) { return ternary::matmul_ternary(a, c); });
}

void Backend::attention_ternary(const TernaryAttentionArgs& a) const {
  const int64_t largest = attention::largest_attention_head(device());
  BITGNN_CHECK(a.size <= largest, "attention_ternary: heads must have at most ", largest,
               " features on this device, got ", a.size);
  run([&](const Context& c) { return attention::attention_ternary(a, c); });
}

bool Backend::suits_floats(const TernaryFloatAttentionArgs& a) const {
  return attention::suits_floats(a, device());
}

void Backend::attention_ternary_floats(const TernaryFloatAttentionArgs& a) const {
  run([&](const Context& c) { return attention::attention_ternary_floats(a, c); });
}

}  // namespace bitgnn::cuda
