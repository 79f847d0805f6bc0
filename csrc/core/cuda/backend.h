// CUDA backend of the operators; core/operands.h describes the backend interface.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>
#include <vector>

#include "attention/cuda/launch.h"
#include "bmm/cuda/launch.h"
#include "bspmm/cuda/launch.h"
#include "conv/cuda/launch.h"
#include "core/cuda/dry_run.h"
#include "core/operands.h"
#include "first_layers/cuda/launch.h"
#include "int8/cuda/launch.h"
#include "pack/cuda/launch.h"
#include "pairs/cuda/launch.h"
#include "ternary/cuda/launch.h"
#include "training/cuda/launch.h"
#include "whole_model/cuda/hopper/linear_chain.h"

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

  // Checks nothing: reading device memory would mean waiting for it.
  void check_row_pointer(const AggregateArgs&, const char*) const {}

  // Returns a copy, for which the host waits; an error during stream capture.
  Tensor on_host(const Tensor& t, const char* op) const;

  void pack(const PackArgs& a, int64_t rows) const { launch(pack::pack, a, rows); }
  void pack_standardized(const StandardizedPackArgs& a, int64_t rows) const {
    launch(pack::pack_standardized, a, rows);
  }
  void pack_csr(const CsrPackArgs& a) const { launch(pack::pack_csr, a); }
  void unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale,
              float* out) const {
    launch(pack::unpack, words, rows, size, scale, out);
  }
  void transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out) const {
    launch(pack::transpose_bits, words, rows, size, out);
  }
  void pack_images(const ImagePackArgs& a) const { launch(pack::pack_images, a); }
  void pack_patches(const PatchArgs& a) const { launch(pack::pack_patches, a); }
  void add(const JoinArgs& a) const { launch(pack::add, a); }
  void concat(const JoinArgs& a) const { launch(pack::concat, a); }

  void multiply(const BmmArgs& a) const { launch(bmm::bmm, a); }
  void bits_linear(const BitsLinearArgs& a) const { launch(bmm::bits_linear, a); }

  void pack_int8(const Int8PackArgs& a) const { launch(int8::pack_int8, a); }
  void multiply_int8(const Int8BmmArgs& a) const { launch(int8::multiply_int8, a); }

  void aggregate_bits(const AggregateArgs& a) const { launch(bspmm::aggregate_bits, a); }
  void aggregate_ternary(const AggregateArgs& a) const { launch(bspmm::aggregate_ternary, a); }
  void aggregate_dense(const AggregateArgs& a) const { launch(bspmm::aggregate_dense, a); }
  void aggregate_frdc(const FrdcArgs& a) const { launch(bspmm::aggregate_frdc, a); }
  void aggregate_slots(const SlotSumsArgs& a) const { launch(bspmm::aggregate_slots, a); }
  void aggregate_sliced(const SlicedArgs& a) const {
    check_slice_size(a, "bspmm_*_sliced");
    launch(bspmm::aggregate_sliced, a);
  }

  bool suits_head(const NarrowCall& a, Head) const { return pairs::suits_head(a); }
  void aggregate_narrow(const NarrowCall& a) const { launch(pairs::aggregate_narrow, a); }
  void aggregate_product(const AggregateArgs& sums, const BmmArgs& product) const {
    launch(pairs::aggregate_product, sums, product);
  }
  void aggregate_product(const AggregateArgs& sums, const Int8BmmArgs& product) const {
    launch(pairs::aggregate_product_int8, sums, product);
  }
  void aggregate_product(const SlicedArgs& sums, const BmmArgs& product) const {
    check_slice_size(sums, "bspmm_bmm_sliced");
    launch(pairs::aggregate_product_sliced, sums, product);
  }

  void convolve(const ConvArgs& a) const { launch(conv::convolve, a); }
  // Convolves and pools in one launch; returns false if there is no such kernel.
  bool convolve_pooled(const ConvArgs& a, const BitPoolArgs& pool) const;
  void convolve_add(const ConvAddArgs& a) const { launch(conv::convolve_add, a); }
  void pool_bits(const BitPoolArgs& a) const { launch(conv::pool_bits, a); }
  void convolve_fixed(const FixedConvArgs& a) const { launch(first_layers::convolve_fixed, a); }
  void linear_chain(const LinearChainArgs& a) const;

  void pack_ternary(const TernaryPackArgs& a) const { launch(ternary::pack_ternary, a); }
  void pack_ternary_columns(const TernaryColumnPackArgs& a) const {
    launch(ternary::pack_ternary_columns, a);
  }
  void multiply_ternary(const TernaryBmmArgs& a) const { launch(ternary::multiply_ternary, a); }
  void linear_ternary(const TernaryLinearArgs& a) const { launch(ternary::linear_ternary, a); }
  void matmul_ternary(const TernaryMatmulArgs& a) const { launch(ternary::matmul_ternary, a); }
  void attention_ternary(const TernaryAttentionArgs& a) const;
  bool suits_floats(const TernaryFloatAttentionArgs& a) const {
    return attention::suits_floats(a, device());
  }
  void attention_ternary_floats(const TernaryFloatAttentionArgs& a) const {
    launch(attention::attention_ternary_floats, a);
  }

  void round_levels(const RoundLevelsArgs& a) const { launch(training::round_levels, a); }
  void clip_gradients(const ClipGradientsArgs& a) const { launch(training::clip_gradients, a); }
  void shift_signs(const ShiftSignsArgs& a) const { launch(training::shift_signs, a); }
  void centre_gradients(const CentreGradientsArgs& a) const {
    launch(training::centre_gradients, a);
  }
  void scale_sums(const ScaleSumsArgs& a) const { launch(training::scale_sums, a); }
  void fold_weight(const FoldWeightArgs& a) const { launch(training::fold_weight, a); }
  void activation_bits(const ActivationBitsArgs& a) const { launch(training::activation_bits, a); }
  void unpack_pair(const UnpackPairArgs& a) const { launch(training::unpack_pair, a); }
  void row_signs(const RowSignsArgs& a) const { launch(training::row_signs, a); }
  void straight_through(const StraightThroughArgs& a) const {
    launch(training::straight_through, a);
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

  void check_slice_size(const SlicedArgs& a, const char* op) const;

  // Calls launcher(args..., context) and raises the error it returns.
  template <class Launcher, class... Args>
  void launch(const Launcher& launcher, const Args&... args) const {
    if (is_dry_) {
      CountingWorkspace workspace;
      const DryRun dry;
      return check_status(launcher(args..., Context{dry_device(), nullptr, workspace}),
                          "a dry run");
    }
    TensorWorkspace workspace(index_);
    const Context context{device_properties(index_), stream_, workspace};
    check_status(launcher(args..., context), "launching a CUDA kernel");
  }

  const Device& device() const { return is_dry_ ? dry_device() : device_properties(index_); }

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
  DryBackend(const Tensor&, const char*, const char*) {}
};

// What torch would make of scores that are not there.
inline Tensor torch_head(const DryBackend& backend, const Tensor& scores, Head head) {
  if (head == Head::kNone) return scores;
  if (head == Head::kClasses) return backend.empty({scores.size(0)}, ScalarType::Long);
  return backend.empty({scores.size(0), scores.size(1)}, ScalarType::Float);
}

}  // namespace bitgnn::cuda
