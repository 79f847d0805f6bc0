// 1-bit tensor-core products of shared-memory tiles: mma.sync in AND form, and its fragments.
#pragma once

#include "core/cuda/common.cuh"

namespace bitgnn::cuda {

// One instruction multiplies 16 rows by 8 columns over 256 bits.
constexpr int kMmaRows = 16;
constexpr int kMmaColumns = 8;
constexpr int kMmaWords = 8;

// Lane l of a warp has g = l / 4, q = l % 4 in the fragments:
//   a[0], a[1]: words q of rows g, g + 8       a[2], a[3]: words q + 4 of rows g, g + 8
//   b[0], b[1]: words q, q + 4 of column g
//   d[0], d[1]: row g, columns 2 q, 2 q + 1    d[2], d[3]: row g + 8, the same columns
__device__ __forceinline__ int fragment_group(int lane) { return lane >> 2; }
__device__ __forceinline__ int fragment_quad(int lane) { return lane & 3; }

// d += popc(a & b). With all bits of b set, every column becomes the row's popcount; with all bits
// of a set, every row the column's: the corrections of the AND form for the cost of one product.
__device__ __forceinline__ void mma_and_popc(int32_t (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d = c + popc(a & b).
__device__ __forceinline__ void mma_and_popc(int32_t (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2], const int4& c) {
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c.x), "r"(c.y),
        "r"(c.z), "r"(c.w));
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Copies 16, 8 or 4 bytes to shared memory with cp.async: the first `bytes` come from `from`, the
// rest are zeros. commit_copies() closes a group of copies.
__device__ __forceinline__ void copy_async_16(uint32_t* to, const int32_t* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_async_8(uint2* to, const int32_t* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_async_4(uint32_t* to, const int32_t* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared_address(to)),
               "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until all but the newest kPending groups of the thread have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t& r0, uint32_t& r1,
                                              uint32_t& r2, uint32_t& r3) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address)
               : "memory");
}

// Smallest row pitch in words that holds `words`, keeps rows 16-byte aligned and, being an odd
// number of 16-byte units, spreads eight consecutive rows over all banks.
constexpr int tile_pitch(int words) { return ((words + 3) / 4 | 1) * 4; }

// Loads the fragment of rows 0 .. 15, words 0 .. 7 at `tile`, a 16-byte aligned shared-memory
// address of rows `pitch` words apart.
__device__ __forceinline__ void load_row_fragment(uint32_t (&a)[4], const uint32_t* tile, int pitch,
                                                  int lane) {
  const uint32_t* p = tile + (lane & 15) * pitch + (lane >> 4) * 4;
  load_matrices(shared_address(p), a[0], a[1], a[2], a[3]);
}

// The lane's load_matrices() address for the fragments of columns 0 .. 15.
__device__ __forceinline__ uint32_t column_fragments_address(const uint32_t* tile, int pitch,
                                                             int lane) {
  return shared_address(tile + ((lane & 7) + (lane >> 4) * 8) * pitch + ((lane >> 3) & 1) * 4);
}

// Loads the fragments of columns 0 .. 7 and 8 .. 15; a column of the product is a row of the
// weights.
__device__ __forceinline__ void load_column_fragments(uint32_t (&b0)[2], uint32_t (&b1)[2],
                                                      const uint32_t* tile, int pitch, int lane) {
  load_matrices(column_fragments_address(tile, pitch, lane), b0[0], b0[1], b1[0], b1[1]);
}

}  // namespace bitgnn::cuda
