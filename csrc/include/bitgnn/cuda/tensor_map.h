// Tensor maps for bulk copies of packed rows, from the driver without linking to it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace bitgnn::cuda {

// Boxes of `box_rows` rows by 128 bytes, with the 128-byte swizzle; `words` is a multiple of four
// and the address of 16 bytes. What lies outside reads as zero.
cudaError_t encode_rows(CUtensorMap& map, const int32_t* from, int64_t rows, int64_t words,
                        int box_rows);

}  // namespace bitgnn::cuda
