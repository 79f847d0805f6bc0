// Operators of products of looked-up bits in training, for any backend.
#include <tuple>

#include "core/registration.h"
#include "training/looked_up_arguments.h"

namespace bitgnn::ops {

template <class Backend>
struct LookedUpOperators {
  // A float32 matrix, made contiguous.
  static Tensor matrix(const Backend& backend, const Tensor& t, const char* op, const char* name) {
    check_operand(backend, t, ScalarType::Float, 2, op, name);
    return as_contiguous(t);
  }

  // The same, with as many rows and columns as `like`.
  static Tensor matrix_like(const Backend& backend, const Tensor& t, const Tensor& like,
                            const char* op, const char* name) {
    Tensor found = matrix(backend, t, op, name);
    check_size(t.size(0), like.size(0), op, name);
    check_size(t.size(1), like.size(1), op, name);
    return found;
  }

  static const float* number(const Backend& backend, const OptionalTensor& t, const char* op,
                             const char* name) {
    if (!t.has_value()) return nullptr;
    check_operand(backend, *t, ScalarType::Float, 0, op, name);
    return t->template const_data_ptr<float>();
  }

  static std::tuple<Tensor, Tensor, Tensor> fold_weight(const Tensor& weight_in, const Tensor& unit,
                                                        double step, bool zero_one,
                                                        const OptionalTensor& offset_in,
                                                        const OptionalTensor& log_gain_in) {
    const char* op = "fold_weight";
    const Backend backend(weight_in, op, "weight");
    const Tensor weight = matrix(backend, weight_in, op, "weight");
    FoldWeightArgs a{};
    a.outputs = weight.size(0), a.size = weight.size(1);
    a.parts = log_gain_in.has_value() ? log_gain_in->numel() : 1;
    BITGNN_CHECK(a.parts > 0 && a.outputs % a.parts == 0, op,
                 ": log_gain must have a number of entries that divides ", a.outputs, ", got ",
                 a.parts);
    const FloatVector offset(backend, offset_in, a.size, op, "offset");
    const FloatVector log_gain(backend, log_gain_in, a.parts, op, "log_gain");
    Tensor words = backend.empty({a.outputs, words_for(a.size)}, ScalarType::Int);
    Tensor scale = backend.empty({a.outputs}, ScalarType::Float);
    Tensor shift = backend.empty({a.outputs}, ScalarType::Float);
    a.weight = weight.template const_data_ptr<float>();
    a.unit = number(backend, unit, op, "unit");
    a.offset = offset.get();
    a.log_gain = log_gain.get();
    a.words = words.template mutable_data_ptr<int32_t>();
    a.scale = scale.template mutable_data_ptr<float>();
    a.shift = shift.template mutable_data_ptr<float>();
    a.step = step;
    a.zero_one = zero_one;
    if (a.outputs > 0) backend.launch(kernel::fold_weight, a);
    return {words, scale, shift};
  }

  static std::tuple<Tensor, Tensor, Tensor> activation_bits(const Tensor& x_in, double threshold,
                                                            double factor) {
    const char* op = "activation_bits";
    const Backend backend(x_in, op, "x");
    const Tensor x = matrix(backend, x_in, op, "x");
    ActivationBitsArgs a{};
    a.rows = x.size(0), a.cols = x.size(1);
    Tensor words = backend.empty({a.rows, words_for(a.cols)}, ScalarType::Int);
    Tensor bad = backend.empty({a.rows}, ScalarType::Float);
    Tensor norm = backend.empty_of({}, ScalarType::Float);
    a.x = x.template const_data_ptr<float>();
    a.words = words.template mutable_data_ptr<int32_t>();
    a.bad = bad.template mutable_data_ptr<float>();
    a.norm = norm.template mutable_data_ptr<float>();
    a.threshold = static_cast<float>(threshold);
    a.factor = factor;
    backend.launch(kernel::activation_bits, a);
    return {words, bad, norm};
  }

  static Tensor unpack_pair(const Tensor& words_in, const Tensor& raised_in, int64_t size) {
    const char* op = "unpack_pair";
    const Backend backend(words_in, op, "words");
    const Tensor words = bit_rows(backend, words_in, size, op, "words");
    const Tensor raised = bit_rows(backend, raised_in, size, op, "raised");
    check_size(raised.size(0), words.size(0), op, "rows of raised");
    Tensor out = backend.empty({words.size(0), size}, ScalarType::Float);
    UnpackPairArgs a{};
    a.words = words.template const_data_ptr<int32_t>();
    a.raised = raised.template const_data_ptr<int32_t>();
    a.out = out.template mutable_data_ptr<float>();
    a.rows = words.size(0), a.cols = size;
    if (out.numel() > 0) backend.launch(kernel::unpack_pair, a);
    return out;
  }

  static Tensor row_signs(const Tensor& x_in, const Tensor& total_in) {
    const char* op = "row_signs";
    const Backend backend(x_in, op, "x");
    const Tensor x = matrix(backend, x_in, op, "x");
    const FloatVector total(backend, total_in, x.size(0), op, "total");
    Tensor out = backend.empty({x.size(0), x.size(1)}, ScalarType::Float);
    RowSignsArgs a{};
    a.x = x.template const_data_ptr<float>();
    a.total = total.get();
    a.out = out.template mutable_data_ptr<float>();
    a.rows = x.size(0), a.cols = x.size(1);
    if (out.numel() > 0) backend.launch(kernel::row_signs, a);
    return out;
  }

  static Tensor straight_through(const Tensor& grad_in, const Tensor& x_in, double slope,
                                 const OptionalTensor& window, const OptionalTensor& scale_in) {
    const char* op = "straight_through";
    const Backend backend(grad_in, op, "grad");
    const Tensor grad = matrix(backend, grad_in, op, "grad");
    const Tensor x = matrix_like(backend, x_in, grad, op, "x");
    const FloatVector scale(backend, scale_in, grad.size(0), op, "scale");
    Tensor out = backend.empty({grad.size(0), grad.size(1)}, ScalarType::Float);
    StraightThroughArgs a{};
    a.grad = grad.template const_data_ptr<float>();
    a.x = x.template const_data_ptr<float>();
    a.window = number(backend, window, op, "window");
    a.scale = scale.get();
    a.out = out.template mutable_data_ptr<float>();
    a.rows = grad.size(0), a.cols = grad.size(1);
    a.slope = static_cast<float>(slope);
    if (out.numel() > 0) backend.launch(kernel::straight_through, a);
    return out;
  }
};

BITGNN_OPERATORS(table) {
  table.template add<&LookedUpOperators<Backend>::fold_weight>(
      "fold_weight(Tensor weight, Tensor unit, float step, bool zero_one, Tensor? offset=None, "
      "Tensor? log_gain=None) -> (Tensor, Tensor, Tensor)");
  table.template add<&LookedUpOperators<Backend>::activation_bits>(
      "activation_bits(Tensor x, float threshold, float factor) -> (Tensor, Tensor, Tensor)");
  table.template add<&LookedUpOperators<Backend>::unpack_pair>(
      "unpack_pair(Tensor words, Tensor raised, int size) -> Tensor");
  table.template add<&LookedUpOperators<Backend>::row_signs>(
      "row_signs(Tensor x, Tensor total) -> Tensor");
  table.template add<&LookedUpOperators<Backend>::straight_through>(
      "straight_through(Tensor grad, Tensor x, float slope, Tensor? window=None, "
      "Tensor? scale=None) -> Tensor");
}

}  // namespace bitgnn::ops
