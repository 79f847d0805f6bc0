// Arguments of packing, ADD and CONCAT, shared by the kernels of all backends.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// Packing of float rows: bit = x >= threshold, scale = mean |(x - threshold) * gain|.
struct PackArgs {
  const void* x;  // [rows, cols], unit column stride
  FloatType type;
  int64_t row_stride;  // in elements
  int64_t cols;
  const float* threshold;  // [cols] or null
  const float* gain;       // [cols] or null; affects the scale only
  int32_t* words;          // [rows, words_for(cols)]
  float* scale;            // [rows] or null
};

// Packing of rows [rows, cols] given by their entries: bit = sum of the column's entries >=
// threshold, of a column without entries 0 >= threshold.
struct CsrPackArgs {
  const void* rowptr;   // [rows + 1]
  const void* indices;  // [entries]
  bool rowptr64;        // int64, else int32
  bool indices64;
  const void* values;  // [entries]
  FloatType type;
  int64_t rows;
  int64_t cols;
  int64_t entries;
  const float* threshold;  // [cols] or null (0)
  int32_t* words;          // [rows, words_for(cols)]
};

// Packing of rows standardized by s(u) = (u - mean) / (std + kStandardizeEpsilon) of each row,
// where u is x or, with `relu`, max(x, 0): bit = u >= mean, scale = mean |s(u)|. The mean comes
// from a float64 sum and is rounded to float32; a row with a non-finite mean has no bits set and
// scale NaN.
struct StandardizedPackArgs {
  const void* x;  // [rows, cols], unit column stride
  FloatType type;
  int64_t row_stride;  // in elements
  int64_t cols;
  bool relu;
  int32_t* words;  // [rows, words_for(cols)]
  float* scale;    // [rows] or null
};

// ADD and CONCAT: rows of a and b summed or side by side.
struct JoinArgs {
  bool packed;            // bits, otherwise floats; unused pointers are null
  const int32_t* a_bits;  // packed operands, or
  const int32_t* b_bits;
  const float* a_float;  // contiguous float operands
  const float* b_float;
  const float* a_scale;  // [rows] or null; for packed operands
  const float* b_scale;
  const float* threshold;  // [out size] or null (0)
  int64_t rows;
  int64_t a_size;
  int64_t b_size;    // equal to a_size for ADD
  float* out_float;  // one of the two outputs is set
  int32_t* out_bits;
};

// Packing of float images: bit = x >= threshold of the channel.
struct ImagePackArgs {
  const void* x;  // [images, channels, pixels], contiguous
  FloatType type;
  int64_t images;
  int64_t channels;
  int64_t pixels;
  const float* threshold;  // [channels] or null (0)
  int32_t* words;          // [images, pixels, words_for(channels)]
};

constexpr int64_t kPatchBits = 32;  // most pixels of a patch

// Patches of float images, packed as they are cut out. Bit i * kernel_width + j of the words for
// an output pixel and a channel stands for tap (i, j): it is set in the first word if that pixel is
// at least the threshold, in the second if it is not, and in neither outside the image.
struct PatchArgs : ImageWindow {
  const float* x;  // [images, channels, height, width]
  int64_t channels;
  const float* threshold;  // [channels] or null (0)
  int32_t* words;          // [images, out_height, out_width, 2 * channels]

  int64_t frame() const { return padding_left + width; }
  // Number of image rows from the first to the last of a patch.
  int64_t reach() const { return (kernel_height - 1) * dilation_height + 1; }
};

BITGNN_KERNEL(pack, pack, const PackArgs& args, int64_t rows);
BITGNN_KERNEL(pack, pack_standardized, const StandardizedPackArgs& args, int64_t rows);
BITGNN_KERNEL(pack, pack_csr, const CsrPackArgs& args);
BITGNN_KERNEL(pack, pack_images, const ImagePackArgs& args);
BITGNN_KERNEL(pack, pack_patches, const PatchArgs& args);
// out[i, k] = scale[i] where bit k of row i is set, else -scale[i]; 1 without a scale.
BITGNN_KERNEL(pack, unpack, const int32_t* words, int64_t rows, int64_t size, const float* scale,
              float* out);
// Bit i of row k of out [size, words_for(rows)] is bit k of row i of words; padding bits are 0.
BITGNN_KERNEL(pack, transpose_bits, const int32_t* words, int64_t rows, int64_t size, int32_t* out);
// Element by element.
BITGNN_KERNEL(pack, add, const JoinArgs& args);
BITGNN_KERNEL(pack, concat, const JoinArgs& args);

}  // namespace bitgnn
