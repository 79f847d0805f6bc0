// Wrappers of sm_90 PTX: mbarriers in shared memory, bulk copies and bulk tensor copies.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bitgnn::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals)
               : "memory");
}

// Makes initialised mbarriers visible to the TMA.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Arrives once the thread's earlier cp.async copies to shared memory have completed.
__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// Copies a box of a 2-D tensor; its bytes count towards the mbarrier's transactions.
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap& map, int column, int row,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];\n" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// Copies a box of a weight map; see encode_weights().
__device__ __forceinline__ void copy_weights_tile(uint32_t to, const CUtensorMap& map, int word,
                                                  int tile, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, 0, 0, 0, %3}], [%4];\n" ::"r"(to),
      "l"(&map), "r"(word), "r"(tile), "r"(barrier)
      : "memory");
}

// Copies contiguous bytes, which count likewise; size and addresses are multiples of 16.
__device__ __forceinline__ void copy_bytes(uint32_t to, const void* from, uint32_t bytes,
                                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

__device__ __forceinline__ void group_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives at a barrier at which others wait with group_sync().
__device__ __forceinline__ void group_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;\n" ::"r"(barrier), "r"(threads) : "memory");
}

#endif

}  // namespace bitgnn::cuda
