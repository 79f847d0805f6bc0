// Product of float rows, binarised on the fly, with packed weights of any size: the packed rows
// stay in shared memory, and the warps read the weights from L2 into registers.
#pragma once

#include <algorithm>

#include "bmm/cuda/floats/streaming_products.cuh"
#include "bmm/cuda/floats/tile.cuh"
#include "bmm/cuda/output.cuh"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

// Writes the warp's sums; `row` is its first row within the tile.
template <BmmOutput kOutput, bool kScale>
__device__ __forceinline__ void store_streaming(const BmmArgs& a, const StreamingPlan& plan,
                                                const PackedTerms& terms, StreamingWarp& own,
                                                const StreamingSums& sum,
                                                const int (&count)[kStreamColumnFragments],
                                                int64_t first_row, int row, int64_t column,
                                                int lane) {
  share_column<kOutput>(own.table, lane, load_column<kOutput>(a, column + lane));
#pragma unroll
  for (int j = 0; j < kStreamColumnFragments; ++j) {
    int total = count[j];
    total += __shfl_xor_sync(kFullWarp, total, 1);
    total += __shfl_xor_sync(kFullWarp, total, 2);
    if (fragment_quad(lane) == 0)
      own.table.term[j * kMmaColumns + fragment_group(lane)] = column_term<kOutput>(total);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kStreamRowFragments; ++i) {
    if (i >= plan.fragments) break;
    const int at = row + i * kMmaRows;
    const int mine = at + fragment_group(lane);
    SlabRows rows;
    set_row_terms<kOutput>(rows, a, terms.counts[mine], terms.counts[mine + 8]);
    if constexpr (kScale) {
      rows.scale[0] = terms.scales[mine];
      rows.scale[1] = terms.scales[mine + 8];
    } else if constexpr (needs_scales(kOutput)) {
      load_row_scales(rows, a, first_row + at, lane);
    }
    store_slab<kOutput, kStreamColumns>(slab_target<kOutput>(a, first_row + at, column), own.table,
                                        rows, sum[i], own.staged, lane);
  }
  __syncwarp();
}

// Packs words [first_word, last_word) of the block's rows, more rows at a time if they are short.
template <bool kScale, class Source>
__device__ __forceinline__ void pack_streaming(const Source& source, const PackArgs& pack,
                                               const StreamingPlan& plan, const PitchedRows& packed,
                                               const PackedTerms& terms, int64_t first_row,
                                               int64_t rows, int first_word, int last_word,
                                               int warp, int lane) {
  constexpr int kShortWords = 8;
  if (plan.words >= kShortWords)
    pack_tile<2, kShortWords, kScale>(source, pack, packed, terms, first_row, rows, first_word,
                                      last_word, warp, plan.warps(), lane);
  else
    pack_tile<8, 1, kScale>(source, pack, packed, terms, first_row, rows, first_word, last_word,
                            warp, plan.warps(), lane);
}

template <bool kScale, class Source>
__global__ void __launch_bounds__(kStreamMostWarps* kWarp, 1)
    bmm_streaming_kernel(Source source, PackArgs pack, BmmArgs a, StreamingPlan plan,
                         BmmOutput output) {
  extern __shared__ __align__(16) uint32_t shared[];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  auto* warps = reinterpret_cast<StreamingWarp*>(shared);
  StreamingWarp& own = warps[warp];
  auto* words = reinterpret_cast<uint32_t*>(warps + plan.warps());
  auto* counts = reinterpret_cast<int32_t*>(words + plan.rows() * plan.pitch);
  auto* scales = reinterpret_cast<float*>(counts + plan.rows());
  const PitchedRows packed{words, plan.pitch};
  const PackedTerms terms{plan.rows(), counts, scales,
                          plan.chunked() ? scales + plan.rows() : nullptr};

  // Warps that share columns are adjacent, so L1 keeps what one of them loads for the others.
  const int row = warp % plan.row_warps * plan.fragments * kMmaRows;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * plan.rows();
  const int64_t pass_columns = plan.column_warps * kStreamColumns;
  if (plan.words == 0) {
    for (int i = static_cast<int>(threadIdx.x); i < plan.rows(); i += plan.warps() * kWarp) {
      counts[i] = 0;
      scales[i] = 0.0f;
    }
  } else if (!plan.chunked()) {
    pack_streaming<kScale>(source, pack, plan, packed, terms, first_row, a.rows, 0, plan.words,
                           warp, lane);
  }
  __syncthreads();
  for (int64_t first = blockIdx.y * pass_columns; first < a.out_features;
       first += gridDim.y * pass_columns) {
    const int64_t column = first + warp / plan.row_warps * kStreamColumns;
    const auto last = static_cast<int>(min(a.out_features - column, int64_t{kStreamColumns})) - 1;
    StreamingSums sum = {};
    int count[kStreamColumnFragments] = {};
    for (int word = 0; word < plan.words; word += plan.chunk_words) {
      const int end = min(word + plan.chunk_words, plan.words);
      if (plan.chunked()) {
        __syncthreads();  // all warps are done with the previous chunk
        pack_streaming<kScale>(source, pack, plan, packed, terms, first_row, a.rows, word, end,
                               warp, lane);
        __syncthreads();
      }
      if (last < 0) continue;
      const uint32_t* rows = words + row * plan.pitch;
      const int32_t* weights = a.w + column * plan.words;
      multiply_streaming(sum, count, rows, weights, last, plan, word, end, lane);
    }
    if (last < 0) continue;
    with_slab_output<kScale>(output, [&](auto kind) {
      store_streaming<decltype(kind)::value, kScale>(a, plan, terms, own, sum, count, first_row,
                                                     row, column, lane);
    });
  }
}

