// Thermometer bits: a lane makes a word of each of its rows, so that all lanes of a warp compare
// with one threshold of one column. What a block reads and writes passes through shared memory,
// since its rows lie far apart.
//
// Binds: instructions, two a bit and what surrounds them. A value reaches a threshold if the next
// smaller number minus the value is negative: one subtraction, and one shift that takes the sign,
// where a comparison and an addition to the word take two turns of the slower unit. Counting by
// bisection how many of a column's thresholds a value reaches took longer: its bits must be put
// together into words.
#pragma once

#include <limits>

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kLevelThreads = 256;
constexpr int kLevelWarps = kLevelThreads / kWarp;  // words of a step: one of each warp
constexpr int kLevelLaneRows = 4;
constexpr int kLevelRows = kLevelLaneRows * kWarp;  // of a block
constexpr int kLevelSteps = 4;                      // of a block at most
constexpr int kMostWindows = 8;

template <class Value>
struct LevelTile {
  // Odd strides: lanes read one column, or one word, of 32 rows without bank conflicts.
  static constexpr int kWindow = sizeof(Value) == 4 ? 54 : 26;  // columns of x at a time

  Value x[kLevelRows][kWindow + 1];
  int32_t words[kLevelRows][kLevelSteps * kLevelWarps + 1];
  float thresholds[kLevelThreads], below[kLevelThreads];
  int32_t columns[kLevelThreads];
  int32_t lowest[kLevelWarps], highest[kLevelWarps];

  // `width` columns of `count` rows.
  template <class T>
  __device__ __forceinline__ void load_x(const T* from, int width, int count, int64_t stride) {
    constexpr int kTogether = 8;  // rows in flight
    const int warp = threadIdx.x / kWarp;
    for (int c = threadIdx.x % kWarp; c < width; c += kWarp) {
      const T* at = from + warp * stride + c;
#pragma unroll
      for (int first = 0; first < kLevelRows; first += kTogether * kLevelWarps) {
        T value[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (first + i * kLevelWarps + warp < count) value[i] = __ldg(at);
          at += kLevelWarps * stride;
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          x[first + i * kLevelWarps + warp][c] = to_value(value[i]);
      }
    }
  }
};

// The largest number below a threshold, which is not -infinity.
__device__ __forceinline__ float next_below(float threshold) {
  const int32_t bits = __float_as_int(threshold);
  if (threshold == 0.0f) return __int_as_float(static_cast<int32_t>(0x80000001u));
  return threshold != threshold ? threshold : __int_as_float(bits + (bits < 0 ? 1 : -1));
}

// Adds a warp's bits from the columns for which `inside` holds; `load(r, column)` is the value of
// the lane's row r. Bit b of `change` says that the column is not that of bit b - 1. With kBySign,
// `thresholds` are the numbers below them.
template <bool kBySign, class Value, class Inside, class Load>
__device__ __forceinline__ void add_level_bits(uint32_t (&bits)[kLevelLaneRows], uint32_t change,
                                               const float* thresholds, const int32_t* columns,
                                               const Inside& inside, const Load& load) {
  while (change != 0) {
    const int first = __ffs(change) - 1;
    change &= change - 1;
    const int column = columns[first];
    if (!inside(column)) continue;
    const int end = change != 0 ? __ffs(change) - 1 : kWordBits;
    Value value[kLevelLaneRows];
#pragma unroll
    for (int r = 0; r < kLevelLaneRows; ++r) value[r] = load(r, column);
    uint32_t run[kLevelLaneRows] = {};
#pragma unroll 4
    for (int b = end - 1; b >= first; --b) {
      const Value threshold = static_cast<Value>(thresholds[b]);
#pragma unroll
      for (int r = 0; r < kLevelLaneRows; ++r) {
        if constexpr (kBySign)  // NaN has no sign
          run[r] = __funnelshift_l(__float_as_uint(__fsub_rn(threshold, value[r])), run[r], 1);
        else
          run[r] = run[r] << 1 | (value[r] >= threshold ? 1u : 0u);
      }
    }
#pragma unroll
    for (int r = 0; r < kLevelLaneRows; ++r) bits[r] |= run[r] << first;
  }
}

// A block takes `steps` steps of words of its rows; blocks of the same rows stand side by side.
template <class T>
__global__ void __launch_bounds__(kLevelThreads, sizeof(T) == 8 ? 2 : 4)
    pack_levels_kernel(const LevelPackArgs a, int64_t rows, int steps, unsigned ranges) {
  using Value = typename DenseRows<T>::Value;
  using Tile = LevelTile<Value>;
  __shared__ Tile tile;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int64_t words = word_count(a.size);
  const int64_t first_word = static_cast<int64_t>(blockIdx.x % ranges) * steps * kLevelWarps;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / ranges) * kLevelRows;
  const int count = static_cast<int>(min(rows - first_row, int64_t{kLevelRows}));
  const T* x = static_cast<const T*>(a.x) + first_row * a.row_stride;

