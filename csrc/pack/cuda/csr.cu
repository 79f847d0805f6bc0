// Packs rows given by their entries on CUDA, a warp to a row: bound by reading the entries once.
#include <algorithm>
#include <type_traits>

#include "core/cuda/common.cuh"
#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kWarp;
constexpr int64_t kMostBlocks = 1 << 20;

__device__ __forceinline__ int64_t integer_at(const void* entries, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(entries)[i] : static_cast<const int32_t*>(entries)[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads) pack_csr_kernel(const CsrPackArgs a) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const int lane = threadIdx.x % kWarp;
  const int64_t words = words_for(a.cols);
  const T* values = static_cast<const T*>(a.values);
  const auto column_at = [&](int64_t e) { return integer_at(a.indices, a.indices64, e); };
  const auto threshold_at = [&](int64_t k) {
    return a.threshold == nullptr ? 0.0f : a.threshold[k];
  };
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
       row < a.rows; row += static_cast<int64_t>(gridDim.x) * kRowsPerBlock) {
    int32_t* out = a.words + row * words;
    for (int64_t word = 0; word < words; ++word) {
      const int64_t k = word * kWarp + lane;
      const unsigned bits = __ballot_sync(kFullWarp, k < a.cols && 0.0f >= threshold_at(k));
      if (lane == 0) out[word] = static_cast<int32_t>(bits);
    }
    // What the host has not checked reads nothing outside and sets nothing.
    const int64_t begin = min(max(integer_at(a.rowptr, a.rowptr64, row), int64_t{0}), a.entries);
    const int64_t end = min(integer_at(a.rowptr, a.rowptr64, row + 1), a.entries);
    bool ascends = true;
    for (int64_t e = begin + 1 + lane; e < end; e += kWarp)
      ascends = ascends && column_at(e - 1) < column_at(e);
    const bool has_sums = !__all_sync(kFullWarp, ascends);
    __syncwarp();  // the words are there
    for (int64_t e = begin + lane; e < end; e += kWarp) {
      const int64_t k = column_at(e);
      if (k < 0 || k >= a.cols) continue;
      Sum sum = static_cast<Sum>(to_value(values[e]));
      if (has_sums) {
        // The first of a column's entries adds up all of them, in their order.
        bool is_first = true;
        for (int64_t other = begin; other < e && is_first; ++other)
          is_first = column_at(other) != k;
        if (!is_first) continue;
        for (int64_t other = e + 1; other < end; ++other)
          if (column_at(other) == k) sum += static_cast<Sum>(to_value(values[other]));
      }
      const unsigned bit = 1u << (k % kWarp);
      auto* word = reinterpret_cast<unsigned*>(out + k / kWarp);
      if (sum >= static_cast<Sum>(threshold_at(k)))
        atomicOr(word, bit);
      else
        atomicAnd(word, ~bit);
    }
  }
}

}  // namespace

cudaError_t pack_csr(const CsrPackArgs& args, const Context& context) {
  if (args.rows == 0 || args.cols == 0) return cudaSuccess;
  const int64_t blocks = std::min(ceil_div(args.rows, kRowsPerBlock), kMostBlocks);
  return with_float_type(args.type, [&](auto zero) {
    pack_csr_kernel<decltype(zero)>
        <<<static_cast<unsigned>(blocks), kThreads, 0, context.stream>>>(args);
    return cudaGetLastError();
  });
}

}  // namespace bitgnn::cuda::pack
