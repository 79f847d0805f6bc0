// A whole model in one persistent kernel (BitGNN, section 3.4; BSTC, section 5): each block owns a
// range of nodes and takes it through all stages, reading the rows of other nodes as soon as their
// blocks have written them. Instead of a grid-wide barrier, each 16-byte piece carries the number
// of the call, which saves the round trips to a counter. All blocks must be resident at once. Bound
// by reading the features, and by the latency of one exchange per sum over neighbours.
#pragma once

#include <type_traits>

#include "whole_model/cuda/cooperative/pack.cuh"
#include "whole_model/cuda/cooperative/product.cuh"
#include "whole_model/cuda/cooperative/wide_sums.cuh"

namespace bitgnn::cuda::whole_model {

// Writes the factors of the block's rows in the sums of the next stage.
__device__ __forceinline__ void set_factors(const StagePlan& plan, const Block& block,
                                            const float* scales, uint32_t* rows) {
  for (int row = threadIdx.x; row < block.rows; row += stage_threads()) {
    const float own = block.col_factor[row];
    rows[row * plan.pieces * kPieceWords + plan.row_words - 1] =
        __float_as_uint(plan.stage.scaled ? __fmul_rn(scales[row], own) : own);
  }
}

// The block's rows of packed features and their scales, loaded to registers first and then stored
// to shared memory.
struct PackedRows {
  static constexpr int kEarly = 4;  // words per thread that are loaded early
  const uint32_t* x;
  const float* x_scale;
  int count, rows;
  uint32_t word[kEarly];
  float scale;

  __device__ __forceinline__ PackedRows(const CooperativePlan& plan, const Block& block)
      : x(static_cast<const uint32_t*>(plan.args.x) +
          static_cast<int64_t>(block.first) * plan.feature_words),
        x_scale(plan.args.x_scale != nullptr ? plan.args.x_scale + block.first : nullptr),
        count(block.rows * plan.feature_words),
        rows(x_scale != nullptr ? block.rows : 0) {
#pragma unroll
    for (int k = 0; k < kEarly; ++k) {
      const int i = threadIdx.x + k * stage_threads();
      if (i < count) word[k] = __ldg(x + i);
    }
    if (static_cast<int>(threadIdx.x) < rows) scale = __ldg(x_scale + threadIdx.x);
  }

  __device__ __forceinline__ void store(const CooperativePlan& plan, uint32_t* shared) const {
    uint32_t* bits = shared + plan.bits;
    const int pitch = plan.stages[0].pitch;
    const auto place = [&](int i) {
      const int row = plan.by_words.quotient(i);
      return bits + row * pitch + i - row * plan.feature_words;
    };
#pragma unroll
    for (int k = 0; k < kEarly; ++k) {
      const int i = threadIdx.x + k * stage_threads();
      if (i < count) *place(i) = word[k];
    }
    for (int i = threadIdx.x + kEarly * stage_threads(); i < count; i += stage_threads())
      *place(i) = __ldg(x + i);
    auto* scales = reinterpret_cast<float*>(shared + plan.scales);
    if (static_cast<int>(threadIdx.x) < rows) scales[threadIdx.x] = scale;
    for (int row = threadIdx.x + stage_threads(); row < rows; row += stage_threads())
      scales[row] = __ldg(x_scale + row);
  }
};

struct NoPackedRows {
  __device__ NoPackedRows(const CooperativePlan&, const Block&) {}
};

// Copies words with the whole block; their number must be a multiple of four.
__device__ __forceinline__ void copy_words(uint32_t* to, const int32_t* from, int words) {
  for (int i = threadIdx.x; i < words / 4; i += stage_threads())
    copy_async_16(to + i * 4, from + i * 4, 16);
}

// Requests the stages' constants and the block's slice of the graph. Before float features it uses
// bulk copies, because copies by threads delay features that arrive in several turns by 1.5 us on
// an H200; otherwise all threads copy, which needs no barrier to set up and wait for.
template <bool kFloats>
__device__ __forceinline__ void request_constants(const CooperativePlan& plan,
                                                  const int32_t* own_slice, uint32_t* shared) {
  const CooperativeArgs& a = plan.args;
  uint32_t* slice = shared + plan.slice;
  uint32_t* image = shared + plan.image;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kFloats) {
    if (threadIdx.x != 0) return;
    const uint32_t barrier = shared_address(shared + plan.barriers);
    barrier_init(barrier, 1);
    barrier_init_fence();
    barrier_expect(barrier, (a.image_words + plan.slice_words) * 4);
    copy_bytes(shared_address(slice), own_slice, plan.slice_words * 4, barrier);
    copy_bytes(shared_address(image), a.image, a.image_words * 4, barrier);
  } else
#endif
  {
    copy_words(image, a.image, a.image_words);
    copy_words(slice, own_slice, plan.slice_words);
    commit_copies();
  }
}

