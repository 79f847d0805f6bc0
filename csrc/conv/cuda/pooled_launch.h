// Max pooling fused into the convolution that produces the bits.
#pragma once

#include <cstdint>

namespace bitgnn::cuda::conv {

// 2 x 2 max pooling with stride 2: OR of the bits, inverted by flip before and after.
// ConvArgs::out_bits then holds [images, out_height / 2, out_width / 2, words].
struct ConvPool {
  bool pools;
  const int32_t* flip;  // [words_for(out_channels)] or null
};

}  // namespace bitgnn::cuda::conv
