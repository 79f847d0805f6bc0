// Thread block clusters: their barrier, and stores to other blocks' shared memory.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
#endif
  return rank;
}

__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size = 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("mov.u32 %0, %%cluster_nctarank;\n" : "=r"(size));
#endif
  return size;
}

// Writes made before arriving are visible to threads that have waited.
__device__ __forceinline__ void arrive_at_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
#endif
}

__device__ __forceinline__ void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
#endif
}

// Stores a word to the shared memory of block `rank`, at the address of `to` in this block's.
__device__ __forceinline__ void store_remote([[maybe_unused]] uint32_t to,
                                             [[maybe_unused]] uint32_t rank,
                                             [[maybe_unused]] uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(to), "r"(rank));
  asm volatile("st.shared::cluster.u32 [%0], %1;\n" ::"r"(there), "r"(value) : "memory");
#endif
}

}  // namespace bitgnn::cuda