// Waits for the constants and for the block's other threads.
template <bool kFloats>
__device__ __forceinline__ void wait_for_constants(const CooperativePlan& plan,
                                                   const uint32_t* shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kFloats) {
    __syncthreads();
    barrier_wait(shared_address(shared + plan.barriers), 0);
  } else
#endif
  {
    wait_copies<0>();
    __syncthreads();
  }
}

__device__ __forceinline__ void copy_stages(const CooperativePlan& plan, StagePlan* stages) {
  static_assert(sizeof(StagePlan) % sizeof(uint32_t) == 0);
  const int words = plan.args.num_stages * static_cast<int>(sizeof(StagePlan) / sizeof(uint32_t));
  for (int i = threadIdx.x; i < words; i += stage_threads())
    reinterpret_cast<uint32_t*>(stages)[i] = reinterpret_cast<const uint32_t*>(plan.stages)[i];
}

__device__ __forceinline__ const float* constant_at(const CooperativePlan& plan,
                                                    const uint32_t* shared, int offset) {
  return offset == kNoOffset ? nullptr
                             : reinterpret_cast<const float*>(shared + plan.image + offset);
}

__device__ __forceinline__ PackTerms terms_of(const CooperativePlan& plan, const StagePlan& stage,
                                              const uint32_t* shared) {
  return {constant_at(plan, shared, stage.stage.threshold),
          constant_at(plan, shared, stage.stage.gain)};
}

// Sums over neighbours: packed rows, or floats in shared memory or in the result.
__device__ __forceinline__ void add_neighbours(const CooperativePlan& plan, const StagePlan& stage,
                                               const int4* table, const Block& block,
                                               uint32_t* shared, int warp, int lane) {
  const bool last = stage.stage.output == StageOutput::kResult;
  float* sums = last ? plan.args.out + static_cast<int64_t>(block.first) * stage.stage.size
                     : reinterpret_cast<float*>(shared + plan.floats);
  const int pitch = last ? stage.stage.size : plan.float_pitch;
  uint32_t* staged = shared + plan.staged;
#pragma unroll 1
  for (int first = 0, end = 0; first < block.rows; first = end) {
    end = rows_together(block, first, stage.gathered_at_once);
    const GatheredRows rows{first, end, block.rowptr[first], staged};
    gather_rows(table, stage, block, rows.begin, block.rowptr[end],
                reinterpret_cast<uint4*>(staged));
    __syncthreads();
    if (stage.stage.source == StageSource::kBits) {
      sum_bits(stage, block, rows, constant_at(plan, shared, stage.stage.threshold),
               plan.args.most_degree, shared + plan.bits, warp, lane);
    } else {
      const SumTerms terms{constant_at(plan, shared, stage.stage.scale),
                           constant_at(plan, shared, stage.stage.bias)};
      const auto add = [&](auto bytes, auto odd) {
        constexpr bool kBytes = decltype(bytes)::value, kOdd = decltype(odd)::value;
        if (stage.gathered_wide)
          sum_wide_integers<kBytes, kOdd>(stage, block, rows, terms, plan.args.most_degree, sums,
                                          pitch, warp, lane);
        else
          sum_integers<kBytes, kOdd>(stage, block, rows, terms, plan.args.most_degree, sums, pitch,
                                     warp, lane);
      };
      const std::true_type yes;
      const std::false_type no;
      if (stage.gathered_bytes)
        stage.gathered_odd ? add(yes, yes) : add(yes, no);
      else
        stage.gathered_odd ? add(no, yes) : add(no, no);
    }
    __syncthreads();
  }
}

