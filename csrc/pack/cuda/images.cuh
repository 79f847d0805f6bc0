// Packs float images with planar channels: bound by reading the input once.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kImagePackThreads = 256;
constexpr int kImagePackLoads = 8;  // in flight per thread

// Adjacent pixels of a channel as they lie in memory, read at once.
template <class T, int kPixels>
struct alignas(sizeof(T) * kPixels) PixelVector {
  T value[kPixels];
};

// Each thread makes one word for each of `kPixels` adjacent pixels, which divide an image.
template <class T, int kPixels>
__global__ void __launch_bounds__(kImagePackThreads) pack_images_kernel(const ImagePackArgs a) {
  using Vector = PixelVector<T, kPixels>;
  using Value = decltype(to_value(T{}));
  const int64_t vectors = a.pixels / kPixels;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kImagePackThreads + static_cast<int>(threadIdx.x);
  const int64_t image = index / vectors;
  const int64_t vector = index - image * vectors;
  let_next_start();
  if (image >= a.images) return;
  wait_for_previous();
  const auto row_words = static_cast<int>(word_count(a.channels));
  const Vector* x = static_cast<const Vector*>(a.x) + image * a.channels * vectors + vector;
  int32_t* out = a.words + (image * a.pixels + vector * kPixels) * row_words;
  for (int word = static_cast<int>(blockIdx.y); word < row_words;
       word += static_cast<int>(gridDim.y)) {
    const int64_t channel = word * kWordBits;
    const auto channels = static_cast<int>(min(a.channels - channel, kWordBits));
    const Vector* from = x + channel * vectors;
    uint32_t bits[kPixels] = {};
#pragma unroll 1
    for (int first = 0; first < channels; first += kImagePackLoads) {
      Vector values[kImagePackLoads];
#pragma unroll
      for (int j = 0; j < kImagePackLoads; ++j) {
        if (first + j < channels) values[j] = from[(first + j) * vectors];
      }
#pragma unroll
      for (int j = 0; j < kImagePackLoads; ++j) {
        if (first + j >= channels) break;
        const auto limit =
            static_cast<Value>(a.threshold != nullptr ? a.threshold[channel + first + j] : 0.0f);
        const uint32_t bit = 1u << (first + j);
#pragma unroll
        for (int p = 0; p < kPixels; ++p)
          bits[p] |= to_value(values[j].value[p]) >= limit ? bit : 0u;
      }
    }
    if (row_words == 1) {
      PixelVector<uint32_t, kPixels> stored;
#pragma unroll
      for (int p = 0; p < kPixels; ++p) stored.value[p] = bits[p];
      *reinterpret_cast<PixelVector<uint32_t, kPixels>*>(out) = stored;
    } else {
#pragma unroll
      for (int p = 0; p < kPixels; ++p)
        out[static_cast<int64_t>(p) * row_words + word] = static_cast<int32_t>(bits[p]);
    }
  }
}

template <class T, int kPixels>
cudaError_t launch_pack_images(const ImagePackArgs& a, const Context& context) {
  const int64_t blocks = ceil_div(a.images * (a.pixels / kPixels), kImagePackThreads);
  constexpr int64_t kMostRows = 65535;  // of a grid's y dimension
  const dim3 grid(grid_size(blocks),
                  grid_size(std::min<int64_t>(word_count(a.channels), kMostRows)));
  return launch_dependent(pack_images_kernel<T, kPixels>, grid, kImagePackThreads, 0, context, a);
}

// Takes four pixels per thread if they divide an image and leave work for every multiprocessor.
template <class T>
cudaError_t launch_pack_images(const ImagePackArgs& a, const Context& context) {
  constexpr int64_t kThreadsWanted = 512;  // per multiprocessor
  const int64_t words = word_count(a.channels), work = a.images * a.pixels * words;
  if constexpr (sizeof(T) <= 4) {
    constexpr int64_t kPixels = 4;
    if (a.pixels % kPixels == 0 && reinterpret_cast<uintptr_t>(a.x) % (kPixels * sizeof(T)) == 0 &&
        reinterpret_cast<uintptr_t>(a.words) % (kPixels * sizeof(uint32_t)) == 0 &&
        work >= kPixels * kThreadsWanted * context.device.sm_count)
      return launch_pack_images<T, kPixels>(a, context);
  }
  return launch_pack_images<T, 1>(a, context);
}

}  // namespace bitgnn::cuda::pack
