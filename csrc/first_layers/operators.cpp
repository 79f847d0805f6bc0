// The first layer of a network, fixed-point images times weights of +-1, for any backend.
#include <cmath>
#include <vector>

#include "conv/problem.h"
#include "core/registration.h"
#include "first_layers/arguments.h"

namespace bitgnn::ops {

// With more weights, sums of 16-bit integers could exceed 2^31 - 1.
constexpr int64_t kMostFixedWeights = 65535;

template <class Backend>
struct FixedConvOperators {
  static Tensor convolve(const ConvRequest& q, const Tensor& x_in, const Tensor& w, double step,
                         Output output) {
    const char* op = q.op;
    const Backend backend(x_in, op, "x");
    const FloatType type = packable_type(x_in, op, "x");
    BITGNN_CHECK(type != FloatType::kFloat64, op,
                 ": x must be float32, float16, bfloat16 or uint8, got Double");
    check_dim(x_in, 4, op, "x");
    int exponent = 0;
    BITGNN_CHECK(std::frexp(step, &exponent) == 0.5 && exponent > -100 && exponent < 100, op,
                 ": step must be a power of two between 2^-100 and 2^98, got ", step);
    BITGNN_CHECK(type != FloatType::kUInt8 || step == 1.0, op,
                 ": step must be 1 for uint8 images, got ", step);
    ConvRequest request = q;
    request.channels = x_in.size(1);
    const Tensor x = is_channels_last(x_in) ? x_in : as_contiguous(x_in);
    ConvProblem<Backend> problem(backend, request, x, 2, w);
    const int64_t weights = problem.args.taps() * request.channels;
    BITGNN_CHECK(weights <= kMostFixedWeights, op, ": w must have at most ", kMostFixedWeights,
                 " weights an output, got ", weights);
    problem.settle_output(request, output);
    Tensor out = problem.new_images(backend, output);
    FixedConvArgs a{};
    a.conv = problem.args;
    a.x = x.data_ptr();
    a.type = type;
    const int64_t pixels = a.conv.height * a.conv.width;
    a.image_stride = request.channels * pixels;
    const bool channels_last = is_channels_last(x);
    a.channel_stride = channels_last ? 1 : pixels;
    a.pixel_stride = channels_last ? request.channels : 1;
    a.step = static_cast<float>(step);
    if (out.numel() > 0) backend.launch(kernel::convolve_fixed, a);
    return out;
  }

  static Tensor fbb(const Tensor& x, const Tensor& w, double step, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation,
                    const OptionalTensor& w_scale, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip,
                    const OptionalTensor& prepared) {
    return convolve(
        {"conv_fbb", 0, stride, padding, dilation, 1, w_scale, bias, threshold, flip, prepared}, x,
        w, step, Output::kBits);
  }

  static Tensor fbf(const Tensor& x, const Tensor& w, double step, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation,
                    const OptionalTensor& w_scale, const OptionalTensor& bias, bool integer) {
    return convolve({"conv_fbf", 0, stride, padding, dilation, 1, w_scale, bias, {}, {}, {}}, x, w,
                    step, integer ? Output::kInt : Output::kFloat);
  }
};

BITGNN_OPERATORS(table) {
  const std::string window = "int[] stride, int[] padding, int[] dilation, ";
  const std::string scaled = "Tensor? w_scale=None, Tensor? bias=None, ";
  const std::string compared = "Tensor? threshold=None, Tensor? flip=None, Tensor? prepared=None";
  const std::string fixed = "Tensor x, Tensor w, float step, " + window + scaled;
  table.template add<&FixedConvOperators<Backend>::fbb>("conv_fbb(" + fixed + compared +
                                                        ") -> Tensor");
  table.template add<&FixedConvOperators<Backend>::fbf>("conv_fbf(" + fixed +
                                                        "bool integer=False) -> Tensor");
}

}  // namespace bitgnn::ops
