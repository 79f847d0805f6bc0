// Patches of few-channel images as words: the bits of each row of a patch are gathered once for all
// patches that contain the row, then shifted together. Bound by writing the words. Included once
// per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include <algorithm>
#include <cstring>

#include "pack/arguments.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// For each output column, gathers the bits of the kernel_width pixels that a patch takes from one
// image row: pixels that reach the threshold in `above`, the others in `below`. `bits` is scratch.
void gather_row(const PatchArgs& a, const float* x, float threshold, uint32_t* bits,
                uint32_t* above, uint32_t* below) {
  // Marks 1 and 2 tell the two kinds of pixels from those outside, marked 0.
  const int64_t frame = a.frame();
  for (int64_t i = 0; i < a.width; ++i) bits[a.padding_left + i] = x[i] >= threshold ? 1u : 2u;
  std::memset(above, 0, sizeof(uint32_t) * static_cast<size_t>(a.out_width));
  std::memset(below, 0, sizeof(uint32_t) * static_cast<size_t>(a.out_width));
  for (int64_t j = 0; j < a.kernel_width; ++j) {
    const int64_t first = j * a.dilation_width;
    if (first >= frame) break;
    // Columns whose pixel j lies before the right end.
    const int64_t count = std::min(a.out_width, (frame - first - 1) / a.stride_width + 1);
    const uint32_t* from = bits + first;
    if (a.stride_width == 1) {
      for (int64_t c = 0; c < count; ++c) {
        above[c] |= (from[c] & 1u) << j;
        below[c] |= (from[c] >> 1) << j;
      }
    } else {
      for (int64_t c = 0; c < count; ++c) {
        above[c] |= (from[c * a.stride_width] & 1u) << j;
        below[c] |= (from[c * a.stride_width] >> 1) << j;
      }
    }
  }
}

// Packs output rows [begin, end) of all images. `scratch` holds, in this order, the marks of an
// image row (frame() words, initially 0), the bits of the patch's image rows gathered last, kept
// while patches below need them (2 * out_width words for each of reach() rows), and a row of
// patches (2 * out_width); `held` names those image rows (reach()).
void pack_patches(const PatchArgs& a, uint32_t* scratch, int64_t* held, int64_t begin,
                  int64_t end) {
  const int64_t columns = a.out_width, kept = a.reach(), words = 2 * a.channels;
  uint32_t* bits = scratch;
  uint32_t* rows = bits + a.frame();
  uint32_t* patch = rows + kept * 2 * columns;
  for (int64_t c = 0; c < a.channels; ++c) {
    const float threshold = a.threshold != nullptr ? a.threshold[c] : 0.0f;
    for (int64_t i = 0; i < kept; ++i) held[i] = -1;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / a.out_height, y = row % a.out_height;
      std::memset(patch, 0, sizeof(uint32_t) * static_cast<size_t>(2 * columns));
      for (int64_t i = 0; i < a.kernel_height; ++i) {
        const int64_t from = y * a.stride_height - a.padding_top + i * a.dilation_height;
        if (from < 0 || from >= a.height) continue;
        const int64_t line = (image * a.channels + c) * a.height + from;  // row among all planes
        const int64_t slot = from % kept;
        uint32_t* above = rows + slot * 2 * columns;
        if (held[slot] != line) {
          held[slot] = line;
          gather_row(a, a.x + line * a.width, threshold, bits, above, above + columns);
        }
        const auto shift = static_cast<uint32_t>(i * a.kernel_width);
        for (int64_t k = 0; k < 2 * columns; ++k) patch[k] |= above[k] << shift;
      }
      int32_t* to = a.words + row * a.out_width * words + 2 * c;
      for (int64_t k = 0; k < columns; ++k, to += words) {
        to[0] = static_cast<int32_t>(patch[k]);
        to[1] = static_cast<int32_t>(patch[columns + k]);
      }
    }
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
