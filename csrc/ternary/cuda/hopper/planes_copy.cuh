// TMA copies of planes of packed rows; see encode_planes().
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bitgnn::cuda::ternary {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Copies a box of a tensor map of planes into shared memory.
__device__ __forceinline__ void copy_planes(uint32_t to, const CUtensorMap& map, int word,
                                            int plane, int row, int batch1, int batch0,
                                            uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];\n" ::"r"(to),
      "l"(&map), "r"(word), "r"(plane), "r"(row), "r"(batch1), "r"(batch0), "r"(barrier)
      : "memory");
}

#endif

}  // namespace bitgnn::cuda::ternary
