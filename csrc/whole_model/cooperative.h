// Stages of a whole model that one kernel runs; see whole_model/cuda/cooperative/kernel.cuh.
#pragma once

#include <cstdint>

#include "bspmm/narrow_sums.h"
#include "core/common.h"

namespace bitgnn {

constexpr int kMaxStages = 8;
constexpr int kNoOffset = -1;

// Where the packed rows of a stage come from.
enum class StageSource : int {
  kFloats,    // the features, binarised
  kWords,     // the features, packed
  kBits,      // signs of sums of neighbours' bits
  kIntegers,  // sums of neighbours' products: the result, or binarised
};

// What becomes of them.
enum class StageOutput : int {
  kBits,      // a product's signs, for the next stage's sums
  kIntegers,  // a product and a factor of each row, for the next stage's sums
  kResult,    // the sums themselves are the result
};

// One stage. Offsets are in 4-byte words of the image of constants, kNoOffset where there is
// nothing: weights [columns + 1, pitch], columns being `out` rounded up to 16s, missing rows and
// words 0 and the last row a mask of the words' valid bits; terms int32 [columns], limits of
// comparison for kBits that are not scaled (see column_limit), else size - 2 * set bits; inversions
// uint16 [columns / 16] of kBits; threshold [size] of what is binarised; gain [size] of a measured
// scale; scale and bias [size] of sums of integers; product_scale and product_threshold [out] of
// kBits that are scaled.
struct Stage {
  StageSource source;
  StageOutput output;
  int size;     // features that the source gives
  int out;      // features that the product gives
  bool wide;    // kIntegers whose sums have the order of wide rows: see bspmm/narrow_sums.h
  bool scaled;  // rows have a scale, measured or given: part of their factor, or of kBits' sums
  int weights, terms, inversions, threshold, gain, scale, bias, product_scale, product_threshold;
};

// What a block has of the graph, in words of its slice: row pointers that start at 0
// [row_capacity + 4], row factors and column factors of its own nodes [row_capacity] and indices
// [edge_capacity].
struct CooperativeArgs {
  const void* x;  // [rows, size] floats, or words
  FloatType type;
  int64_t row_stride;    // elements of x a row
  const float* x_scale;  // [rows] or null; of packed features
  int rows;
  int blocks;
  int num_stages;
  Stage stages[kMaxStages];
  const int32_t* image;  // [image_words]
  int image_words;
  const int32_t* slices;  // [blocks, slice_words(...)]
  int row_capacity;       // rows of the largest block, rounded up to 16s
  int edge_capacity;      // edges of the largest, to fours
  int most_degree;        // edges of the longest row
  int32_t* state;         // zeros before the first call: see kStateHead, then the stages' rows
  float* out;             // [rows, size of the last stage]
};

// What a stage hands to the next one: pieces of 16 bytes, three words of a row and a tag that says
// which call wrote them, so that a row is complete as soon as its tags are.
constexpr int kPieceWords = 3;
constexpr int kPieceBytes = 16;
// Words in front of the rows: the calls that are done, and the blocks that are done with this one.
constexpr int kStateHead = 4;

constexpr int integer_bytes(int size) { return size <= kMostByteFeatures ? 1 : 2; }
// Words of a row of a stage's output: bits, or halves of products and then the factor of the row in
// the next sums, its scale times its column factor.
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
// Words of 32 features, in steps of a product, and from one row to the next.
constexpr int stage_words(int size) { return (size + 31) / 32; }
constexpr int stage_steps(int size) { return (stage_words(size) + 7) / 8; }
constexpr int stage_pitch(int size) { return (stage_steps(size) * 2 | 1) * 4; }
constexpr int stage_columns(int out) { return (out + 15) / 16 * 16; }

}  // namespace bitgnn