  for (int step = 0; step < steps; ++step) {
    const int64_t first_bit = (first_word + step * kLevelWarps) * kWordBits;
    if (first_bit >= a.size) break;
    // A thread's bit; what lies past the end is reached by no value.
    const int64_t bit = first_bit + threadIdx.x;
    const int column = static_cast<int>(__ldg(a.columns + min(bit, a.size - 1)));
    const int before = __shfl_up_sync(kFullWarp, column, 1);
    const uint32_t change = __ballot_sync(kFullWarp, lane == 0 || column != before);
    tile.columns[threadIdx.x] = column;
    const float threshold = bit < a.size ? __ldg(a.thresholds + bit) : nanf("");
    tile.thresholds[threadIdx.x] = threshold;
    tile.below[threadIdx.x] = next_below(threshold);
    const int low = __reduce_min_sync(kFullWarp, column);
    const int high = __reduce_max_sync(kFullWarp, column);
    if (lane == 0) tile.lowest[warp] = low, tile.highest[warp] = high;
    const bool has_lowest = __syncthreads_or(threshold == -INFINITY);
    int lowest = tile.lowest[0], highest = tile.highest[0];
#pragma unroll
    for (int i = 1; i < kLevelWarps; ++i) {
      lowest = min(lowest, tile.lowest[i]);
      highest = max(highest, tile.highest[i]);
    }

    const int32_t* columns = tile.columns + warp * kWordBits;
    uint32_t bits[kLevelLaneRows] = {};
    if (highest - lowest < kMostWindows * Tile::kWindow && !has_lowest) {
      constexpr bool kBySign = sizeof(Value) == sizeof(float);
      const float* thresholds = (kBySign ? tile.below : tile.thresholds) + warp * kWordBits;
      for (int first = lowest; first <= highest; first += Tile::kWindow) {
        const int width = min(highest - first + 1, Tile::kWindow);
        tile.load_x(x + first, width, count, a.row_stride);
        __syncthreads();
        add_level_bits<kBySign, Value>(
            bits, change, thresholds, columns,
            [&](int column) { return column >= first && column < first + width; },
            [&](int r, int column) { return tile.x[r * kWarp + lane][column - first]; });
        __syncthreads();
      }
    } else {  // columns in no order are read where they lie
      add_level_bits<false, Value>(
          bits, change, tile.thresholds + warp * kWordBits, columns, [](int) { return true; },
          [&](int r, int column) {
            return to_value(__ldg(x + min(r * kWarp + lane, count - 1) * a.row_stride + column));
          });
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < kLevelLaneRows; ++r)
      tile.words[r * kWarp + lane][step * kLevelWarps + warp] = static_cast<int32_t>(bits[r]);
  }
  __syncthreads();
  // A warp writes whole rows of the block's words, several of them where they are few.
  const int width = static_cast<int>(min(words - first_word, int64_t{steps} * kLevelWarps));
  int32_t* out = a.words + first_row * words + first_word;
  const int across = steps * kLevelWarps, w = lane % across;
  for (int r = static_cast<int>(threadIdx.x) / across; r < count; r += kLevelThreads / across)
    if (w < width) out[r * words + w] = tile.words[r][w];
}

template <class T>
cudaError_t launch_pack_levels(const LevelPackArgs& a, int64_t rows, int steps,
                               const Context& context) {
  const int64_t ranges = ceil_div(word_count(a.size), int64_t{steps} * kLevelWarps);
  const int64_t grid = ranges * ceil_div(rows, int64_t{kLevelRows});
  if (grid > std::numeric_limits<int32_t>::max()) return cudaErrorInvalidValue;
  pack_levels_kernel<T><<<static_cast<unsigned>(grid), kLevelThreads, 0, context.stream>>>(
      a, rows, steps, static_cast<unsigned>(ranges));
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::pack
