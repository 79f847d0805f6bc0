// Words next to each other under the kernel of a convolution.
#pragma once

#include <cstdint>

namespace bitgnn::cpu {

// Words [at, at + words) of the row that is made of a window, `from` where the window begins.
struct WindowPart {
  int64_t from, at, words;
};

}  // namespace bitgnn::cpu
