// Max pooling of bits: OR over the pixels of a window, whole words at a time. Bound by memory.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include <algorithm>

#include "bitgnn/conv_arguments.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Output rows [begin, end) of all images.
void pool_bits(const BitPoolArgs& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / a.out_height, y = row % a.out_height;
    const int64_t top = y * a.stride_height - a.padding_top;
    const int64_t y_begin = std::max<int64_t>(0, top);
    const int64_t y_end = std::min(a.height, top + a.kernel_height);
    int32_t* to = a.out + row * a.out_width * a.words;
    for (int64_t x = 0; x < a.out_width; ++x, to += a.words) {
      const int64_t left = x * a.stride_width - a.padding_left;
      const int64_t x_begin = std::max<int64_t>(0, left);
      const int64_t x_end = std::min(a.width, left + a.kernel_width);
      for (int64_t w = 0; w < a.words; ++w) {
        const int32_t flip = a.flip != nullptr ? a.flip[w] : 0;
        int32_t any = 0;
        for (int64_t i = y_begin; i < y_end; ++i)
          for (int64_t j = x_begin; j < x_end; ++j)
            any |= a.x[((image * a.height + i) * a.width + j) * a.words + w] ^ flip;
        to[w] = any ^ flip;
      }
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
