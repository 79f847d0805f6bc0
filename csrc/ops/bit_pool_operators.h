// Max pooling of packed images, for any backend.
#pragma once

#include <vector>

#include "ops/conv_problem.h"

namespace bitgnn::ops {

template <class Backend>
struct BitPoolOperators {
  static Tensor pool(const Tensor& x_in, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                     std::vector<int64_t> padding, const OptionalTensor& flip_in) {
    const char* op = "pool_bits";
    const Backend backend(x_in, op, "x");
    check_dtype(x_in, ScalarType::Int, op, "x");
    check_dim(x_in, 4, op, "x");
    check_numbers(kernel, 2, 1, op, "kernel");
    check_numbers(stride, 2, 1, op, "stride");
    check_numbers(padding, 4, 0, op, "padding");
    for (size_t i = 0; i < 4; ++i)
      STD_TORCH_CHECK(padding[i] < kernel[i / 2], op, ": padding must be less than the kernel, ",
                      kernel[i / 2], ", or a window would hold no pixel, got ", padding[i]);
    const Tensor x = as_contiguous(x_in);
    BitPoolArgs a{};
    a.x = x.const_data_ptr<int32_t>();
    a.images = x.size(0);
    a.height = x.size(1);
    a.width = x.size(2);
    a.words = x.size(3);
    STD_TORCH_CHECK(a.height >= 1 && a.width >= 1, op, ": x must have pixels, got ", a.height,
                    " x ", a.width);
    a.kernel_height = kernel[0];
    a.kernel_width = kernel[1];
    a.stride_height = stride[0];
    a.stride_width = stride[1];
    a.padding_top = padding[0];
    a.padding_left = padding[2];
    a.out_height =
        output_size(a.height, padding[0], padding[1], kernel[0], stride[0], 1, op, "kernel");
    a.out_width =
        output_size(a.width, padding[2], padding[3], kernel[1], stride[1], 1, op, "kernel");
    OptionalTensor flip;
    if (flip_in.has_value()) {
      backend.check(*flip_in, op, "flip");
      check_dtype(*flip_in, ScalarType::Int, op, "flip");
      check_dim(*flip_in, 1, op, "flip");
      check_size(flip_in->size(0), a.words, op, "words of flip");
      flip = as_contiguous(*flip_in);
      a.flip = flip->template const_data_ptr<int32_t>();
    }
    Tensor out = backend.empty({a.images, a.out_height, a.out_width, a.words}, ScalarType::Int);
    a.out = out.template mutable_data_ptr<int32_t>();
    backend.pool_bits(a);
    return out;
  }
};

template <class Backend, class Library>
void register_bit_pool(Library& m) {
  m.impl("pool_bits", TORCH_BOX(&BitPoolOperators<Backend>::pool));
}

}  // namespace bitgnn::ops
