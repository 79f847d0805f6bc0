// PyTorch operators of quantisation in training and its gradients, for any backend.
#include <tuple>

#include "core/registration.h"
#include "training/arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct QuantiseOperators {
  // A float32 scalar; the caller must ensure that it is positive.
  static const float* number(const Backend& backend, const Tensor& t, const char* op) {
    check_operand(backend, t, ScalarType::Float, 0, op, "scale");
    return t.template const_data_ptr<float>();
  }

  static void check_levels(int64_t lowest, int64_t highest, const char* op) {
    constexpr int64_t kMost = 1 << 24;  // every integer up to here is exact in float32
    BITGNN_CHECK(highest >= 1 && highest <= kMost, op, ": highest must be in [1, ", kMost,
                 "], got ", highest);
    BITGNN_CHECK(lowest >= -kMost && lowest <= 0, op, ": lowest must be in [", -kMost, ", 0], got ",
                 lowest);
  }

  static Tensor round_levels(const Tensor& x_in, const Tensor& scale, int64_t lowest,
                             int64_t highest) {
    const char* op = "round_levels";
    const Backend backend(x_in, op, "x");
    check_dtype(x_in, ScalarType::Float, op, "x");
    check_levels(lowest, highest, op);
    const Tensor x = as_contiguous(x_in);
    Tensor out = backend.empty_of(sizes_of(x, x.dim()), ScalarType::Float);
    RoundLevelsArgs a{};
    a.x = x.template const_data_ptr<float>();
    a.scale = number(backend, scale, op);
    a.out = out.template mutable_data_ptr<float>();
    a.count = x.numel();
    a.lowest = static_cast<int>(lowest);
    a.highest = static_cast<int>(highest);
    backend.launch(kernel::round_levels, a);
    return out;
  }

  static std::tuple<Tensor, Tensor> clip_gradients(const Tensor& grad_in, const Tensor& x_in,
                                                   const Tensor& scale, int64_t lowest,
                                                   int64_t highest, const OptionalTensor& gain,
                                                   bool sign) {
    const char* op = "clip_gradients";
    const Backend backend(grad_in, op, "grad");
    check_dtype(grad_in, ScalarType::Float, op, "grad");
    backend.check(x_in, op, "x");
    check_dtype(x_in, ScalarType::Float, op, "x");
    bool same = grad_in.dim() == x_in.dim();
    for (int64_t i = 0; same && i < x_in.dim(); ++i) same = grad_in.size(i) == x_in.size(i);
    BITGNN_CHECK(same, op, ": grad must have the shape of x");
    check_levels(lowest, highest, op);
    if (gain) check_operand(backend, *gain, ScalarType::Float, 0, op, "gain");
    const Tensor grad = as_contiguous(grad_in), x = as_contiguous(x_in);
    Tensor grad_x = backend.empty_of(sizes_of(x, x.dim()), ScalarType::Float);
    Tensor grad_scale = backend.empty_of({}, ScalarType::Float);
    ClipGradientsArgs a{};
    a.grad = grad.template const_data_ptr<float>();
    a.x = x.template const_data_ptr<float>();
    a.scale = number(backend, scale, op);
    a.gain = gain ? gain->template const_data_ptr<float>() : nullptr;
    a.grad_x = grad_x.template mutable_data_ptr<float>();
    a.grad_scale = grad_scale.template mutable_data_ptr<float>();
    a.count = x.numel();
    a.lowest = static_cast<float>(lowest);
    a.highest = static_cast<float>(highest);
    a.is_sign = sign;
    backend.launch(kernel::clip_gradients, a);
    return {grad_x, grad_scale};
  }

  static std::tuple<Tensor, Tensor> shift_signs(const Tensor& weight_in) {
    const char* op = "shift_signs";
    const Backend backend(weight_in, op, "weight");
    check_dtype(weight_in, ScalarType::Float, op, "weight");
    const Tensor weight = as_contiguous(weight_in);
    Tensor signs = backend.empty_of(sizes_of(weight, weight.dim()), ScalarType::Float);
    Tensor scale = backend.empty_of({}, ScalarType::Float);
    ShiftSignsArgs a{};
    a.weight = weight.template const_data_ptr<float>();
    a.signs = signs.template mutable_data_ptr<float>();
    a.scale = scale.template mutable_data_ptr<float>();
    a.count = weight.numel();
    backend.launch(kernel::shift_signs, a);
    return {signs, scale};
  }

  static Tensor centre_gradients(const Tensor& grad_in, const Tensor& factor) {
    const char* op = "centre_gradients";
    const Backend backend(grad_in, op, "grad");
    check_dtype(grad_in, ScalarType::Float, op, "grad");
    check_operand(backend, factor, ScalarType::Float, 0, op, "factor");
    const Tensor grad = as_contiguous(grad_in);
    Tensor out = backend.empty_of(sizes_of(grad, grad.dim()), ScalarType::Float);
    CentreGradientsArgs a{};
    a.grad = grad.template const_data_ptr<float>();
    a.factor = factor.template const_data_ptr<float>();
    a.out = out.template mutable_data_ptr<float>();
    a.count = grad.numel();
    backend.launch(kernel::centre_gradients, a);
    return out;
  }

  static Tensor scale_sums(const Tensor& sums_in, const Tensor& scale, const Tensor& weight_scale,
                           const OptionalTensor& bias_in) {
    const char* op = "scale_sums";
    const Backend backend(sums_in, op, "sums");
    check_dtype(sums_in, ScalarType::Float, op, "sums");
    BITGNN_CHECK(sums_in.dim() > 0, op, ": sums must have a dimension at least, got 0");
    check_operand(backend, scale, ScalarType::Float, 0, op, "scale");
    check_operand(backend, weight_scale, ScalarType::Float, 0, op, "weight_scale");
    const Tensor sums = as_contiguous(sums_in);
    OptionalTensor bias;
    ScaleSumsArgs a{};
    a.columns = sums.size(sums.dim() - 1);
    if (bias_in) {
      check_operand(backend, *bias_in, ScalarType::Float, 1, op, "bias");
      check_size(bias_in->size(0), a.columns, op, "entries of bias");
      bias = as_contiguous(*bias_in);
      a.bias = bias->template const_data_ptr<float>();
    }
    Tensor out = backend.empty_of(sizes_of(sums, sums.dim()), ScalarType::Float);
    a.sums = sums.template const_data_ptr<float>();
    a.scale = scale.template const_data_ptr<float>();
    a.weight_scale = weight_scale.template const_data_ptr<float>();
    a.out = out.template mutable_data_ptr<float>();
    a.count = sums.numel();
    backend.launch(kernel::scale_sums, a);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&QuantiseOperators<Backend>::round_levels>(
      "round_levels(Tensor x, Tensor scale, int lowest, int highest) -> Tensor");
  table.template add<&QuantiseOperators<Backend>::clip_gradients>(
      "clip_gradients(Tensor grad, Tensor x, Tensor scale, int lowest, int highest, "
      "Tensor? gain=None, bool sign=False) -> (Tensor, Tensor)");
  table.template add<&QuantiseOperators<Backend>::shift_signs>(
      "shift_signs(Tensor weight) -> (Tensor, Tensor)");
  table.template add<&QuantiseOperators<Backend>::centre_gradients>(
      "centre_gradients(Tensor grad, Tensor factor) -> Tensor");
  table.template add<&QuantiseOperators<Backend>::scale_sums>(
      "scale_sums(Tensor sums, Tensor scale, Tensor weight_scale, Tensor? bias=None) -> Tensor");
}

}  // namespace bitgnn::ops
