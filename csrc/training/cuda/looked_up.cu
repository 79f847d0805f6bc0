// CUDA kernels of what products of looked-up bits take in training, and their launches. Each reads
// and writes every value once: bound by memory bandwidth, or by the launch.
#include <algorithm>

#include "training/cuda/block_sum.cuh"
#include "training/looked_up_arguments.h"

namespace bitgnn::cuda::training {
namespace {

constexpr int kBlocksPerMultiprocessor = 8;
constexpr int kWarps = kQuantiseThreads / kWarp;

// Blocks for so many items of work, which a kernel strides over.
int blocks_of(int64_t items, const Context& context) {
  const int64_t most = static_cast<int64_t>(kBlocksPerMultiprocessor) * context.device.sm_count;
  return static_cast<int>(
      std::clamp<int64_t>(items, 1, std::min<int64_t>(most, kQuantiseMostBlocks)));
}

// i / cols; 64-bit divisions take several times as long.
__device__ __forceinline__ int64_t row_of(int64_t i, int64_t cols) {
  if (((i | cols) >> 32) != 0) return i / cols;
  return static_cast<uint32_t>(i) / static_cast<uint32_t>(cols);
}

// Calls work(i, row) for every element of a matrix.
template <class Work>
__device__ __forceinline__ void for_elements(int64_t rows, int64_t cols, const Work& work) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kQuantiseThreads;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kQuantiseThreads + threadIdx.x;
  for (const int64_t count = rows * cols; i < count; i += step) work(i, row_of(i, cols));
}

// A block to an output, a warp to a word.
__global__ void __launch_bounds__(kQuantiseThreads) fold_weight_kernel(const FoldWeightArgs a) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t output = blockIdx.x, words = words_for(a.size);
  double signs = 0.0, offsets = 0.0;
  for (int64_t word = warp; word < words; word += kWarps) {
    const int64_t k = word * kWarp + lane;
    const bool inside = k < a.size;
    const bool is_set = inside && a.weight[output * a.size + k] >= 0.0f;
    if (inside) {
      const double sign = is_set ? 1.0 : -1.0;
      signs += sign;
      if (a.offset != nullptr) offsets += sign * static_cast<double>(a.offset[k]);
    }
    const unsigned bits = __ballot_sync(kFullWarp, is_set);
    if (lane == 0) a.words[output * words + word] = static_cast<int32_t>(bits);
  }
  signs = block_sum(signs);
  __syncthreads();  // the memory of the first sum serves the second
  offsets = block_sum(offsets);
  if (threadIdx.x == 0) {
    const double scale = folded_scale(a, output);
    a.scale[output] = static_cast<float>(scale);
    a.shift[output] = static_cast<float>(folded_shift(a, scale, signs, offsets));
  }
}

// A warp to a row; partial[b] is the sum of squares of block b.
__global__ void __launch_bounds__(kQuantiseThreads)
    activation_bits_kernel(const ActivationBitsArgs a, double* partial) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t words = words_for(a.cols);
  double sum = 0.0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp; row < a.rows;
       row += static_cast<int64_t>(gridDim.x) * kWarps) {
    bool finite = true;
    for (int64_t word = 0; word < words; ++word) {
      const int64_t k = word * kWarp + lane, i = row * a.cols + k;
      const bool inside = k < a.cols;
      const float value = inside ? a.x[i] : 0.0f;
      finite = finite && isfinite(value);
      sum += static_cast<double>(value) * static_cast<double>(value);
      const unsigned bits = __ballot_sync(kFullWarp, inside && value >= a.threshold);
      if (lane == 0) a.words[row * words + word] = static_cast<int32_t>(bits);
    }
    finite = __all_sync(kFullWarp, finite);
    if (lane == 0) a.bad[row] = finite ? 0.0f : nanf("");
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kQuantiseThreads)
    norm_kernel(const double* partial, int blocks, double factor, float* norm) {
  const double sum = sum_of_blocks(partial, blocks);
  if (threadIdx.x == 0) *norm = static_cast<float>(sqrt(sum) * factor);
}

__global__ void __launch_bounds__(kQuantiseThreads) unpack_pair_kernel(const UnpackPairArgs a) {
  const int64_t words = words_for(a.cols);
  for_elements(a.rows, a.cols, [&](int64_t i, int64_t row) {
    const int64_t k = i - row * a.cols;
    a.out[i] = sign_of_bit(a.words, row, k, words) + sign_of_bit(a.raised, row, k, words);
  });
}

__global__ void __launch_bounds__(kQuantiseThreads) row_signs_kernel(const RowSignsArgs a) {
  for_elements(a.rows, a.cols,
               [&](int64_t i, int64_t row) { a.out[i] = row_sign(a.x[i], a.total[row]); });
}

__global__ void __launch_bounds__(kQuantiseThreads)
    straight_through_kernel(const StraightThroughArgs a) {
  const float window = a.window == nullptr ? 1.0f : *a.window;
  for_elements(a.rows, a.cols,
               [&](int64_t i, int64_t row) { a.out[i] = passed_gradient(a, i, row, window); });
}

// Launches a kernel with a thread for each element.
template <class Args>
cudaError_t launch_elements(void (*kernel)(Args), const Args& a, const Context& context) {
  const int blocks = blocks_of(ceil_div(a.rows * a.cols, kQuantiseThreads), context);
  kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a);
  return cudaGetLastError();
}

double* block_sums(int blocks, const Context& context) {
  return static_cast<double*>(context.workspace.take(static_cast<size_t>(blocks) * sizeof(double)));
}

}  // namespace

cudaError_t fold_weight(const FoldWeightArgs& a, const Context& context) {
  fold_weight_kernel<<<static_cast<unsigned>(a.outputs), kQuantiseThreads, 0, context.stream>>>(a);
  return cudaGetLastError();
}

cudaError_t activation_bits(const ActivationBitsArgs& a, const Context& context) {
  const int blocks = blocks_of(ceil_div(a.rows, kWarps), context);
  double* const partial = block_sums(blocks, context);
  activation_bits_kernel<<<blocks, kQuantiseThreads, 0, context.stream>>>(a, partial);
  norm_kernel<<<1, kQuantiseThreads, 0, context.stream>>>(partial, blocks, a.factor, a.norm);
  return cudaGetLastError();
}

cudaError_t unpack_pair(const UnpackPairArgs& a, const Context& context) {
  return launch_elements(unpack_pair_kernel, a, context);
}

cudaError_t row_signs(const RowSignsArgs& a, const Context& context) {
  return launch_elements(row_signs_kernel, a, context);
}

cudaError_t straight_through(const StraightThroughArgs& a, const Context& context) {
  return launch_elements(straight_through_kernel, a, context);
}

}  // namespace bitgnn::cuda::training
