// Fully connected first layers of many rows on Hopper's tensor cores. A block computes 32 rows of
// 256 outputs, each warpgroup 64 of them: its weights stay bits until they are expanded in
// registers, the A operand of wgmma, while the bytes of the rows lie in shared memory. With
// q = 256 * high + low, the high bytes are multiplied only if some q of the block needs them after
// their common trailing zero bits are dropped. Bound by integer instructions that convert rows and
// weights to bytes.
#pragma once

#include <algorithm>

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/mma_b1.cuh"
#include "core/cuda/shared_memory.h"
#include "first_layers/arguments.h"
#include "first_layers/cuda/fixed_point.cuh"
#include "first_layers/cuda/hopper/linear_products.cuh"
#include "first_layers/cuda/outputs.cuh"

namespace bitgnn::cuda::first_layers {

constexpr int kByteThreads = 512;
constexpr int kByteWarps = kByteThreads / kWarp;
constexpr int kByteRows = 32;
constexpr int kByteOutputs = 256;
constexpr int kByteWords = kByteOutputs / 32;  // of bits per row and block
constexpr int kByteItems = 4;                  // in flight per thread

// Offsets of a block's shared memory regions, in words.
struct ByteLayout {
  int words;  // per row of weights

  __host__ __device__ constexpr int chunks() const { return (words + 1) / 2; }  // of 64 features
  __host__ __device__ constexpr int cores() const { return 4 * chunks(); }
  __host__ __device__ constexpr int plane_words() const {
    return kByteRows / kCoreRows * cores() * kCoreWords;
  }
  __host__ __device__ constexpr int pitch() const { return words | 1; }  // no bank conflicts
  __host__ __device__ constexpr int high() const { return plane_words(); }
  __host__ __device__ constexpr int weights() const { return 2 * plane_words(); }
  // After one extra word, which the last output's last chunk reads if the number of words is odd.
  __host__ __device__ constexpr int staged() const {
    return weights() + kByteOutputs * pitch() + 1;
  }
  __host__ __device__ constexpr int masks() const { return staged() + kByteRows * kByteWords; }
  __host__ __device__ constexpr int found() const { return masks() + 2 * kByteWords; }
  __host__ __device__ constexpr int64_t bytes() const { return 4 * (int64_t{found()} + 4); }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// 16 features of a row: the pairs (r, 4 + r) and (8 + r, 12 + r) of q for r = 0 to 3.
struct ByteItem {
  uint32_t pair[4][2];
};

// Loads features from `feature` on, 0 past the row's end; kVector: rows are whole aligned 16-byte
// pieces.
template <class T, bool kVector>
__device__ __forceinline__ void load_item(T (&values)[16], const T* row, int feature, int size) {
  constexpr int kEach = kVector ? 16 / static_cast<int>(sizeof(T)) : 1;
  using Vector = FixedVector<T, kEach>;
#pragma unroll
  for (int i = 0; i < 16; i += kEach) {
    Vector vector{};
    if (row != nullptr && feature + i < size)
      vector = *reinterpret_cast<const Vector*>(row + feature + i);
#pragma unroll
    for (int k = 0; k < kEach; ++k) values[i + k] = vector.value[k];
  }
}

// Transposes, in each of two bytes, the 8 x 8 bits held by eight lanes that are 4 apart.
__device__ __forceinline__ uint32_t transpose_bytes(uint32_t x, int lane) {
#pragma unroll
  for (int b = 4; b > 0; b /= 2) {
    const uint32_t lower = b == 4 ? 0x0f0fu : b == 2 ? 0x3333u : 0x5555u;
    const uint32_t other = __shfl_xor_sync(kFullWarp, x, 4 * b);
    x = (lane / 4 & b) == 0 ? (x & lower) | (other & lower) << b
                            : (x & ~lower) | (other & ~lower) >> b;
  }
  return x;
}

#endif

template <class T, bool kVector>
__global__ void __launch_bounds__(kByteThreads, 1)
    fixed_linear_bytes_kernel(const FixedConvArgs a, const float inverse_step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kFloats = !std::is_same_v<T, uint8_t>;  // uint8 needs no high bytes
  extern __shared__ __align__(128) uint32_t byte_memory[];
  uint32_t* const memory = byte_memory;
  const auto size = static_cast<int>(a.conv.channels);
  const ByteLayout layout{static_cast<int>(pack::word_count(size))};
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarp, quad = lane % 4, group = lane / 4, warp = thread / kWarp;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kByteRows;
  const int64_t block_output = static_cast<int64_t>(blockIdx.y) * kByteOutputs;
  const int64_t first_output = block_output + warp * 16;
  const bool bits = a.conv.out_bits != nullptr;
  const bool compares = bits && a.conv.prepared != nullptr;
  uint32_t* const found = memory + layout.found();
  let_next_start();
  // `prepared` and the weights were written before the previous kernel, so they may be read before
  // the wait.
  if (a.conv.prepared == nullptr) wait_for_previous();
  const int existing =
      static_cast<int>(min(a.conv.out_channels - block_output, int64_t{kByteOutputs}));
  for (int word = lane; word < layout.words; word += kWarp) {
    const int32_t* from = a.conv.w + (block_output + warp) * layout.words + word;
    uint32_t* to = memory + layout.weights() + warp * layout.pitch() + word;
    for (int output = warp; output < kByteOutputs; output += kByteWarps) {
      copy_async_4(to, output < existing ? from : a.conv.w, output < existing ? 4 : 0);
      from += kByteWarps * layout.words;
      to += kByteWarps * layout.pitch();
    }
  }
  commit_copies();
  const FixedOutput outputs[2] = {FixedOutput(a, first_output + group),
                                  FixedOutput(a, first_output + group + 8)};
  if (thread == 0) *found = 0;
  if (thread < kByteOutputs) {  // masks that turn failed comparisons of 32 outputs into bits
    const FixedOutput own(a, block_output + thread);
    const uint32_t exists = __ballot_sync(kFullWarp, own.exists);
    const uint32_t turned = __ballot_sync(kFullWarp, own.exists && own.turned);
    if (lane == 0) {
      memory[layout.masks() + warp * 2] = exists;
      memory[layout.masks() + warp * 2 + 1] = exists & ~turned;
    }
  }
  __syncthreads();
  if (a.conv.prepared != nullptr) wait_for_previous();

  // Converts rows to bytes: a warp takes 64 features of eight rows at a time, a lane 16 of one row.
  const int tasks = kByteRows / kCoreRows * layout.chunks();
  const bool all_at_once = tasks <= kByteItems * kByteWarps;
  FixedForm form;
#pragma unroll 1
  for (int first = 0; first < tasks; first += kByteItems * kByteWarps) {
    const int base = first + warp;
    ByteItem items[kByteItems];
    T values[kByteItems][16];
#pragma unroll
    for (int i = 0; i < kByteItems; ++i) {
      const int task = base + i * kByteWarps;
      const int64_t row = first_row + task % 4 * kCoreRows + group;
      const bool exists = task < tasks && row < a.conv.images;
      load_item<T, kVector>(values[i],
                            exists ? static_cast<const T*>(a.x) + row * a.image_stride : nullptr,
                            task / 4 * 64 + quad * 16, size);
    }
    FixedBits own;
#pragma unroll
    for (int i = 0; i < kByteItems; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int k = 0; k < 2; ++k)
          items[i].pair[r][k] =
              fixed_pair(values[i][8 * k + r], values[i][8 * k + 4 + r], inverse_step);
        if constexpr (kFloats) own.add(items[i].pair[r][0], items[i].pair[r][1]);
      }
    }
    if constexpr (kFloats) {
      if (all_at_once) {
        const uint32_t of_warp = __reduce_or_sync(kFullWarp, own.all());
        if (lane == 0) atomicOr(found, of_warp);
        __syncthreads();
        form = FixedForm(*found);
      } else {
        form.digits = FixedDigits::kBoth;
      }
    }
#pragma unroll
    for (int i = 0; i < kByteItems; ++i) {
      const int task = base + i * kByteWarps;
      if (task >= tasks) break;
      uint32_t* const to = memory + (task % 4 * layout.cores() + task / 4 * 4) * kCoreWords + lane;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t (&pair)[2] = items[i].pair[r];
        to[r * kCoreWords] = low_bytes(pair[0] >> form.zeros, pair[1] >> form.zeros);
        if (kFloats && form.digits == FixedDigits::kBoth)
          to[layout.high() + r * kCoreWords] = high_bytes(pair[0], pair[1]);
      }
    }
  }
  wait_copies<0>();
  wgmma_write_fence();
  __syncthreads();

  int32_t low[16], high[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int32_t most = size * 32768 + 1;  // limits beyond it are equivalent
    const int32_t limit = max(-most, min(most, outputs[i / 2 % 2].limit));
    low[i] = compares ? -limit >> form.zeros : 0;
    high[i] = 0;
  }
  const char* const weights = reinterpret_cast<const char*>(memory + layout.weights() +
                                                            (warp * 16 + group) * layout.pitch()) +
                              quad * 2;
  const uint64_t low_rows = core_descriptor(shared_address(memory), layout.cores());
  const uint64_t high_rows =
      core_descriptor(shared_address(memory + layout.high()), layout.cores());
  const int to_second = 8 * layout.pitch() * 4;
  if (form.digits == FixedDigits::kUnsigned) {
    multiply_bytes<false, false>(low, high, weights, to_second, layout.chunks(), low_rows,
                                 high_rows);
  } else if (form.digits == FixedDigits::kSigned) {
    multiply_bytes<false, true>(low, high, weights, to_second, layout.chunks(), low_rows,
                                high_rows);
  } else {
    multiply_bytes<true, false>(low, high, weights, to_second, layout.chunks(), low_rows,
                                high_rows);
  }

  // Sum 4 j + 2 h + e belongs to output g + 8 h and row 8 j + 2 q + e.
  uint32_t failures = 0;
