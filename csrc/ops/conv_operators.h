// Binary convolution and the packing of images, for any backend.
#pragma once

#include <limits>
#include <vector>

#include "bitgnn/conv_arguments.h"
#include "ops/operands.h"

namespace bitgnn::ops {

template <class Backend>
struct ConvOperators {
  // What the convolution is asked for beside its operands.
  struct Request {
    const char* op;
    int64_t channels;
    const std::vector<int64_t>&stride, &padding, &dilation;
    int64_t groups;
    OptionalTensor scale, bias, threshold, flip;
    Output output;
  };

  static void check_numbers(const std::vector<int64_t>& numbers, size_t count, int64_t least,
                            const char* op, const char* name) {
    STD_TORCH_CHECK(numbers.size() == count, op, ": ", name, " must hold ", count, " numbers, got ",
                    numbers.size());
    for (const int64_t number : numbers)
      STD_TORCH_CHECK(number >= least, op, ": ", name, " must be at least ", least, ", got ",
                      number);
  }

  // Packed images, made contiguous.
  static Tensor images(const Backend& backend, const Tensor& t, int64_t channels, const char* op,
                       const char* name) {
    backend.check(t, op, name);
    check_dtype(t, ScalarType::Int, op, name);
    check_dim(t, 4, op, name);
    STD_TORCH_CHECK(t.size(3) == words_for(channels), op, ": ", name, " must hold ",
                    words_for(channels), " words a pixel for ", channels, " channels, got ",
                    t.size(3));
    return as_contiguous(t);
  }

  static int64_t output_size(int64_t size, int64_t before, int64_t after, int64_t kernel,
                             int64_t stride, int64_t dilation, const char* op) {
    STD_TORCH_CHECK(kernel >= 1, op, ": w must have a kernel of at least 1 x 1, got ", kernel);
    const int64_t reach = dilation * (kernel - 1) + 1, padded = size + before + after;
    STD_TORCH_CHECK(reach <= padded, op,
                    ": w must have a kernel no larger than the padded image: ", padded,
                    " along an axis, got ", reach);
    return (padded - reach) / stride + 1;
  }

  static ConvArgs arguments(const Request& q, const Tensor& x, const Tensor& w) {
    ConvArgs a{};
    a.x = x.const_data_ptr<int32_t>();
    a.w = w.const_data_ptr<int32_t>();
    a.images = x.size(0);
    a.height = x.size(1);
    a.width = x.size(2);
    a.channels = q.channels;
    a.out_channels = w.size(0);
    a.kernel_height = w.size(1);
    a.kernel_width = w.size(2);
    a.stride_height = q.stride[0];
    a.stride_width = q.stride[1];
    a.padding_top = q.padding[0];
    a.padding_left = q.padding[2];
    a.dilation_height = q.dilation[0];
    a.dilation_width = q.dilation[1];
    a.groups = q.groups;
    a.out_height = output_size(a.height, q.padding[0], q.padding[1], a.kernel_height,
                               a.stride_height, a.dilation_height, q.op);
    a.out_width = output_size(a.width, q.padding[2], q.padding[3], a.kernel_width, a.stride_width,
                              a.dilation_width, q.op);
    return a;
  }

  static Tensor new_images(const Backend& backend, ConvArgs& a, Output output) {
    const int64_t n = a.images, h = a.out_height, w = a.out_width;
    if (output == Output::kBits) {
      Tensor out = backend.empty({n, h, w, words_for(a.out_channels)}, ScalarType::Int);
      a.out_bits = out.template mutable_data_ptr<int32_t>();
      return out;
    }
    const bool is_int = output == Output::kInt;
    Tensor out =
        backend.empty({n, h, w, a.out_channels}, is_int ? ScalarType::Int : ScalarType::Float);
    if (is_int) {
      a.out_int = out.template mutable_data_ptr<int32_t>();
    } else {
      a.out_float = out.template mutable_data_ptr<float>();
    }
    return out;
  }

