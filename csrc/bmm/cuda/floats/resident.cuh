// Product of float rows, binarised on the fly, with packed weights: weights and packed rows stay in
// shared memory. Bound by reading the float rows.
#pragma once

#include "bmm/arguments.h"
#include "bmm/cuda/floats/epilogue.cuh"
#include "bmm/cuda/floats/tile.cuh"
#include "core/cuda/mma_b1.cuh"
#include "core/cuda/shared_memory.h"

namespace bitgnn::cuda::bmm {

constexpr int kPackingWarps = 8;
constexpr int kPackingThreads = kPackingWarps * kWarp;

constexpr int kLoadedColumns = 8;  // weight rows a warp copies at a time

// Resident blocks per multiprocessor, limited by the registers that the mode needs.
constexpr int packing_blocks(PackingMode mode) { return mode == PackingMode::kCompared ? 4 : 3; }

// Shared-memory layout of a block; all sizes are in 4-byte units.
struct PackingLayout {
  int tile_rows;   // rows per iteration, a power of two of at least 16
  int tile_shift;  // log2 of tile_rows
  int words;       // words of a row
  int steps;       // products of 256 bits per row
  int pitch;       // row pitch in words, for rows and weights alike
  int columns;     // output columns, rounded up to whole words of bits

  __host__ __device__ int64_t weight_words() const { return int64_t{columns} * pitch; }
  // Column limits, terms and inversions.
  __host__ __device__ int column_words() const { return columns * 5 + columns / 32; }
  // Packed rows, their popcounts and their scales.
  __host__ __device__ int tile_words() const { return tile_rows * (pitch + 2); }
  // The alternating tiles start at a multiple of 16 bytes.
  __host__ __device__ int64_t tile_offset() const {
    return (weight_words() + column_words() + 3) / 4 * 4;
  }
  __host__ __device__ int64_t bytes() const {
    return (tile_offset() + 2 * int64_t{tile_words()}) * 4;
  }
};

// Copies the weights to shared memory, with zeros past each row and in missing rows, and counts
// their set bits.
__device__ __forceinline__ void load_weights(const BmmArgs& a, const PackingLayout& layout,
                                             uint32_t* weights, int32_t* counts, int warp,
                                             int lane) {
  for (int first = warp * kLoadedColumns; first < layout.columns;
       first += kPackingWarps * kLoadedColumns) {
    int count[kLoadedColumns] = {};
    for (int w = lane; w < layout.steps * kMmaWords; w += kWarp) {
      const int32_t* from = a.w + static_cast<int64_t>(first) * layout.words + w;
      uint32_t word[kLoadedColumns];
#pragma unroll
      for (int j = 0; j < kLoadedColumns; ++j) {
        const bool exists = first + j < a.out_features && w < layout.words;
        word[j] = exists ? static_cast<uint32_t>(__ldg(from + j * layout.words)) : 0u;
      }
#pragma unroll
      for (int j = 0; j < kLoadedColumns; ++j) {
        weights[(first + j) * layout.pitch + w] = word[j];
        count[j] += __popc(word[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kLoadedColumns; ++j) {
      const int total = __reduce_add_sync(kFullWarp, count[j]);
      if (lane == 0) counts[first + j] = total;
    }
  }
}

// Adds popc(a & b) of 16 rows and 32 columns to `sum`.
__device__ __forceinline__ void multiply_fragments(int32_t (&sum)[4][4], const uint32_t* rows,
                                                   const uint32_t* columns,
                                                   const PackingLayout& layout, int lane) {
  for (int step = 0; step < layout.steps; ++step) {
    uint32_t a[4], b[4][2];
    load_row_fragment(a, rows + step * kMmaWords, layout.pitch, lane);
    load_column_fragments(b[0], b[1], columns + step * kMmaWords, layout.pitch, lane);
    load_column_fragments(b[2], b[3], columns + 2 * kMmaColumns * layout.pitch + step * kMmaWords,
                          layout.pitch, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) mma_and_popc(sum[j], a, b[j]);
  }
}

template <int kRows, int kWords, PackingMode kMode, class Source>
__global__ void __launch_bounds__(kPackingThreads, packing_blocks(kMode))
    bmm_packing_kernel(Source source, PackArgs pack, BmmArgs a, PackingLayout layout) {
  constexpr bool kScale = kMode == PackingMode::kScaled;
  extern __shared__ __align__(16) uint32_t shared[];
  uint32_t* weights = shared;
  ColumnTerms* terms = reinterpret_cast<ColumnTerms*>(weights + layout.weight_words());
  int32_t* limits = reinterpret_cast<int32_t*>(terms + layout.columns);
  uint32_t* inversions = reinterpret_cast<uint32_t*>(limits + layout.columns);
  uint32_t* tiles = shared + layout.tile_offset();
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  load_weights(a, layout, weights, limits, warp, lane);
  __syncthreads();
  for (int c = threadIdx.x; c < layout.columns; c += kPackingThreads)
    set_column<kMode>(a, c, limits[c], limits, terms, inversions, lane);

  // Two tiles alternate, so one barrier per iteration separates packing from multiplying a buffer.
  const int64_t turns = (a.rows + layout.tile_rows - 1) / layout.tile_rows;
  int buffer = 0;
  for (int64_t turn = blockIdx.x; turn < turns; turn += gridDim.x, buffer ^= 1) {
    const int64_t first_row = turn * layout.tile_rows;
    uint32_t* packed = tiles + buffer * layout.tile_words();
    int32_t* counts = reinterpret_cast<int32_t*>(packed + layout.tile_rows * layout.pitch);
    float* scales = reinterpret_cast<float*>(counts + layout.tile_rows);
    pack_tile<kRows, kWords, kScale>(
        source, pack, PackedTile{packed, layout.pitch, layout.tile_rows, counts, scales}, first_row,
        a.rows, warp, kPackingWarps, lane);
    __syncthreads();
    const int64_t left = a.rows - first_row;
    const PackingTile tile{
        first_row, static_cast<int>(min(left, static_cast<int64_t>(layout.tile_rows))), counts,
        kScale                   ? scales
        : a.row_scale != nullptr ? a.row_scale + first_row
                                 : nullptr};
    // A warp takes 16 rows by 32 columns at a time; the tile's row count is a power of two.
    for (int part = warp * kMmaRows; part < layout.tile_rows * (layout.columns / kWarp);
         part += kPackingWarps * kMmaRows) {
      const int row = part & (layout.tile_rows - 1);
      const int group = part >> layout.tile_shift;
      if (row >= tile.rows) continue;
      int32_t sum[4][4] = {};
      multiply_fragments(sum, packed + row * layout.pitch, weights + group * kWarp * layout.pitch,
                         layout, lane);
      if constexpr (kMode == PackingMode::kCompared)
        store_compared(a, tile, row, group * kWarp, limits + group * kWarp, inversions[group], sum,
                       lane);
      else
        store_values(a, tile, row, group * kWarp, terms + group * kWarp, inversions[group], sum,
                     lane);
    }
  }
}

inline PackingLayout packing_layout(const BmmArgs& args, int tile_rows) {
  PackingLayout layout{};
  layout.tile_rows = tile_rows;
  while ((1 << layout.tile_shift) < tile_rows) ++layout.tile_shift;
  layout.words = static_cast<int>(words_for(args.size));
  layout.steps = (layout.words + kMmaWords - 1) / kMmaWords;
  layout.pitch = tile_pitch(layout.steps * kMmaWords);
  layout.columns = static_cast<int>(words_for(args.out_features) * kWordBits);
  return layout;
}

template <int kRows, int kWords, PackingMode kMode, class Source>
cudaError_t launch_bmm_packing(const Source& source, const BmmArgs& args, int tile_rows,
                               const Context& context) {
  const auto kernel = bmm_packing_kernel<kRows, kWords, kMode, Source>;
  const PackingLayout layout = packing_layout(args, tile_rows);
  const int64_t bytes = layout.bytes();
  const cudaError_t error = grant_shared_memory(kernel, bytes);
  if (error != cudaSuccess) return error;
  constexpr int64_t kReserved = 1024;  // shared memory that the system reserves per block
  constexpr int64_t kBlocks = packing_blocks(kMode);
  const int64_t fitting = (context.device.shared_bytes + kReserved) / (bytes + kReserved);
  const int64_t resident = fitting < kBlocks ? fitting : kBlocks;
  const int64_t turns = ceil_div(args.rows, layout.tile_rows);
  const int64_t blocks = resident * context.device.sm_count;
  kernel<<<static_cast<unsigned>(turns < blocks ? turns : blocks), kPackingThreads,
           static_cast<size_t>(bytes), context.stream>>>(source, *args.pack, args, layout);
  return cudaGetLastError();
}

}  // namespace bitgnn::cuda::bmm
