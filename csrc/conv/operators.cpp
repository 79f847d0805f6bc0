// Binary convolution and packing of images, for any backend.
#include <optional>
#include <vector>

#include "conv/pool_problem.h"
#include "core/registration.h"
#include "pack/arguments.h"
#include "pack/binarise.h"

namespace bitgnn::ops {

template <class Backend>
struct ConvOperators {
  static Tensor convolve(const ConvRequest& q, const Tensor& x_in, const Tensor& w, Output output) {
    const Backend backend(x_in, q.op, "x");
    BITGNN_CHECK(q.channels >= 1, q.op, ": channels must be at least 1, got ", q.channels);
    const Tensor x = packed_images(backend, x_in, q.channels, q.op, "x");
    ConvProblem<Backend> problem(backend, q, x, 1, w);
    problem.args.x = x.const_data_ptr<int32_t>();
    problem.settle_output(q, output);
    Tensor out = problem.new_images(backend, output);
    if (out.numel() > 0) backend.launch(kernel::convolve, problem.args);
    return out;
  }

  using Window = std::optional<std::vector<int64_t>>;

  // Bits pooled over non-overlapping windows; fused into the convolution if the backend can.
  static Tensor convolve_pooled(const ConvRequest& q, const Tensor& x_in, const Tensor& w,
                                const std::vector<int64_t>& pool, const OptionalTensor& flip) {
    const Backend backend(x_in, q.op, "x");
    check_numbers(pool, 2, 1, q.op, "pool");
    BITGNN_CHECK(q.channels >= 1, q.op, ": channels must be at least 1, got ", q.channels);
    const Tensor x = packed_images(backend, x_in, q.channels, q.op, "x");
    ConvProblem<Backend> problem(backend, q, x, 1, w);
    ConvArgs& a = problem.args;
    a.x = x.const_data_ptr<int32_t>();
    problem.settle_output(q, Output::kBits);
    BitPoolProblem<Backend> pooling(backend, a.images, a.out_height, a.out_width,
                                    words_for(a.out_channels), pool, pool, {0, 0, 0, 0}, flip, q.op,
                                    "pool", "pool_flip");
    Tensor out = pooling.new_images(backend);
    a.out_bits = pooling.args.out;
    bool pools = false;
    backend.launch(kernel::convolve_pooled, a, pooling.args, &pools);
    if (pools) return out;
    const Tensor whole = problem.new_images(backend, Output::kBits);
    backend.launch(kernel::convolve, a);
    pooling.args.x = a.out_bits;
    backend.launch(kernel::pool_bits, pooling.args);
    return out;
  }

  static Tensor bbb(const Tensor& x, const Tensor& w, int64_t channels, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups,
                    const OptionalTensor& w_scale, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip,
                    const OptionalTensor& prepared, Window pool, const OptionalTensor& pool_flip) {
    const ConvRequest q{"conv_bbb", channels, stride,    padding, dilation, groups,
                        w_scale,    bias,     threshold, flip,    prepared};
    BITGNN_CHECK(pool.has_value() || !pool_flip.has_value(), q.op,
                 ": pool_flip must be left out where there is no pool");
    return pool.has_value() ? convolve_pooled(q, x, w, *pool, pool_flip)
                            : convolve(q, x, w, Output::kBits);
  }

  static Tensor bbf(const Tensor& x, const Tensor& w, int64_t channels, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups,
                    const OptionalTensor& w_scale, const OptionalTensor& bias, bool integer,
                    const OptionalTensor& prepared) {
    return convolve(
        {"conv_bbf", channels, stride, padding, dilation, groups, w_scale, bias, {}, {}, prepared},
        x, w, integer ? Output::kInt : Output::kFloat);
  }

  static Tensor pack_images(const Tensor& x_in, const OptionalTensor& threshold_in) {
    const char* op = "pack_images";
    const Backend backend(x_in, op, "x");
    const FloatType type = packable_type(x_in, op, "x");
    check_dim(x_in, 4, op, "x");
    const int64_t images = x_in.size(0), channels = x_in.size(1);
    const int64_t height = x_in.size(2), width = x_in.size(3);
    const FloatVector threshold(backend, threshold_in, channels, op, "threshold");
    Tensor words = backend.empty({images, height, width, words_for(channels)}, ScalarType::Int);
    int32_t* to = words.template mutable_data_ptr<int32_t>();
    if (words.numel() == 0) return words;
    if (is_channels_last(x_in)) {
      PackArgs a = pack_args(x_in, threshold, {}, op);
      a.row_stride = a.cols = channels;
      a.words = to;
      backend.launch(kernel::pack, a, images * height * width);
      return words;
    }
    const Tensor x = as_contiguous(x_in);
    ImagePackArgs a{};
    a.x = x.data_ptr();
    a.type = type;
    a.images = images;
    a.channels = channels;
    a.pixels = height * width;
    a.threshold = threshold.get();
    a.words = to;
    backend.launch(kernel::pack_images, a);
    return words;
  }
};

BITGNN_OPERATORS(table) {
  const std::string window = "int[] stride, int[] padding, int[] dilation, ";
  const std::string conv = "Tensor x, Tensor w, int channels, " + window + "int groups=1, ";
  const std::string scaled = "Tensor? w_scale=None, Tensor? bias=None, ";
  const std::string compared = "Tensor? threshold=None, Tensor? flip=None, Tensor? prepared=None";
  table.template add<&ConvOperators<Backend>::bbb>(
      "conv_bbb(" + conv + scaled + compared +
      ", int[]? pool=None, Tensor? pool_flip=None) -> Tensor");
  table.template add<&ConvOperators<Backend>::bbf>(
      "conv_bbf(" + conv + scaled + "bool integer=False, Tensor? prepared=None) -> Tensor");
  table.template add<&ConvOperators<Backend>::pack_images>(
      "pack_images(Tensor x, Tensor? threshold=None) -> Tensor");
}

}  // namespace bitgnn::ops
