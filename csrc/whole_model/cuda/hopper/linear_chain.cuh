// Fully connected layers on bits in one launch: a cluster of blocks takes 16 or 48 rows through all
// layers. Each block owns a slice of every layer's outputs, whose weights it fetches before the
// previous kernel has finished. The rows' bits lie in shared memory word by word. Each warp sends
// its results of a layer directly into the shared memory of all blocks, where they count at an
// mbarrier, so no warp waits for a whole block. Bound by latency: the launch, the fetch of the
// rows, and each layer's products and exchange.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/cluster.cuh"
#include "core/cuda/mma_b1.cuh"
#include "whole_model/linear_chain.h"

namespace bitgnn::cuda::whole_model {

constexpr int kChainColumns = 2 * kMmaColumns;  // of the last layer, per warp at a time
constexpr int kChainBlocks = 8;  // per cluster: more clusters are resident than with 16
constexpr int kChainShares = 4;  // warps that share a tile of 16 rows and split its outputs

// Words from one word to the next of the same row, chosen so that fragment loads have no bank
// conflicts.
__host__ __device__ constexpr int chain_rows_pitch(int rows) { return (rows + 23) / 32 * 32 + 8; }
constexpr int chain_threads(int rows) { return rows / kMmaRows * kChainShares * kWarp; }

// How the layers are divided among the blocks of a cluster; offsets in words of shared memory.
struct ChainPlan {
  int slice[kMostChainLayers];  // outputs per block, whole words of bits except in the last layer
  int weights[kMostChainLayers];
  int table[kMostChainLayers];  // hidden layers: limits, then masks of bits that are not inverted
  uint32_t reciprocal[kMostChainLayers];  // of the 16-byte pieces per row of weights, times 2^32
  int rows[2];                            // bits of the rows, alternating between layers
  int barriers;
};

__device__ __forceinline__ int chain_pitch(const ChainLayer& layer) {
  return tile_pitch(static_cast<int>(chain_words(layer.size)));
}

// The last layer's value from 2 p - |x|.
__device__ __forceinline__ float chain_value(const int4& entry, int32_t value) {
  const auto dot = static_cast<float>(entry.x + 2 * value);
  return __fadd_rn(__fmul_rn(__int_as_float(entry.y), dot), __int_as_float(entry.z));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// Sends a word to the shared memory of block `rank`, where it counts at the mbarrier.
__device__ __forceinline__ void send_word(uint32_t to, uint32_t value, uint32_t barrier,
                                          uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there, there_barrier;\n"
      "mapa.shared::cluster.u32 there, %0, %3;\n"
      "mapa.shared::cluster.u32 there_barrier, %2, %3;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, "
      "[there_barrier];\n}\n" ::"r"(to),
      "r"(value), "r"(barrier), "r"(rank)
      : "memory");
}

// Like barrier_wait(), but for data written by other blocks of the cluster.
__device__ __forceinline__ void wait_for_words(uint32_t barrier, int phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// Fetches the block's slice of a layer. Outputs that do not exist have arbitrary weights and never
// fall short of their limit.
__device__ __forceinline__ void fetch_layer(uint32_t* shared, const LinearChainArgs& a,
                                            const ChainPlan& plan, int l, int rank) {
  constexpr int kFar = 1 << 24;  // larger than any count
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const ChainLayer& layer = a.layers[l];
  const int slice = plan.slice[l], first = rank * slice;
  const int left = max(0, min(slice, static_cast<int>(layer.outputs) - first));
  const int words = static_cast<int>(chain_words(layer.size));
  const int32_t* const from = a.image + layer.weights + static_cast<int64_t>(first) * words;
  for (int at = thread; at < left * (words / 4); at += threads) {
    const auto row = static_cast<int>(__umulhi(static_cast<uint32_t>(at), plan.reciprocal[l]));
    copy_async_16(shared + plan.weights[l] + (at + row) * 4, from + at * 4, 16);
  }
  int32_t* const to = reinterpret_cast<int32_t*>(shared) + plan.table[l];
  if (l + 1 == a.count) {
    const int32_t* const table = a.image + layer.table + static_cast<int64_t>(first) * kLastTable;
    for (int at = thread; at < left * kLastTable; at += threads) to[at] = __ldg(table + at);
    return;
  }
  const auto* const table = reinterpret_cast<const int2*>(a.image + layer.table) + first;
  for (int at = thread; at < slice; at += threads) {
    const int2 entry = at < left ? __ldg(table + at) : int2{-kFar, 1};
    to[at] = max(-kFar, min(kFar, entry.x));
    const uint32_t straight = __ballot_sync(kFullWarp, entry.y == 0);
    if (at % kWarp == 0) to[slice + at / kWarp] = static_cast<int32_t>(straight);
  }
}

// Fetches the bits of a cluster's rows, word by word.
template <int kRows>
__device__ __forceinline__ void fetch_rows(uint32_t* to, const LinearChainArgs& a,
                                           int64_t first_row) {
  constexpr int kPitch = chain_rows_pitch(kRows), kThreads = chain_threads(kRows);
  const int words = static_cast<int>(words_for(a.layers[0].size));
  const int padded = static_cast<int>(chain_words(a.layers[0].size));
  const int64_t left = a.rows - first_row;
  const int32_t* const x = a.x + first_row * words;
  const auto thread = static_cast<int>(threadIdx.x);
  if (words == padded && reinterpret_cast<uintptr_t>(a.x) % 16 == 0) {
    for (int at = thread; at < kRows * (words / 4); at += kThreads) {
      const int row = at % kRows, word = at / kRows * 4;
      int4 four{0, 0, 0, 0};
      if (row < left) four = *reinterpret_cast<const int4*>(x + row * words + word);
      uint32_t* const place = to + word * kPitch + row;
      place[0] = static_cast<uint32_t>(four.x);
      place[kPitch] = static_cast<uint32_t>(four.y);
      place[2 * kPitch] = static_cast<uint32_t>(four.z);
      place[3 * kPitch] = static_cast<uint32_t>(four.w);
    }
    return;
  }
  for (int at = thread; at < kRows * padded; at += kThreads) {
    const int row = at % kRows, word = at / kRows;
    to[word * kPitch + row] =
        row < left && word < words ? static_cast<uint32_t>(x[row * words + word]) : 0u;
  }
}

// Products of rows g and g + 8 of a tile of 16 with the columns of kFragments fragments, and the
// popcounts of the rows.
template <int kFragments, int kPitch>
__device__ __forceinline__ void multiply_rows(int32_t (&sum)[kFragments][4], int32_t (&count)[4],
                                              const uint32_t* rows, const uint32_t* weights,
                                              int pitch, int steps, int lane) {
  const uint32_t ones[2] = {~0u, ~0u};
  const uint32_t* own = rows + fragment_quad(lane) * kPitch + fragment_group(lane);
  uint32_t columns = column_fragments_address(weights, pitch, lane);
#pragma unroll 4
  for (int step = 0; step < steps; ++step) {
    const uint32_t row[4] = {own[0], own[8], own[4 * kPitch], own[4 * kPitch + 8]};
    own += kMmaWords * kPitch;
#pragma unroll
    for (int j = 0; j < kFragments; j += 2) {
      uint32_t column[2][2];
      load_matrices(columns + j * kMmaColumns * pitch * 4, column[0][0], column[0][1], column[1][0],
                    column[1][1]);
      mma_and_popc(sum[j], row, column[0]);
      mma_and_popc(sum[j + 1], row, column[1]);
    }
    columns += kMmaWords * 4;
    mma_and_popc(count, row, ones);
  }
}

// Computes the block's words of a hidden layer and sends them to every block.
template <int kRows>
__device__ __forceinline__ void send_layer(uint32_t* shared, const LinearChainArgs& a,
                                           const ChainPlan& plan, int l, int rank) {
  constexpr int kPitch = chain_rows_pitch(kRows), kTiles = kRows / kMmaRows;
  const ChainLayer& layer = a.layers[l];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int tile = warp % kTiles, quad = fragment_quad(lane), group = fragment_group(lane);
  const int pitch = chain_pitch(layer);
  const int steps = static_cast<int>(chain_words(layer.size) / kMmaWords);
  const auto* const least = reinterpret_cast<const int32_t*>(shared) + plan.table[l];
  const uint32_t* const straight = shared + plan.table[l] + plan.slice[l];
  const uint32_t* const from = shared + plan.rows[l % 2] + tile * kMmaRows;
  uint32_t* const to = shared + plan.rows[(l + 1) % 2];
  const int words = static_cast<int>(words_for(layer.outputs));
  const int own = plan.slice[l] / 32, first = rank * own, sent = max(0, min(own, words - first));
  const uint32_t barrier = shared_address(shared + plan.barriers) + l % 2 * 8;
  if (thread == 0) barrier_expect(barrier, words * kRows * 4);
  // Words past the outputs still hold another layer's bits, which would be counted: clear them.
  const int padding = static_cast<int>(chain_words(layer.outputs)) - words;
  for (int at = thread; at < kPitch * padding; at += chain_threads(kRows))
    to[words * kPitch + at] = 0;
  for (int word = warp / kTiles; word < sent; word += kChainShares) {
    int32_t sum[4][4] = {}, count[4] = {};
    multiply_rows<4, kPitch>(sum, count, from, shared + plan.weights[l] + word * 32 * pitch, pitch,
                             steps, lane);
    uint32_t short_of[2] = {};  // bits of sums below their limit, rows g and g + 8
#pragma unroll
    for (int j = 3; j >= 0; --j) {
      const int2 both =
          *reinterpret_cast<const int2*>(least + word * 32 + j * kMmaColumns + quad * 2);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        short_of[i] <<= 6;
        const int32_t second = 2 * sum[j][2 * i + 1] - (count[2 * i] + both.y);
        const int32_t first_one = 2 * sum[j][2 * i] - (count[2 * i] + both.x);
        short_of[i] = __funnelshift_l(static_cast<uint32_t>(second), short_of[i], 1);
        short_of[i] = __funnelshift_l(static_cast<uint32_t>(first_one), short_of[i], 1);
      }
    }
    // Each lane of a quad assembles the word of row g or of row g + 8.
    const uint32_t kept = (quad % 2 != 0 ? short_of[1] : short_of[0]) << (2 * quad);
    const uint32_t given = (quad % 2 != 0 ? short_of[0] : short_of[1]) << (2 * quad);
    uint32_t bits = kept | __shfl_xor_sync(kFullWarp, given, 1);
    bits = (bits | __shfl_xor_sync(kFullWarp, bits, 2)) ^ straight[word];
    const uint32_t place =
        shared_address(to + (first + word) * kPitch + tile * kMmaRows + group + quad % 2 * 8);
#pragma unroll
    for (int block = 0; block < kChainBlocks / 2; ++block)
      send_word(place, bits, barrier,
                static_cast<uint32_t>((rank + block * 2 + quad / 2) % kChainBlocks));
  }
  // No block sends a layer before it has all words of the previous one, so their source has been
  // read.
  wait_for_words(barrier, l / 2 % 2);
  if (padding != 0) __syncthreads();
}

// Computes and stores the block's values of the last layer.
template <int kRows>
__device__ __forceinline__ void store_last_layer(const uint32_t* shared, const LinearChainArgs& a,
                                                 const ChainPlan& plan, int64_t first_row,
                                                 int rank) {
  constexpr int kPitch = chain_rows_pitch(kRows), kTiles = kRows / kMmaRows;
  const int l = a.count - 1;
  const ChainLayer& layer = a.layers[l];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, tile = warp % kTiles;
  const int slice = plan.slice[l], pitch = chain_pitch(layer);
  const int steps = static_cast<int>(chain_words(layer.size) / kMmaWords);
  const auto* const table = reinterpret_cast<const int4*>(shared + plan.table[l]);
  const int outputs = static_cast<int>(layer.outputs);
  for (int pair = warp / kTiles; pair < slice / kChainColumns; pair += kChainShares) {
    if (rank * slice + pair * kChainColumns >= outputs) break;
    int32_t sum[2][4] = {}, count[4] = {};
    multiply_rows<2, kPitch>(sum, count, shared + plan.rows[l % 2] + tile * kMmaRows,
                             shared + plan.weights[l] + pair * kChainColumns * pitch, pitch, steps,
                             lane);
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = pair * kChainColumns + j * kMmaColumns + fragment_quad(lane) * 2 + i % 2;
        const int64_t row = first_row + tile * kMmaRows + fragment_group(lane) + i / 2 * 8;
        const int o = rank * slice + column;
        if (row < a.rows && o < outputs)
          a.out[row * outputs + o] = chain_value(table[column], 2 * sum[j][i] - count[i]);
      }
  }
}

