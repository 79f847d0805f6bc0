// Checks, allocation and pointers for operators on stable-ABI tensors.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "bitgnn/common.h"
#include "bitgnn/cpu/kernel_table.h"
#include "ops/buffer_cache.h"

namespace bitgnn::ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Every message reads "<operator>: <argument> must ..., got ...".
inline void check_dtype(const Tensor& t, ScalarType dtype, const char* op, const char* name) {
  STD_TORCH_CHECK(t.scalar_type() == dtype, op, ": ", name, " must be ",
                  torch::headeronly::toString(dtype), ", got ",
                  torch::headeronly::toString(t.scalar_type()));
}

inline void check_dim(const Tensor& t, int64_t dim, const char* op, const char* name) {
  STD_TORCH_CHECK(t.dim() == dim, op, ": ", name, " must have ", dim, " dimensions, got ", t.dim());
}

inline void check_size(int64_t found, int64_t expected, const char* op, const char* what) {
  STD_TORCH_CHECK(found == expected, op, ": ", what, " must be ", expected, ", got ", found);
}

inline void check_cpu(const Tensor& t, const char* op, const char* name) {
  STD_TORCH_CHECK(t.is_cpu(), op, ": ", name,
                  " must be on the CPU like the other arguments, got another device");
}

inline Tensor as_contiguous(const Tensor& t) {
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

// Rows of packed bits: int32 [N, words_for(size)] on the CPU, made contiguous.
inline Tensor bit_rows(const Tensor& t, int64_t size, const char* op, const char* name) {
  STD_TORCH_CHECK(size >= 0, op, ": size must not be negative, got ", size);
  check_cpu(t, op, name);
  check_dtype(t, ScalarType::Int, op, name);
  check_dim(t, 2, op, name);
  STD_TORCH_CHECK(t.size(1) == words_for(size), op, ": ", name, " must hold ", words_for(size),
                  " words a row for ", size, " features, got ", t.size(1));
  return as_contiguous(t);
}

inline FloatType float_type(const Tensor& t, const char* op, const char* name) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return FloatType::kFloat32;
    case ScalarType::Double:
      return FloatType::kFloat64;
    case ScalarType::Half:
      return FloatType::kFloat16;
    case ScalarType::BFloat16:
      return FloatType::kBFloat16;
    default:
      STD_TORCH_CHECK(false, op, ": ", name, " must be float32, float64, float16 or bfloat16, got ",
                      torch::headeronly::toString(t.scalar_type()));
  }
}

// Float rows of any supported type with unit column stride.
inline Tensor float_rows(const Tensor& t, const char* op, const char* name) {
  check_cpu(t, op, name);
  float_type(t, op, name);
  check_dim(t, 2, op, name);
  return t.size(1) > 1 && t.stride(1) != 1 ? as_contiguous(t) : t;
}

// Owns the contiguous form of an optional float32 vector and hands out its pointer.
class FloatVector {
 public:
  FloatVector(const OptionalTensor& t, int64_t size, const char* op, const char* name) {
    if (!t.has_value()) return;
    check_cpu(*t, op, name);
    check_dtype(*t, ScalarType::Float, op, name);
    check_dim(*t, 1, op, name);
    STD_TORCH_CHECK(t->size(0) == size, op, ": ", name, " must have ", size, " entries, got ",
                    t->size(0));
    tensor_ = as_contiguous(*t);
    pointer_ = tensor_->const_data_ptr<float>();
  }
  const float* get() const { return pointer_; }

 private:
  OptionalTensor tensor_;
  const float* pointer_ = nullptr;
};

// A new contiguous CPU tensor of 4-byte elements. The shim call costs a tenth of a trip through the
// dispatcher; large tensors come from the buffer cache.
template <size_t N>
inline Tensor new_cpu_tensor(const int64_t (&sizes)[N], ScalarType dtype) {
  int64_t strides[N];
  int64_t stride = 1;
  for (size_t i = N; i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i] > 0 ? sizes[i] : 1;
  }
  const size_t bytes = static_cast<size_t>(stride) * sizeof(int32_t);
  if (bytes >= kCachedBufferBytes) {
    void* data = take_buffer(bytes);
    STD_TORCH_CHECK(data != nullptr, "bitgnn: no memory for a result of ", bytes, " bytes");
    return torch::stable::from_blob(data, {sizes, N}, {strides, N},
                                    torch::stable::Device(torch::headeronly::DeviceType::CPU),
                                    dtype, return_buffer);
  }
  const int32_t code =
      dtype == ScalarType::Float ? aoti_torch_dtype_float32() : aoti_torch_dtype_int32();
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(N, sizes, strides, code, aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

inline cpu::PackArgs pack_args(const Tensor& x, const FloatVector& threshold,
                               const FloatVector& gain, const char* op) {
  cpu::PackArgs a{};
  a.x = x.data_ptr();
  a.type = float_type(x, op, "x");
  a.row_stride = x.stride(0);
  a.cols = x.size(1);
  a.threshold = threshold.get();
  a.gain = gain.get();
  return a;
}

// out[k] = value where bit k is set, else -value; a mask a lane, since variable shifts of vectors
// are not in every instruction set.
inline void expand_bits(const int32_t* words, int64_t size, float value, float* out) {
  static const struct Masks {
    uint32_t bit[kWordBits];
    Masks() {
      for (int l = 0; l < kWordBits; ++l) bit[l] = 1u << l;
    }
  } masks;
  const float negative = -value;
  for (int64_t w = 0; w < words_for(size); ++w) {
    const uint32_t bits = static_cast<uint32_t>(words[w]);
    const int64_t count = size - w * kWordBits < kWordBits ? size - w * kWordBits : kWordBits;
    float* lanes = out + w * kWordBits;
    for (int64_t l = 0; l < count; ++l) lanes[l] = (bits & masks.bit[l]) != 0 ? value : negative;
  }
}

// Rows a thread should take at least, so that starting it pays.
inline int64_t grain(int64_t work_per_row, int64_t least_work) {
  return work_per_row >= least_work ? 1 : least_work / (work_per_row + 1) + 1;
}

}  // namespace bitgnn::ops
