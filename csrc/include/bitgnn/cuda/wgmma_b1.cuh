// Hopper's 1-bit warpgroup products: operands in swizzled shared memory, AND and population count.
#pragma once

#include <cstdint>

namespace bitgnn::cuda {

// Both operands lie as the tensor memory accelerator writes them with its 128-byte swizzle: rows of
// 128 bytes (1024 bits), eight of which make one 1024-byte aligned pattern.
constexpr int kSwizzleBytes = 128;
constexpr int kSwizzleWords = kSwizzleBytes / 4;
constexpr int kWgmmaRows = 64;
constexpr int kWgmmaColumns = 256;
constexpr int kWgmmaSteps = 4;         // instructions for one swizzled row, 256 bits each
constexpr uint64_t kWgmmaAdvance = 2;  // of a descriptor from one instruction to the next

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Address in units of 16 bytes, 1024 bytes from eight rows to the next, 128-byte swizzle.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t shared_address) {
  constexpr uint64_t kEightRows = 1024 >> 4;
  constexpr uint64_t kSwizzle128 = 1;
  return (kSwizzle128 << 62) | (kEightRows << 32) | (uint64_t{1} << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Operands of the instructions: each register of the sums by its name.
#define BITGNN_SUMS_8(d, i)                                                                     \
  "+r"((d)[i]), "+r"((d)[(i) + 1]), "+r"((d)[(i) + 2]), "+r"((d)[(i) + 3]), "+r"((d)[(i) + 4]), \
      "+r"((d)[(i) + 5]), "+r"((d)[(i) + 6]), "+r"((d)[(i) + 7])
#define BITGNN_SUMS_64(d, i)                                                              \
  BITGNN_SUMS_8(d, i), BITGNN_SUMS_8(d, (i) + 8), BITGNN_SUMS_8(d, (i) + 16),             \
      BITGNN_SUMS_8(d, (i) + 24), BITGNN_SUMS_8(d, (i) + 32), BITGNN_SUMS_8(d, (i) + 40), \
      BITGNN_SUMS_8(d, (i) + 48), BITGNN_SUMS_8(d, (i) + 56)

// d (+)= popc(a & b) for 64 rows by 256 columns over 256 bits; warp w of the group holds rows 16 w
// to 16 w + 15, each eight columns as an accumulator fragment of mma_b1.cuh.
__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[128], uint64_t a, uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, "
      "%104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p;\n}\n"
      : BITGNN_SUMS_64(d, 0), BITGNN_SUMS_64(d, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// The same for 144 columns.
__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[72], uint64_t a, uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %74, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n144k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71}, "
      "%72, %73, p;\n}\n"
      : BITGNN_SUMS_64(d, 0), BITGNN_SUMS_8(d, 64)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// The same for 128 columns.
__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[64], uint64_t a, uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p;\n}\n"
      : BITGNN_SUMS_64(d, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

// The same for 64 columns.
__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[32], uint64_t a, uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8), BITGNN_SUMS_8(d, 16), BITGNN_SUMS_8(d, 24)
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

#undef BITGNN_SUMS_64
#undef BITGNN_SUMS_8

// Makes the thread's plain writes to shared memory visible to the products.
__device__ __forceinline__ void wgmma_write_fence() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

#endif

}  // namespace bitgnn::cuda
