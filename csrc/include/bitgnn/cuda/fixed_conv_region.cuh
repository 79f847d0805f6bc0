// Bringing the part of an image under a tile of output pixels into shared memory as fixed point.
#pragma once

#include "bitgnn/cuda/fixed_conv_plan.h"
#include "bitgnn/cuda/fixed_point.cuh"

namespace bitgnn::cuda {

// The first output pixel of a tile.
struct FixedTile {
  int64_t image;
  int row;
  int column;

  __device__ FixedTile(const FixedPlan& plan, int64_t index) {
    const int64_t lines = index / plan.tiles_across;
    column = static_cast<int>(index - lines * plan.tiles_across) * plan.tile_width;
    image = lines / plan.tiles_down;
    row = static_cast<int>(lines - image * plan.tiles_down) * plan.tile_height;
  }
};

// The bytes of q that count: the higher ones do not where all q are of 8 bits.
enum class FixedDigits : int { kUnsigned, kSigned, kBoth };

// Lines are what lies together in memory: rows of one channel, or of all where they are last.
// Vectors of kWidth elements go along a line from a multiple of kWidth on; lines are whole
// vectors, so that each lies inside the image or outside it, where q is 0.
template <class T, int kWidth>
__device__ __forceinline__ FixedDigits stage_region(int16_t* region, const FixedConvArgs& a,
                                                    const FixedPlan& plan, const FixedTile& tile,
                                                    float inverse_step) {
  constexpr int kLoads = kWidth > 1 ? 4 : 8;  // in flight a thread
  using Vector = FixedVector<T, kWidth>;
  const int channels = static_cast<int>(a.conv.channels);
  const int height = static_cast<int>(a.conv.height), width = static_cast<int>(a.conv.width);
  const int first_row =
      tile.row * static_cast<int>(a.conv.stride_height) - static_cast<int>(a.conv.padding_top);
  const int first_column =
      tile.column * static_cast<int>(a.conv.stride_width) - static_cast<int>(a.conv.padding_left);
  const int of_pixel = plan.channels_last ? channels : 1;  // elements of a line
  const int spacing = plan.channels_last ? 1 : channels;   // of a line's elements in the region
  const int64_t element_stride = plan.channels_last ? 1 : a.pixel_stride;
  const int line_elements = width * of_pixel;
  const int first = first_column * of_pixel, last = first + plan.region_width * of_pixel;
  const int first_vector = (first >= 0 ? first : first - kWidth + 1) / kWidth;
  const int vectors = (last + kWidth - 1) / kWidth - first_vector;
  const int lines = plan.region_height * (plan.channels_last ? 1 : channels);
  const T* image = static_cast<const T*>(a.x) + tile.image * a.image_stride;
  int least = 0, most = 0;

  const int line_step = kFixedThreads / vectors;
  const int vector_step = kFixedThreads - line_step * vectors;
  int line = static_cast<int>(threadIdx.x) / vectors;
  int vector = static_cast<int>(threadIdx.x) - line * vectors;
  int channel = line / plan.region_height, row = line - channel * plan.region_height;
  while (line < lines) {
    Vector values[kLoads];
    int to[kLoads], element[kLoads];  // of the vector's first element, seen from the region
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      values[j] = Vector{};
      element[j] = plan.region_width * of_pixel;  // nothing
      to[j] = 0;
      if (line < lines) {
        const int from = (first_vector + vector) * kWidth;
        element[j] = from - first;
        to[j] = row * plan.pitch + channel + element[j] * spacing;
        const int y = first_row + row;
        if (y >= 0 && y < height && from >= 0 && from < line_elements) {
          const T* source = image + channel * a.channel_stride +
                            static_cast<int64_t>(y) * width * a.pixel_stride +
                            from * element_stride;
          values[j] = *reinterpret_cast<const Vector*>(source);
        }
      }
      vector += vector_step;
      line += line_step;
      row += line_step;
      if (vector >= vectors) {
        vector -= vectors;
        ++line;
        ++row;
      }
      while (row >= plan.region_height) {
        row -= plan.region_height;
        ++channel;
      }
    }
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const int place = element[j] + k;
        if (place < 0 || place >= last - first) continue;
        const int q = to_fixed_point(values[j].value[k], inverse_step);
        least = min(least, q);
        most = max(most, q);
        region[to[j] + k * spacing] = static_cast<int16_t>(q);
      }
    }
  }
  if (!__syncthreads_or(least < -128 || most > 127)) return FixedDigits::kSigned;
  return __syncthreads_or(least < 0 || most > 255) ? FixedDigits::kBoth : FixedDigits::kUnsigned;
}

}  // namespace bitgnn::cuda
