// Checks tensor arguments and makes them contiguous, with pointers for the kernels.
//
// Operators are templates over a backend, a class that represents the device of one call:
//   Backend(first, op, name)          from the first operand; makes its device the current one
//   check(t, op, name)                requires t to be on that device
//   empty(sizes, dtype)               a new contiguous tensor there
//   empty_of(sizes, dtype)            the same for a vector of sizes
//   on_host(t, op)                    t readable by the host, for checks of values
//   launch(kernel, arguments...)      runs a kernel, which BITGNN_KERNEL declared
//   kIsHost, kIsDry                   operands lie in memory of the host; nothing reads them
// core/cpu/backend.h and core/cuda/backend.h are the two backends.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "core/check.h"
#include "core/common.h"

namespace bitgnn::ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Every message reads "<operator>: <argument> must ..., got ...".
inline void check_dtype(const Tensor& t, ScalarType dtype, const char* op, const char* name) {
  BITGNN_CHECK(t.scalar_type() == dtype, op, ": ", name, " must be ",
               torch::headeronly::toString(dtype), ", got ",
               torch::headeronly::toString(t.scalar_type()));
}

inline void check_dim(const Tensor& t, int64_t dim, const char* op, const char* name) {
  BITGNN_CHECK(t.dim() == dim, op, ": ", name, " must have ", dim, " dimensions, got ", t.dim());
}

inline void check_size(int64_t found, int64_t expected, const char* op, const char* what) {
  BITGNN_CHECK(found == expected, op, ": ", what, " must be ", expected, ", got ", found);
}

// Requires a tensor of this type and number of dimensions, on the backend's device.
template <class Backend>
void check_operand(const Backend& backend, const Tensor& t, ScalarType dtype, int64_t dim,
                   const char* op, const char* name) {
  backend.check(t, op, name);
  check_dtype(t, dtype, op, name);
  check_dim(t, dim, op, name);
}

// The leading sizes of t followed by `more`.
inline std::vector<int64_t> sizes_of(const Tensor& t, int64_t leading,
                                     std::initializer_list<int64_t> more = {}) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < leading; ++i) sizes.push_back(t.size(i));
  sizes.insert(sizes.end(), more);
  return sizes;
}

// Pointer to the elements of an optional tensor, or null.
template <class T>
const T* data_or_null(const OptionalTensor& t) {
  return t.has_value() ? t->const_data_ptr<T>() : nullptr;
}

inline int64_t columns(const Tensor& t, const char* op, const char* name) {
  check_dim(t, 2, op, name);
  return t.size(1);
}

// The code of a dtype in torch's C interface, and its element size in bytes. Results are float32,
// float16, bfloat16, int8, int16, int32 or int64.
inline int32_t dtype_code(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return aoti_torch_dtype_float32();
    case ScalarType::Half:
      return aoti_torch_dtype_float16();
    case ScalarType::BFloat16:
      return aoti_torch_dtype_bfloat16();
    case ScalarType::Long:
      return aoti_torch_dtype_int64();
    case ScalarType::Short:
      return aoti_torch_dtype_int16();
    case ScalarType::Char:
      return aoti_torch_dtype_int8();
    default:
      return aoti_torch_dtype_int32();
  }
}

constexpr int64_t dtype_bytes(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Long:
      return 8;
    case ScalarType::Half:
    case ScalarType::BFloat16:
    case ScalarType::Short:
      return 2;
    case ScalarType::Char:
      return 1;
    default:
      return 4;
  }
}

// Fills the strides of a contiguous result, with empty dimensions counted as 1; returns its size in
// bytes.
inline int64_t contiguous_strides(const int64_t* sizes, size_t count, ScalarType dtype,
                                  int64_t* strides) {
  int64_t stride = 1, bytes = dtype_bytes(dtype);
  bool fits = true, is_empty = false;
  for (size_t i = count; i-- > 0;) {
    const int64_t size = sizes[i] > 0 ? sizes[i] : 1;
    strides[i] = stride;
    is_empty = is_empty || sizes[i] == 0;
    stride = static_cast<int64_t>(static_cast<uint64_t>(stride) * static_cast<uint64_t>(size));
    fits = !__builtin_mul_overflow(bytes, size, &bytes) && fits;
  }
  BITGNN_CHECK(fits || is_empty, "bitgnn: a result of 2^63 bytes or more was asked for");
  return is_empty ? 0 : bytes;
}

