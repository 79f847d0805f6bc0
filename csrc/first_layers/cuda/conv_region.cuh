// Loads the image region under a tile of output pixels into shared memory as fixed point.
#pragma once

#include "first_layers/arguments.h"
#include "first_layers/cuda/conv_plan.h"
#include "first_layers/cuda/fixed_point.cuh"

namespace bitgnn::cuda::first_layers {

// The first output pixel of a tile.
struct FixedTile {
  int64_t image;
  int row;
  int column;

  __device__ FixedTile(const FixedPlan& plan, int index) {
    const int lines = index / plan.tiles_across, of = lines / plan.tiles_down;
    column = (index - lines * plan.tiles_across) * plan.tile_width;
    row = (lines - of * plan.tiles_down) * plan.tile_height;
    image = of;
  }
};

// Four channels of kPixels adjacent pixels from column x on, all inside the image or all outside;
// missing channels are 0.
template <class T, FixedSource kSource>
struct FixedPixels {
  static constexpr int kPixels = kSource == FixedSource::kValues ? 1 : kFixedVector;
  static constexpr int kVectors = kSource == FixedSource::kTriples ? 3 : 4;
  FixedVector<T, kPixels> vectors[kVectors];

  __device__ __forceinline__ void load(const FixedConvArgs& a, const T* image, int part, int y,
                                       int x) {
    using Vector = FixedVector<T, kPixels>;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) vectors[k] = Vector{};
    if (y < 0 || y >= a.conv.height || x < 0 || x >= a.conv.width) return;
    const int64_t pixel = static_cast<int64_t>(y) * a.conv.width + x;
    if constexpr (kSource == FixedSource::kTriples) {
      const Vector* from = reinterpret_cast<const Vector*>(image + pixel * 3);
#pragma unroll
      for (int k = 0; k < 3; ++k) vectors[k] = from[k];
    } else {
      const T* from = image + pixel * a.pixel_stride + part * 4 * a.channel_stride;
      const int channels = static_cast<int>(a.conv.channels) - part * 4;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (k < channels)
          vectors[k] = *reinterpret_cast<const Vector*>(from + k * a.channel_stride);
      }
    }
  }

  __device__ __forceinline__ T value(int pixel, int channel) const {
    if constexpr (kSource == FixedSource::kTriples) {
      const int place = pixel * 3 + channel;
      return channel < 3 ? vectors[place / 4].value[place % 4] : T{};
    } else {
      return vectors[channel].value[pixel];
    }
  }
};

// The vectors of a region that a thread loads, the same for every tile: plane rows and offsets in
// them.
struct FixedWalk {
  int vectors, line_step, vector_step, line, vector;

  __device__ __forceinline__ explicit FixedWalk(int of_line)
      : vectors(of_line),
        line_step(kFixedThreads / of_line),
        vector_step(kFixedThreads - line_step * of_line),
        line(static_cast<int>(threadIdx.x) / of_line),
        vector(static_cast<int>(threadIdx.x) - line * of_line) {}

  __device__ __forceinline__ void next() {
    vector += vector_step;
    line += line_step;
    if (vector >= vectors) {
      vector -= vectors;
      ++line;
    }
  }
};

// Fills both planes; rows of the region are whole vectors from an aligned column on. `found`, in
// shared memory, starts at 0 and collects the bits of the whole region for every thread of the
// block.
template <class T, FixedSource kSource>
__device__ __forceinline__ FixedForm stage_region(uint32_t* low_plane, uint32_t* high_plane,
                                                  const FixedConvArgs& a, const FixedPlan& plan,
                                                  const FixedTile& tile, FixedWalk walk,
                                                  float inverse_step, uint32_t* found) {
  using Pixels = FixedPixels<T, kSource>;
  constexpr bool kFloats = !std::is_same_v<T, uint8_t>;  // uint8 needs no high bytes
  constexpr int kWide = Pixels::kPixels;
  constexpr int kLoads = kWide > 1 ? 2 : 4;  // in flight per thread
  using Words = FixedVector<uint32_t, kWide>;
  const int first_row =
      tile.row * static_cast<int>(a.conv.stride_height) - static_cast<int>(a.conv.padding_top);
  const int first_column = tile.column * static_cast<int>(a.conv.stride_width) -
                           static_cast<int>(a.conv.padding_left) - plan.shift;
  const int lines = plan.region_height * plan.channel_words;
  const T* image = static_cast<const T*>(a.x) + tile.image * a.image_stride;
  FixedBits bits;
  FixedWalk own = walk;
  while (walk.line < lines) {
    Pixels pixels[kLoads];
    int place[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      place[j] = -1;
      if (walk.line >= lines) continue;
      const int part = plan.channel_words == 1 ? 0 : walk.line / plan.region_height;
      const int row = walk.line - part * plan.region_height;
      place[j] = walk.line * plan.pitch + walk.vector * kWide;
      pixels[j].load(a, image, part, first_row + row, first_column + walk.vector * kWide);
      walk.next();
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      if (place[j] < 0) continue;
      Words low, high;
#pragma unroll
      for (int p = 0; p < kWide; ++p) {
        const uint32_t first =
            fixed_pair(pixels[j].value(p, 0), pixels[j].value(p, 1), inverse_step);
        const uint32_t second =
            fixed_pair(pixels[j].value(p, 2), pixels[j].value(p, 3), inverse_step);
        low.value[p] = low_bytes(first, second);
        high.value[p] = high_bytes(first, second);
        if constexpr (kFloats) bits.add(first, second);
      }
      *reinterpret_cast<Words*>(low_plane + place[j]) = low;
      *reinterpret_cast<Words*>(high_plane + place[j]) = high;
    }
  }
  if constexpr (!kFloats) {
    __syncthreads();
    return FixedForm{};
  }
  const uint32_t of_warp = __reduce_or_sync(kFullWarp, bits.all());
  if (threadIdx.x % kWarp == 0) atomicOr(found, of_warp);
  __syncthreads();
  const FixedForm form(*found);
  if (form.zeros == 0) return form;
  for (; own.line < lines; own.next()) {
    const int place = own.line * plan.pitch + own.vector * kWide;
    Words& low = *reinterpret_cast<Words*>(low_plane + place);
    const Words high = *reinterpret_cast<const Words*>(high_plane + place);
#pragma unroll
    for (int p = 0; p < kWide; ++p)
      low.value[p] = shifted_bytes(low.value[p], high.value[p], form.zeros);
  }
  __syncthreads();
  return form;
}

}  // namespace bitgnn::cuda::first_layers
