// Launchers of the quantisation used in training and its gradients on CUDA devices.
#pragma once

#include "core/cuda/launch.h"
#include "training/looked_up_arguments.h"

namespace bitgnn::cuda::training {

cudaError_t round_levels(const RoundLevelsArgs& args, const Context& context);
cudaError_t clip_gradients(const ClipGradientsArgs& args, const Context& context);
cudaError_t shift_signs(const ShiftSignsArgs& args, const Context& context);
cudaError_t centre_gradients(const CentreGradientsArgs& args, const Context& context);
cudaError_t scale_sums(const ScaleSumsArgs& args, const Context& context);
cudaError_t fold_weight(const FoldWeightArgs& args, const Context& context);
cudaError_t activation_bits(const ActivationBitsArgs& args, const Context& context);
cudaError_t unpack_pair(const UnpackPairArgs& args, const Context& context);
cudaError_t row_signs(const RowSignsArgs& args, const Context& context);
cudaError_t straight_through(const StraightThroughArgs& args, const Context& context);

}  // namespace bitgnn::cuda::training
