// Binary convolution with a residual addend, for any backend.
#include <optional>
#include <tuple>
#include <vector>

#include "conv/problem.h"
#include "core/registration.h"

namespace bitgnn::ops {

template <class Backend>
struct ConvAddOperators {
  // Checks the addend, makes it contiguous and sets it in the arguments.
  static OptionalTensor take_addend(const Backend& backend, const OptionalTensor& given,
                                    const std::vector<int64_t>& stride, ConvAddArgs& a,
                                    const char* op) {
    check_numbers(stride, 2, 1, op, "addend_stride");
    if (!given.has_value()) return {};
    const Tensor& t = *given;
    backend.check(t, op, "addend");
    a.addend_wide = t.scalar_type() == ScalarType::Int;
    BITGNN_CHECK(a.addend_wide || t.scalar_type() == ScalarType::Short, op,
                 ": addend must be Short or Int, got ",
                 torch::headeronly::toString(t.scalar_type()));
    check_dim(t, 4, op, "addend");
    check_size(t.size(0), a.conv.images, op, "images of addend");
    a.addend_height = t.size(1);
    a.addend_width = t.size(2);
    a.addend_channels = t.size(3);
    a.addend_stride_height = stride[0];
    a.addend_stride_width = stride[1];
    const auto check_pixels = [op](int64_t size, int64_t step, int64_t out, const char* axis) {
      BITGNN_CHECK((size + step - 1) / step == out, op, ": addend must have ", out, " ", axis,
                   " at stride ", step, " like the result, got ", (size + step - 1) / step);
    };
    check_pixels(a.addend_height, stride[0], a.conv.out_height, "rows");
    check_pixels(a.addend_width, stride[1], a.conv.out_width, "columns");
    BITGNN_CHECK(a.addend_channels <= a.conv.out_channels, op,
                 ": addend must have at most as many channels as the result, ", a.conv.out_channels,
                 ", got ", a.addend_channels);
    OptionalTensor addend = as_contiguous(t);
    a.addend = addend->data_ptr();
    return addend;
  }

  static std::tuple<Tensor, Tensor> add(const Tensor& x_in, const Tensor& w, int64_t channels,
                                        std::vector<int64_t> stride, std::vector<int64_t> padding,
                                        std::vector<int64_t> dilation, int64_t groups,
                                        const OptionalTensor& addend_in,
                                        std::optional<std::vector<int64_t>> addend_stride,
                                        const OptionalTensor& threshold, const OptionalTensor& flip,
                                        bool wide, bool sums, bool bits,
                                        const OptionalTensor& prepared) {
    const char* op = "conv_add";
    const Backend backend(x_in, op, "x");
    BITGNN_CHECK(sums || bits, op, ": sums or bits must be asked for, got neither");
    BITGNN_CHECK(channels >= 1, op, ": channels must be at least 1, got ", channels);
    const Tensor x = packed_images(backend, x_in, channels, op, "x");
    const ConvRequest q{op, channels, stride,    padding, dilation, groups,
                        {}, {},       threshold, flip,    prepared};
    ConvProblem<Backend> problem(backend, q, x, 1, w);
    problem.args.x = x.const_data_ptr<int32_t>();
    const ScalarType dtype = wide ? ScalarType::Int : ScalarType::Short;
    Tensor out_bits = bits ? problem.new_images(backend, Output::kBits)
                           : backend.empty({int64_t{0}}, ScalarType::Int);
    ConvAddArgs a{};
    a.conv = problem.args;
    const OptionalTensor addend =
        take_addend(backend, addend_in, addend_stride.value_or(std::vector<int64_t>{1, 1}), a, op);
    Tensor out_sums =
        sums ? backend.empty(
                   {a.conv.images, a.conv.out_height, a.conv.out_width, a.conv.out_channels}, dtype)
             : backend.empty({int64_t{0}}, dtype);
    a.sums = sums ? out_sums.mutable_data_ptr() : nullptr;
    a.sums_wide = wide;
    backend.launch(kernel::convolve_add, a);
    return {out_sums, out_bits};
  }
};

BITGNN_OPERATORS(table) {
  const std::string window = "int[] stride, int[] padding, int[] dilation, ";
  const std::string conv = "Tensor x, Tensor w, int channels, " + window + "int groups=1, ";
  table.template add<&ConvAddOperators<Backend>::add>(
      "conv_add(" + conv +
      "Tensor? addend=None, int[]? addend_stride=None, Tensor? threshold=None, "
      "Tensor? flip=None, bool wide=False, bool sums=True, bool bits=True, "
      "Tensor? prepared=None) -> (Tensor, Tensor)");
}

}  // namespace bitgnn::ops
