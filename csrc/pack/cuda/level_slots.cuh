// Thermometer bits with kLevelSlot adjacent bits for every feature, so that a word is of two of
// them: a lane keeps the thresholds of its word in registers and takes row after row.
//
// Binds: memory, which reads four bytes a feature and writes two, next to two instructions a bit.
#pragma once

#include <algorithm>
#include <limits>

#include "pack/arguments.h"
#include "pack/cuda/level_signs.cuh"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kSlotThreads = 256;
constexpr int kSlotWarps = kSlotThreads / kWarp;  // rows of a block at a time
constexpr int kSlotTogether = 4;                  // rows of a warp in flight

// Blocks of the same rows stand side by side, `across` of them.
template <class T>
__global__ void __launch_bounds__(kSlotThreads)
    pack_level_slots_kernel(const LevelPackArgs a, int64_t rows, unsigned across) {
  using Value = typename DenseRows<T>::Value;
  constexpr bool kBySign = sizeof(Value) == sizeof(float);
  const int64_t words = word_count(a.size);
  const int64_t first_word = int64_t{blockIdx.x % across} * kWarp;
  const int lane = threadIdx.x % kWarp;
  const int64_t word = first_word + lane;
  // Lanes read columns of a pitch that is odd, without bank conflicts.
  __shared__ float shared[kWarp][kWordBits + 1];
  for (int i = static_cast<int>(threadIdx.x); i < kWarp * kWordBits; i += kSlotThreads) {
    const int64_t bit = first_word * kWordBits + i;
    shared[i / kWordBits][i % kWordBits] = bit < a.size ? __ldg(a.thresholds + bit) : nanf("");
  }
  __syncthreads();
  Value thresholds[kWordBits];
  uint32_t lowest = 0;  // bits that every number reaches
#pragma unroll
  for (int b = 0; b < kWordBits; ++b) {
    const float threshold = shared[lane][b];
    thresholds[b] = static_cast<Value>(kBySign ? next_below(threshold) : threshold);
    if (kBySign && threshold == -INFINITY) lowest |= 1u << b;
  }
  // A feature that does not exist has no thresholds.
  const int64_t last = a.features - 1;
  const T* low = static_cast<const T*>(a.x) + min(2 * word, last);
  const T* high = static_cast<const T*>(a.x) + min(2 * word + 1, last);
  const int64_t stride = int64_t{gridDim.x / across} * kSlotWarps;
  for (int64_t first = int64_t{blockIdx.x / across} * kSlotWarps + threadIdx.x / kWarp;
       first < rows; first += kSlotTogether * stride) {
    Value x[kSlotTogether][2];
#pragma unroll
    for (int i = 0; i < kSlotTogether; ++i) {
      const int64_t at = min(first + i * stride, rows - 1) * a.row_stride;
      x[i][0] = to_value(__ldg(low + at));
      x[i][1] = to_value(__ldg(high + at));
    }
#pragma unroll
    for (int i = 0; i < kSlotTogether; ++i) {
      uint32_t bits = 0;
#pragma unroll
      for (int b = kWordBits - 1; b >= 0; --b)
        bits = with_level<kBySign>(bits, x[i][b / static_cast<int>(kLevelSlot)], thresholds[b]);
      if (lowest != 0)
        bits |= lowest &
                ((x[i][0] == x[i][0] ? 0xffffu : 0u) | (x[i][1] == x[i][1] ? 0xffff0000u : 0u));
      const int64_t row = first + i * stride;
      if (word < words && row < rows) a.words[row * words + word] = static_cast<int32_t>(bits);
    }
  }
}

template <class T>
cudaError_t launch_pack_level_slots(const LevelPackArgs& a, int64_t rows, const Context& context) {
  constexpr int64_t kBlocks = 4;  // per multiprocessor: their thresholds fill its registers
  const int64_t across = ceil_div(word_count(a.size), int64_t{kWarp});
  const int64_t most = ceil_div(kBlocks * context.device.sm_count, across);
  const int64_t grid = across * std::min(ceil_div(rows, int64_t{kSlotWarps}), most);
  if (grid > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidValue;
  pack_level_slots_kernel<T><<<static_cast<unsigned>(grid), kSlotThreads, 0, context.stream>>>(
      a, rows, static_cast<unsigned>(across));
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack
