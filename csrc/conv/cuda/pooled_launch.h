// Max pooling of a convolution's bits where they are made.
#pragma once

#include <cstdint>

namespace bitgnn::cuda::conv {

// Over 2 x 2 pixels, stride 2: OR of bits turned round by flip before and behind.
// ConvArgs::out_bits then holds [images, out_height / 2, out_width / 2, words].
struct ConvPool {
  bool pools;
  const int32_t* flip;  // [words_for(out_channels)] or null
};

}  // namespace bitgnn::cuda::conv
