// Fully connected layers on bits in one launch: a cluster of blocks takes 16 rows through all
// layers. Each block owns a slice of every layer's outputs, whose weights it fetches before the
// previous kernel has finished. The bits of a layer are written directly into the shared memory of
// all blocks. Bound by latency: the launch, the fetch of the rows, and one cluster barrier per
// layer.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/cluster.cuh"
#include "core/cuda/mma_b1.cuh"
#include "whole_model/cuda/hopper/linear_chain.h"

namespace bitgnn::cuda::whole_model {

constexpr int kChainThreads = 256;
constexpr int kChainWarps = kChainThreads / kWarp;
constexpr int kChainRows = kMmaRows;
constexpr int kChainColumns = 2 * kMmaColumns;  // per warp at a time

// How the layers are divided among the blocks of a cluster; offsets in words of shared memory.
struct ChainPlan {
  int slice[kMostChainLayers];  // outputs per block, whole words of bits except in the last layer
  int weights[kMostChainLayers];
  int table[kMostChainLayers];
  int rows_pitch;  // per row of bits
  int staged;      // staging for a block's own bits
};

__device__ __forceinline__ int chain_pitch(const ChainLayer& layer) {
  return tile_pitch(static_cast<int>(chain_words(layer.size)));
}

// Fetches the block's slice of a layer's weights and its table; outputs that do not exist get
// limits that no product reaches.
__device__ __forceinline__ void fetch_chain_layer(uint32_t* shared, const LinearChainArgs& a,
                                                  const ChainPlan& plan, int l, int rank) {
  const ChainLayer& layer = a.layers[l];
  const int slice = plan.slice[l], first = rank * slice;
  const int left = max(0, min(slice, static_cast<int>(layer.outputs) - first));
  const int words = static_cast<int>(chain_words(layer.size)), vectors = words / 4;
  const int pitch = chain_pitch(layer);
  const int32_t* const from = a.image + layer.weights + static_cast<int64_t>(first) * words;
  for (int at = static_cast<int>(threadIdx.x); at < slice * vectors; at += kChainThreads) {
    const int row = at / vectors, vector = at - row * vectors;
    const bool exists = row < left;
    copy_async_16(shared + plan.weights[l] + row * pitch + vector * 4,
                  exists ? from + row * words + vector * 4 : a.image, exists ? 16 : 0);
  }
  const bool last = l + 1 == a.count;
  const int entry = static_cast<int>(last ? kLastTable : kHiddenTable);
  const int32_t* const table = a.image + layer.table + static_cast<int64_t>(first) * entry;
  auto* const to = reinterpret_cast<int32_t*>(shared) + plan.table[l];
  for (int at = static_cast<int>(threadIdx.x); at < slice * entry; at += kChainThreads)
    to[at] = at < left * entry ? __ldg(table + at) : !last && at % entry == 0 ? INT32_MAX : 0;
}

// 2 p - |x|, twice the products minus the row's popcount, for rows g and g + 8 and columns 2 q and
// 2 q + 1 of two fragments.
__device__ __forceinline__ void multiply_chain(int32_t (&value)[2][4], const uint32_t* rows,
                                               int rows_pitch, const uint32_t* weights, int pitch,
                                               int steps, int lane) {
  int32_t sum[2][4] = {}, count[4] = {};
  const uint32_t ones[2] = {~0u, ~0u};
#pragma unroll 2
  for (int step = 0; step < steps; ++step) {
    uint32_t row[4], column[2][2];
    load_row_fragment(row, rows + step * kMmaWords, rows_pitch, lane);
    load_column_fragments(column[0], column[1], weights + step * kMmaWords, pitch, lane);
    mma_and_popc(sum[0], row, column[0]);
    mma_and_popc(sum[1], row, column[1]);
    mma_and_popc(count, row, ones);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) value[j][i] = 2 * sum[j][i] - count[i];
}

// Computes the block's bits of a hidden layer and stores them in the rows `to` of every block.
__device__ __forceinline__ void chain_bits(uint32_t* shared, const LinearChainArgs& a,
                                           const ChainPlan& plan, int l, const uint32_t* from,
                                           uint32_t* to, int rank, int blocks) {
  const ChainLayer& layer = a.layers[l];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int slice = plan.slice[l], pitch = chain_pitch(layer);
  const int steps = static_cast<int>(chain_words(layer.size) / kMmaWords);
  const auto* const table = reinterpret_cast<const int2*>(shared + plan.table[l]);
  auto* const staged = reinterpret_cast<uint16_t*>(shared + plan.staged);
  const int halves = slice / kChainColumns;  // per row
  for (int pair = warp; pair < halves; pair += kChainWarps) {
    int32_t value[2][4];
    multiply_chain(value, from, plan.rows_pitch,
                   shared + plan.weights[l] + pair * kChainColumns * pitch, pitch, steps, lane);
    uint32_t bits[2] = {};  // of rows g, g + 8
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = j * kMmaColumns + quad * 2 + e;
        const int2 least = table[pair * kChainColumns + column];
#pragma unroll
        for (int i = 0; i < 2; ++i)
          bits[i] |= ((value[j][2 * i + e] >= least.x ? 1u : 0u) ^ static_cast<uint32_t>(least.y))
                     << column;
      }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bits[i] |= __shfl_xor_sync(kFullWarp, bits[i], 1);
      bits[i] |= __shfl_xor_sync(kFullWarp, bits[i], 2);
      if (quad == 0) staged[(group + 8 * i) * halves + pair] = static_cast<uint16_t>(bits[i]);
    }
  }
  const int words = static_cast<int>(words_for(layer.outputs));
  // Words past the outputs still hold another layer's bits, which would be counted: clear them.
  const int padding = static_cast<int>(chain_words(layer.outputs)) - words;
  for (int at = static_cast<int>(threadIdx.x); at < kChainRows * padding; at += kChainThreads)
    to[at / padding * plan.rows_pitch + words + at % padding] = 0;
  __syncthreads();
  const int own = slice / 32, first = rank * own;
  const auto* const own_words = shared + plan.staged;
  for (int at = static_cast<int>(threadIdx.x); at < blocks * kChainRows * own;
       at += kChainThreads) {
    const int block = at / (kChainRows * own), rest = at - block * kChainRows * own;
    const int row = rest / own, word = rest - row * own;
    if (first + word < words)
      store_remote(shared_address(to + row * plan.rows_pitch + first + word), block,
                   own_words[row * own + word]);
  }
}