inline Tensor as_contiguous(const Tensor& t) {
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

// The same, 16-byte aligned as kernels copy it: a view may start in between.
inline Tensor as_aligned(const Tensor& t) {
  const Tensor whole = as_contiguous(t);
  return reinterpret_cast<uintptr_t>(whole.data_ptr()) % 16 == 0 ? whole
                                                                 : torch::stable::clone(whole);
}

// Makes the columns of a matrix adjacent; the row stride is arbitrary.
inline Tensor with_unit_column_stride(const Tensor& t) {
  return t.size(1) > 1 && t.stride(1) != 1 ? as_contiguous(t) : t;
}

// Rows of packed bits: int32 [N, words_for(size)], made contiguous.
template <class Backend>
Tensor bit_rows(const Backend& backend, const Tensor& t, int64_t size, const char* op,
                const char* name) {
  BITGNN_CHECK(size >= 0, op, ": size must not be negative, got ", size);
  check_operand(backend, t, ScalarType::Int, 2, op, name);
  BITGNN_CHECK(t.size(1) == words_for(size), op, ": ", name, " must hold ", words_for(size),
               " words a row for ", size, " features, got ", t.size(1));
  return as_contiguous(t);
}

// Element type of rows that can be packed.
inline FloatType packable_type(const Tensor& t, const char* op, const char* name) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return FloatType::kFloat32;
    case ScalarType::Double:
      return FloatType::kFloat64;
    case ScalarType::Half:
      return FloatType::kFloat16;
    case ScalarType::BFloat16:
      return FloatType::kBFloat16;
    case ScalarType::Byte:
      return FloatType::kUInt8;
    default:
      BITGNN_CHECK(false, op, ": ", name,
                   " must be float32, float64, float16, bfloat16 or uint8, got ",
                   torch::headeronly::toString(t.scalar_type()));
  }
}

// Rows that can be packed, with unit column stride.
template <class Backend>
Tensor packable_rows(const Backend& backend, const Tensor& t, const char* op, const char* name) {
  backend.check(t, op, name);
  packable_type(t, op, name);
  check_dim(t, 2, op, name);
  return with_unit_column_stride(t);
}

// Owns the contiguous form of an optional float32 vector and hands out its pointer.
class FloatVector {
 public:
  FloatVector() = default;
  template <class Backend>
  FloatVector(const Backend& backend, const OptionalTensor& t, int64_t size, const char* op,
              const char* name) {
    if (!t.has_value()) return;
    check_operand(backend, *t, ScalarType::Float, 1, op, name);
    BITGNN_CHECK(t->size(0) == size, op, ": ", name, " must have ", size, " entries, got ",
                 t->size(0));
    tensor_ = as_contiguous(*t);
    pointer_ = tensor_->const_data_ptr<float>();
  }
  const float* get() const { return pointer_; }

 private:
  OptionalTensor tensor_;
  const float* pointer_ = nullptr;
};

// Optional booleans, one per output, made contiguous.
template <class Backend>
OptionalTensor flags(const Backend& backend, const OptionalTensor& t, int64_t outputs,
                     const char* op) {
  if (!t.has_value()) return {};
  check_operand(backend, *t, ScalarType::Bool, 1, op, "flip");
  check_size(t->size(0), outputs, op, "entries of flip");
  return as_contiguous(*t);
}

// Checks an addend of the results: float32 [rows, features].
template <class Backend>
void check_addend(const Backend& backend, const Tensor& t, int64_t rows, int64_t features,
                  const char* op) {
  check_operand(backend, t, ScalarType::Float, 2, op, "addend");
  check_size(t.size(0), rows, op, "rows of addend");
  check_size(t.size(1), features, op, "columns of addend");
}

// The same, made contiguous.
template <class Backend>
OptionalTensor addend_rows(const Backend& backend, const OptionalTensor& t, int64_t rows,
                           int64_t features, const char* op) {
  if (!t.has_value()) return {};
  check_addend(backend, *t, rows, features, op);
  return as_contiguous(*t);
}

// Output kind of an operator, which selects the pointer to set in the kernels' arguments.
enum class Output { kBits, kFloat, kInt };

template <class Backend, class Args>
Tensor new_output(const Backend& backend, Args& args, int64_t rows, int64_t features,
                  Output output) {
  if (output == Output::kBits) {
    Tensor out = backend.empty({rows, words_for(features)}, ScalarType::Int);
    args.out_bits = out.mutable_data_ptr<int32_t>();
    return out;
  }
  if (output == Output::kInt) {
    Tensor out = backend.empty({rows, features}, ScalarType::Int);
    args.out_int = out.mutable_data_ptr<int32_t>();
    return out;
  }
  Tensor out = backend.empty({rows, features}, ScalarType::Float);
  args.out_float = out.mutable_data_ptr<float>();
  return out;
}

}  // namespace bitgnn::ops
