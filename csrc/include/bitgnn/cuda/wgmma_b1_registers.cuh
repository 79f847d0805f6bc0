// Hopper's 1-bit warpgroup products with rows in registers and columns in plain shared memory.
#pragma once

#include "bitgnn/cuda/wgmma_b1.cuh"

namespace bitgnn::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Columns as blocks of eight columns by 16 bytes (128 bits), 128 bytes each: `next_bits` bytes from
// the first 128 bits of a column to the next, 128 bytes from eight columns to the next.
__device__ __forceinline__ uint64_t plain_descriptor(uint32_t shared_address, int next_bits) {
  constexpr uint64_t kEightColumns = 128 >> 4;
  return (kEightColumns << 32) | (static_cast<uint64_t>(next_bits >> 4) << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

// Columns of 32 bytes with the 32-byte swizzle: in every eight, columns 4 to 7 have their halves
// exchanged.
__device__ __forceinline__ uint64_t swizzled_descriptor_32(uint32_t shared_address) {
  constexpr uint64_t kEightColumns = 256 >> 4;
  constexpr uint64_t kSwizzle32 = 3;
  return (kSwizzle32 << 62) | (kEightColumns << 32) | (uint64_t{1} << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

// Columns of 64 bytes as the tensor memory accelerator writes them with its 64-byte swizzle.
__device__ __forceinline__ uint64_t swizzled_descriptor_64(uint32_t shared_address) {
  constexpr uint64_t kEightColumns = 512 >> 4;
  constexpr uint64_t kSwizzle64 = 2;
  return (kSwizzle64 << 62) | (kEightColumns << 32) | (uint64_t{1} << 16) |
         ((shared_address & 0x3ffff) >> 4);
}

#define BITGNN_SUMS_8(d, i)                                                                     \
  "+r"((d)[i]), "+r"((d)[(i) + 1]), "+r"((d)[(i) + 2]), "+r"((d)[(i) + 3]), "+r"((d)[(i) + 4]), \
      "+r"((d)[(i) + 5]), "+r"((d)[(i) + 6]), "+r"((d)[(i) + 7])

// d (+)= popc(a & b) for 64 rows by 32, 64, 96, 128 or 256 columns over 256 bits. Fragments are
// those of mma_b1.cuh; warp w of the group holds rows 16 w to 16 w + 15.

__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[16], const uint32_t (&a)[4], uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8), BITGNN_SUMS_8(d, 16), BITGNN_SUMS_8(d, 24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[48], const uint32_t (&a)[4], uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8), BITGNN_SUMS_8(d, 16), BITGNN_SUMS_8(d, 24),
        BITGNN_SUMS_8(d, 32), BITGNN_SUMS_8(d, 40)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                               bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc {"
      "%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8), BITGNN_SUMS_8(d, 16), BITGNN_SUMS_8(d, 24),
        BITGNN_SUMS_8(d, 32), BITGNN_SUMS_8(d, 40), BITGNN_SUMS_8(d, 48), BITGNN_SUMS_8(d, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

__device__ __forceinline__ void wgmma_and_popc(int32_t (&d)[128], const uint32_t (&a)[4],
                                               uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
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
      "{%128, %129, %130, %131}, %132, p;\n}\n"
      : BITGNN_SUMS_8(d, 0), BITGNN_SUMS_8(d, 8), BITGNN_SUMS_8(d, 16), BITGNN_SUMS_8(d, 24),
        BITGNN_SUMS_8(d, 32), BITGNN_SUMS_8(d, 40), BITGNN_SUMS_8(d, 48), BITGNN_SUMS_8(d, 56),
        BITGNN_SUMS_8(d, 64), BITGNN_SUMS_8(d, 72), BITGNN_SUMS_8(d, 80), BITGNN_SUMS_8(d, 88),
        BITGNN_SUMS_8(d, 96), BITGNN_SUMS_8(d, 104), BITGNN_SUMS_8(d, 112), BITGNN_SUMS_8(d, 120)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}

#undef BITGNN_SUMS_8

#endif

}  // namespace bitgnn::cuda
