// Launches the CUDA kernels of quantisation in training and its gradients.
#include <algorithm>
#include <initializer_list>

#include "training/cuda/rounding.cuh"
#include "training/looked_up_arguments.h"

namespace bitgnn::cuda::training {
namespace {

// True if all values can be read and written four at a time.
bool in_fours(int64_t count, std::initializer_list<const float*> places) {
  constexpr uintptr_t kBytes = sizeof(float) * kQuantiseVector;
  return count % kQuantiseVector == 0 && std::all_of(places.begin(), places.end(), [](auto place) {
           return reinterpret_cast<uintptr_t>(place) % kBytes == 0;
         });
}

int blocks_for(int64_t count, bool vector, const Context& context) {
  const int64_t values = kQuantiseThreads * (vector ? kQuantiseVector : 1);
  const int64_t most = std::min<int64_t>(
      kQuantiseMostBlocks, static_cast<int64_t>(kQuantiseBlocks) * context.device.sm_count);
  return static_cast<int>(std::clamp<int64_t>(ceil_div(count, values), 1, most));
}

double* block_sums(int blocks, const Context& context) {
  return static_cast<double*>(context.workspace.take(static_cast<size_t>(blocks) * sizeof(double)));
}

}  // namespace

cudaError_t round_levels(const RoundLevelsArgs& a, const Context& context) {
  if (a.count == 0) return cudaSuccess;
  const bool vector = in_fours(a.count, {a.x, a.out});
  const int blocks = blocks_for(a.count, vector, context);
  const auto kernel = vector ? round_levels_kernel<true> : round_levels_kernel<false>;
  kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a);
  return cudaGetLastError();
}

cudaError_t clip_gradients(const ClipGradientsArgs& a, const Context& context) {
  const bool vector = in_fours(a.count, {a.grad, a.x, a.grad_x});
  const int blocks = blocks_for(a.count, vector, context);
  double* const partial = block_sums(blocks, context);
  const auto kernel = vector ? clip_gradients_kernel<true> : clip_gradients_kernel<false>;
  kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a, partial);
  scale_gradient_kernel<<<1, kQuantiseThreads, 0, context.stream>>>(a, partial, blocks);
  return cudaGetLastError();
}

cudaError_t shift_signs(const ShiftSignsArgs& a, const Context& context) {
  const bool vector = in_fours(a.count, {a.weight, a.signs});
  const int blocks = blocks_for(a.count, vector, context);
  double* const sums = block_sums(blocks, context);
  double* const partial = block_sums(blocks, context);
  const auto sum = vector ? value_sum_kernel<true> : value_sum_kernel<false>;
  const auto shift = vector ? shift_signs_kernel<true> : shift_signs_kernel<false>;
  sum<<<blocks, kQuantiseThreads, 0, context.stream>>>(a.weight, a.count, sums);
  shift<<<blocks, kQuantiseThreads, 0, context.stream>>>(a, sums, partial);
  weight_scale_kernel<<<1, kQuantiseThreads, 0, context.stream>>>(a, partial, blocks);
  return cudaGetLastError();
}

cudaError_t centre_gradients(const CentreGradientsArgs& a, const Context& context) {
  if (a.count == 0) return cudaSuccess;
  const bool vector = in_fours(a.count, {a.grad, a.out});
  const int blocks = blocks_for(a.count, vector, context);
  double* const sums = block_sums(blocks, context);
  const auto sum = vector ? value_sum_kernel<true> : value_sum_kernel<false>;
  const auto kernel = vector ? centre_gradients_kernel<true> : centre_gradients_kernel<false>;
  sum<<<blocks, kQuantiseThreads, 0, context.stream>>>(a.grad, a.count, sums);
  kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a, sums);
  return cudaGetLastError();
}

cudaError_t scale_sums(const ScaleSumsArgs& a, const Context& context) {
  if (a.count == 0) return cudaSuccess;
  // A null bias is at a multiple of any number of bytes.
  const bool vector = in_fours(a.columns, {a.sums, a.bias, a.out});
  const int blocks = blocks_for(a.count, vector, context);
  const auto kernel = vector ? scale_sums_kernel<true> : scale_sums_kernel<false>;
  kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::training