// T is the type of the features, void if they are packed; kScale: their scale is measured.
template <class T, bool kScale>
__global__ void __launch_bounds__(std::is_void_v<T> ? kFewStageThreads : kMostStageThreads, 1)
    cooperative_kernel(const __grid_constant__ CooperativePlan plan) {
  extern __shared__ __align__(128) uint32_t shared[];
  __shared__ unsigned shared_tag;
  // Every launch starts with a cold constant cache, so copy all stage parameters at once, early.
  __shared__ StagePlan stages[kMaxStages];
  const CooperativeArgs& a = plan.args;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int index = blockIdx.x;
  Block block{};
  block.first = index * plan.share + min(index, plan.more);
  block.rows = plan.share + (index < plan.more ? 1 : 0);
  constexpr bool kFloats = !std::is_void_v<T>;
  uint32_t* slice = shared + plan.slice;
  const int32_t* own_slice = a.slices + static_cast<int64_t>(index) * plan.slice_words;
  unsigned tag = 0;
  std::conditional_t<kFloats, NoPackedRows, PackedRows> packed(plan, block);
  request_constants<kFloats>(plan, own_slice, shared);
  if (threadIdx.x == 0) tag = *reinterpret_cast<const volatile unsigned*>(a.state) + 1;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kFloats) request_features<kScale>(plan, block, shared, warp, lane);
#endif
  copy_stages(plan, stages);
  // Most first stages need no constants before their product.
  const Stage& entry = plan.stages[0].stage;
  if (entry.threshold != kNoOffset || entry.gain != kNoOffset)
    wait_for_constants<kFloats>(plan, shared);
  if constexpr (kFloats)
    pack_features<kScale, T>(plan, block, shared, terms_of(plan, plan.stages[0], shared), warp,
                             lane);
  else
    packed.store(plan, shared);
  if (threadIdx.x == 0) shared_tag = tag;
  wait_for_constants<kFloats>(plan, shared);
  block.tag = shared_tag;
  block.rowptr = reinterpret_cast<const int32_t*>(slice);
  block.row_factor = reinterpret_cast<const float*>(slice + a.row_capacity + 4);
  block.col_factor = block.row_factor + a.row_capacity;
  block.indices = reinterpret_cast<const int32_t*>(block.col_factor + a.row_capacity);
  block.edges = block.rowptr[block.rows];
#pragma unroll 1
  for (int number = 0; number < a.num_stages; ++number) {
    const StagePlan& stage = stages[number];
    if (number > 0) {
      add_neighbours(plan, stage, stages[number - 1].table, block, shared, warp, lane);
      if (stage.stage.output == StageOutput::kResult) break;
      if (stage.stage.source == StageSource::kIntegers) {
        pack_sums(plan, stage, block, shared, terms_of(plan, stage, shared), warp, lane);
        __syncthreads();
      }
    }
    uint32_t* rows = shared + plan.rows;
    const uint32_t* image = shared + plan.image;
    const auto* scales = reinterpret_cast<const float*>(shared + plan.scales);
    if (stage.stage.output == StageOutput::kBits)
      multiply_rows<true>(stage, image, shared + plan.bits, scales, rows, block.rows, warp, lane);
    else if (stage.few_columns)
      multiply_few_columns(stage, image, shared + plan.bits, rows, block.rows);
    else
      multiply_rows<false>(stage, image, shared + plan.bits, scales, rows, block.rows, warp, lane);
    if (stage.stage.output == StageOutput::kIntegers) set_factors(stage, block, scales, rows);
    __syncthreads();
    publish_rows(stage.table, rows, stage.pieces, block);
  }
  // The last block to finish ends the call; until then all blocks read the same call number.
  if (threadIdx.x == 0) {
    auto* done = reinterpret_cast<unsigned*>(a.state) + 1;
    if (atomicAdd(done, 1u) == static_cast<unsigned>(a.blocks) - 1) {
      *done = 0;
      *reinterpret_cast<volatile unsigned*>(a.state) = tag;
    }
  }
}

}  // namespace bitgnn::cuda::whole_model
