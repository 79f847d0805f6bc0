// Arguments of the ternary operators (BWTA) that the kernels of every backend share.
#pragma once

#include <cstdint>

#include "core/common.h"

namespace bitgnn {

// Rows of size values in {-1, 0, +1} are two bit planes behind each other, words_for(size) words of
// pos (+1) and as many of neg (-1); padding bits are 0, no bit is set in both. Boolean rows, values
// in {0, 1}, are one plane. `counts` holds the set bits of both planes of a row.

// What a product is returned as: floats rounded once from float32, or bare sums.
enum class ValueType : int { kFloat32, kFloat16, kBFloat16, kInt32 };

// Floats to bits. Row r of rows() has the indices (i0, i1, i2) in sizes, the last fastest:
//   pos = x >= 0.5f * scale, neg = x < -0.5f * scale  (neither where x is NaN),
// compared in float32, to which 16-bit floats are converted.
struct TernaryPackArgs {
  const void* x;   // element k of a row at i0 * strides[0] + i1 * strides[1] + i2 * strides[2] + k
  FloatType type;  // kFloat32, kFloat16 or kBFloat16
  int64_t sizes[3];
  int64_t strides[3];  // in elements
  int64_t size;
  const float* scale;  // one number, on the device; positive
  bool boolean;        // pos alone
  int32_t* words;      // [rows, 2, words_for(size)], or [rows, words_for(size)] with boolean
  int32_t* counts;     // [rows]

  constexpr int64_t rows() const { return sizes[0] * sizes[1] * sizes[2]; }
};

// The same with bits along the rows: those of matrices x[length, features], for each feature.
struct TernaryColumnPackArgs {
  const void* x;   // element (l, d) of matrix (b0, b1) at
  FloatType type;  // b0 * batch_strides[0] + b1 * batch_strides[1] + l * row_stride + d
  int64_t batches[2];
  int64_t batch_strides[2];
  int64_t row_stride;
  int64_t length;
  int64_t features;
  const float* scale;  // as in TernaryPackArgs
  int32_t* words;      // [batches, features, 2, words_for(length)]
  int32_t* counts;     // [batches, features]
};

// Ternary rows times weights of +-1, one plane of bits (1 = +1): with
//   dot = 2 * (popc(w & pos) + popc(~w & neg)) - counts[i],
// v = ((x_scale * w_scale[o]) * dot) + bias[o] in float32, a missing factor left out; then a value,
// or the bit (v >= threshold[o]) ^ flip[o], which is (dot >= 0) ^ flip[o] without bias and
// threshold.
struct TernaryBmmArgs {
  const int32_t* x;       // [rows, 2, words_for(size)]
  const int32_t* counts;  // [rows]
  const int32_t* w;       // [out_features, words_for(size)]
  int64_t rows;
  int64_t size;
  int64_t out_features;
  const float* x_scale;    // one number or null
  const float* w_scale;    // [out_features], or one number with w_scale_stride 0, or null
  int64_t w_scale_stride;  // 0 or 1
  const float* bias;       // [out_features] or null
  const float* threshold;  // [out_features] or null (0); of bits
  const bool* flip;        // [out_features] or null; of bits
  ValueType type;          // of out; kInt32 gives dot
  void* out;               // [rows, out_features], or null where bits are asked for:
  int32_t* out_bits;       // [rows, words_for(out_features)]
};

// Packing of float rows and their product in one: the same as TernaryPackArgs followed by
// TernaryBmmArgs with the packing's scale as x_scale. Boolean rows are ternary ones without neg.
struct TernaryLinearArgs {
  TernaryPackArgs pack;    // sizes {1, 1, rows}; words and counts are null
  TernaryBmmArgs product;  // x, counts, threshold, flip and out_bits are null
};

// Packed rows of batches of matrices. Row r of matrix (b0, b1) begins at word
//   b0 * batch_strides[0] + b1 * batch_strides[1] + r * row_stride,
// its planes lie behind each other; its count likewise.
struct TernaryOperand {
  const int32_t* words;
  int64_t batch_strides[2];
  int64_t row_stride;
  const int32_t* counts;
  int64_t counts_batch_strides[2];
  int64_t counts_row_stride;
};

// Products of rows of x with rows of y, y ternary (p2, n2), x ternary (p1, n1) or boolean (a):
//   dot = popc(p1 & p2) + popc(n1 & n2) + popc(p1 & ~n2) + popc(n1 & ~p2) - counts_x,
//   dot = popc(a & p2) + popc(a & ~n2) - counts_x;
// v = (scale * y_scale) * dot in float32.
struct TernaryMatmulArgs {
  TernaryOperand x;  // [batches, rows]
  TernaryOperand y;  // [batches, columns]
  bool boolean;      // x is
  int64_t batches[2];
  int64_t rows;
  int64_t columns;
  int64_t size;
  const float* scale;    // one number, on the device, or null (1)
  const float* y_scale;  // another one
  ValueType type;        // kInt32 gives dot, without scales
  void* out;             // [batches, rows, columns]
};

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
