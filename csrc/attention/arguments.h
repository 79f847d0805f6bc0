// Argument structs of attention on bits, shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "core/kernel.h"
#include "ternary/arguments.h"

namespace bitgnn {

// Attention on bits without a score matrix. For query i of a head and the keys j that it may attend
// to, with d_j = q_i . k_j, m = max d_j and the table T of attention/softmax_table.h:
//   S = sum over t ascending of T[t] * #{j : m - d_j = t}, in float64,
//   bit_j = T[m - d_j] >= (0.5 * bool_scale) * S,
//   out_i = out_scale * sum_j bit_j * v_j, with an exact integer sum and the product in float32.
// A query that may attend to no key yields zeros.
struct TernaryAttentionArgs {
  TernaryOperand q;  // [batch, heads], rows queries, bits along size
  TernaryOperand k;  // [batch, kv_heads], rows keys, bits along size
  TernaryOperand v;  // [batch, kv_heads], rows features (`size` of them), bits along keys
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

// Float rows of a batch of matrices, with element k of row r of matrix (b0, b1) at
// b0 * batch_strides[0] + b1 * batch_strides[1] + r * row_stride + k. They are quantised to ternary
// as in TernaryPackArgs.
struct TernaryFloatOperand {
  const void* x;
  FloatType type;
  int64_t batch_strides[2];
  int64_t row_stride;
  const float* scale;
};

// Packing of float queries, keys and values and their attention in one call. The rows of v are keys
// here too.
struct TernaryFloatAttentionArgs {
  TernaryAttentionArgs attention;  // with q, k and v unset
  TernaryFloatOperand q, k, v;
};

BITGNN_KERNEL(attention, attention_ternary, const TernaryAttentionArgs& args);
// Sets `*suits`: whether attention_ternary_floats() takes these arguments. Otherwise operands are
// packed first.
BITGNN_KERNEL(attention, suits_floats, const TernaryFloatAttentionArgs& args, bool* suits);
BITGNN_KERNEL(attention, attention_ternary_floats, const TernaryFloatAttentionArgs& args);

}  // namespace bitgnn
