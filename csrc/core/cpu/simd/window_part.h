// A contiguous run of words under a convolution kernel.
#pragma once

#include <cstdint>

namespace bitgnn::cpu {

// Words [at, at + words) of the gathered row, read from offset `from` relative to the window's
// start.
struct WindowPart {
  int64_t from, at, words;
};

}  // namespace bitgnn::cpu
