// Checks the operands of every binary convolution and builds the kernels' arguments.
#pragma once

#include <limits>
#include <vector>

#include "conv/arguments.h"
#include "core/operands.h"

namespace bitgnn::ops {

// Checks the parameters of a sliding window; padding is top, bottom, left, right. The product of
// any two of them fits in 64 bits.
inline void check_numbers(const std::vector<int64_t>& numbers, size_t count, int64_t least,
                          const char* op, const char* name) {
  BITGNN_CHECK(numbers.size() == count, op, ": ", name, " must hold ", count, " numbers, got ",
               numbers.size());
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (const int64_t number : numbers) {
    BITGNN_CHECK(number >= least, op, ": ", name, " must be at least ", least, ", got ", number);
    BITGNN_CHECK(number <= kMost, op, ": ", name, " must be at most ", kMost, ", got ", number);
  }
}

inline int64_t output_size(int64_t size, int64_t before, int64_t after, int64_t kernel,
                           int64_t stride, int64_t dilation, const char* op, const char* name) {
  BITGNN_CHECK(kernel >= 1, op, ": ", name, " must have a kernel of at least 1 x 1, got ", kernel);
  const int64_t reach = dilation * (kernel - 1) + 1, padded = size + before + after;
  BITGNN_CHECK(reach <= padded, op, ": ", name,
               " must have a kernel no larger than the padded image: ", padded,
               " along an axis, got ", reach);
  return (padded - reach) / stride + 1;
}

// Sets the window over images whose number and size are set; its numbers are checked, except that
// the kernel must fit into the padded image. `name` is the operand or argument of the kernel.
inline void set_window(ImageWindow& to, const std::vector<int64_t>& kernel,
                       const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                       const std::vector<int64_t>& dilation, const char* op, const char* name) {
  to.kernel_height = kernel[0];
  to.kernel_width = kernel[1];
  to.stride_height = stride[0];
  to.stride_width = stride[1];
  to.padding_top = padding[0];
  to.padding_left = padding[2];
  to.dilation_height = dilation[0];
  to.dilation_width = dilation[1];
  to.out_height =
      output_size(to.height, padding[0], padding[1], kernel[0], stride[0], dilation[0], op, name);
  to.out_width =
      output_size(to.width, padding[2], padding[3], kernel[1], stride[1], dilation[1], op, name);
}

// Checks packed images and makes them contiguous.
template <class Backend>
Tensor packed_images(const Backend& backend, const Tensor& t, int64_t channels, const char* op,
                     const char* name) {
  check_operand(backend, t, ScalarType::Int, 4, op, name);
  BITGNN_CHECK(t.size(3) == words_for(channels), op, ": ", name, " must hold ", words_for(channels),
               " words a pixel for ", channels, " channels, got ", t.size(3));
  return as_contiguous(t);
}

// Whether the layout is channels-last: the channels of a pixel are contiguous, and so are the
// pixels.
inline bool is_channels_last(const Tensor& t) {
  int64_t step = 1;
  for (const int64_t axis : {1, 3, 2, 0}) {
    if ((axis == 1 || t.size(axis) > 1) && t.stride(axis) != step) return false;
    step *= t.size(axis);
  }
  return true;
}

// The parameters of a convolution other than its operands.
struct ConvRequest {
  const char* op;
  int64_t channels;
  const std::vector<int64_t>&stride, &padding, &dilation;
  int64_t groups;
  OptionalTensor scale, bias, threshold, flip, prepared;
};

// Everything but x, after checking; owns what `args` points to.
template <class Backend>
struct ConvProblem {
  Tensor w;
  FloatVector scale, bias, threshold;
  OptionalTensor flip, prepared;
  ConvArgs args{};

