// Tensor copies of 5-D boxes between global and shared memory, in both directions.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace bitgnn::cuda {

// Start coordinates of a box, innermost dimension first.
struct BoxBegin {
  int at[5];
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Loads a box, with zeros outside the tensor; its bytes count towards the mbarrier's transactions.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, const BoxBegin& begin,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];\n" ::"r"(to),
      "l"(&map), "r"(begin.at[0]), "r"(begin.at[1]), "r"(begin.at[2]), "r"(begin.at[3]),
      "r"(begin.at[4]), "r"(barrier)
      : "memory");
}

// Stores a box, skipping what lies outside the tensor.
__device__ __forceinline__ void store_box(const CUtensorMap& map, uint32_t from,
                                          const BoxBegin& begin) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];\n" ::
          "l"(&map),
      "r"(from), "r"(begin.at[0]), "r"(begin.at[1]), "r"(begin.at[2]), "r"(begin.at[3]),
      "r"(begin.at[4])
      : "memory");
}

// Commits the thread's stores as a group.
__device__ __forceinline__ void store_commit() {
  asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
}

// Waits until all but the newest kPending groups have read their shared memory.
template <int kPending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(kPending) : "memory");
}

#endif

}  // namespace bitgnn::cuda
