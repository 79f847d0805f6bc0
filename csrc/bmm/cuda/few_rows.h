// Products of few packed rows with many weights.
#pragma once

#include "bmm/arguments.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda::bmm {

bool suits_few(const BmmArgs& args, const Context& context);
cudaError_t bmm_few(const BmmArgs& args, const Context& context);

}  // namespace bitgnn::cuda::bmm