  ConvProblem(const Backend& backend, const ConvRequest& q, const Tensor& images,
              int64_t height_axis, const Tensor& w_in)
      : w(checked_weights(backend, q, w_in)),
        scale(backend, q.scale, w.size(0), q.op, "w_scale"),
        bias(backend, q.bias, w.size(0), q.op, "bias"),
        threshold(backend, q.threshold, w.size(0), q.op, "threshold"),
        flip(flags(backend, q.flip, w.size(0), q.op)) {
    ConvArgs& a = args;
    a.w = w.const_data_ptr<int32_t>();
    a.images = images.size(0);
    a.height = images.size(height_axis);
    a.width = images.size(height_axis + 1);
    a.channels = q.channels;
    a.out_channels = w.size(0);
    a.groups = q.groups;
    set_window(a, {w.size(1), w.size(2)}, q.stride, q.padding, q.dilation, q.op, "w");
    const int64_t size = q.channels / q.groups;
    BITGNN_CHECK(a.taps() <= std::numeric_limits<int32_t>::max() / size, q.op,
                 ": w must have at most 2^31 - 1 weights an output, got ", size, " channels of ",
                 a.taps(), " taps");
    a.out_scale = scale.get();
    a.bias = bias.get();
    a.threshold = threshold.get();
    a.flip = data_or_null<bool>(flip);
    take_prepared(backend, q);
  }

  // Allocates the result [images, out height, out width, features] and sets its pointer in args.
  Tensor new_images(const Backend& backend, Output output) {
    ConvArgs& a = args;
    const int64_t n = a.images, h = a.out_height, width = a.out_width;
    if (output == Output::kBits) {
      Tensor out = backend.empty({n, h, width, words_for(a.out_channels)}, ScalarType::Int);
      a.out_bits = out.template mutable_data_ptr<int32_t>();
      return out;
    }
    const bool is_int = output == Output::kInt;
    Tensor out =
        backend.empty({n, h, width, a.out_channels}, is_int ? ScalarType::Int : ScalarType::Float);
    if (is_int) {
      a.out_int = out.template mutable_data_ptr<int32_t>();
    } else {
      a.out_float = out.template mutable_data_ptr<float>();
    }
    return out;
  }

  // Drops a positive scale before a comparison with zero, which it cannot change; integer sums take
  // neither scale nor bias.
  void settle_output(const ConvRequest& q, Output output) {
    BITGNN_CHECK(output != Output::kInt || !(q.scale.has_value() || q.bias.has_value()), q.op,
                 ": integer=True gives the bare sums: w_scale and bias must be left out");
    if (output == Output::kBits && args.bias == nullptr && args.threshold == nullptr)
      args.out_scale = nullptr;
  }

 private:
  static Tensor checked_weights(const Backend& backend, const ConvRequest& q, const Tensor& w_in) {
    check_numbers(q.stride, 2, 1, q.op, "stride");
    check_numbers(q.padding, 4, 0, q.op, "padding");
    check_numbers(q.dilation, 2, 1, q.op, "dilation");
    BITGNN_CHECK(q.groups >= 1, q.op, ": groups must be at least 1, got ", q.groups);
    BITGNN_CHECK(q.channels >= 1 && q.channels % q.groups == 0, q.op,
                 ": channels must be a positive multiple of groups, ", q.groups, ", got ",
                 q.channels);
    Tensor w = packed_images(backend, w_in, q.channels / q.groups, q.op, "w");
    BITGNN_CHECK(w.size(0) >= 1 && w.size(0) % q.groups == 0, q.op,
                 ": w must have outputs in a positive multiple of groups, ", q.groups, ", got ",
                 w.size(0));
    return w;
  }

  void take_prepared(const Backend& backend, const ConvRequest& q) {
    if (!q.prepared.has_value()) return;
    check_operand(backend, *q.prepared, ScalarType::Int, 2, q.op, "prepared");
    check_size(q.prepared->size(0), w.size(0), q.op, "rows of prepared");
    check_size(q.prepared->size(1), args.taps() + 2, q.op, "columns of prepared");
    prepared = as_contiguous(*q.prepared);
    args.prepared = prepared->template const_data_ptr<int32_t>();
  }
};

}  // namespace bitgnn::ops
