// Product of float rows, binarised on the way, with packed weights of any size: the packed rows
// stay in shared memory, and the warps read the weights from the second-level cache into registers.
#pragma once

#include <algorithm>

#include "bitgnn/cuda/bmm_packing_tile.cuh"
#include "bitgnn/cuda/bmm_units.cuh"

namespace bitgnn::cuda {

constexpr int kStreamColumns = 32;  // of a warp at a time,
constexpr int kStreamColumnFragments = kStreamColumns / kMmaColumns;
constexpr int kStreamRowFragments = 4;  // and of rows at most
constexpr int kStreamMostWarps = 16;    // of a block
// The order of a row's words is free as long as rows and weights agree: a lane's words of two
// products are 16 consecutive bytes.
constexpr int kStreamStepWords = 2 * kMmaWords;

// How the launcher cut the product up.
struct StreamingPlan {
  int words;         // of a row,
  int chunk_words;   // that are in shared memory at a time: all, or a multiple of a step
  int pitch;         // words from one row to the next
  int fragments;     // of 16 rows of a warp: 1, 2 or 4
  int row_warps;     // warps that share out the rows,
  int column_warps;  // and the columns
  bool vectors;      // rows of weights are aligned to 16 bytes

  __host__ __device__ int warps() const { return row_warps * column_warps; }
  __host__ __device__ int rows() const { return row_warps * fragments * kMmaRows; }
  __host__ __device__ bool chunked() const { return chunk_words < words; }
};

// A warp's own shared memory.
struct StreamingWarp {
  ColumnTable<kStreamColumns> table;
  alignas(16) int32_t staged[kStagedWords];
};

// Sums of popc(a & b) of the warp's rows and columns.
using StreamingSums = int32_t[kStreamRowFragments][kStreamColumns / 2];

// Words `word` to `word` + 3 of a row of weights; zeros beyond `words`.
__device__ __forceinline__ uint4 load_four_words(const int32_t* row, int word, int words,
                                                 bool vectors) {
  uint4 v = make_uint4(0, 0, 0, 0);
  if (vectors) {
    if (word < words) v = __ldg(reinterpret_cast<const uint4*>(row + word));
  } else {
    const auto* from = reinterpret_cast<const uint32_t*>(row + word);
    if (word < words) v.x = __ldg(from);
    if (word + 1 < words) v.y = __ldg(from + 1);
    if (word + 2 < words) v.z = __ldg(from + 2);
    if (word + 3 < words) v.w = __ldg(from + 3);
  }
  return v;
}

__device__ __forceinline__ int count_bits(const uint4& v) {
  return __popc(v.x) + __popc(v.y) + __popc(v.z) + __popc(v.w);
}

// Products of the rows at `packed` with 32 columns over words [first_word, last_word), and the
// lane's share of the popcounts of columns 8 j + g. `weights` is the row of weights of the first
// column; of the columns, `last` is the last that exists.
__device__ __forceinline__ void multiply_streaming(StreamingSums& sum,
                                                   int (&count)[kStreamColumnFragments],
                                                   const uint32_t* packed, const int32_t* weights,
                                                   int last, const StreamingPlan& plan,
                                                   int first_word, int last_word, int lane) {
  const int quad_word = fragment_quad(lane) * 4;
  const uint32_t* rows = packed + fragment_group(lane) * plan.pitch + quad_word;
  const int32_t* columns[kStreamColumnFragments];
#pragma unroll
  for (int j = 0; j < kStreamColumnFragments; ++j)
    columns[j] = weights + static_cast<int64_t>(min(j * kMmaColumns + fragment_group(lane), last)) *
                               plan.words;
  uint4 next[kStreamColumnFragments];
#pragma unroll
  for (int j = 0; j < kStreamColumnFragments; ++j)
    next[j] = load_four_words(columns[j], first_word + quad_word, plan.words, plan.vectors);
#pragma unroll 1
  for (int word = first_word; word < last_word; word += kStreamStepWords) {
    uint32_t b[kStreamColumnFragments][4];
#pragma unroll
    for (int j = 0; j < kStreamColumnFragments; ++j) {
      count[j] += count_bits(next[j]);
      b[j][0] = next[j].x;
      b[j][1] = next[j].y;
      b[j][2] = next[j].z;
      b[j][3] = next[j].w;
    }
    if (word + kStreamStepWords < last_word) {
#pragma unroll
      for (int j = 0; j < kStreamColumnFragments; ++j)
        next[j] = load_four_words(columns[j], word + kStreamStepWords + quad_word, plan.words,
                                  plan.vectors);
    }
#pragma unroll
    for (int i = 0; i < kStreamRowFragments; ++i) {
      if (i >= plan.fragments) break;
      const uint4 low = *reinterpret_cast<const uint4*>(rows + i * kMmaRows * plan.pitch);
      const uint4 high =
          *reinterpret_cast<const uint4*>(rows + (i * kMmaRows + kMmaRows / 2) * plan.pitch);
      const uint32_t a[2][4] = {{low.x, high.x, low.y, high.y}, {low.z, high.z, low.w, high.w}};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < kStreamColumnFragments; ++j) {
          const uint32_t column[2] = {b[j][half * 2], b[j][half * 2 + 1]};
          mma_and_popc(*reinterpret_cast<int32_t (*)[4]>(&sum[i][j * 4]), a[half], column);
        }
      }
    }
    rows += kStreamStepWords;
  }
}

