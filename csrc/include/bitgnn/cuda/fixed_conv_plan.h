// How the convolution of fixed-point images cuts its work into tiles of output pixels.
#pragma once

#include "bitgnn/conv_arguments.h"

namespace bitgnn::cuda {

constexpr int kFixedThreads = 256;
constexpr int kFixedWarpChannels = 64;  // two words of bits
constexpr int kFixedStepBytes = 32;     // products a step of the tensor cores adds up
constexpr int kFixedStepWords = kFixedStepBytes / 4;

// A tile's pixels read a region of the image, kept in shared memory as q, channels next to each
// other. Products go along segments of it, four q a word: kernel rows where a pixel's reads begin
// at whole words (`aligned`), else all taps as one segment, gathered q by q. Shared memory: the
// weights, what each channel is compared with, the places of the products, the region.
struct FixedPlan {
  bool aligned;
  bool channels_last;
  bool vectors;  // lines of the image are whole aligned groups of four
  int tile_height;
  int tile_width;
  int tiles_down;
  int tiles_across;
  int64_t tiles;
  int region_height;
  int region_width;
  int pitch;  // of a row of the region, in elements
  int taps;
  int segments;
  int segment_taps;
  int segment_words;
  int steps;
  int block_channels;

  constexpr int weight_words() const { return steps * block_channels * kFixedStepWords; }
  // Least sums and masks of the turned bits.
  constexpr int comparison_words() const { return block_channels + block_channels / 32; }
  constexpr int place_words() const {
    return steps * (aligned ? kFixedStepWords : kFixedStepBytes);
  }
  // Words behind the last segment are read too, where weights of zero hide what they find.
  constexpr int region_elements() const { return region_height * pitch + kFixedStepBytes; }
  constexpr int64_t bytes() const {
    return 4 * (int64_t{weight_words()} + comparison_words() + place_words()) +
           2 * int64_t{region_elements()};
  }
};

}  // namespace bitgnn::cuda
