// Stages of a whole model run by one kernel; see whole_model/cuda/cooperative/kernel.cuh.
#pragma once

#include <cstdint>

#include "bspmm/narrow_sums.h"
#include "core/common.h"

namespace bitgnn {

constexpr int kMaxStages = 8;
constexpr int kNoOffset = -1;

// Source of a stage's packed rows.
enum class StageSource : int {
  kFloats,    // the features, to be binarised
  kWords,     // the features, already packed
  kBits,      // signs of sums of neighbours' bits
  kIntegers,  // sums of neighbours' products, the result or to be binarised
};

// What a stage computes from them.
enum class StageOutput : int {
  kBits,      // signs of the product, for the next stage's sums
  kIntegers,  // the product and a factor per row, for the next stage's sums
  kResult,    // the sums themselves are the result
};

// One stage. Offsets are in 4-byte words into the image of constants, kNoOffset if absent. weights
// [columns + 1, pitch], where columns is `out` rounded up to a multiple of 16, missing rows and
// words are 0, and the last row is a mask of the valid bits of each word; terms int32 [columns]:
// comparison limits for unscaled kBits (see column_limit), otherwise size - 2 * set bits;
// inversions uint16 [columns / 16] for kBits; threshold [size] if rows are binarised; gain [size]
// of a measured scale; scale and bias [size] of integer sums; product_scale and product_threshold
// [out] for scaled kBits.
struct Stage {
  StageSource source;
  StageOutput output;
  int size;     // input features
  int out;      // output features of the product
  bool wide;    // kIntegers summed in the order of wide rows; see bspmm/narrow_sums.h
  bool scaled;  // rows have a scale, measured or given: part of their factor, or of kBits' sums
  int weights, terms, inversions, threshold, gain, scale, bias, product_scale, product_threshold;
};

// Kernel arguments. A block's slice of the graph, in words: row pointers starting at 0
// [row_capacity + 4], row factors and column factors of its own nodes [row_capacity each], and
// indices [edge_capacity].
struct CooperativeArgs {
  const void* x;  // [rows, size] floats, or words
  FloatType type;
  int64_t row_stride;    // elements of x per row
  const float* x_scale;  // [rows] or null; for packed features
  int rows;
  int blocks;
  int num_stages;
  Stage stages[kMaxStages];
  const int32_t* image;  // [image_words]
  int image_words;
  const int32_t* slices;  // [blocks, slice_words(...)]
  int row_capacity;       // rows of the largest block, rounded up to a multiple of 16
  int edge_capacity;      // edges of the largest block, rounded up to a multiple of 4
  int most_degree;        // edges of the longest row
  int32_t* state;         // zero before the first call: kStateHead words, then the stages' rows
  float* out;             // [rows, size of the last stage]
};

// Rows are passed to the next stage in 16-byte pieces: three words of a row and a tag that
// identifies the call that wrote them, so a row is complete as soon as all of its tags match.
constexpr int kPieceWords = 3;
constexpr int kPieceBytes = 16;
// Words before the rows: the number of completed calls, and the number of blocks that have finished
// the current one.
constexpr int kStateHead = 4;

constexpr int integer_bytes(int size) { return size <= kMostByteFeatures ? 1 : 2; }
// Words per row of a stage's output: bits, or halves of products followed by the row's factor in
// the next sums, which is its scale times its column factor.
constexpr int row_words(const Stage& s) {
  return s.output == StageOutput::kBits ? (s.out + 31) / 32
                                        : (s.out * integer_bytes(s.size) + 3) / 4 + 1;
}
constexpr int row_pieces(const Stage& s) { return (row_words(s) + kPieceWords - 1) / kPieceWords; }
constexpr int row_capacity(int rows, int blocks) {
  return ((rows + blocks - 1) / blocks + 15) / 16 * 16;
}
constexpr int slice_words(int row_capacity, int edge_capacity) {
  return 3 * row_capacity + 4 + edge_capacity;
}
// Sizes of packed rows: words of 32 features, steps of a product, and row pitch in words.
constexpr int stage_words(int size) { return (size + 31) / 32; }
constexpr int stage_steps(int size) { return (stage_words(size) + 7) / 8; }
constexpr int stage_pitch(int size) { return (stage_steps(size) * 2 | 1) * 4; }
constexpr int stage_columns(int out) { return (out + 15) / 16 * 16; }

}  // namespace bitgnn
