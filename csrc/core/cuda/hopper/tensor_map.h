// Tensor maps for bulk copies of packed rows, encoded by the driver without linking to it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace bitgnn::cuda {

// Boxes of `box_rows` rows by 128 bytes, with the 128-byte swizzle. `words` is a multiple of four
// and the address is 16-byte aligned; what lies outside reads as zero.
cudaError_t encode_rows(CUtensorMap& map, const int32_t* from, int64_t rows, int64_t words,
                        int box_rows);

// Boxes of `columns` weight rows by 128 bytes in the order of ConvTable, for chunks of `chunk`
// outputs; the last coordinate counts 4 * chunk rows. `rows` is a multiple of `columns`. With
// `ordered`, the rows in memory are already in that order.
cudaError_t encode_weights(CUtensorMap& map, const int32_t* from, int64_t rows, int64_t words,
                           int columns, int chunk, bool ordered);

// A 5-D tensor of elements of 2, 4 or 8 bytes, innermost dimension first, and boxes of it.
struct BoxedTensor {
  const void* from;
  int element_bytes;
  int64_t size[5];
  int64_t stride[4];  // in bytes, of dimensions 1 to 4
  int64_t box[5];     // every step-th element of the box is copied
  int64_t step[5];
  bool swizzled;  // innermost rows of 128 bytes with the 128-byte swizzle
};
cudaError_t encode_boxes(CUtensorMap& map, const BoxedTensor& tensor);

}  // namespace bitgnn::cuda