#endif

template <int kRows>
__global__ void __launch_bounds__(chain_threads(kRows), 1)
    linear_chain_kernel(const __grid_constant__ LinearChainArgs a,
                        const __grid_constant__ ChainPlan plan) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) uint32_t chain_shared[];
  uint32_t* const shared = chain_shared;
  const int rank = static_cast<int>(cluster_rank());
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / kChainBlocks) * kRows;
  let_next_start();
  if (threadIdx.x == 0) {
    const uint32_t barriers = shared_address(shared + plan.barriers);
    barrier_init(barriers, 1);
    barrier_init(barriers + 8, 1);
    barrier_init_fence();
  }
  __syncthreads();
  arrive_at_cluster();  // all blocks must have started before one writes into another
  for (int l = 0; l < a.count; ++l) fetch_layer(shared, a, plan, l, rank);
  commit_copies();
  wait_for_previous();
  fetch_rows<kRows>(shared + plan.rows[0], a, first_row);
  wait_copies<0>();
  wait_for_cluster();
  __syncthreads();
  for (int l = 0; l + 1 < a.count; ++l) send_layer<kRows>(shared, a, plan, l, rank);
  store_last_layer<kRows>(shared, a, plan, first_row, rank);
#endif
}

}  // namespace bitgnn::cuda::whole_model
