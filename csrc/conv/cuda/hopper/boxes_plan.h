// Tiling of a convolution into boxes of pixels, which tensor copies load together with the zeros
// around the image.
//
// A box holds rows of `pitch` positions, starting `padding_left` before the image: output (y, x) is
// position y * pitch + x, and a tap is at a constant distance from it. A stride of s divides the
// pixels into up to s * s phases with one box each. A tile is some output rows of one image, or
// some whole images. A unit is 64 positions: some whole output rows, or a part of one; or, if
// `runs` is set, the next 64 positions of the tile regardless of row ends.
#pragma once

#include <cstdint>

#include "conv/arguments.h"
#include "conv/cuda/hopper/wgmma_plan.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

constexpr int kBoxColumns = 128;         // outputs per tile
constexpr int kBoxProductColumns = 144;  // plus columns of ones, which count the pixels' bits
constexpr int kBoxStageBytes = kBoxProductColumns * kConvStageRowBytes;
constexpr int kBoxLongestSide = 3;
constexpr int kBoxMostTaps = kBoxLongestSide * kBoxLongestSide;
constexpr int kBoxMostSteps = 48;
constexpr int kBoxMostClasses = 25;
constexpr int kBoxMostSlots = 4;
constexpr int kBoxMostUnits = 32;  // per tile
constexpr int kBoxUnitRows = 64;   // positions
// Warpgroups that take a tile's units in turn.
constexpr int kBoxBitGroups = 2;
constexpr int kBoxLongGroups = 4;
constexpr int kBoxSumGroups = 3;
constexpr int kBoxMostBuffers = 3;
constexpr int kBoxPartChannels = 64;  // 128 bytes of addends or sums
constexpr int kBoxParts = kBoxColumns / kBoxPartChannels;
constexpr int kBoxAlignment = 1024;
// Words of terms per class. Terms of bits are half words, spaced so that a quad's lanes hit
// different banks.
constexpr int kBoxQuadPitch = 20;
constexpr int kBoxBitPitch = 4 * kBoxQuadPitch;
constexpr int kBoxSumPitch = kBoxColumns;

struct ConvBoxPlan : ConvGeometry {
  int pitch;
  FrameDivider by_pitch;
  FrameDivider by_image;  // positions
  bool runs;
  int rows_behind;  // of a box, after those of the tile's outputs
  int unit_rows;    // output rows per unit
  int row_units;    // units per row
  int tile_units;
  int image_units;  // per image of a tile, unless `runs`
  int tile_images;
  int tile_rows;    // output rows per image of a tile
  int image_tiles;  // per image, if a tile has only one
  int image_positions;
  int tiles;
  int column_tiles;
  int groups;  // number of blocks per column tile
  int pieces;  // of 16 bytes, per pixel
  int chunks;  // pieces of all taps
  int steps;   // products of two chunks
  int stages;  // of four steps
  int phases;
  int phase[kConvMostPhases];  // in box order
  bool long_rows;              // copy a row of pixels at once, otherwise piece by piece
  bool prefetches;             // weights were written before the previous kernel
  int addend_parts;
  int part_bytes;  // per part of a unit's addends or sums
  int part_pitch;
  int buffers;  // per warpgroup; each holds a unit's addends, then its sums
  int slots;
  int box_bytes;    // copied per phase
  int phase_bytes;  // from one phase to the next
  int slot_bytes;
  // Offsets in shared memory.
  int terms_at;
  int shared_at;
  int buffers_at;
  int slots_at;
  int shared_bytes;
  uint32_t step[kBoxMostSteps];  // descriptor start and leading offset, in 16-byte units

  int64_t units() const { return int64_t{tiles} * tile_units * column_tiles; }
};

// A unit of a tile.
struct alignas(16) BoxUnit {
  int start;  // position in the slot
  int image, y, x;
};

// A block's shared memory apart from weights, terms, addends and boxes.
struct BoxShared {
  BoxUnit units[kBoxMostUnits];
  uint64_t weights;
  uint64_t slot_full[kBoxMostSlots];
  uint64_t slot_empty[kBoxMostSlots];
  uint64_t addends[kBoxSumGroups][kBoxMostBuffers];
  uint32_t turned[4];
};

// Returns false if the problem does not fit. `output` is kBits or kSums; `groups` is the number of
// warpgroups.
bool plan_conv_box(ConvBoxPlan& plan, const ConvAddArgs& args, ConvOutput output, int groups,
                   const Device& device);

// Plans a launch for bits and returns the number of warpgroups, or 0. In long launches more
// warpgroups per block count more than an early start of the next kernel.
int plan_conv_box_bits(ConvBoxPlan& plan, const ConvAddArgs& args, const Device& device);

}  // namespace bitgnn::cuda::conv
