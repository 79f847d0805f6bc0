// Pixels of the warpgroup convolution: slabs of a tile's positions, copied with zeros where no
// pixel lies, and the counts of their bits.
#pragma once

#include "bitgnn/cuda/common.cuh"
#include "bitgnn/cuda/conv_wgmma_plan.h"
#include "bitgnn/cuda/mma_b1.cuh"

namespace bitgnn::cuda {

constexpr int kConvHelpers = 224;  // threads that load pixels and make tables

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ int quotient(int n, const FrameDivider& by) {
  return static_cast<int>(
      (__umulhi(by.multiplier, static_cast<uint32_t>(n)) + static_cast<uint32_t>(n)) >> by.shift);
}

// Image, row and column of a position of the frames.
struct FramePlace {
  int image, y, x;
  __device__ __forceinline__ FramePlace(int position, const ConvPlan& plan) {
    image = quotient(position, plan.frame);
    const int inside = position - image * static_cast<int>(plan.frame.divisor);
    y = quotient(inside, plan.pitch);
    x = inside - y * static_cast<int>(plan.pitch.divisor);
  }
};

// The pixel of a phase at a position, or null.
__device__ __forceinline__ const int32_t* find_pixel(const ConvArgs& a, const ConvPlan& plan,
                                                     int position, int phase) {
  if (position < 0) return nullptr;
  const FramePlace at(position, plan);
  const int width_stride = static_cast<int>(a.stride_width);
  const int phase_row = phase / width_stride;
  const int y =
      at.y * static_cast<int>(a.stride_height) + phase_row - static_cast<int>(a.padding_top);
  const int x =
      at.x * width_stride + (phase - phase_row * width_stride) - static_cast<int>(a.padding_left);
  if (at.image >= a.images || y < 0 || y >= a.height || x < 0 || x >= a.width) return nullptr;
  const int64_t words = plan.pieces > 0 ? plan.pieces * 4 : 2;
  return a.x + ((at.image * a.height + y) * a.width + x) * words;
}

__device__ __forceinline__ void copy_async_8(uint32_t to, const int32_t* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void copy_async_piece(uint32_t to, const int32_t* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// Starts the copies of a tile's slabs; a thread always copies the same rows.
__device__ __forceinline__ void load_slabs(unsigned char* slot, const ConvArgs& a,
                                           const ConvPlan& plan, int tile, int thread) {
  const int first = tile * kConvTileRows;
  const uint32_t to = shared_address(slot);
  for (int row = thread; row < plan.rows; row += kConvHelpers) {
    const uint32_t row_to = to + row * kConvPieceBytes;
    const int pitch = plan.rows * kConvPieceBytes;
    if (plan.pieces == 0) {
      for (int i = 0; i < plan.copies; ++i) {
        const ConvSlab& slab = plan.slab[i];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t* pixel =
              find_pixel(a, plan, first + row + slab.shift[half], slab.phase[half]);
          copy_async_8(row_to + slab.place * pitch + half * 8, pixel != nullptr ? pixel : a.x,
                       pixel != nullptr ? 8 : 0);
        }
      }
      continue;
    }
    for (int phase = 0; phase < plan.phases; ++phase) {
      const int32_t* pixel = find_pixel(a, plan, first + row, plan.phase_index[phase]);
      const int bytes = pixel != nullptr ? kConvPieceBytes : 0;
      const int step = pixel != nullptr ? 4 : 0;
      const int32_t* from = pixel != nullptr ? pixel : a.x;
      const uint32_t phase_to = row_to + plan.phase_place[phase] * pitch;
#pragma unroll 4
      for (int piece = 0; piece < plan.pieces; ++piece)
        copy_async_piece(phase_to + piece * pitch, from + piece * step, bytes);
      for (int i = 0; i < plan.copies; ++i)
        if (plan.slab[i].phase[0] == plan.phase_index[phase])
          copy_async_piece(row_to + plan.slab[i].place * pitch, from + plan.slab[i].piece * step,
                           bytes);
    }
  }
}

__device__ __forceinline__ int count_piece(uint4 v) {
  return __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
}

// Set bits of the rows that the thread copied.
__device__ __forceinline__ void count_slabs(int32_t* counts, const unsigned char* slot,
                                            const ConvPlan& plan, int thread) {
  const auto* rows = reinterpret_cast<const uint4*>(slot);
  for (int row = thread; row < plan.rows; row += kConvHelpers) {
    if (plan.pieces == 0) {
      for (int set = 0; set + 1 < plan.count_sets; ++set)
        counts[set * plan.rows + row] = count_piece(rows[set * plan.rows + row]);
      const uint4 v = rows[plan.half_set * plan.rows + row];
      counts[(plan.count_sets - 1) * plan.rows + row] = __popc(v.x) + __popc(v.y);
      continue;
    }
    for (int phase = 0; phase < plan.phases; ++phase) {
      const uint4* from = rows + plan.phase_place[phase] * plan.rows + row;
      int count = 0;
#pragma unroll 4
      for (int piece = 0; piece < plan.pieces; ++piece)
        count += count_piece(from[piece * plan.rows]);
      counts[phase * plan.rows + row] = count;
    }
  }
}

#endif

}  // namespace bitgnn::cuda
