// Aggregation over FRDC 4 x 4 tiles (BitGNN paper, section 3.2.1): each edge of a tile adds +1 or
// -1 to the sums of its row ("if-else" of section 3.2.2, the fastest of the paper's three ways on a
// CPU; all of them give the same integers). Bound by the additions, 32 an edge and word. Included
// once per CPU capability; BITGNN_ISA names the namespace of its primitives.

#include "bspmm/cpu/gather_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Adds a tile's edges to features [32 word, 32 word + 32) of its four rows; bit 4 r + c is (r, c).
inline void add_tile(const FrdcArgs& a, int64_t tile, int64_t word,
                     int32_t sums[kTileDim][kWordBits]) {
  const int64_t column = a.csr.indices[tile] * kTileDim;
  for (uint32_t left = static_cast<uint16_t>(a.tiles[tile]); left != 0; left &= left - 1) {
    const int bit = static_cast<int>(popcount((left & (0u - left)) - 1u));
    const int64_t node = column + bit % kTileDim;
    const uint32_t bits = static_cast<uint32_t>(a.csr.x_bits()[node * a.csr.x_stride + word]);
    int32_t* row = sums[bit / kTileDim];
    for (int l = 0; l < kWordBits; ++l) row[l] += ((bits >> l) & 1u) != 0 ? 1 : -1;
  }
}

// Aggregates tile rows [begin, end).
void aggregate_frdc(const FrdcArgs& a, int64_t begin, int64_t end) {
  const int64_t words = words_for(a.csr.features);
  std::unique_ptr<int32_t[][kTileDim][kWordBits]> sums(
      new int32_t[static_cast<size_t>(words + 1)][kTileDim][kWordBits]);
  for (int64_t tile_row = begin; tile_row < end; ++tile_row) {
    std::memset(sums.get(), 0, sizeof(sums[0]) * static_cast<size_t>(words));
    const int64_t last = a.csr.row_begin(tile_row + 1);
    for (int64_t t = a.csr.row_begin(tile_row); t < last; ++t)
      for (int64_t w = 0; w < words; ++w) add_tile(a, t, w, sums[w]);
    for (int64_t r = 0; r < kTileDim && tile_row * kTileDim + r < a.csr.rows; ++r)
      for (int64_t w = 0; w < words; ++w)
        finish_sums(a.csr, tile_row * kTileDim + r, w, load_ints(sums[w][r]));
  }
  if (a.csr.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
