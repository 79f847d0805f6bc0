// Fully connected first layers: rows in 16-bit fixed point times weights of +-1, which stay bits in
// shared memory and are expanded to bytes in registers. A block computes 32 rows of 256 outputs;
// two warps split the features of 32 outputs. The next 320 features are prefetched while the
// current ones are multiplied. Bound by the tensor cores.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/shared_memory.h"
#include "first_layers/arguments.h"
#include "first_layers/cuda/fixed_point.cuh"
#include "first_layers/cuda/outputs.cuh"

namespace bitgnn::cuda::first_layers {

constexpr int kLinearRows = 32;
constexpr int kLinearWarps = 8;   // warps along the outputs
constexpr int kLinearShares = 2;  // warps that split the features
constexpr int kLinearThreads = kLinearWarps * kLinearShares * kWarp;
constexpr int kLinearOutputs = kLinearWarps * 32;
constexpr int kLinearSteps = 5;  // of 32 features, staged at a time for each share
constexpr int kLinearWords = kLinearShares * kLinearSteps * 8;
constexpr int kLinearPitch = kLinearWords + 8;  // free of bank conflicts
constexpr int kLinearLoads = kLinearRows * kLinearWords / kLinearThreads;

// Groups of four features of a row as low and high bytes of q, double-buffered.
struct LinearStages {
  uint32_t low[2][kLinearRows][kLinearPitch];
  uint32_t high[2][kLinearRows][kLinearPitch];
};

// Sums of 32 rows and 32 outputs that the second share passes to the first.
using LinearSums = int32_t[kLinearWarps][32][kWarp];
static_assert(sizeof(LinearSums) <= sizeof(LinearStages), "sums take the place of the stages");

// Loads four features of a row, 0 past its end; kVector: rows are whole aligned groups of four.
template <class T, bool kVector>
__device__ __forceinline__ FixedVector<T, 4> load_features(const T* row, int feature, int size) {
  FixedVector<T, 4> values{};
  if (row == nullptr) return values;
  if constexpr (kVector) {
    if (feature < size) values = *reinterpret_cast<const FixedVector<T, 4>*>(row + feature);
  } else {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (feature + k < size) values.value[k] = row[feature + k];
    }
  }
  return values;
}

template <class T>
__device__ __forceinline__ void split_features(const FixedVector<T, 4>& values, float inverse_step,
                                               uint32_t& low, uint32_t& high) {
  const uint32_t first = fixed_pair(values.value[0], values.value[1], inverse_step);
  const uint32_t second = fixed_pair(values.value[2], values.value[3], inverse_step);
  low = low_bytes(first, second);
  high = high_bytes(first, second);
}

// Words per row of weights in shared memory: whole chunks, padded to avoid bank conflicts.
__host__ __device__ constexpr int linear_pitch(int words) {
  constexpr int kChunk = kLinearShares * kLinearSteps;
  return (words + kChunk - 1) / kChunk * kChunk | 1;
}

template <class T, bool kVector>
__global__ void __launch_bounds__(kLinearThreads)
    fixed_linear_kernel(const FixedConvArgs a, const float inverse_step) {
  extern __shared__ __align__(16) uint32_t memory[];
  LinearStages& stages = *reinterpret_cast<LinearStages*>(memory);
  uint32_t* bits = memory + sizeof(LinearStages) / 4;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, quad = lane % 4, group = lane / 4;
  const int warp = static_cast<int>(threadIdx.x) / kWarp % kLinearWarps;
  const int share = static_cast<int>(threadIdx.x) / (kWarp * kLinearWarps);
  const auto size = static_cast<int>(a.conv.channels);
  const auto words = static_cast<int>(pack::word_count(size));
  const int pitch = linear_pitch(words);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kLinearRows;
  const int64_t block_output = static_cast<int64_t>(blockIdx.y) * kLinearOutputs;

  FixedVector<T, 4> values[kLinearLoads];
  const auto load = [&](int chunk) {
#pragma unroll
    for (int i = 0; i < kLinearLoads; ++i) {
      const int item = i * kLinearThreads + static_cast<int>(threadIdx.x);
      const int64_t row = first_row + item / kLinearWords;
      values[i] = load_features<T, kVector>(
          row < a.conv.images ? static_cast<const T*>(a.x) + row * a.image_stride : nullptr,
          (chunk * kLinearWords + item % kLinearWords) * 4, size);
    }
  };
  const auto store = [&](int stage) {
#pragma unroll
    for (int i = 0; i < kLinearLoads; ++i) {
      const int item = i * kLinearThreads + static_cast<int>(threadIdx.x);
      const int row = item / kLinearWords, word = item % kLinearWords;
      split_features(values[i], inverse_step, stages.low[stage][row][word],
                     stages.high[stage][row][word]);
    }
  };
  let_next_start();
  // `prepared` and the weights were written before the previous kernel, so they may be read before
  // the wait.
  if (a.conv.prepared == nullptr) {
    wait_for_previous();
    load(0);
  }
  const int existing =
      static_cast<int>(min(a.conv.out_channels - block_output, int64_t{kLinearOutputs}));
  const int32_t* w = a.conv.w + block_output * words;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kLinearOutputs * words; i += kLinearThreads) {
    const int output = i / words;
    bits[output * pitch + i - output * words] =
        output < existing ? static_cast<uint32_t>(__ldg(w + i)) : 0u;
  }
  if (a.conv.prepared != nullptr) {
    wait_for_previous();
    load(0);
  }
  constexpr int kChunkSteps = kLinearShares * kLinearSteps;
  const int chunks = (words + kChunkSteps - 1) / kChunkSteps;
  int32_t low_sum[2][4][4] = {}, high_sum[2][4][4] = {};
  store(0);
  __syncthreads();
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (chunk + 1 < chunks) load(chunk + 1);
    const int stage = chunk % 2;
    // Past the last feature the rows are zero, so the weights there are arbitrary.
