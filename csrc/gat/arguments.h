// Arguments of graph attention over bits, shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// What the scores of an edge come from: floats of its ends, bits of its ends, or float rows of
// these.
enum class GatScores : int { kNodes, kPairs, kDots };

// A dot product of two rows adds the products number k, k + kDotParts, ... up for each k below
// kDotParts, and then both halves of the sums until one is left.
constexpr int kDotParts = 8;

// Edges whose weights are added up in their order; the sums of a row's pieces follow one another.
constexpr int64_t kGatPiece = 256;

// Softmax over the edges of each row, and the weighted mean of the sources' bits as -1 and +1. For
// edge e from j to i and head h
//   kNodes: s = leaky(source[j, h] + target[i, h] + edge[e, h]), without ends leaky(edge[e, h]),
//   kPairs: s = step[h] * sum of left[j, k] * (alone[k] + right[i, k] * both[k]) over the features
//   k
//           of the head, bits being 0 and 1 and integers free to wrap,
//   kDots:  s = (sum of query[i, k] * key[j, k]) + edge[e, h]. Then
//   w = exp(s - max s), D = sum of w, out[i, f] = (sum of +-w) / D + bias[f],
// where exp is gat/exponential.h and feature f belongs to head f / (size / heads), or with `shared`
// every head has all features of x: f = h * size + k. A row without edges is 0 in front of its
// bias.
struct GatArgs {
  const void* rowptr;  // [rows + 1], int32 or int64
  bool rowptr64;
  const int32_t* indices;  // [edges]
  int64_t rows;
  int64_t cols;
  int64_t edges;
  const int32_t* x;  // [cols, words_for(size)]
  int64_t size;
  int64_t heads;
  bool shared;
  GatScores scores;
  const float* source;  // [cols, heads], or keys [cols, width]; rows at source_stride; may be null
  int64_t source_stride;
  const float* target;  // [rows, heads], or queries [rows, width]; null like source
  int64_t target_stride;
  const float* edge;  // [edges, heads] or null
  float slope;
  const int32_t* left;     // [cols, words_for(width)]
  const int32_t* right;    // [rows, words_for(width)]
  int64_t width;           // a multiple of heads
  const int32_t* alone;    // [width]
  const int32_t* both;     // [width]
  const float* step;       // [heads]
  const float* bias;       // [columns()] or null
  const float* threshold;  // [columns()] or null (0)
  float* out_float;        // [rows, columns()]; exactly one of the two outputs is set
  int32_t* out_bits;       // [rows, words_for(size)], not with `shared`

  constexpr int64_t columns() const { return shared ? heads * size : size; }
};

BITGNN_KERNEL(gat, gat, const GatArgs& args);

}  // namespace bitgnn