  static Tensor convolve(const Request& q, const Tensor& x_in, const Tensor& w_in) {
    const char* op = q.op;
    const Backend backend(x_in, op, "x");
    check_numbers(q.stride, 2, 1, op, "stride");
    check_numbers(q.padding, 4, 0, op, "padding");
    check_numbers(q.dilation, 2, 1, op, "dilation");
    STD_TORCH_CHECK(q.groups >= 1, op, ": groups must be at least 1, got ", q.groups);
    STD_TORCH_CHECK(q.channels >= 1 && q.channels % q.groups == 0, op,
                    ": channels must be a positive multiple of groups, ", q.groups, ", got ",
                    q.channels);
    const int64_t size = q.channels / q.groups;
    const Tensor x = images(backend, x_in, q.channels, op, "x");
    const Tensor w = images(backend, w_in, size, op, "w");
    const int64_t outputs = w.size(0);
    STD_TORCH_CHECK(outputs >= 1 && outputs % q.groups == 0, op,
                    ": w must have outputs in a positive multiple of groups, ", q.groups, ", got ",
                    outputs);
    ConvArgs a = arguments(q, x, w);
    STD_TORCH_CHECK(a.taps() <= std::numeric_limits<int32_t>::max() / size, op,
                    ": w must have at most 2^31 - 1 weights an output, got ", size, " channels of ",
                    a.taps(), " taps");
    const bool integer = q.output == Output::kInt;
    STD_TORCH_CHECK(!integer || !(q.scale.has_value() || q.bias.has_value()), op,
                    ": integer=True gives the bare sums: w_scale and bias must be left out");
    const FloatVector scale(backend, q.scale, outputs, op, "w_scale");
    const FloatVector bias(backend, q.bias, outputs, op, "bias");
    const FloatVector threshold(backend, q.threshold, outputs, op, "threshold");
    const OptionalTensor flip = flags(backend, q.flip, outputs, op);
    // A positive scale in front of a comparison with zero changes nothing and is left out.
    const bool scaled = q.output == Output::kFloat || q.bias.has_value() || q.threshold.has_value();
    a.out_scale = scaled ? scale.get() : nullptr;
    a.bias = bias.get();
    a.threshold = threshold.get();
    a.flip = flip.has_value() ? flip->template const_data_ptr<bool>() : nullptr;
    Tensor out = new_images(backend, a, q.output);
    backend.convolve(a);
    return out;
  }

  static Tensor bbb(const Tensor& x, const Tensor& w, int64_t channels, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups,
                    const OptionalTensor& w_scale, const OptionalTensor& bias,
                    const OptionalTensor& threshold, const OptionalTensor& flip) {
    return convolve({"conv_bbb", channels, stride, padding, dilation, groups, w_scale, bias,
                     threshold, flip, Output::kBits},
                    x, w);
  }

  static Tensor bbf(const Tensor& x, const Tensor& w, int64_t channels, std::vector<int64_t> stride,
                    std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups,
                    const OptionalTensor& w_scale, const OptionalTensor& bias, bool integer) {
    return convolve({"conv_bbf",
                     channels,
                     stride,
                     padding,
                     dilation,
                     groups,
                     w_scale,
                     bias,
                     {},
                     {},
                     integer ? Output::kInt : Output::kFloat},
                    x, w);
  }

  // Channels next to each other at every pixel, pixels one after the other.
  static bool is_channels_last(const Tensor& t) {
    int64_t step = 1;
    for (const int64_t axis : {1, 3, 2, 0}) {
      if ((axis == 1 || t.size(axis) > 1) && t.stride(axis) != step) return false;
      step *= t.size(axis);
    }
    return true;
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
    if (is_channels_last(x_in)) {
      PackArgs a = pack_args(x_in, threshold, {}, op);
      a.row_stride = a.cols = channels;
      a.words = to;
      backend.pack(a, images * height * width);
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
    backend.pack_images(a);
    return words;
  }
};

template <class Backend, class Library>
void register_conv(Library& m) {
  using Operators = ConvOperators<Backend>;
  m.impl("conv_bbb", TORCH_BOX(&Operators::bbb));
  m.impl("conv_bbf", TORCH_BOX(&Operators::bbf));
  m.impl("pack_images", TORCH_BOX(&Operators::pack_images));
}

}  // namespace bitgnn::ops