#pragma unroll
  for (int h = 1; h >= 0; --h) {
#pragma unroll
    for (int j = 3; j >= 0; --j) {
#pragma unroll
      for (int e = 1; e >= 0; --e) {
        const int at = j * 4 + h * 2 + e;
        int32_t sum = low[at] + high[at] * 256;
        if (!compares) {
          const int32_t dot = sum << form.zeros;
          const int64_t row = first_row + j * 8 + quad * 2 + e;
          if (bits)
            sum = outputs[h].value(a, dot) >= outputs[h].threshold ? 0 : -1;
          else if (row < a.conv.images)
            outputs[h].store(a, row, dot);
        }
        failures = __funnelshift_l(static_cast<uint32_t>(sum), failures, 1);
      }
    }
  }
  if (!bits) return;
  // Lane 4 g + q gets 16 outputs of row 8 (g / 2) + 2 q + g % 2.
  failures = transpose_bytes(failures, lane);
  const auto* const masks = reinterpret_cast<const uint16_t*>(memory + layout.masks());
  auto* const staged = reinterpret_cast<uint16_t*>(memory + layout.staged());
  const int own_row = group / 2 * 8 + quad * 2 + group % 2;
  const uint32_t exist = masks[warp / 2 * 4 + warp % 2];
  const uint32_t turn = masks[warp / 2 * 4 + 2 + warp % 2];
  staged[own_row * (2 * kByteWords) + warp] = static_cast<uint16_t>((failures & exist) ^ turn);
  __syncthreads();
  const auto out_words = static_cast<int>(pack::word_count(a.conv.out_channels));
  const int word = static_cast<int>(block_output / 32) + thread % kByteWords;
  const int64_t row = first_row + thread / kByteWords;
  if (thread < kByteRows * kByteWords && row < a.conv.images && word < out_words)
    a.conv.out_bits[row * out_words + word] =
        static_cast<int32_t>(memory[layout.staged() + thread]);
#endif
}

template <class T>
cudaError_t launch_fixed_linear_bytes(const FixedConvArgs& a, const Context& context) {
  constexpr uintptr_t kAligned = 16;
  const bool vectors = reinterpret_cast<uintptr_t>(a.x) % kAligned == 0 &&
                       a.image_stride * sizeof(T) % kAligned == 0 &&
                       a.conv.channels * sizeof(T) % kAligned == 0;
  const auto kernel =
      vectors ? fixed_linear_bytes_kernel<T, true> : fixed_linear_bytes_kernel<T, false>;
  const ByteLayout layout{static_cast<int>(words_for(a.conv.channels))};
  const cudaError_t status = grant_shared_memory(kernel, layout.bytes());
  if (status != cudaSuccess) return status;
  const dim3 grid(grid_size(ceil_div(a.conv.images, kByteRows)),
                  grid_size(ceil_div(a.conv.out_channels, kByteOutputs)));
  return launch_dependent(kernel, grid, kByteThreads, static_cast<size_t>(layout.bytes()), context,
                          a, 1.0f / a.step);
}

}  // namespace bitgnn::cuda::first_layers
