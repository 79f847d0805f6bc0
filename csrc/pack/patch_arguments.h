// Arguments of packing the patches of images that the kernels of every backend share.
#pragma once

#include <cstdint>

namespace bitgnn {

constexpr int64_t kPatchBits = 32;  // the most pixels of a patch

// Patches of float images, packed as they are cut out. Bit i * kernel_width + j of the words of
// output pixel (y, x) and channel c stands for input pixel
//   (y * stride_height - padding_top + i * dilation_height,
//    x * stride_width - padding_left + j * dilation_width);
// it is set in the first word where that pixel is at least the threshold, in the second where it
// is not, in neither outside of the image.
struct PatchArgs {
  const float* x;  // [images, channels, height, width]
  int64_t images;
  int64_t channels;
  int64_t height;
  int64_t width;
  int64_t kernel_height;
  int64_t kernel_width;
  int64_t stride_height;
  int64_t stride_width;
  int64_t padding_top;
  int64_t padding_left;
  int64_t dilation_height;
  int64_t dilation_width;
  int64_t out_height;
  int64_t out_width;
  const float* threshold;  // [channels] or null (0)
  int32_t* words;          // [images, out_height, out_width, 2 * channels]

  int64_t frame() const { return padding_left + width; }
  // Image rows from the first to the last of a patch.
  int64_t reach() const { return (kernel_height - 1) * dilation_height + 1; }
};

}  // namespace bitgnn
