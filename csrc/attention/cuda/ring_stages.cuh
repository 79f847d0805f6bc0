// Shared-memory ring of key and value stages that streams them to a block of queries. On Hopper one
// thread issues bulk copies and warps may drift apart as far as the ring allows; elsewhere all
// threads copy with cp.async and synchronise once per stage.
#pragma once

#include "attention/cuda/tiles.cuh"
#include "core/cuda/hopper/async_copy.cuh"

namespace bitgnn::cuda::attention {

constexpr int kAttentionRing = 4;

template <int kDim>
struct AttentionShared {
  using S = AttentionShape<kDim>;
  AttentionStage<kDim> stages[kAttentionRing];
  double exact[S::kScores];     // powers of the definition
  float table[2 * S::kScores];  // scores a causal row leaves out may index past the first half
  int32_t histogram[S::kWarps][S::kScores];
  uint64_t full[kAttentionRing];
  uint64_t empty[kAttentionRing];
};

template <int kDim>
struct AttentionRing {
  using S = AttentionShape<kDim>;
  AttentionShared<kDim>& shared;
  const AttentionStage<kDim>* stages;  // of the head
  int count;                           // stages per pass over the keys
  int walks;                           // passes; the last one needs the values

  __device__ __forceinline__ int steps() const { return count * walks; }

  __device__ __forceinline__ const AttentionStage<kDim>& operator[](int step) const {
    return shared.stages[step % kAttentionRing];
  }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  __device__ __forceinline__ void bring(int step) {
    const bool with_values = step >= count * (walks - 1);
    const uint32_t bytes =
        with_values ? sizeof(AttentionStage<kDim>) : kStageBytesWithoutValues<kDim>;
    const uint32_t full = shared_address(&shared.full[step % kAttentionRing]);
    barrier_expect(full, static_cast<int>(bytes));
    copy_bytes(shared_address(&shared.stages[step % kAttentionRing]), stages + step % count, bytes,
               full);
  }

  __device__ __forceinline__ void init() {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kAttentionRing; ++i) {
        barrier_init(shared_address(&shared.full[i]), 1);
        barrier_init(shared_address(&shared.empty[i]), S::kWarps);
      }
      barrier_init_fence();
    }
  }

  __device__ __forceinline__ void start() {
    if (threadIdx.x == 0)
      for (int step = 0; step < min(steps(), kAttentionRing); ++step) bring(step);
  }

  // Waits for the stage of `step`; first refills the slot of the stage two steps back.
  __device__ __forceinline__ void await(int step) {
    if (threadIdx.x == 0 && step >= 2 && step - 2 + kAttentionRing < steps()) {
      const int old = step - 2;
      barrier_wait(shared_address(&shared.empty[old % kAttentionRing]), old / kAttentionRing % 2);
      bring(old + kAttentionRing);
    }
    __syncwarp();
    barrier_wait(shared_address(&shared.full[step % kAttentionRing]), step / kAttentionRing % 2);
  }

  // Marks the stage as no longer needed by this warp.
  __device__ __forceinline__ void release(int step) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0)
      barrier_arrive(shared_address(&shared.empty[step % kAttentionRing]));
  }
#else
  __device__ __forceinline__ void bring(int step) {
    if (step < steps()) {
      const bool with_values = step >= count * (walks - 1);
      const int bytes = with_values ? static_cast<int>(sizeof(AttentionStage<kDim>))
                                    : kStageBytesWithoutValues<kDim>;
      auto* to = reinterpret_cast<uint32_t*>(&shared.stages[step % kAttentionRing]);
      const auto* from = reinterpret_cast<const int32_t*>(stages + step % count);
      for (int i = static_cast<int>(threadIdx.x) * 4; i < bytes / 4; i += S::kThreads * 4)
        copy_async_16(to + i, from + i, 16);
    }
    commit_copies();
  }

  __device__ __forceinline__ void init() {}

  __device__ __forceinline__ void start() {
    for (int step = 0; step < kAttentionRing - 1; ++step) bring(step);
  }

  __device__ __forceinline__ void await(int step) {
    wait_copies<kAttentionRing - 2>();
    __syncthreads();
    bring(step + kAttentionRing - 1);
  }

  __device__ __forceinline__ void release(int) {}
#endif
};

}  // namespace bitgnn::cuda::attention
