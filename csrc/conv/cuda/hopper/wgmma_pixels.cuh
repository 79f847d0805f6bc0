// Pixels of the warpgroup convolution: copies the slabs of a tile's positions, with zeros where
// there is no pixel, and counts their bits.
#pragma once

#include "conv/cuda/hopper/wgmma_plan.h"
#include "core/cuda/common.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::conv {

constexpr int kConvHelpers = 224;  // threads that load pixels and make tables

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int quotient(int n, const FrameDivider& by) {
  return static_cast<int>(
      (__umulhi(by.multiplier, static_cast<uint32_t>(n)) + static_cast<uint32_t>(n)) >> by.shift);
}

// Image, row and column of a frame position.
struct FramePlace {
  int image, y, x;
  __device__ __forceinline__ FramePlace(int position, const ConvPlan& plan) {
    image = quotient(position, plan.frame);
    const int inside = position - image * static_cast<int>(plan.frame.divisor);
    y = quotient(inside, plan.pitch);
    x = inside - y * static_cast<int>(plan.pitch.divisor);
  }
};

// The pixel of a phase at a position, or -1.
__device__ __forceinline__ int find_pixel(const ConvPlan& plan, int position, int phase) {
  const FramePlace at(max(position, 0), plan);
  const int phase_row = plan.stride_width == 1 ? phase : phase >> 1;
  const int phase_column = plan.stride_width == 1 ? 0 : phase & 1;
  const int y = at.y * plan.stride_height + phase_row - plan.padding_top;
  const int x = at.x * plan.stride_width + phase_column - plan.padding_left;
  const bool exists = position >= 0 && at.image < plan.images &&
                      static_cast<unsigned>(y) < static_cast<unsigned>(plan.height) &&
                      static_cast<unsigned>(x) < static_cast<unsigned>(plan.width);
  return exists ? (at.image * plan.height + y) * plan.width + x : -1;
}

__device__ __forceinline__ void copy_async_piece(uint32_t to, const int32_t* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Starts the copies of a tile's slabs; a thread always copies the same rows.
__device__ __forceinline__ void load_slabs(uint32_t slot, const int32_t* x, const ConvPlan& plan,
                                           int tile, int thread) {
  const int pitch = plan.rows * kConvPieceBytes;
#pragma unroll 1
  for (int row = thread; row < plan.rows; row += kConvHelpers) {
    const int position = tile * kConvTileRows + row;
    const uint32_t to = slot + row * kConvPieceBytes;
#pragma unroll 1
    for (int phase = 0; phase < plan.phases; ++phase) {
      const int pixel = find_pixel(plan, position, plan.phase_index[phase]);
      const int bytes = pixel >= 0 ? kConvPieceBytes : 0;
      const int32_t* from = x + int64_t{max(pixel, 0)} * (plan.pieces * 4);
      const uint32_t phase_to = to + plan.phase_place[phase] * pitch;
#pragma unroll 2
      for (int piece = 0; piece < plan.pieces; ++piece)
        copy_async_piece(phase_to + piece * pitch, from + piece * 4, bytes);
#pragma unroll 1
      for (int i = 0; i < plan.copies; ++i)
        if (plan.slab[i].phase == plan.phase_index[phase])
          copy_async_piece(to + plan.slab[i].place * pitch, from + plan.slab[i].piece * 4, bytes);
    }
  }
}

__device__ __forceinline__ int count_piece(uint4 v) {
  return __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
}

// Popcounts of the rows that this thread copied.
__device__ __forceinline__ void count_slabs(int32_t* counts, const unsigned char* slot,
                                            const ConvPlan& plan, int thread) {
  const auto* rows = reinterpret_cast<const uint4*>(slot);
#pragma unroll 1
  for (int row = thread; row < plan.rows; row += kConvHelpers) {
#pragma unroll 1
    for (int phase = 0; phase < plan.phases; ++phase) {
      const uint4* from = rows + plan.phase_place[phase] * plan.rows + row;
      int count = 0;
#pragma unroll 2
      for (int piece = 0; piece < plan.pieces; ++piece)
        count += count_piece(from[piece * plan.rows]);
      counts[phase * plan.rows + row] = count;
    }
  }
}

#endif

}  // namespace bitgnn::cuda::conv