// The last layer's value from 2 p - |x|.
__device__ __forceinline__ float chain_value(const int4& entry, int32_t value) {
  const auto dot = static_cast<float>(entry.x + 2 * value);
  return __fadd_rn(__fmul_rn(__int_as_float(entry.y), dot), __int_as_float(entry.z));
}

// Computes and stores the block's values of the last layer.
__device__ __forceinline__ void chain_values(const uint32_t* shared, const LinearChainArgs& a,
                                             const ChainPlan& plan, int l, const uint32_t* from,
                                             int64_t first_row, int rank) {
  const ChainLayer& layer = a.layers[l];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int slice = plan.slice[l], pitch = chain_pitch(layer);
  const int steps = static_cast<int>(chain_words(layer.size) / kMmaWords);
  const auto* const table = reinterpret_cast<const int4*>(shared + plan.table[l]);
  const int outputs = static_cast<int>(layer.outputs);
  for (int pair = warp; pair < slice / kChainColumns; pair += kChainWarps) {
    if (rank * slice + pair * kChainColumns >= outputs) break;
    int32_t value[2][4];
    multiply_chain(value, from, plan.rows_pitch,
                   shared + plan.weights[l] + pair * kChainColumns * pitch, pitch, steps, lane);
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = pair * kChainColumns + j * kMmaColumns + fragment_quad(lane) * 2 + i % 2;
        const int64_t row = first_row + fragment_group(lane) + i / 2 * 8;
        const int o = rank * slice + column;
        if (row >= a.rows || o >= outputs) continue;
        a.out[row * outputs + o] = chain_value(table[column], value[j][i]);
      }
  }
}

static __global__ void __launch_bounds__(kChainThreads, 1)
    linear_chain_kernel(const __grid_constant__ LinearChainArgs a,
                        const __grid_constant__ ChainPlan plan) {
  extern __shared__ __align__(16) uint32_t chain_shared[];
  uint32_t* const shared = chain_shared;
  const int rank = static_cast<int>(cluster_rank()), blocks = static_cast<int>(cluster_size());
  const int64_t first_row = static_cast<int64_t>(blockIdx.x / blocks) * kChainRows;
  uint32_t* const rows[2] = {shared, shared + kChainRows * plan.rows_pitch};
  let_next_start();
  arrive_at_cluster();  // all blocks must have started before one stores into another
  for (int l = 0; l < a.count; ++l) fetch_chain_layer(shared, a, plan, l, rank);
  wait_for_previous();
  const int words = static_cast<int>(words_for(a.layers[0].size));
  const int padded = static_cast<int>(chain_words(a.layers[0].size));
  for (int at = static_cast<int>(threadIdx.x); at < kChainRows * padded; at += kChainThreads) {
    const int row = at / padded, word = at - row * padded;
    const bool exists = first_row + row < a.rows && word < words;
    rows[0][row * plan.rows_pitch + word] =
        exists ? static_cast<uint32_t>(a.x[(first_row + row) * words + word]) : 0u;
  }
  commit_copies();
  wait_copies<0>();
  wait_for_cluster();
  __syncthreads();
  for (int l = 0; l + 1 < a.count; ++l) {
    chain_bits(shared, a, plan, l, rows[l % 2], rows[(l + 1) % 2], rank, blocks);
    arrive_at_cluster();
    wait_for_cluster();
  }
  chain_values(shared, a, plan, a.count - 1, rows[(a.count - 1) % 2], first_row, rank);
}

}  // namespace bitgnn::cuda::whole_model
