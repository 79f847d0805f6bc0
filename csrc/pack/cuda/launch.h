// Packing of rows, images and patches, bit transposition, ADD and CONCAT on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "pack/arguments.h"

namespace bitgnn::cuda::pack {

// Packs `rows` rows; see PackArgs.
cudaError_t pack(const PackArgs& args, int64_t rows, const Context& context);

// See CsrPackArgs.
cudaError_t pack_csr(const CsrPackArgs& args, const Context& context);

// Packs `rows` rows; see StandardizedPackArgs.
cudaError_t pack_standardized(const StandardizedPackArgs& args, int64_t rows,
                              const Context& context);

// See ImagePackArgs.
cudaError_t pack_images(const ImagePackArgs& args, const Context& context);

// See PatchArgs.
cudaError_t pack_patches(const PatchArgs& args, const Context& context);

// out[i, k] = scale[i] where bit k of row i is set, else -scale[i]; 1 without a scale.
cudaError_t unpack(const int32_t* words, int64_t rows, int64_t size, const float* scale, float* out,
                   const Context& context);

// Bit i of row k of out [size, words_for(rows)] is bit k of row i of words; padding bits are 0.
cudaError_t transpose_bits(const int32_t* words, int64_t rows, int64_t size, int32_t* out,
                           const Context& context);

// Element-wise; see JoinArgs.
cudaError_t add(const JoinArgs& args, const Context& context);
cudaError_t concat(const JoinArgs& args, const Context& context);

}  // namespace bitgnn::cuda::pack
