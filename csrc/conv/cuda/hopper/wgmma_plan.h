// How a convolution is cut into warpgroup products: frames of pixels, slabs, steps and their
// places.
//
// Every image lies in a virtual frame of `frame_rows` by `pitch` positions, big enough that a tap
// outside the image reads a position without a pixel, the zeros between two rows serving both.
// Positions of all frames are numbered one after the other: output (n, y, x) is position
// n * frame + y * pitch + x, and a tap is a constant distance from there. A stride of s divides the
// input into s * s phases, each with frames of its own. A tile is 256 positions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "conv/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::conv {

constexpr int kConvTileRows = 256;
constexpr int kConvMostSteps = 128;
constexpr int kConvLongestSide = 7;
constexpr int kConvMostTaps = kConvLongestSide * kConvLongestSide;
constexpr int kConvMostSlabs = 72;
constexpr int kConvMostPhases = 4;
constexpr int kConvMostStages = 12;
constexpr int kConvMostSlots = 4;
constexpr int kConvPieceBytes = 16;
constexpr int kConvStageRowBytes = 128;

enum class ConvOutput { kBits, kFloat, kInt, kSums };

// Columns of the product are outputs in an order that gives each lane of a quad chunks of
// successive outputs, kChunk at a time, all of its outputs where bits are written: output 4 kChunk
// J + kChunk q + r is column 8 j + 2 q + e, an accumulator of lane q, with 2 j + e = kChunk J + r.
// Tables of bits keep four numbers between the lanes' parts, off each other's banks.
constexpr int conv_chunk(int columns, ConvOutput output) {
  return output == ConvOutput::kBits ? columns / 4 : output == ConvOutput::kSums ? 8 : 4;
}
template <int kColumns, ConvOutput kOutput>
struct ConvTable {
  static constexpr int kChunk = conv_chunk(kColumns, kOutput);
  static constexpr int kApart = kOutput == ConvOutput::kBits ? 4 : 0;
  static constexpr int kPitch = kColumns + 16;
  static constexpr int place(int output) { return output + output / kChunk * kApart; }
  // The first of the lane's four outputs `part`, from the lane's first.
  static constexpr int part(int index) {
    return index * 4 / kChunk * 4 * kChunk + index * 4 % kChunk;
  }
};
constexpr int conv_table_pitch(int columns) { return columns + 16; }

// Quotients of numbers below 2^31 by one divisor.
struct FrameDivider {
  uint32_t divisor;
  uint32_t multiplier;
  uint32_t shift;
};

FrameDivider frame_divider(int64_t divisor);

// A slab holds 16 bytes of each of `rows` positions from the tile's first: a piece of the channels
// of one phase's pixels, or the 64 channels of two pixels that two successive taps read.
struct ConvSlab {
  uint8_t phase[2];
  uint8_t place;  // in the slot, in slabs
  uint8_t piece;  // of a pixel, 16 bytes each
  int16_t shift[2];
};

// Taps [first, last) of one axis inside the image: one class for each of the `leading` first
// outputs and for each output from `trailing` on, one for all between.
struct ConvAxis {
  int leading;
  int trailing;
  int classes;
};

// Without dilation.
ConvAxis conv_axis(int64_t size, int64_t out, int64_t kernel, int64_t stride, int64_t padding);

struct ConvPlan {
  int images, height, width;
  int out_height, out_width;
  int stride_height, stride_width;
  int padding_top, padding_left;
  FrameDivider frame;
  FrameDivider pitch;
  ConvAxis row_axis;
  ConvAxis column_axis;
  int tiles;
  int column_tiles;
  int groups;     // of blocks, where each block keeps its weights; else 0
  int rows;       // positions of a slab
  int slabs;      // in a slot
  int originals;  // of them; the others are copies
  int phases;
  int copies;  // entries of `slab`: copies, or all slabs where a pixel has 8 bytes
  int pieces;  // of 16 bytes a pixel; 0 where a pixel has 8 bytes
  int steps;   // products of 256 bits
  int blocks;  // of four steps, a stage of the ring each
  int stages;
  int slots;
  int window_terms;
  int count_sets;
  int half_set;  // the slab whose first halves count by themselves, in the last set
  // Places in shared memory.
  int slot_bytes;
  int slots_at;
  int fixed_at;
  int tables_at;
  int counts_at;
  int shared_bytes;
  int classes;
  int masks;  // of a class, four taps each
  int masks_at;
  int phase_place[kConvMostPhases];  // of the first slab of a phase
  uint8_t phase_index[kConvMostPhases];
  ConvSlab slab[kConvMostSlabs];
  uint32_t step[kConvMostSteps];  // the descriptor's start and leading distance, 16 bytes each
  int32_t window[kConvMostTaps];  // places of the counts that make up a window's
};

// What the epilogue knows of a row of a tile.
struct alignas(16) ConvRowInfo {
  int32_t sum;     // set bits of its window
  int32_t terms;   // where the terms of its class begin in the table
  int32_t pixel;   // of the output, or -1
  int32_t addend;  // the pixel of the addend
};

// What a block keeps in shared memory beside the stages, slots, tables of terms and counts; two of
// what belongs to a tile or to its outputs, one in use while the other is made.
struct ConvShared {
  ConvRowInfo rows[2][kConvTileRows];
  uint32_t turned[2][4];
  uint64_t full[kConvMostStages];
  uint64_t empty[kConvMostStages];
  uint64_t slot_full[kConvMostSlots];
  uint64_t slot_empty[kConvMostSlots];
  uint64_t info_full[2];
  uint64_t info_empty[2];
};

// Fails where the problem does not fit. `columns` is a tile's outputs, 64 or 128.
bool plan_conv(ConvPlan& plan, const ConvArgs& args, int columns, const Device& device);

}  // namespace bitgnn::cuda::conv
