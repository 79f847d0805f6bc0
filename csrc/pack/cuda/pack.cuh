// Packs rows of floats into words [rows, words_for(cols)]: bound by reading the input once.
#pragma once

#include <algorithm>

#include "pack/arguments.h"
#include "pack/cuda/rows.cuh"

namespace bitgnn::cuda::pack {

constexpr int kPackThreads = 256;

template <int kRows, int kWords, bool kScale, class Source>
__global__ void __launch_bounds__(kPackThreads)
    pack_kernel(Source source, PackArgs args, int64_t rows, int words_per_block) {
  using Tile = PackTile<kRows, kWords>;
  const int lane = threadIdx.x % kWarp;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kPackThreads / kWarp) +
                       static_cast<int>(threadIdx.x) / kWarp;
  const int64_t first_row = warp * kRows;
  if (first_row >= rows) return;
  const int words = static_cast<int>(word_count(args.cols));
  const int first_word = static_cast<int>(blockIdx.y) * words_per_block;
  const int last_word = min(first_word + words_per_block, words);
  const int64_t word_row = first_row + Tile::word_row(lane);
  const bool stores = Tile::holds(lane) && word_row < rows;
  int32_t* out = args.words + word_row * words + Tile::word_column(lane);
  const auto store = [&](int word, uint32_t bits, bool) {
    if (stores) out[word] = static_cast<int32_t>(bits);
  };
  const float sum = args.threshold == nullptr && args.gain == nullptr
                        ? pack_rows<kRows, kWords, kScale, false>(
                              source, args, first_row, rows, first_word, last_word, lane, store)
                        : pack_rows<kRows, kWords, kScale, true>(
                              source, args, first_row, rows, first_word, last_word, lane, store);
  if constexpr (kScale) {
    const int64_t row = first_row + lane / Tile::kLanesPerRow;
    if (lane % Tile::kLanesPerRow == 0 && row < rows) args.scale[row] = mean_of(sum, args.cols);
  }
}

template <int kRows, int kWords, class Source>
cudaError_t launch_pack_tile(const Source& source, const PackArgs& args, int64_t rows,
                             const Context& context) {
  const int64_t words = word_count(args.cols);
  const int64_t blocks = ceil_div(ceil_div(rows, kRows), kPackThreads / kWarp);
  // A row's scale is summed by one warp; without scales, a few long rows are split by columns.
  int64_t splits = 1;
  if (args.scale == nullptr) {
    const int64_t wanted = ceil_div(4 * context.device.sm_count, blocks);
    splits = std::clamp<int64_t>(std::min(wanted, words / kWords), 1, 65535);
  }
  const int64_t words_per_block = ceil_div(ceil_div(words, splits), kWords) * kWords;
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(ceil_div(words, words_per_block)));
  auto kernel = pack_kernel<kRows, kWords, false, Source>;
  if constexpr (Source::kScales) {
    if (args.scale != nullptr) kernel = pack_kernel<kRows, kWords, true, Source>;
  }
  kernel<<<grid, kPackThreads, 0, context.stream>>>(source, args, rows,
                                                    static_cast<int>(words_per_block));
  return cudaGetLastError();
}

// Packs `rows` rows of `source`; args.x, type and row_stride are ignored.
template <class Source>
cudaError_t launch_pack(const Source& source, const PackArgs& args, int64_t rows,
                        const Context& context) {
  const int64_t words = word_count(args.cols);
  if (rows == 0) return cudaSuccess;
  if (words == 0) return clear_scales(args.scale, rows, context);
  if (words == 1) return launch_pack_tile<16, 1>(source, args, rows, context);
  if (words == 2 || (Source::kFewForms && words < 8))
    return launch_pack_tile<8, 2>(source, args, rows, context);
  if constexpr (!Source::kFewForms) {
    if (words >= 16 && rows < int64_t{context.device.sm_count} * 64)
      return launch_pack_tile<1, 16>(source, args, rows, context);
    if (words == 3) return launch_pack_tile<8, 3>(source, args, rows, context);
    if (words == 4) return launch_pack_tile<8, 4>(source, args, rows, context);
    // Rows packed together share the loads of thresholds and the folding of sums.
    const bool shifted = args.threshold != nullptr || args.gain != nullptr;
    if (words < 8) return launch_pack_tile<4, 5>(source, args, rows, context);
    if (shifted && args.scale != nullptr)
      return launch_pack_tile<4, 8>(source, args, rows, context);
  }
  return launch_pack_tile<2, 8>(source, args, rows, context);
}

}  // namespace bitgnn::cuda::pack
