// Launch of packing the patches of images.
#pragma once

#include "bitgnn/cuda/launch.h"
#include "bitgnn/patch_arguments.h"

namespace bitgnn::cuda {

// See PatchArgs.
cudaError_t pack_patches(const PatchArgs& args, const Context& context);

}  // namespace bitgnn::cuda
