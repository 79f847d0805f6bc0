// Tensor copies of boxes of five dimensions, both ways between global and shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bitgnn::cuda {

// Where a box begins, the innermost dimension first.
struct BoxBegin {
  int at[5];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// What lies outside the tensor comes as zeros; the box's bytes count as arrivals at the barrier.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, const BoxBegin& begin,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];\n" ::"r"(to),
      "l"(&map), "r"(begin.at[0]), "r"(begin.at[1]), "r"(begin.at[2]), "r"(begin.at[3]),
      "r"(begin.at[4]), "r"(barrier)
      : "memory");
}

// What lies outside the tensor is left out.
__device__ __forceinline__ void store_box(const CUtensorMap& map, uint32_t from,
                                          const BoxBegin& begin) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];\n" ::
          "l"(&map),
      "r"(from), "r"(begin.at[0]), "r"(begin.at[1]), "r"(begin.at[2]), "r"(begin.at[3]),
      "r"(begin.at[4])
      : "memory");
}

// Closes a group of the thread's stores.
__device__ __forceinline__ void store_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// All but the newest kPending groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}

#endif

}  // namespace bitgnn::cuda
