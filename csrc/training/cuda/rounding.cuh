// Quantisation of activations and weights in training, and its gradients: one pass over the values,
// with float64 sums per block, then over the blocks in a fixed order. Bound by memory bandwidth.
#pragma once

#include "training/cuda/block_sum.cuh"
#include "training/looked_up_arguments.h"

namespace bitgnn::cuda::training {

constexpr int kQuantiseVector = 4;
constexpr int kQuantiseBlocks = 4;  // per SM, if there is enough work

// Calls work(i) for every group of values starting at i: 4 values with kVector, else one.
template <bool kVector, class Work>
__device__ __forceinline__ void for_values(int64_t count, const Work& work) {
  constexpr int64_t kStep = kVector ? kQuantiseVector : 1;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kQuantiseThreads;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kQuantiseThreads + threadIdx.x) * kStep;
       i < count; i += threads * kStep)
    work(i);
}

template <bool kVector>
__device__ __forceinline__ void load_values(const float* from, float* values) {
  if constexpr (kVector) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  } else {
    values[0] = *from;
  }
}

template <bool kVector>
__device__ __forceinline__ void store_values(float* to, const float* values) {
  if constexpr (kVector)
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  else
    *to = values[0];
}

template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads) round_levels_kernel(const RoundLevelsArgs a) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  const float scale = *a.scale;
  const auto lowest = static_cast<float>(a.lowest), highest = static_cast<float>(a.highest);
  for_values<kVector>(a.count, [&](int64_t i) {
    float values[kValues];
    load_values<kVector>(a.x + i, values);
#pragma unroll
    for (float& value : values) value = rounded_level(value, scale, lowest, highest);
    store_values<kVector>(a.out + i, values);
  });
}

template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads)
    clip_gradients_kernel(const ClipGradientsArgs a, double* partial) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  const float scale = *a.scale, gain = a.gain == nullptr ? 1.0f : *a.gain;
  double sum = 0.0;
  for_values<kVector>(a.count, [&](int64_t i) {
    float grads[kValues], values[kValues];
    load_values<kVector>(a.grad + i, grads);
    load_values<kVector>(a.x + i, values);
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      float term;
      grads[k] = clipped_gradient(a, grads[k], values[k], scale, gain, &term);
      sum += static_cast<double>(term);
    }
    store_values<kVector>(a.grad_x + i, grads);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(kQuantiseThreads)
    scale_gradient_kernel(const ClipGradientsArgs a, const double* partial, int blocks) {
  const double sum = sum_of_blocks(partial, blocks);
  if (threadIdx.x == 0) *a.grad_scale = static_cast<float>(sum * a.factor());
}

template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads)
    value_sum_kernel(const float* from, int64_t count, double* partial) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  double sum = 0.0;
  for_values<kVector>(count, [&](int64_t i) {
    float values[kValues];
    load_values<kVector>(from + i, values);
#pragma unroll
    for (const float value : values) sum += static_cast<double>(value);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// `sums`: per-block sums of the weights; `partial` receives the per-block sums of the magnitudes.
template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads)
    shift_signs_kernel(const ShiftSignsArgs a, const double* sums, double* partial) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  __shared__ float shared_mean;
  const double total = sum_of_blocks(sums, static_cast<int>(gridDim.x));
  if (threadIdx.x == 0) shared_mean = static_cast<float>(total / a.divisor());
  __syncthreads();
  const float mean = shared_mean;
  double sum = 0.0;
  for_values<kVector>(a.count, [&](int64_t i) {
    float values[kValues];
    load_values<kVector>(a.weight + i, values);
#pragma unroll
    for (float& value : values) {
      const float centred = value - mean;
      value = centred >= 0.0f ? 1.0f : -1.0f;
      sum += static_cast<double>(fabsf(centred));
    }
    store_values<kVector>(a.signs + i, values);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(kQuantiseThreads)
    weight_scale_kernel(const ShiftSignsArgs a, const double* partial, int blocks) {
  const double sum = sum_of_blocks(partial, blocks);
  if (threadIdx.x == 0) *a.scale = static_cast<float>(sum / a.divisor());
}

// `sums`: per-block sums of the values.
template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads)
    centre_gradients_kernel(const CentreGradientsArgs a, const double* sums) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  __shared__ float shared_mean;
  const double total = sum_of_blocks(sums, static_cast<int>(gridDim.x));
  if (threadIdx.x == 0) shared_mean = static_cast<float>(total / a.divisor());
  __syncthreads();
  const float mean = shared_mean, factor = *a.factor;
  for_values<kVector>(a.count, [&](int64_t i) {
    float values[kValues];
    load_values<kVector>(a.grad + i, values);
#pragma unroll
    for (float& value : values) value = (value - mean) * factor;
    store_values<kVector>(a.out + i, values);
  });
}

// With kVector, rows are whole groups of values.
template <bool kVector>
__global__ void __launch_bounds__(kQuantiseThreads) scale_sums_kernel(const ScaleSumsArgs a) {
  constexpr int kValues = kVector ? kQuantiseVector : 1;
  const float factor = *a.scale * *a.weight_scale;
  for_values<kVector>(a.count, [&](int64_t i) {
    float values[kValues], added[kValues];
    load_values<kVector>(a.sums + i, values);
    if (a.bias != nullptr) load_values<kVector>(a.bias + i % a.columns, added);
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      values[k] = factor * values[k];
      if (a.bias != nullptr) values[k] += added[k];
    }
    store_values<kVector>(a.out + i, values);
  });
}

}  // namespace bitgnn::cuda::training
