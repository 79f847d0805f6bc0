// Definitions shared by all CUDA kernels: warp size, packed words and launches.
#pragma once

#include "core/common.h"
#include "core/cuda/launch.h"

namespace bitgnn::cuda {

constexpr int kWarp = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace bitgnn::cuda
