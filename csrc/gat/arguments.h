// Arguments of graph attention over bits, shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// Edges whose weights are added up in their order; the sums of a row's pieces follow one another.
constexpr int64_t kGatPiece = 256;

// Softmax over the edges of each row, and the weighted mean of the sources' bits as -1 and +1. For
// edge e from j to i and head h, unless is_v2,
//   s = leaky(source[j, h] + target[i, h] + edge[e, h]),
// else, with integers that may wrap, the sum over the features k of head h
//   s = step[h] * sum of left[j, k] * (alone[k] + right[i, k] * both[k]), bits being 0 and 1. Then
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
  const float* source;  // [cols, heads], rows at source_stride
  int64_t source_stride;
  const float* target;  // [rows, heads], rows at target_stride
  int64_t target_stride;
  const float* edge;  // [edges, heads] or null
  float slope;
  bool is_v2;
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
