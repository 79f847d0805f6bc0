// Max pooling of bits: ORs the image rows of a window first, then neighbouring pixels of the
// combined row. Bound by memory. Included once per capability, with BITGNN_ISA naming the namespace
// of its primitives.

#include <algorithm>
#include <vector>

#include "conv/arguments.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// One output row from the OR of its image rows; kWords words per pixel, or a.words if kWords is 0.
template <int64_t kWords>
void pool_columns(const BitPoolArgs& a, const int32_t* row, const int32_t* flip, int32_t* to) {
  const int64_t words = kWords > 0 ? kWords : a.words;
  for (int64_t x = 0; x < a.out_width; ++x, to += words) {
    const int64_t left = x * a.stride_width - a.padding_left;
    const int64_t begin = std::max<int64_t>(0, left);
    const int64_t end = std::min(a.width, left + a.kernel_width);
    for (int64_t w = 0; w < words; ++w) to[w] = row[begin * words + w];
    for (int64_t j = begin + 1; j < end; ++j)
      for (int64_t w = 0; w < words; ++w) to[w] |= row[j * words + w];
    for (int64_t w = 0; w < words; ++w) to[w] ^= flip[w];
  }
}

// Output rows [begin, end) of all images.
void pool_bits(const BitPoolArgs& a, int64_t begin, int64_t end) {
  const int64_t size = a.width * a.words;
  std::vector<int32_t> any(static_cast<size_t>(size)), flip(static_cast<size_t>(size));
  for (int64_t i = 0; i < size && a.flip != nullptr; ++i)
    flip[static_cast<size_t>(i)] = a.flip[i % a.words];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = row / a.out_height, top = row % a.out_height * a.stride_height;
    const int64_t y_begin = std::max<int64_t>(0, top - a.padding_top);
    const int64_t y_end = std::min(a.height, top - a.padding_top + a.kernel_height);
    const int32_t* from = a.x + (image * a.height + y_begin) * size;
    int32_t* const line = any.data();
    const int32_t* const turn = flip.data();
    for (int64_t i = 0; i < size; ++i) line[i] = from[i] ^ turn[i];
    for (int64_t y = y_begin + 1; y < y_end; ++y) {
      from += size;
      for (int64_t i = 0; i < size; ++i) line[i] |= from[i] ^ turn[i];
    }
    int32_t* const to = a.out + row * a.out_width * a.words;
    switch (a.words) {
      case 1:
        pool_columns<1>(a, line, turn, to);
        break;
      case 2:
        pool_columns<2>(a, line, turn, to);
        break;
      case 4:
        pool_columns<4>(a, line, turn, to);
        break;
      case 8:
        pool_columns<8>(a, line, turn, to);
        break;
      default:
        pool_columns<0>(a, line, turn, to);
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
