// Aggregation over FRDC 4 x 4 tiles with dynamic coarsening (BitGNN paper, algorithm 1): eight
// tiles form one 32-bit word for each of four adjacency rows, and the 32 matching activation rows
// are transposed to one word per feature. All three ways of section 3.2.2 to reconcile 0/1 with
// -1/+1 are implemented; they give the same integers. Included once per CPU capability; BITGNN_ISA
// names the namespace of its primitives.

#include "bspmm/cpu/gather_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

// Transposes in place: bit n of word f becomes the former bit f of word n (recursive block swap).
inline void transpose32(uint32_t* a) {
  uint32_t mask = 0x0000ffffu;
  for (int step = 16; step != 0; step >>= 1, mask ^= mask << step) {
    for (int k = 0; k < 32; k = (k + step + 1) & ~step) {
      const uint32_t t = ((a[k] >> step) ^ a[k + step]) & mask;
      a[k] ^= t << step;
      a[k + step] ^= t;
    }
  }
}

// A set of at most eight tiles: adjacency words of the four rows and the nodes of their bits.
struct TileSet {
  uint32_t rows[kTileDim];
  int64_t nodes[kWordBits];  // -1 where there is none

  TileSet(const FrdcArgs& a, int64_t begin, int64_t end) : rows{} {
    for (auto& node : nodes) node = -1;
    for (int64_t t = begin; t < end; ++t) {
      const int shift = static_cast<int>((t - begin) * kTileDim);
      const uint32_t tile = static_cast<uint16_t>(a.tiles[t]);
      for (int r = 0; r < kTileDim; ++r) rows[r] |= ((tile >> (kTileDim * r)) & 0xfu) << shift;
      for (int c = 0; c < kTileDim; ++c) {
        const int64_t node = a.csr.indices[t] * kTileDim + c;
        if (node < a.csr.cols) nodes[shift + c] = node;
      }
    }
  }
};

// Adds the set's contribution to features [32 word, 32 word + 32) of the four rows.
inline void add_tile_set(const FrdcArgs& a, const TileSet& set, int64_t word,
                         int32_t sums[kTileDim][kWordBits]) {
  if (a.method == Reconcile::kIfElse) {
    for (int r = 0; r < kTileDim; ++r) {
      for (uint32_t left = set.rows[r]; left != 0; left &= left - 1) {
        const int n = static_cast<int>(popcount((left & (0u - left)) - 1u));
        const uint32_t bits =
            static_cast<uint32_t>(a.csr.x_bits()[set.nodes[n] * a.csr.x_stride + word]);
        for (int l = 0; l < kWordBits; ++l) sums[r][l] += ((bits >> l) & 1u) != 0 ? 1 : -1;
      }
    }
    return;
  }
  alignas(64) uint32_t features[kWordBits];
  for (int n = 0; n < kWordBits; ++n)
    features[n] = set.nodes[n] < 0
                      ? 0u
                      : static_cast<uint32_t>(a.csr.x_bits()[set.nodes[n] * a.csr.x_stride + word]);
  transpose32(features);
  for (int r = 0; r < kTileDim; ++r) {
    const uint32_t row = set.rows[r];
    if (a.method == Reconcile::kAndAndNot) {
      for (int l = 0; l < kWordBits; ++l)
        sums[r][l] += static_cast<int32_t>(popcount(row & features[l])) -
                      static_cast<int32_t>(popcount(row & ~features[l]));
    } else {
      const int32_t degree = static_cast<int32_t>(popcount(row));
      for (int l = 0; l < kWordBits; ++l)
        sums[r][l] += 2 * static_cast<int32_t>(popcount(row & features[l])) - degree;
    }
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
    for (int64_t t = a.csr.row_begin(tile_row); t < last; t += kTilesPerSet) {
      const TileSet set(a, t, t + kTilesPerSet < last ? t + kTilesPerSet : last);
      for (int64_t w = 0; w < words; ++w) add_tile_set(a, set, w, sums[w]);
    }
    for (int64_t r = 0; r < kTileDim && tile_row * kTileDim + r < a.csr.rows; ++r)
      for (int64_t w = 0; w < words; ++w)
        finish_sums(a.csr, tile_row * kTileDim + r, w, load_ints(sums[w][r]));
  }
  if (a.csr.stream) stream_fence();
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
