// Packing and product of a few dozen float rows on Hopper, in two launches: the first packs rows
// into tiles in tensor-core order; meanwhile the blocks of the second load the weights of 64
// outputs per warpgroup straight into registers, then fetch their tile of rows with one bulk copy.
// Bound by reading the weights and by the latency of two launches.
#pragma once

#include "core/cuda/dependent_launch.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/wgmma_b1_registers.cuh"
#include "core/cuda/mma_b1.cuh"
#include "ternary/arguments.h"
#include "ternary/cuda/linear/tile_epilogue.cuh"

namespace bitgnn::cuda::ternary {

constexpr int kGroupRows = 32;        // per tile
constexpr int kGroupChunkWords = 16;  // per row: a lane loads four consecutive words of its weights
constexpr int kGroupOutputs = 128;    // per block of two warpgroups
constexpr int kGroupThreads = 256;
constexpr int kGroupStages = 11;      // chunks of weights held in registers
constexpr int kGroupMostChunks = 32;  // in a row packed by one block

// Layout of a tile: the chunks of all rows for pos, then for neg, then |neg| - |pos| of each row. A
// chunk is four consecutive pieces of 16 bytes per row. Piece k has the words k, k + 4, k + 8 and
// k + 12 of the chunk: 128 bits in the order in which lanes hold weights.
__host__ __device__ constexpr int group_plane_words(int chunks) {
  return chunks * kGroupChunkWords * kGroupRows;
}
__host__ __device__ constexpr int group_tile_words(int chunks) {
  return 2 * group_plane_words(chunks) + kGroupRows;
}

template <class T>
struct GroupPackArgs {
  const T* x;
  int64_t stride;
  int size;
  const float* scale;
  uint32_t neg_mask;  // 0 for boolean rows
  uint32_t* tiles;
  int chunks;
};

// Packs one row per block, 16 floats per thread. The product's blocks may start only after this
// kernel's wait: earlier kernels are complete by then, so the weights can be loaded without a wait.
template <class T>
__global__ void __launch_bounds__(kGroupMostChunks* kWarp)
    ternary_group_pack_kernel(const __grid_constant__ GroupPackArgs<T> a) {
  __shared__ int32_t partial[kGroupMostChunks];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const auto row = static_cast<int>(blockIdx.x);
  const int word = thread / 2 % kGroupChunkWords, chunk = thread / kWarp;
  uint32_t* tile = a.tiles + int64_t{row / kGroupRows} * group_tile_words(a.chunks);
  uint32_t* to = tile + lane % 2 * group_plane_words(a.chunks) +
                 ((chunk * 4 + word % 4) * kGroupRows + row % kGroupRows) * 4 + word / 4;
  uint32_t* difference = tile + 2 * group_plane_words(a.chunks) + row % kGroupRows;
  const T* from = a.x + row * a.stride + thread * kLaneFloats;
  int left = a.size - thread * kLaneFloats;
  make_ready(to);
  make_ready(difference);
  make_ready(from);
  make_ready(left);
  wait_for_previous();
  const LanePiece<T> piece = load_lane_piece(from, left);
  const TernaryLimits<T> limits(load_in_place(a.scale));
  let_next_start();
  LaneBits bits = lane_bits(limits, piece);
  bits.neg &= a.neg_mask;
  const uint32_t packed = exchange_bits(bits, lane);
  *to = packed;
  const int count = __popc(packed);
  const int total = __reduce_add_sync(kFullWarp, lane % 2 != 0 ? count : -count);
  if (lane == 0) partial[chunk] = total;
  __syncthreads();
  if (thread >= kWarp) return;
  const int sum = __reduce_add_sync(kFullWarp, lane < a.chunks ? partial[lane] : 0);
  if (lane == 0) *difference = static_cast<uint32_t>(sum);
}

struct TernaryGroupPlan {
  const uint32_t* tiles;
  int words;   // per row
  int chunks;  // per row
  bool fours;  // four 16-bit values are stored at a time
};

// Half: the 16-bit type that is stored four at a time.
template <class Half>
__global__ void __launch_bounds__(kGroupThreads, 1)
    ternary_group_kernel(const __grid_constant__ TernaryBmmArgs a,
                         const __grid_constant__ TernaryGroupPlan plan) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) uint32_t group_tile[];
  __shared__ __align__(8) uint64_t arrival;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int group = fragment_group(lane), quad = fragment_quad(lane);
  const int first_output = static_cast<int>(blockIdx.x) * kGroupOutputs + warp * kMmaRows;
  const int64_t first_row = int64_t{blockIdx.y} * kGroupRows;
  const uint32_t barrier = shared_address(&arrival), tile = shared_address(group_tile);
  const int bytes = group_tile_words(plan.chunks) * 4;
  if (thread == 0) {
    barrier_init(barrier, 1);
    barrier_init_fence();
    barrier_expect(barrier, bytes);
  }
  // Words past a row's end are multiplied by zeros, so they may be any readable words.
  const int32_t* row[2];
  const int last = static_cast<int>(a.out_features) - 1;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    row[half] = a.w + int64_t{min(first_output + half * 8 + group, last)} * plan.words;
  uint32_t weights[kGroupStages][2][4];
  const auto fetch = [&](int stage, int chunk) {
    const int word = min(chunk * kGroupChunkWords + quad * 4, plan.words - 4);
    const uint4 low = load_in_place(reinterpret_cast<const uint4*>(row[0] + word));
    const uint4 high = load_in_place(reinterpret_cast<const uint4*>(row[1] + word));
    uint32_t (&to)[2][4] = weights[stage];
    to[0][0] = low.x;
    to[0][1] = high.x;
    to[0][2] = low.y;
    to[0][3] = high.y;
    to[1][0] = low.z;
    to[1][1] = high.z;
    to[1][2] = low.w;
    to[1][3] = high.w;
  };
