// Argument structs of the ternary operators (BWTA), shared by the kernels of every backend.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// A ternary row of `size` values in {-1, 0, +1} is two consecutive bit planes of words_for(size)
// words each, pos (+1) and neg (-1); padding bits are 0 and no bit is set in both planes. A boolean
// row, with values in {0, 1}, is one plane. `counts` holds a row's set bits, over all planes.

// Output type of a product: floats rounded once from float32, or the raw integer sums.
enum class ValueType : int { kFloat32, kFloat16, kBFloat16, kInt32 };

// Packs floats into bits. Row r of rows() has indices (i0, i1, i2) in `sizes`, the last fastest:
//   pos = x >= 0.5f * scale, neg = x < -0.5f * scale  (neither where x is NaN),
// compared in float32; 16-bit floats are converted first.
struct TernaryPackArgs {
  const void* x;   // element k of a row at i0 * strides[0] + i1 * strides[1] + i2 * strides[2] + k
  FloatType type;  // kFloat32, kFloat16 or kBFloat16
  int64_t sizes[3];
  int64_t strides[3];  // in elements
  int64_t size;
  const float* scale;  // a single positive number, on the device
  bool boolean;        // only pos
  int32_t* words;      // [rows, 2, words_for(size)], or [rows, words_for(size)] with boolean
  int32_t* counts;     // [rows]

  constexpr int64_t rows() const { return sizes[0] * sizes[1] * sizes[2]; }
};

// Packs matrices x[length, features] along their rows: each feature gets bit planes over `length`.
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

// Ternary rows times +-1 weights, which are one bit plane (1 = +1):
//   dot = 2 * (popc(w & pos) + popc(~w & neg)) - counts[i],
//   v = ((x_scale * w_scale[o]) * dot) + bias[o] in float32; missing terms are left out.
// The output is v, or the bit (v >= threshold[o]) ^ flip[o], which is (dot >= 0) ^ flip[o] without
// bias and threshold.
struct TernaryBmmArgs {
  const int32_t* x;       // [rows, 2, words_for(size)]
  const int32_t* counts;  // [rows]
  const int32_t* w;       // [out_features, words_for(size)]
  int64_t rows;
  int64_t size;
  int64_t out_features;
  const float* x_scale;    // a single number, or null
  const float* w_scale;    // [out_features], or a single number with w_scale_stride 0, or null
  int64_t w_scale_stride;  // 0 or 1
  const float* bias;       // [out_features] or null
  const float* threshold;  // [out_features] or null (0); for bit outputs
  const bool* flip;        // [out_features] or null; for bit outputs
  ValueType type;          // of out; kInt32 gives dot
  void* out;               // [rows, out_features]; null for bit outputs, which go to:
  int32_t* out_bits;       // [rows, words_for(out_features)]
};

// Packing and product of float rows in one call: TernaryPackArgs followed by TernaryBmmArgs with
// the packing scale as x_scale. Boolean rows are ternary rows with an empty neg.
struct TernaryLinearArgs {
  TernaryPackArgs pack;    // sizes {1, 1, rows}; words and counts are null
  TernaryBmmArgs product;  // x, counts, threshold, flip and out_bits are null
};

// Packed rows of a batch of matrices. Row r of matrix (b0, b1) starts at word
//   b0 * batch_strides[0] + b1 * batch_strides[1] + r * row_stride,
// with its planes consecutive; counts are addressed the same way.
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
  bool boolean;      // x is boolean
  int64_t batches[2];
  int64_t rows;
  int64_t columns;
  int64_t size;
  const float* scale;    // a single number, on the device, or null (1)
  const float* y_scale;  // likewise
  ValueType type;        // kInt32 gives dot, without scales
  void* out;             // [batches, rows, columns]
};

BITGNN_KERNEL(ternary, pack_ternary, const TernaryPackArgs& args);
BITGNN_KERNEL(ternary, pack_ternary_columns, const TernaryColumnPackArgs& args);
BITGNN_KERNEL(ternary, multiply_ternary, const TernaryBmmArgs& args);
BITGNN_KERNEL(ternary, linear_ternary, const TernaryLinearArgs& args);
BITGNN_KERNEL(ternary, matmul_ternary, const TernaryMatmulArgs& args);

}  // namespace bitgnn
