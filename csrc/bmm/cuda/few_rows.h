// Products of a few packed rows with many weights.
#pragma once

#include "core/cuda/launch.h"

namespace bitgnn::cuda {

bool suits_few(const BmmArgs& args, const Context& context);
cudaError_t bmm_few(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda
