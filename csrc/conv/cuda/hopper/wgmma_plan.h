// Tiling of a convolution into warpgroup products: frames of pixels, slabs, steps and their shared
// memory offsets.
//
// Every image lies in a virtual frame of `frame_rows` by `pitch` positions, large enough that a tap
// outside the image reads a position without a pixel; the zeros between two rows serve both.
// Positions are numbered consecutively over all frames; a tap is at a constant distance from output
// (n, y, x), which is position n * frame + y * pitch + x. A stride of s divides the input into
// s * s phases with frames of their own. A tile is 256 positions.
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

// Columns of the product are outputs, ordered so that each lane of a quad holds chunks of kChunk
// consecutive outputs (for bits, all of its outputs): output 4 kChunk J + kChunk q + r is column
// 8 j + 2 q + e, an accumulator of lane q, with 2 j + e = kChunk J + r. Tables of bits leave four
// numbers between the lanes' parts to avoid bank conflicts.
constexpr int conv_chunk(int columns, ConvOutput output) {
  return output == ConvOutput::kBits ? columns / 4 : output == ConvOutput::kSums ? 8 : 4;
}
template <int kColumns, ConvOutput kOutput>
struct ConvTable {
  static constexpr int kChunk = conv_chunk(kColumns, kOutput);
  static constexpr int kApart = kOutput == ConvOutput::kBits ? 4 : 0;
  static constexpr int kPitch = kColumns + 16;
  static constexpr int place(int output) { return output + output / kChunk * kApart; }
  // Offset of the lane's index-th group of four outputs, relative to its first output.
  static constexpr int part(int index) {
    return index * 4 / kChunk * 4 * kChunk + index * 4 % kChunk;
  }
};
constexpr int conv_table_pitch(int columns) { return columns + 16; }

// Divides numbers below 2^31 by a fixed divisor.
struct FrameDivider {
  uint32_t divisor;
  uint32_t multiplier;
  uint32_t shift;
};

FrameDivider frame_divider(int64_t divisor);

// A slab holds 16 bytes for each of `rows` positions from the tile's first: a piece of the channels
// of one phase's pixels.
struct ConvSlab {
  uint8_t phase;
  uint8_t place;  // in the slot, in slabs
  uint8_t piece;  // of a pixel, in 16-byte units
};

// Classes of outputs along one axis by the taps inside the image: one class for each of the
// `leading` first outputs and for each output from `trailing` on, and one for all between.
struct ConvAxis {
  int leading;
  int trailing;
  int classes;
};

// The geometry of a convolution without dilation.
struct ConvGeometry {
  int images, height, width;
  int out_height, out_width;
  int stride_height, stride_width;
  int padding_top, padding_left;
  ConvAxis row_axis;
  ConvAxis column_axis;
  int classes;  // of both axes
};

ConvGeometry conv_geometry(const ConvArgs& args);

struct ConvPlan : ConvGeometry {
  FrameDivider frame;
  FrameDivider pitch;
  int tiles;
  int column_tiles;
  int groups;  // blocks per column tile if blocks keep their weights, otherwise 0
  int rows;    // positions per slab
  int slabs;   // per slot, `copies` of them a second time
  int phases;
  int copies;  // entries of `slab`
  int pieces;  // of 16 bytes, per pixel
  int steps;   // products of 256 bits
  int blocks;  // of four steps; one stage of the ring each
  int stages;
  int slots;
  int taps;
  // Offsets in shared memory.
  int slot_bytes;
  int slots_at;
  int fixed_at;
  int tables_at;
  int counts_at;
  int shared_bytes;
  int masks;  // per class, four taps each
  int masks_at;
  int phase_place[kConvMostPhases];  // first slab of a phase
  uint8_t phase_index[kConvMostPhases];
  ConvSlab slab[kConvMostSlabs];
  uint32_t step[kConvMostSteps];  // descriptor start and leading offset, in 16-byte units
  int32_t window[kConvMostTaps];  // indices of the counts that make up a window's
};

// What the epilogue needs of a tile row.
struct alignas(16) ConvRowInfo {
  int32_t sum;     // popcount of its window
  int32_t terms;   // offset of its class's terms in the table
  int32_t pixel;   // output pixel, or -1
  int32_t addend;  // pixel of the addend
};

// A block's shared memory apart from stages, slots, tables of terms and counts; data that belongs
// to a tile or its outputs is double-buffered.
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

// Outputs per tile.
inline int conv_tile_columns(const ConvArgs& args) { return args.out_channels <= 64 ? 64 : 128; }

// Returns false if the problem does not fit. `columns` is the number of outputs per tile, 64 or
// 128.
bool plan_conv(ConvPlan& plan, const ConvArgs& args, int columns, const Device& device);

}  // namespace bitgnn::cuda::conv
