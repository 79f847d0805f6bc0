// Operator for the product of packed rows with three-digit float weights, for any backend.
#include "bmm/arguments.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct BitsLinearOperators {
  static void check_digits(const Backend& backend, const Tensor& digits, int64_t outputs,
                           int64_t words, const char* op) {
    check_operand(backend, digits, ScalarType::Char, 5, op, "digits");
    const int64_t expected[5] = {3, outputs, words, 8, 4};
    for (int64_t i = 0; i < 5; ++i)
      BITGNN_CHECK(digits.size(i) == expected[i], op, ": digits must be [3, ", outputs, ", ", words,
                   ", 8, 4], got ", digits.size(i), " at dimension ", i);
  }

  static Tensor bits_linear(const Tensor& x_in, const Tensor& digits_in, const Tensor& step_in,
                            int64_t size, const OptionalTensor& x_scale_in,
                            const OptionalTensor& bias_in, const OptionalTensor& addend_in) {
    const char* op = "bits_linear";
    const Backend backend(x_in, op, "x");
    BITGNN_CHECK(size <= kMostLinearFeatures, op, ": size must be at most ", kMostLinearFeatures,
                 ", got ", size);
    const Tensor x = as_aligned(bit_rows(backend, x_in, size, op, "x"));
    check_dim(step_in, 1, op, "step");
    const int64_t rows = x.size(0), outputs = step_in.size(0);
    const FloatVector step(backend, step_in, outputs, op, "step");
    check_digits(backend, digits_in, outputs, words_for(size), op);
    const Tensor digits = as_aligned(digits_in);
    const FloatVector x_scale(backend, x_scale_in, rows, op, "x_scale");
    const FloatVector bias(backend, bias_in, outputs, op, "bias");
    const OptionalTensor addend = addend_rows(backend, addend_in, rows, outputs, op);
    BitsLinearArgs args{};
    args.x = x.const_data_ptr<int32_t>();
    args.digits = digits.const_data_ptr<int8_t>();
    args.step = step.get();
    args.rows = rows;
    args.size = size;
    args.out_features = outputs;
    args.x_scale = x_scale.get();
    args.bias = bias.get();
    args.addend = data_or_null<float>(addend);
    Tensor out = backend.empty({rows, outputs}, ScalarType::Float);
    args.out = out.mutable_data_ptr<float>();
    if (out.numel() > 0) backend.launch(kernel::bits_linear, args);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&BitsLinearOperators<Backend>::bits_linear>(
      "bits_linear(Tensor x, Tensor digits, Tensor step, int size, Tensor? x_scale=None, "
      "Tensor? bias=None, Tensor? addend=None) -> Tensor");
}

}  // namespace bitgnn::ops