// The same in plain instructions, a lane the elements that it would have of the fragments.
__device__ __forceinline__ void multiply_streaming_logic(StreamingSums& sum,
                                                         int (&count)[kStreamColumnFragments],
                                                         const uint32_t* packed,
                                                         const int32_t* weights, int last,
                                                         const StreamingPlan& plan, int first_word,
                                                         int last_word, int lane) {
  const int quad = fragment_quad(lane);
  const uint32_t* rows = packed + fragment_group(lane) * plan.pitch;
#pragma unroll 1
  for (int word = first_word; word < last_word; word += 4, rows += 4) {
#pragma unroll
    for (int j = 0; j < kStreamColumnFragments; ++j) {
      if (word / 4 % 4 == quad) {
        const int column = min(j * kMmaColumns + fragment_group(lane), last);
        count[j] += count_bits(load_four_words(weights + static_cast<int64_t>(column) * plan.words,
                                               word, plan.words, plan.vectors));
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = min(j * kMmaColumns + quad * 2 + e, last);
        const uint4 b = load_four_words(weights + static_cast<int64_t>(column) * plan.words, word,
                                        plan.words, plan.vectors);
#pragma unroll
        for (int i = 0; i < kStreamRowFragments * 2; ++i) {
          if (i >= plan.fragments * 2) break;
          const uint4 a = *reinterpret_cast<const uint4*>(rows + i * (kMmaRows / 2) * plan.pitch);
          sum[i / 2][j * 4 + i % 2 * 2 + e] +=
              __popc(a.x & b.x) + __popc(a.y & b.y) + __popc(a.z & b.z) + __popc(a.w & b.w);
        }
      }
    }
  }
}

// Writes the warp's sums; `row` is the first of its rows in the tile.
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

// Packs words [first_word, last_word) of the block's rows. Short rows take more rows at a time.
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

template <BmmUnit kUnit, bool kScale, class Source>
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

  // Warps that share columns are neighbours: what one of them loads, the first-level cache keeps.
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
        __syncthreads();  // the chunk before is used up
        pack_streaming<kScale>(source, pack, plan, packed, terms, first_row, a.rows, word, end,
                               warp, lane);
        __syncthreads();
      }
      if (last < 0) continue;
      const uint32_t* rows = words + row * plan.pitch;
      const int32_t* weights = a.w + column * plan.words;
      if constexpr (kUnit == BmmUnit::kTensor)
        multiply_streaming(sum, count, rows, weights, last, plan, word, end, lane);
      else
        multiply_streaming_logic(sum, count, rows, weights, last, plan, word, end, lane);
    }
    if (last < 0) continue;
    if (output == BmmOutput::kFloat) {
      store_streaming<BmmOutput::kFloat, kScale>(a, plan, terms, own, sum, count, first_row, row,
                                                 column, lane);
    } else if (kScale || output == BmmOutput::kBits) {
      store_streaming<BmmOutput::kBits, kScale>(a, plan, terms, own, sum, count, first_row, row,
                                                column, lane);
    } else if constexpr (!kScale) {
      if (output == BmmOutput::kInt)
        store_streaming<BmmOutput::kInt, kScale>(a, plan, terms, own, sum, count, first_row, row,
                                                 column, lane);
      else
        store_streaming<BmmOutput::kSigns, kScale>(a, plan, terms, own, sum, count, first_row, row,
                                                   column, lane);
    }
  }
}

// Bytes of shared memory of a block.
inline int64_t streaming_bytes(const StreamingPlan& plan) {
  const int64_t row_words = plan.pitch + 2 + (plan.chunked() ? kWarp : 0);
  return plan.warps() * static_cast<int64_t>(sizeof(StreamingWarp)) + plan.rows() * row_words * 4;
}

// The least pitch that holds `words`, whole steps, and spreads the 16-byte units that a quarter of
// a warp reads, four of each of two rows, over all banks.
inline int streaming_pitch(int words) {
  const int units = (words + kStreamStepWords - 1) / kStreamStepWords * (kStreamStepWords / 4);
  return (units % 8 == 4 ? units : units + 4) * 4;
}

// Each block reads all weights, so that its rows should be many; but blocks should be enough, and
// pack while others multiply.
inline StreamingPlan streaming_plan(const BmmArgs& args, const Context& context) {
  constexpr int kManyRows = 4, kFewRows = 2;  // fragments of a warp
  constexpr int kChunkWords = 256;
  const int64_t shared_bytes = context.device.shared_bytes;
  StreamingPlan plan{};
  plan.words = static_cast<int>(words_for(args.size));
  plan.vectors = plan.words % 4 == 0 && reinterpret_cast<uintptr_t>(args.w) % 16 == 0;
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
  return plan;
}

template <BmmUnit kUnit, bool kScale, class Source>
cudaError_t launch_bmm_streaming(const Source& source, const BmmArgs& args,
                                 const StreamingPlan& plan, const Context& context) {
  const auto kernel = bmm_streaming_kernel<kUnit, kScale, Source>;
  const int64_t bytes = streaming_bytes(plan);
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error != cudaSuccess) return error;
  // Where there are few rows, several blocks pack the same ones, each for its share of the columns.
  const int64_t tiles = ceil_div(args.rows, plan.rows());
  const int64_t passes = ceil_div(args.out_features, plan.column_warps * kStreamColumns);
  const int64_t splits =
      std::clamp<int64_t>(context.device.sm_count / tiles, 1, std::min<int64_t>(passes, 65535));
  const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(splits));
  kernel<<<grid, static_cast<unsigned>(plan.warps() * kWarp), static_cast<size_t>(bytes),
           context.stream>>>(source, *args.pack, args, plan, slab_output(args));
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda
