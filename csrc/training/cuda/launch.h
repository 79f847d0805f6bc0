// Launchers of the quantisation used in training and its gradients on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "training/arguments.h"

namespace bitgnn::cuda::training {

cudaError_t round_levels(const RoundLevelsArgs& args, const Context& context);
cudaError_t clip_gradients(const ClipGradientsArgs& args, const Context& context);
cudaError_t shift_signs(const ShiftSignsArgs& args, const Context& context);

}  // namespace bitgnn::cuda::training
