// What the transposition of matrices of bits offers to the operators.
#pragma once

#include "core/cuda/launch.h"

namespace bitgnn::cuda {

// Bit i of row k of out [size, words_for(rows)] is bit k of row i of words; padding bits are 0.
cudaError_t transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out,
                           const Context& context);

}  // namespace bitgnn::cuda