// Shared memory of a block in bytes.
inline int64_t streaming_bytes(const StreamingPlan& plan) {
  const int64_t row_words = plan.pitch + 2 + (plan.chunked() ? kWarp : 0);
  return plan.warps() * static_cast<int64_t>(sizeof(StreamingWarp)) + plan.rows() * row_words * 4;
}

// Smallest pitch that holds `words` rounded up to whole steps and spreads over all banks the
// 16-byte units that a quarter-warp reads, four from each of two rows.
inline int streaming_pitch(int words) {
  const int units = (words + kStreamStepWords - 1) / kStreamStepWords * (kStreamStepWords / 4);
  return (units % 8 == 4 ? units : units + 4) * 4;
}

// Each block reads all weights, so it should have many rows; but there should be enough blocks,
// some of which pack while others multiply.
inline StreamingPlan streaming_plan(const BmmArgs& args, const Context& context) {
  constexpr int kManyRows = 4, kFewRows = 2;  // row fragments per warp
  constexpr int kChunkWords = 256;
  const int64_t shared_bytes = context.device.shared_bytes;
  StreamingPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  plan.vectors = plan.words % 4 == 0 && is_aligned(args.w);
  plan.chunk_words = std::max(plan.words, 1);
  plan.pitch = streaming_pitch(plan.words);
  plan.row_warps = 1;
  plan.fragments = kManyRows;
  plan.column_warps = kStreamMostWarps / 2;
  const bool many = 2 * ceil_div(args.rows, plan.rows()) >= 3 * context.device.sm_count;
  if (many && 2 * streaming_bytes(plan) <= shared_bytes) return plan;
  plan.fragments = many ? kManyRows : kFewRows;
  plan.column_warps = kStreamMostWarps;
  if (streaming_bytes(plan) <= shared_bytes) return plan;
  plan.chunk_words = kChunkWords;
  plan.pitch = streaming_pitch(kChunkWords);
  if (streaming_bytes(plan) > shared_bytes) plan.fragments = kFewRows;
  return plan;
}

template <bool kScale, class Source>
cudaError_t launch_bmm_streaming(const Source& source, const BmmArgs& args,
                                 const StreamingPlan& plan, const Context& context) {
  const auto kernel = bmm_streaming_kernel<kScale, Source>;
  const int64_t bytes = streaming_bytes(plan);
  const cudaError_t error = grant_shared_memory(kernel, bytes);
  if (error != cudaSuccess) return error;
  // With few rows, several blocks pack the same ones, each for its share of the columns.
  const int64_t tiles = ceil_div(args.rows, plan.rows());
  const int64_t passes = ceil_div(args.out_features, plan.column_warps * kStreamColumns);
  const int64_t splits =
      std::clamp<int64_t>(context.device.sm_count / tiles, 1, std::min<int64_t>(passes, 65535));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(splits));
  kernel<<<grid, static_cast<unsigned>(plan.warps() * kWarp), static_cast<size_t>(bytes),
           context.stream>>>(source, *args.pack, args, plan, slab_output(args));
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::bmm
