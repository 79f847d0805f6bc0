// Packing of operands by the operators that use them.
#pragma once

#include "core/operands.h"
#include "pack/arguments.h"

namespace bitgnn::ops {

inline PackArgs pack_args(const Tensor& x, const FloatVector& threshold, const FloatVector& gain,
                          const char* op) {
  PackArgs a{};
  a.x = x.data_ptr();
  a.type = packable_type(x, op, "x");
  a.row_stride = x.stride(0);
  a.cols = x.size(1);
  a.threshold = threshold.get();
  a.gain = gain.get();
  return a;
}

// An operand as bits, packed from floats, with its row scale on demand.
struct Bits {
  Tensor words;
  OptionalTensor scale;
};

template <class Backend>
Bits binarise(const Backend& backend, PackArgs args, int64_t rows, bool scale) {
  Bits result{backend.empty({rows, words_for(args.cols)}, ScalarType::Int), {}};
  args.words = result.words.template mutable_data_ptr<int32_t>();
  if (scale) {
    result.scale = backend.empty({rows}, ScalarType::Float);
    args.scale = result.scale->template mutable_data_ptr<float>();
  }
  if (scale || result.words.numel() > 0) backend.launch(kernel::pack, args, rows);
  return result;
}

}  // namespace bitgnn::ops
