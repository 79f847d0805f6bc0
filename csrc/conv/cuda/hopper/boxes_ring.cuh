// Box convolution: a block's walk over its tiles, and the ring that prefetches addends and stores
// sums of a warpgroup's units.
#pragma once

#include "conv/cuda/hopper/boxes_plan.h"
#include "core/cuda/common.cuh"
#include "core/cuda/hopper/async_copy.cuh"
#include "core/cuda/hopper/box_copy.cuh"
#include "core/cuda/hopper/ring.cuh"
#include "core/cuda/mma_b1.cuh"

namespace bitgnn::cuda::conv {

// Tensor maps of a launch; addends and sums are set for sums only.
struct BoxMaps {
  CUtensorMap pixels, weights, addends, sums;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A block's range of tiles, and the first image and row of the current one.
struct BoxWalk {
  int tile, last, column_tile;
  int image, line;
  __device__ __forceinline__ explicit BoxWalk(const ConvBoxPlan& plan) {
    const int block = static_cast<int>(blockIdx.x);
    column_tile = block / plan.groups;
    const int64_t group = block - column_tile * plan.groups;
    tile = static_cast<int>(group * plan.tiles / plan.groups);
    last = static_cast<int>((group + 1) * plan.tiles / plan.groups);
    image = plan.tile_images > 1 ? tile * plan.tile_images : tile / plan.image_tiles;
    line = plan.tile_images > 1 ? 0 : (tile - image * plan.image_tiles) * plan.tile_rows;
  }
  __device__ __forceinline__ void advance(const ConvBoxPlan& plan) {
    ++tile;
    line += plan.tile_rows;
    if (line >= plan.out_height) {
      line = 0;
      image += plan.tile_images;
    }
  }
};

// Prefetches the addends of a warpgroup's units and stores their sums.
template <int kGroups>
class BoxSumsRing {
 public:
  __device__ __forceinline__ BoxSumsRing(BoxShared& shared, unsigned char* raw, const BoxMaps& maps,
                                         const ConvAddArgs& args, const ConvBoxPlan& plan,
                                         const BoxWalk& walk, int group)
      : plan_(plan),
        args_(args),
        maps_(maps),
        shared_(shared),
        ahead_(walk),
        unit_(group),
        group_(group) {
    buffers_ = raw + plan.buffers_at + group * plan.buffers * kBoxParts * plan.part_pitch;
    parts_ = min(max(plan.addend_parts - walk.column_tile * kBoxParts, 0), kBoxParts);
  }
  // Called by one thread.
  __device__ __forceinline__ void start() {
    for (int i = 0; i + 1 < plan_.buffers; ++i) load(i);
  }
  __device__ __forceinline__ unsigned char* wait() {
    if (parts_ > 0) barrier_wait(shared_address(&shared_.addends[group_][turn_.at]), turn_.phase);
    return buffer(turn_.at);
  }
  __device__ __forceinline__ int parts() const { return parts_; }
  // Called by one thread after all have written the unit's sums.
  __device__ __forceinline__ void store(const BoxUnit& unit) {
    if (args_.sums != nullptr) {
      for (int part = 0; part < kBoxParts; ++part)
        store_box(maps_.sums, shared_address(buffer(turn_.at) + part * plan_.part_pitch),
                  {first_channel(part), unit.x, unit.y, unit.image, 0});
      store_commit();
      store_wait_read<1>();
    }
    // The previous stores have finished reading the previous buffer.
    load(turn_.at == 0 ? plan_.buffers - 1 : turn_.at - 1);
  }
  __device__ __forceinline__ void advance() { turn_.advance(plan_.buffers); }

 private:
  __device__ __forceinline__ unsigned char* buffer(int i) const {
    return buffers_ + i * kBoxParts * plan_.part_pitch;
  }
  __device__ __forceinline__ int first_channel(int part) const {
    return ahead_.column_tile * kBoxColumns + part * kBoxPartChannels;
  }
  // Starts copying the addends of the next unit.
  __device__ __forceinline__ void load(int to) {
    const int units = plan_.tile_units;
    for (; unit_ >= units; unit_ -= units) ahead_.advance(plan_);
    if (parts_ == 0 || ahead_.tile >= ahead_.last) return;
    const BoxUnit unit = shared_.units[unit_];
    const uint32_t full = shared_address(&shared_.addends[group_][to]);
    barrier_expect(full, parts_ * plan_.part_bytes);
    const int x = unit.x * static_cast<int>(args_.addend_stride_width);
    const int y = (ahead_.line + unit.y) * static_cast<int>(args_.addend_stride_height);
    for (int part = 0; part < parts_; ++part)
      copy_box(shared_address(buffer(to) + part * plan_.part_pitch), maps_.addends,
               {first_channel(part), x, y, ahead_.image + unit.image, 0}, full);
    unit_ += kGroups;
  }

  const ConvBoxPlan& plan_;
  const ConvAddArgs& args_;
  const BoxMaps& maps_;
  BoxShared& shared_;
  unsigned char* buffers_;
  BoxWalk ahead_;
  int unit_, group_, parts_;
  RingCursor turn_;
};

#endif

}  // namespace bitgnn::cuda::conv
