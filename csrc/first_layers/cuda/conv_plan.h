// Tiling of the fixed-point convolution into tiles of output pixels.
#pragma once

#include "conv/arguments.h"

namespace bitgnn::cuda::first_layers {

constexpr int kFixedThreads = 256;
constexpr int kFixedWarpChannels = 64;  // two words of output bits
constexpr int kFixedWarpPixels = 16;    // a slab of a tile; more would spill registers
constexpr int kFixedStepWords = 8;      // of four products each, per mma step
constexpr int kFixedVector = 4;         // pixels staged at a time

// How the region under a tile is read: vectors of pixels of planar channels, vectors of interleaved
// three-channel pixels, or value by value.
enum class FixedSource : int { kPlanes, kTriples, kValues };

// A tile's pixels read a region of the image, kept in shared memory as two planes, the low and the
// high bytes of q. A word holds four channels of a pixel, so every tap is one word at any offset.
// Shared memory: weights, word offsets, tables of pixels and channels, low and high bytes.
struct FixedPlan {
  FixedSource source;
  int tile_height;
  int tile_width;
  int tiles_down;
  int tiles_across;
  int tiles;
  int region_height;
  int pitch;  // words per row of the region, whole vectors
  int shift;  // columns before the first pixel, to align the vectors
  int taps;
  int channel_words;
  int steps;
  int block_channels;

  constexpr int pixels() const { return tile_height * tile_width; }
  constexpr int slabs() const { return (pixels() + kFixedWarpPixels - 1) / kFixedWarpPixels; }
  // Words per step, padded so that writing adjacent taps causes no bank conflicts.
  constexpr int step_words() const { return (block_channels + 1) * kFixedStepWords; }
  constexpr int weight_words() const { return steps * step_words(); }
  constexpr int place_words() const { return steps * kFixedStepWords; }
  constexpr int pixel_words() const { return slabs() * kFixedWarpPixels * 2; }
  constexpr int channel_table_words() const { return block_channels + block_channels / 16; }
  constexpr int plane_words() const { return channel_words * region_height * pitch; }
  constexpr int64_t bytes() const {
    return 4 * (int64_t{weight_words()} + place_words() + pixel_words() + channel_table_words() +
                2 * int64_t{plane_words()});
  }
};

}  // namespace bitgnn::cuda::first_layers