#pragma unroll
    for (int step = 0; step < kLinearSteps; ++step) {
      const int place = share * kLinearSteps + step;
      const uint32_t* own_bits = bits + (warp * 32 + group) * pitch + chunk * kChunkSteps + place;
      uint32_t w_bits[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) w_bits[j] = own_bits[j * 8 * pitch] >> (quad * 8);
      uint32_t low[2][4], high[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = i * 16 + half * 8 + group;
          const uint2 l =
              *reinterpret_cast<const uint2*>(&stages.low[stage][row][place * 8 + quad * 2]);
          const uint2 h =
              *reinterpret_cast<const uint2*>(&stages.high[stage][row][place * 8 + quad * 2]);
          low[i][half] = l.x;
          low[i][half + 2] = l.y;
          high[i][half] = h.x;
          high[i][half + 2] = h.y;
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t first = weight_bytes(w_bits[j]), second = weight_bytes(w_bits[j] >> 4);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          mma_bytes<false>(low_sum[i][j], low[i], first, second);
          mma_bytes<true>(high_sum[i][j], high[i], first, second);
        }
      }
    }
    if (chunk + 1 < chunks) store((chunk + 1) % 2);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) low_sum[i][j][k] += high_sum[i][j][k] * 256;
    }
  }
  LinearSums& shared = *reinterpret_cast<LinearSums*>(memory);
  const auto each_sum = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < 32; ++i) f(low_sum[i / 16][i / 4 % 4][i % 4], shared[warp][i][lane]);
  };
  if (share != 0) each_sum([](int32_t own, int32_t& place) { place = own; });
  __syncthreads();
  if (share != 0) return;
  each_sum([](int32_t& own, int32_t other) { own += other; });

  const int64_t first_output = block_output + warp * 32;
  if (first_output >= a.conv.out_channels) return;
  uint32_t part[4] = {};  // words of rows g, g + 8, g + 16, g + 24
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int column = j * 8 + quad * 2 + e;
      const FixedOutput output(a, first_output + column);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int32_t dot = low_sum[r / 2][j][r % 2 * 2 + e];
        const int64_t row = first_row + r * 8 + group;
        if (a.conv.out_bits != nullptr) {
          part[r] |= output.bit(a, dot) ? 1u << column : 0u;
        } else if (row < a.conv.images) {
          output.store(a, row, dot);
        }
      }
    }
  }
  if (a.conv.out_bits == nullptr) return;
  // Each lane of a quad gets the whole word of one row.
  uint32_t of_pair[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const uint32_t kept = quad % 2 != 0 ? part[r * 2 + 1] : part[r * 2];
    const uint32_t sent = quad % 2 != 0 ? part[r * 2] : part[r * 2 + 1];
    of_pair[r] = kept | __shfl_xor_sync(kFullWarp, sent, 1);
  }
  const uint32_t kept = quad / 2 != 0 ? of_pair[1] : of_pair[0];
  const uint32_t sent = quad / 2 != 0 ? of_pair[0] : of_pair[1];
  const uint32_t word = kept | __shfl_xor_sync(kFullWarp, sent, 2);
  const int64_t row = first_row + quad * 8 + group;
  if (row < a.conv.images)
    a.conv.out_bits[row * pack::word_count(a.conv.out_channels) + first_output / 32] =
        static_cast<int32_t>(word);
}

inline int64_t linear_bytes(int64_t features) {
  constexpr int64_t kMostFeatures = 1 << 16;
  return static_cast<int64_t>(sizeof(LinearStages)) +
         4 * int64_t{kLinearOutputs} *
             linear_pitch(static_cast<int>(words_for(std::min(features, kMostFeatures))));
}

template <class T, bool kVector>
cudaError_t launch_fixed_linear(const FixedConvArgs& a, const Context& context) {
  const auto kernel = fixed_linear_kernel<T, kVector>;
  const int64_t bytes = linear_bytes(a.conv.channels);
  const cudaError_t status = grant_shared_memory(kernel, bytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(a.conv.images, kLinearRows)),
                  grid_size(ceil_div(a.conv.out_channels, kLinearOutputs)));
  return launch_dependent(kernel, grid, kLinearThreads, static_cast<size_t>(bytes), context, a,
                          1.0f / a.step);
}

}  // namespace bitgnn::cuda::first_layers
