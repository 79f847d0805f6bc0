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

}  // namespace bitgnn
