// Arguments of attention on bits that the kernels of every backend share.
#pragma once

#include <cstdint>

#include "ternary/arguments.h"

namespace bitgnn {

// Attention on bits without a matrix of scores. For query i of a head, over the keys j that it may
// attend to, with d_j = q_i . k_j, m = max d_j and T of attention/softmax_table.h:
//   S = sum over t ascending of T[t] * #{j : m - d_j = t}, in float64,
//   bit_j = T[m - d_j] >= (0.5 * bool_scale) * S,
//   out_i = out_scale * sum_j bit_j * v_j, the sum an exact integer, the product in float32.
// A query that may attend to no key gives zeros.
struct TernaryAttentionArgs {
  TernaryOperand q;  // [batch, heads], rows queries, bits along size
  TernaryOperand k;  // [batch, kv_heads], rows keys, bits along size
  TernaryOperand v;  // [batch, kv_heads], rows features (as many as size), bits along keys
  int64_t batch;
  int64_t heads;
  int64_t kv_heads;  // divides heads; head h uses h / (heads / kv_heads)
  int64_t queries;
  int64_t keys;
  int64_t size;         // of a head
  const int32_t* mask;  // bits [batch, words_for(keys)], 1 = may be attended to; or null
  bool causal;          // key j only where j <= i + keys - queries
  double scale;         // T[t] = exp(-scale * t)
  double bool_scale;
  float out_scale;
  ValueType type;          // any but kInt32
  void* out;               // element d of query i at b * out_strides[0] + h * out_strides[1] +
  int64_t out_strides[3];  // i * out_strides[2] + d

  constexpr int64_t table_entries() const { return 2 * size + 1; }
};

// Rows of floats of batches of matrices: element k of row r of matrix (b0, b1) at
// b0 * batch_strides[0] + b1 * batch_strides[1] + r * row_stride + k. They become ternary as those
// of TernaryPackArgs.
struct TernaryFloatOperand {
  const void* x;
  FloatType type;
  int64_t batch_strides[2];
  int64_t row_stride;
  const float* scale;
};

// Packing of queries, keys and values and their attention in one; rows of v are keys, too.
struct TernaryFloatAttentionArgs {
  TernaryAttentionArgs attention;  // whose q, k and v are not set
  TernaryFloatOperand q, k, v;
};

}  // namespace bitgnn
