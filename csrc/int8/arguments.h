// Arguments of packing to 8-bit rows and of their products, shared by the kernels of all backends.
#pragma once

#include <cstdint>

#include "core/common.h"
#include "core/kernel.h"

namespace bitgnn {

// Bytes of a row of codes are a multiple of this, so that every row is aligned for vector loads.
constexpr int64_t kInt8RowBytes = 16;
// Largest number of features whose products with codes of +-127 fit in int32.
constexpr int64_t kMostInt8Features = 133120;
constexpr int kLargestCode = 127;

// Bytes from one row of codes to the next; bytes from `size` on are 0.
constexpr int64_t int8_pitch(int64_t size) {
  return (size + kInt8RowBytes - 1) / kInt8RowBytes * kInt8RowBytes;
}

// Quantisation of float rows: code = clamp(rint((x - centre) * inverse_step), -127, 127), where x
// is converted to float32, the difference and the product are each rounded to float32, and rint
// rounds half to even. NaN becomes 0.
struct Int8PackArgs {
  const void* x;       // [rows, size], unit column stride
  FloatType type;      // float32, float16 or bfloat16
  int64_t row_stride;  // in elements
  int64_t rows;
  int64_t size;
  const float* centre;        // [size]
  const float* inverse_step;  // [size]
  int8_t* codes;              // [rows, int8_pitch(size)], 16-byte aligned
};

// Addends in the form of sums of neighbours' bits, for CUDA alone: the outputs out_short and
// out_int of AggregateArgs. addend[i, o] = row_scale[i] * float(sum[i, o]) + bias[o], every step
// rounded.
struct NeighbourSums {
  const int16_t* sums;  // [rows, out_features], or null: there are none
  const int32_t* long_sums;
  const void* rowptr;  // [rows + 1], int32 or int64
  bool rowptr64;
  const float* row_scale;  // [rows] or null (1)
  const float* bias;       // [out_features] or null: not added
};

// Product of 8-bit rows: with dot[i, o] = sum of codes[i, k] * weight[o, k], an exact int32,
//   value = scale[o] * float(dot) + shift[o] + addend[i, o], every step rounded to float32;
// out_float holds the values; out_bits holds dot >= threshold[o], inverted where flip[o], or, with
// an addend, value >= value_threshold[o], which is false for NaN. Padding bits are 0.
struct Int8BmmArgs {
  const int8_t* codes;       // [rows, int8_pitch(size)], 16-byte aligned, or null
  const Int8PackArgs* pack;  // rows to quantise inside the product if there are no codes; its own
                             // `codes` is null
  const int8_t* weight;      // [out_features, int8_pitch(size)], 16-byte aligned
  int64_t rows;
  int64_t size;  // K, length of the dot product, at most kMostInt8Features
  int64_t out_features;
  const float* scale;            // [out_features] or null (1)
  const float* shift;            // [out_features] or null: not added
  const float* addend;           // [rows, out_features] or null: not added
  NeighbourSums neighbours;      // in place of an addend
  const int32_t* threshold;      // [out_features] or null (0); for bits without an addend
  const bool* flip;              // [out_features] or null; for bits without an addend
  const float* value_threshold;  // [out_features] or null (0); for bits with an addend
  float* out_float;              // [rows, out_features]; one of the two outputs is set
  int32_t* out_bits;             // [rows, words_for(out_features)]
};

BITGNN_KERNEL(int8, pack_int8, const Int8PackArgs& args);
BITGNN_KERNEL(int8, multiply_int8, const Int8BmmArgs& args);

}  // namespace bitgnn
