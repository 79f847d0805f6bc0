// Launch of packing the patches of images.
#pragma once

#include "core/cuda/launch.h"
#include "pack/patch_arguments.h"

namespace bitgnn::cuda {

// See PatchArgs.
cudaError_t pack_patches(const PatchArgs& args, const Context& context);

}  // namespace bitgnn::cuda