#pragma unroll
  for (int stage = 0; stage < kGroupStages; ++stage) fetch(stage, min(stage, plan.chunks - 1));
  const FourValues values(a, first_row, first_output, lane);
  __syncthreads();
  wait_for_previous();
  if (thread == 0)
    copy_bytes(tile, plan.tiles + int64_t{blockIdx.y} * group_tile_words(plan.chunks), bytes,
               barrier);
  LaneTerms terms;
  terms.load<false>(a, first_output + group);
  let_next_start();
  int32_t pos[kGroupRows / 2] = {}, neg[kGroupRows / 2] = {};
  barrier_wait(barrier, 0);
#pragma unroll 1
  for (int first = 0; first < plan.chunks; first += kGroupStages) {
    wgmma_fence();
#pragma unroll
    for (int stage = 0; stage < kGroupStages; ++stage) {
      if (first + stage >= plan.chunks) break;
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        constexpr int kPieceBytes = kGroupRows * 16;
        const uint32_t bits = tile + ((first + stage) * 2 + step) * 2 * kPieceBytes;
        wgmma_and_popc(pos, weights[stage][step], plain_descriptor(bits, kPieceBytes), true);
        wgmma_and_popc(neg, weights[stage][step],
                       plain_descriptor(bits + group_plane_words(plan.chunks) * 4, kPieceBytes),
                       true);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    if (first + kGroupStages < plan.chunks) {
#pragma unroll
      for (int stage = 0; stage < kGroupStages; ++stage)
        fetch(stage, min(first + kGroupStages + stage, plan.chunks - 1));
    }
  }
  const auto* difference =
      reinterpret_cast<const int32_t*>(group_tile + 2 * group_plane_words(plan.chunks));
#pragma unroll
  for (int j = 0; j < kGroupRows / 8; ++j) {
    const int2 d = *reinterpret_cast<const int2*>(difference + j * 8 + quad * 2);
    const int32_t dot[4] = {
        2 * (pos[4 * j] - neg[4 * j]) + d.x, 2 * (pos[4 * j + 1] - neg[4 * j + 1]) + d.y,
        2 * (pos[4 * j + 2] - neg[4 * j + 2]) + d.x, 2 * (pos[4 * j + 3] - neg[4 * j + 3]) + d.y};
    if (plan.fours) {
      values.template store<Half>(j * 8, 0, terms, dot);
    } else {
      with_value(a.type, [&](auto zero) {
        store_tile_values<decltype(zero)>(a, TilePlace{first_row + j * 8, first_output}, terms, dot,
                                          lane);
      });
    }
  }
#endif
}

}  // namespace bitgnn::cuda::ternary
