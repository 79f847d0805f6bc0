// Validates the ternary operators' tensors and extracts pointers, sizes and strides for kernels.
#pragma once

#include "core/operands.h"
#include "ternary/arguments.h"

namespace bitgnn::ops {

using OptionalType = std::optional<ScalarType>;

// Output type of a product.
inline ValueType value_type(const OptionalType& dtype, bool integer, const char* op) {
  switch (dtype.value_or(ScalarType::Float)) {
    case ScalarType::Float:
      return ValueType::kFloat32;
    case ScalarType::Half:
      return ValueType::kFloat16;
    case ScalarType::BFloat16:
      return ValueType::kBFloat16;
    case ScalarType::Int:
      if (integer) return ValueType::kInt32;
      [[fallthrough]];
    default:
      BITGNN_CHECK(false, op, ": dtype must be float32, float16",
                   integer ? ", bfloat16 or int32" : " or bfloat16", ", got ",
                   torch::headeronly::toString(*dtype));
  }
}

// A float32 scalar on the operands' device. It must be positive, which is checked only on the CPU:
// on a GPU the check would have to synchronise.
template <class Backend>
const float* positive_number(const Backend& backend, const Tensor& t, const char* op,
                             const char* name) {
  check_operand(backend, t, ScalarType::Float, 0, op, name);
  const float* number = t.const_data_ptr<float>();
  if (t.is_cpu())
    BITGNN_CHECK(*number > 0 && *number <= 3.402823466e38f, op, ": ", name,
                 " must be positive and finite, got ", *number);
  return number;
}

template <class Backend>
const float* positive_number(const Backend& backend, const OptionalTensor& t, const char* op,
                             const char* name) {
  return t.has_value() ? positive_number(backend, *t, op, name) : nullptr;
}

inline void check_positive(double value, const char* op, const char* name) {
  BITGNN_CHECK(value > 0 && value <= 1.7976931348623157e308, op, ": ", name,
               " must be positive and finite, got ", value);
}

// Element type of a tensor to be quantised to ternary.
inline FloatType quantised_type(const Tensor& t, const char* op, const char* name) {
  const ScalarType dtype = t.scalar_type();
  BITGNN_CHECK(
      dtype == ScalarType::Float || dtype == ScalarType::Half || dtype == ScalarType::BFloat16, op,
      ": ", name, " must be float32, float16 or bfloat16, got ",
      torch::headeronly::toString(dtype));
  return packable_type(t, op, name);
}

// Sizes and strides of the leading dimensions [0, count) of t, as exactly `most` entries padded in
// front with size 1 and stride 0. With count > most, t must be contiguous and they are collapsed.
inline void leading_places(const Tensor& t, int64_t count, int most, int64_t* sizes,
                           int64_t* strides) {
  for (int i = 0; i < most; ++i) {
    sizes[i] = 1;
    strides[i] = 0;
  }
  if (count <= most) {
    for (int64_t i = 0; i < count; ++i) {
      sizes[most - count + i] = t.size(i);
      strides[most - count + i] = t.stride(i);
    }
    return;
  }
  strides[most - 1] = 1;
  for (int64_t i = 0; i < t.dim(); ++i) (i < count ? sizes : strides)[most - 1] *= t.size(i);
}

// Returns t itself if its last `inner` dimensions are contiguous and at most `most` others precede
// them, else a contiguous copy.
inline Tensor with_inner(const Tensor& t, int64_t inner, int64_t most) {
  bool fits = t.dim() - inner <= most;
  int64_t stride = 1;
  for (int64_t i = t.dim() - 1; i >= t.dim() - inner; --i) {
    if (t.size(i) > 1 && t.stride(i) != stride) fits = false;
    stride *= t.size(i);
  }
  return fits ? t : as_contiguous(t);
}

// Packed rows [..., rows, planes, words_for(size)] and their counts [..., rows].
class PackedOperand {
 public:
  template <class Backend>
  PackedOperand(const Backend& backend, const Tensor& words, const Tensor& counts, int64_t planes,
                int64_t size, const char* op, const char* name) {
    const int64_t inner = planes == 1 ? 1 : 2;
    BITGNN_CHECK(size >= 0, op, ": size must not be negative, got ", size);
    backend.check(words, op, name);
    check_dtype(words, ScalarType::Int, op, name);
    BITGNN_CHECK(words.dim() > inner, op, ": ", name, " must have at least ", inner + 1,
                 " dimensions, got ", words.dim());
    BITGNN_CHECK(words.size(words.dim() - 1) == words_for(size), op, ": ", name, " must hold ",
                 words_for(size), " words a plane for ", size, " values, got ",
                 words.size(words.dim() - 1));
    BITGNN_CHECK(inner == 1 || words.size(words.dim() - 2) == planes, op, ": ", name, " must hold ",
                 planes, " planes, got ", words.size(words.dim() - 2));
    backend.check(counts, op, "counts");
    check_dtype(counts, ScalarType::Int, op, "counts");
    leading = words.dim() - inner - 1;
    bool same = counts.dim() == leading + 1;
    for (int64_t i = 0; same && i <= leading; ++i) same = counts.size(i) == words.size(i);
    BITGNN_CHECK(same, op, ": the counts of ", name, " must have its shape without planes and ",
                 "words");
    words_ = with_inner(words, inner, 3);
    counts_ = with_inner(counts, 0, 3);
    rows = words.size(leading);
    leading_places(words_, leading, 2, batches, args.batch_strides);
    int64_t again[2];
    leading_places(counts_, leading, 2, again, args.counts_batch_strides);
    args.row_stride = words_.stride(leading);
    args.counts_row_stride = counts_.stride(leading);
    args.words = words_.const_data_ptr<int32_t>();
    args.counts = counts_.const_data_ptr<int32_t>();
  }

  TernaryOperand args{};
  int64_t leading;  // number of dimensions before the rows
  int64_t batches[2];
  int64_t rows;

 private:
  Tensor words_, counts_;
};

}  // namespace bitgnn::ops
