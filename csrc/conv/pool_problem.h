// Checks the window of a max pooling of bits and builds the kernels' arguments.
#pragma once

#include <string>
#include <vector>

#include "conv/problem.h"

namespace bitgnn::ops {

// A pooling window over images of `words` words per pixel; owns what `args` points to.
template <class Backend>
struct BitPoolProblem {
  OptionalTensor flip;
  BitPoolArgs args{};

  // `window` and `flip_name` are the operator's names for its kernel and its flip; padding is top,
  // bottom, left, right.
  BitPoolProblem(const Backend& backend, int64_t images, int64_t height, int64_t width,
                 int64_t words, const std::vector<int64_t>& kernel,
                 const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                 const OptionalTensor& flip_in, const char* op, const char* window,
                 const char* flip_name) {
    BitPoolArgs& a = args;
    a.images = images;
    a.height = height;
    a.width = width;
    a.words = words;
    set_window(a, kernel, stride, padding, {1, 1}, op, window);
    if (!flip_in.has_value()) return;
    check_operand(backend, *flip_in, ScalarType::Int, 1, op, flip_name);
    check_size(flip_in->size(0), words, op, (std::string("words of ") + flip_name).c_str());
    flip = as_contiguous(*flip_in);
    a.flip = flip->template const_data_ptr<int32_t>();
  }

  // Allocates the result and sets args.out.
  Tensor new_images(const Backend& backend) {
    Tensor out =
        backend.empty({args.images, args.out_height, args.out_width, args.words}, ScalarType::Int);
    args.out = out.template mutable_data_ptr<int32_t>();
    return out;
  }
};

}  // namespace bitgnn::ops
