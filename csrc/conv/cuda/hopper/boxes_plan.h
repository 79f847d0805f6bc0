// How a convolution is cut into boxes of pixels, which tensor copies load with the zeros around the
// image.
//
// A box holds rows of `pitch` positions, beginning `padding_left` before the image: output (y, x)
// is position y * pitch + x, and a tap is a constant distance from there. A stride of s divides the
// pixels into up to s * s phases with a box each. A tile is some rows of outputs of one image, or
// some images. A unit is 64 positions: from the first of a row of outputs on, some whole rows or a
// part of one; or, where `runs` says so, the next 64 of the tile, wherever its rows end.
#pragma once

#include <cstdint>

#include "conv/arguments.h"
#include "conv/cuda/hopper/wgmma_plan.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

constexpr int kBoxColumns = 128;         // outputs of a tile
constexpr int kBoxProductColumns = 144;  // and columns of ones, which count the pixels' bits
constexpr int kBoxStageBytes = kBoxProductColumns * kConvStageRowBytes;
constexpr int kBoxLongestSide = 3;
constexpr int kBoxMostTaps = kBoxLongestSide * kBoxLongestSide;
constexpr int kBoxMostSteps = 48;
constexpr int kBoxMostClasses = 25;
constexpr int kBoxMostSlots = 4;
constexpr int kBoxMostUnits = 32;  // of a tile
constexpr int kBoxUnitRows = 64;   // positions
// Warpgroups that take a tile's units in turn.
constexpr int kBoxBitGroups = 2;
constexpr int kBoxLongGroups = 4;
constexpr int kBoxSumGroups = 3;
constexpr int kBoxMostBuffers = 3;
constexpr int kBoxPartChannels = 64;  // 128 bytes of addends or sums
constexpr int kBoxParts = kBoxColumns / kBoxPartChannels;
constexpr int kBoxAlignment = 1024;
// Words of a class's terms. Those of bits are halves of words, a quad's lanes off each other's
// banks.
constexpr int kBoxQuadPitch = 20;
constexpr int kBoxBitPitch = 4 * kBoxQuadPitch;
constexpr int kBoxSumPitch = kBoxColumns;

struct ConvBoxPlan {
  int images, out_height, out_width;
  int stride_height, stride_width;
  int padding_top, padding_left;
  ConvAxis row_axis;
  ConvAxis column_axis;
  int classes;
  int pitch;
  FrameDivider by_pitch;
  FrameDivider by_image;  // positions
  bool runs;
  int rows_behind;  // of a box, behind those of the tile's outputs
  int unit_rows;    // of outputs
  int row_units;    // units of a row
  int tile_units;
  int image_units;  // of a tile in one image, unless they run on
  int tile_images;
  int tile_rows;    // of outputs of a tile in one image
  int image_tiles;  // of an image, where a tile has no more than one
  int image_positions;
  int tiles;
  int column_tiles;
  int groups;  // of blocks, one for each tile of outputs
  int pieces;  // of 16 bytes a pixel
  int chunks;  // pieces of all taps
  int steps;   // products of two chunks
  int stages;  // of four steps
  int phases;
  int phase[kConvMostPhases];  // in the order of their boxes
  bool long_rows;              // a row of pixels is copied as one, else piece by piece
  bool prefetches;             // weights were there before the kernel in front
  int addend_parts;
  int part_bytes;  // of a unit's addends or sums
  int part_pitch;
  int buffers;  // of a warpgroup, a unit's addends each, which become its sums
  int slots;
  int box_bytes;    // copied of one phase
  int phase_bytes;  // from one phase to the next
  int slot_bytes;
  // Places in shared memory.
  int terms_at;
  int shared_at;
  int buffers_at;
  int slots_at;
  int shared_bytes;
  uint32_t step[kBoxMostSteps];  // the descriptor's start and leading distance, 16 bytes each
};

// A unit of a tile.
struct alignas(16) BoxUnit {
  int start;  // position in the slot
  int image, y, x;
};

// What a block keeps in shared memory beside weights, terms, addends and boxes.
struct BoxShared {
  BoxUnit units[kBoxMostUnits];
  uint64_t weights;
  uint64_t slot_full[kBoxMostSlots];
  uint64_t slot_empty[kBoxMostSlots];
  uint64_t addends[kBoxSumGroups][kBoxMostBuffers];
  uint32_t turned[4];
};

// Fails where the problem does not fit. `output` is kBits or kSums; `groups` of threads that
// multiply.
bool plan_conv_box(ConvBoxPlan& plan, const ConvAddArgs& args, ConvOutput output, int groups,
                   const Device& device);

}  // namespace bitgnn::cuda::conv
