// The helper warps of the warpgroup convolution: they load the pixels of a tile, count their bits,
// and build the terms of the tile's rows and outputs.
#pragma once

#include "conv/cuda/hopper/wgmma_terms.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/hopper/wgmma_b1.cuh"

namespace bitgnn::cuda::conv {

// A block's tiles: a contiguous range of all tiles, outputs fastest; or, if the block keeps its
// weights, of the pixel tiles for one column tile.
struct ConvWalk {
  int tile;
  int column_tile;
  int left;
  __device__ __forceinline__ explicit ConvWalk(const ConvPlan& plan) {
    const int64_t block = blockIdx.x;
    if (plan.groups > 0) {
      column_tile = static_cast<int>(block) / plan.groups;
      const int64_t group = block % plan.groups;
      tile = static_cast<int>(group * plan.tiles / plan.groups);
      left = static_cast<int>((group + 1) * plan.tiles / plan.groups) - tile;
    } else {
      const int64_t units = static_cast<int64_t>(plan.tiles) * plan.column_tiles;
      const int64_t first = block * units / gridDim.x;
      tile = static_cast<int>(first / plan.column_tiles);
      column_tile = static_cast<int>(first % plan.column_tiles);
      left = static_cast<int>((block + 1) * units / gridDim.x - first);
    }
  }
  __device__ __forceinline__ void advance(const ConvPlan& plan) {
    --left;
    if (plan.groups == 0 && ++column_tile < plan.column_tiles) return;
    if (plan.groups == 0) column_tile = 0;
    ++tile;
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Waits until at most the last `ahead` groups of copies are in flight.
__device__ __forceinline__ void wait_for_copies(int ahead) {
  if (ahead == 0) {
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
  } else if (ahead == 1) {
    asm volatile("cp.async.wait_group 1;\n" ::: "memory");
  } else {
    asm volatile("cp.async.wait_group 2;\n" ::: "memory");
  }
}

template <int kColumns, ConvOutput kOutput>
__device__ __forceinline__ void help_conv(ConvShared& shared, unsigned char* raw,
                                          const ConvAddArgs& args, const ConvPlan& plan,
                                          int thread) {
  using Table = ConvTable<kColumns, kOutput>;
  constexpr int kBarrier = 1;
  ConvWalk walk(plan);
  if (walk.left == 0) return;
  const ConvArgs& a = args.conv;
  auto* masks = reinterpret_cast<uint32_t*>(raw + plan.masks_at);
  const int last_tile = plan.groups > 0
                            ? walk.tile + walk.left - 1
                            : walk.tile + (walk.column_tile + walk.left - 1) / plan.column_tiles;
  // Tiles in flight beyond the one being described; one slot is spare so that copies need not wait
  // for the products in progress.
  const int ahead = max(plan.slots - 2, 0);
  const uint32_t slots = shared_address(raw + plan.slots_at);
  int next_load = walk.tile;
  RingCursor loading, slot, info;
  int parity = 0;
  bool new_tile = true, first = true;
  while (walk.left > 0) {
    const int tile = walk.tile;
    if (new_tile) {
      for (; next_load <= tile + ahead; ++next_load) {
        if (next_load <= last_tile) {
          barrier_wait(shared_address(&shared.slot_empty[loading.at]), loading.phase ^ 1);
          load_slabs(slots + loading.at * plan.slot_bytes, a.x, plan, next_load, thread);
          barrier_arrive_copied(shared_address(&shared.slot_full[loading.at]));
          loading.advance(plan.slots);
        }
        commit_copies();
      }
    }
    if (first) {
      make_masks(masks, a, plan, thread);
      group_sync(kBarrier, kConvHelpers);
    }
    barrier_wait(shared_address(&shared.info_empty[info.at]), info.phase ^ 1);
    // If the weights stay resident, so does the table.
    if (plan.groups == 0 || first) {
      auto* tables = reinterpret_cast<int32_t*>(raw + plan.tables_at);
      describe_outputs<kColumns, kOutput>(shared,
                                          tables + info.at * (plan.classes + 2) * Table::kPitch,
                                          masks, a, plan, walk.column_tile, info.at, thread);
    }
    first = false;
    if (new_tile) {
      auto* counts =
          reinterpret_cast<int32_t*>(raw + plan.counts_at) + parity * plan.phases * plan.rows;
      wait_for_copies(ahead);
      count_slabs(counts, raw + plan.slots_at + slot.at * plan.slot_bytes, plan, thread);
      group_sync(kBarrier, kConvHelpers);
      describe_rows<Table::kPitch, kOutput == ConvOutput::kSums>(
          shared.rows[parity], counts, args, plan, tile, walk.column_tile * kColumns, thread);
    }
    barrier_arrive(shared_address(&shared.info_full[info.at]));
    info.advance(2);
    walk.advance(plan);
    new_tile = walk.left > 0 && walk.tile != tile;
    if (new_tile) {
      slot.advance(plan.slots);
      parity ^= 1;
    }
  }
}

#endif

}  // namespace bitgnn::cuda::conv
