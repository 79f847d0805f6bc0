// Launches of what images pass through beside convolutions of bits.
#pragma once

#include "bitgnn/conv_arguments.h"
#include "bitgnn/cuda/launch.h"

namespace bitgnn::cuda {

// See ImagePackArgs.
cudaError_t pack_images(const ImagePackArgs& args, const Context& context);

// See BitPoolArgs.
cudaError_t pool_bits(const BitPoolArgs& args, const Context& context);

}  // namespace bitgnn::cuda
