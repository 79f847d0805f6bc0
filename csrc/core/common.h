// Constants and helpers shared by all kernels, such as the format of a packed row of bits.
#pragma once

#include <cstdint>

// Forces inlining of small functions that take vectors; calls would pass them through memory.
#if defined(__GNUC__)
#define BITGNN_INLINE __attribute__((always_inline)) inline
#else
#define BITGNN_INLINE inline
#endif

namespace bitgnn {

// Bit k of word w is feature 32 * w + k; a set bit is +1, a clear bit is -1, padding bits are 0.
constexpr int64_t kWordBits = 32;

constexpr int64_t words_for(int64_t features) { return (features + kWordBits - 1) / kWordBits; }

// Mask of the last word's bits that hold features; all ones if the count is a multiple of 32.
constexpr uint32_t last_word_mask(int64_t features) {
  return features % kWordBits == 0 ? 0xffffffffu : (1u << (features % kWordBits)) - 1u;
}

// Added to the standard deviation by which rows are divided, as in Bi-GCN's code.
constexpr double kStandardizeEpsilon = 1e-4;

// Element types of dense operands; uint8 is for features such as pixels or counts.
enum class FloatType : int { kFloat32, kFloat64, kFloat16, kBFloat16, kUInt8 };

constexpr int64_t element_bytes(FloatType type) {
  switch (type) {
    case FloatType::kFloat64:
      return 8;
    case FloatType::kFloat32:
      return 4;
    case FloatType::kUInt8:
      return 1;
    default:
      return 2;
  }
}

constexpr int64_t kTileDim = 4;  // FRDC stores 4 x 4 tiles

// Sliced layout: groups of one item per lane of a warp, reading kSliceStepEdges neighbours at a
// time.
constexpr int64_t kSliceLanes = 32;
constexpr int64_t kSliceStepEdges = 4;

// A window that slides over images: tap (i, j) of output pixel (y, x) reads input pixel
//   (y * stride_height - padding_top + i * dilation_height,
//    x * stride_width - padding_left + j * dilation_width),
// which may lie outside. Bottom and right padding follow from the output size.
struct ImageWindow {
  int64_t images;
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

  constexpr int64_t pixels() const { return images * out_height * out_width; }
  constexpr int64_t taps() const { return kernel_height * kernel_width; }
};

}  // namespace bitgnn
