// Product of many packed rows with few outputs: the weights stay in shared memory and each warp
// streams its own slabs of 16 rows. Bound by reading rows and writing results.
#pragma once

#include <algorithm>

#include "bmm/cuda/epilogue.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/dependent_launch.cuh"

namespace bitgnn::cuda::bmm {

constexpr int kTallStages = 4;
constexpr int kTallRows = kMmaRows;

// Shared-memory layout, in words.
struct TallPlan {
  int words;       // of a row; also the row pitch of a slab
  int steps;       // of 256 bits
  int passes;      // over the outputs, kColumns each
  int w_pitch;     // of a weight row
  int out_pitch;   // of a row of staged results; 0 if not staged by slab
  int warp_words;  // per warp: stages and staged results
  int64_t slabs;
};

// Starts the async copy of a slab, which is contiguous; copies nothing past the last one.
__device__ __forceinline__ void load_slab(uint32_t* to, const BmmArgs& a, const TallPlan& plan,
                                          int64_t slab, int lane) {
  if (slab < plan.slabs) {
    const int64_t row = slab * kTallRows;
    const int left = static_cast<int>(min(int64_t{kTallRows}, a.rows - row)) * plan.words;
    const int32_t* from = a.x + row * plan.words;
    for (int i = lane * 4; i < left; i += kWarp * 4)
      copy_async_16(to + i, from + i, min(left - i, 4) * 4);
  }
  commit_copies();
}

// Loads all weights, each row zero-padded to whole steps. Memory past the last row stays
// uninitialised; results from it are never stored.
__device__ __forceinline__ void load_weights(uint32_t* to, const BmmArgs& a, const TallPlan& plan) {
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  const int padded = plan.steps * kMmaWords;
  for (int o = threadIdx.x / kWarp; o < a.out_features; o += warps) {
    const int32_t* from = a.w + static_cast<int64_t>(o) * plan.words;
    uint32_t* row = to + o * plan.w_pitch;
    for (int word = lane; word < padded; word += kWarp) {
      const bool inside = word < plan.words;
      copy_async_4(row + word, inside ? from + word : a.w, inside ? 4 : 0);
    }
  }
}

// Multiplies a slab with the weights at `w`, the lane's load_matrices() address. Adds the row
// popcounts to `counts` if `count` is set.
template <int kColumns>
__device__ __forceinline__ void multiply_slab(int32_t (&sum)[kColumns / 2], int32_t (&counts)[4],
                                              bool count, const TallPlan& plan,
                                              const uint32_t* slab, uint32_t w, int lane) {
  const uint32_t ones[2] = {0xffffffffu, 0xffffffffu};
  const uint32_t pair_bytes = static_cast<uint32_t>(plan.w_pitch) * 16 * sizeof(uint32_t);
  const int quad = fragment_quad(lane);
  const uint32_t* low = slab + fragment_group(lane) * plan.words + quad;
  const uint32_t* high = low + 8 * plan.words;
  for (int left = plan.words - quad; left + quad > 0; left -= kMmaWords) {
    // A row is followed by another one, which zero weights mask from the sums but not from the
    // counts.
    const bool first = left > 0;
    const bool second = left > 4;
    const uint32_t x[4] = {first ? low[0] : 0, first ? high[0] : 0, second ? low[4] : 0,
                           second ? high[4] : 0};
    if (count) mma_and_popc(counts, x, ones);
    uint32_t address = w;
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {
      uint32_t b[2][2];
      load_matrices(address, b[0][0], b[0][1], b[1][0], b[1][1]);
      address += pair_bytes;
#pragma unroll
      for (int e = 0; e < 2; ++e)
        mma_and_popc(*reinterpret_cast<int32_t (*)[4]>(&sum[(j + e) * 4]), x, b[e]);
    }
    low += kMmaWords;
    high += kMmaWords;
    w += kMmaWords * sizeof(uint32_t);
  }
}

// A slab's staged results are contiguous in the output for any row length, and so is the addend of
// values.
template <BmmOutput kOutput>
__device__ __forceinline__ void store_staged(const SlabTarget& target, int pitch,
                                             const int32_t* staged, int lane) {
  const int words = static_cast<int>(min(int64_t{kTallRows}, target.rows)) * pitch;
  if constexpr (kOutput == BmmOutput::kSumFloat) {
#pragma unroll 1
    for (int i = lane; i < words; i += kWarp)
      target.to[i] = add_value(staged[i], target.addend + i);
  } else {
    int i = lane * 4;
#pragma unroll 1
    for (; i + 4 <= words; i += kWarp * 4)
      *reinterpret_cast<int4*>(target.to + i) = *reinterpret_cast<const int4*>(staged + i);
#pragma unroll 1
    for (; i < words; ++i) target.to[i] = staged[i];
  }
}

template <int kColumns, BmmOutput kOutput>
__global__ void __launch_bounds__(256, 2) bmm_tall_kernel(const BmmArgs a, const TallPlan plan) {
  extern __shared__ __align__(16) uint32_t memory[];
  const int warp = threadIdx.x / kWarp;
  const int lane = threadIdx.x % kWarp;
  const int warps = blockDim.x / kWarp;
  const int columns = plan.passes * kColumns;
  const int stage_words = kTallRows * plan.words;
  auto* tables = reinterpret_cast<ColumnTable<kColumns>*>(memory);
  auto* weights = reinterpret_cast<uint32_t*>(tables + plan.passes);
  uint32_t* stages = weights + columns * plan.w_pitch + warp * plan.warp_words;
  auto* staged = reinterpret_cast<int32_t*>(stages + kTallStages * stage_words);

  let_next_start();
  wait_for_previous();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * warps;
  int64_t slab = static_cast<int64_t>(blockIdx.x) * warps + warp;
#pragma unroll 1
  for (int s = 0; s < kTallStages - 1; ++s)
    load_slab(stages + s * stage_words, a, plan, slab + s * stride, lane);

  load_weights(weights, a, plan);
#pragma unroll 1
  for (int o = threadIdx.x; o < columns; o += blockDim.x)
    share_column<kOutput>(tables[o / kColumns], o % kColumns, load_column<kOutput>(a, o));
  asm volatile("cp.async.wait_all;\n" ::: "memory");
  __syncthreads();
#pragma unroll 1
  for (int o = threadIdx.x; o < a.out_features; o += blockDim.x) {
    int32_t count = 0;
    for (int word = 0; word < plan.steps * kMmaWords; word += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(weights + o * plan.w_pitch + word);
      count += __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
    }
    tables[o / kColumns].term[o % kColumns] = column_term<kOutput>(count);
  }
  __syncthreads();

  const uint32_t w = column_fragments_address(weights, plan.w_pitch, lane);
  const uint32_t pass_bytes = static_cast<uint32_t>(kColumns * plan.w_pitch) * sizeof(uint32_t);
  for (int stage = 0; slab < plan.slabs; slab += stride) {
    const int last = (stage + kTallStages - 1) % kTallStages;
    load_slab(stages + last * stage_words, a, plan, slab + (kTallStages - 1) * stride, lane);
    wait_copies<kTallStages - 1>();
    __syncwarp();
    const int64_t row = slab * kTallRows;
    const SlabTarget output = slab_target<kOutput>(a, row, 0);
    SlabRows rows;
    if constexpr (needs_scales(kOutput)) load_row_scales(rows, a, row, lane);
    for (int pass = 0; pass < plan.passes; ++pass) {
      int32_t sum[kColumns / 2] = {};
      int32_t counts[4] = {};
      multiply_slab<kColumns>(sum, counts, pass == 0, plan, stages + stage * stage_words,
                              w + pass * pass_bytes, lane);
      if (pass == 0) set_row_terms<kOutput>(rows, a, counts[0], counts[2]);
      SlabTarget target = output;
      target.columns -= pass * kColumns;
      if constexpr (adds(kOutput)) target.addend += pass * kColumns;
      if (plan.out_pitch != 0) {
        target.to = staged;
        target.pitch = plan.out_pitch;
      }
      target.to += pass * (writes_bits(kOutput) ? kColumns / 32 : kColumns);
      if constexpr (!writes_bits(kOutput)) {
        if (plan.out_pitch != 0) {
          stage_slab_values<kOutput, kColumns>(target, tables[pass], rows, sum, lane);
          continue;
        }
      }
      store_slab<kOutput, kColumns>(target, tables[pass], rows, sum, staged, lane);
    }
    __syncwarp();
    if (plan.out_pitch != 0) {
      store_staged<kOutput>(output, plan.out_pitch, staged, lane);
      __syncwarp();
    }
    stage = (stage + 1) % kTallStages;
  }
}

constexpr int kFewWarps = 4;
constexpr int kManyWarps = 8;

// Fills the plan; returns the bytes of shared memory for `warps` warps.
template <int kColumns, BmmOutput kOutput>
size_t plan_tall(TallPlan& plan, const BmmArgs& args, int warps) {
  plan.words = static_cast<int>(words_for(args.size));
  plan.steps = static_cast<int>(ceil_div(plan.words, kMmaWords));
  plan.passes = static_cast<int>(ceil_div(args.out_features, kColumns));
  plan.slabs = ceil_div(args.rows, kTallRows);
  plan.w_pitch = tile_pitch(plan.steps * kMmaWords);
  // Unstaged, short or odd rows of values would be written in pieces smaller than a sector.
  constexpr int64_t kMostStaged = 64;
  if (writes_bits(kOutput)) {
    plan.out_pitch = static_cast<int>(words_for(args.out_features));
  } else if (args.out_features <= kMostStaged && args.out_features % 32 != 0) {
    plan.out_pitch = static_cast<int>(args.out_features);
  }
  const int staged = std::max(kTallRows * plan.out_pitch, writes_bits(kOutput) ? 0 : kStagedWords);
  plan.warp_words = kTallStages * kTallRows * plan.words + staged;
  return static_cast<size_t>(plan.passes) * sizeof(ColumnTable<kColumns>) +
         (static_cast<size_t>(plan.passes) * kColumns * plan.w_pitch +
          static_cast<size_t>(warps) * plan.warp_words) *
             sizeof(uint32_t);
}

// x and the output must be aligned to 16 bytes.
template <int kColumns, BmmOutput kOutput>
cudaError_t launch_bmm_tall(const BmmArgs& args, const Context& context) {
  TallPlan plan{};
  const int64_t slabs = ceil_div(args.rows, kTallRows);
  const int64_t per_block = ceil_div(slabs, context.device.sm_count);
  const int warps = per_block > kFewWarps ? kManyWarps : kFewWarps;
  const size_t bytes = plan_tall<kColumns, kOutput>(plan, args, warps);
  const auto kernel = bmm_tall_kernel<kColumns, kOutput>;
  cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            context.device.shared_bytes);
  if (status != cudaSuccess) return status;
  int resident = 0;
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, warps * kWarp, bytes);
  if (status != cudaSuccess) return status;
  if (resident == 0) return cudaErrorInvalidConfiguration;
  const int64_t blocks = std::min<int64_t>(
      ceil_div(slabs, warps), static_cast<int64_t>(resident) * context.device.sm_count);
  return launch_dependent(kernel, grid_size(blocks), warps * kWarp, bytes, context, args, plan);
}

}  // namespace bitgnn::cuda::bmm
