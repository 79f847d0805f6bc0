// Binary matrix product: dot = K - 2 popcount(a ^ b), 32 outputs in the lanes, epilogue fused.
// Bound by vector operations: XOR, popcount and add, three for each 512 bits of products.
// Included once a capability, with BITGNN_ISA naming the namespace of its primitives.

#include <memory>

#include "bitgnn/cpu/kernel_table.h"
#include "bitgnn/cpu/pack_kernel.h"

namespace bitgnn::cpu::BITGNN_ISA {
namespace {

constexpr int kMaxTilePanels = 2;
constexpr int64_t kRowBlock = 48;  // rows whose words stay in L1 beside two weight panels

inline Lanes load_some(const float* p, int64_t count) {
  return count >= kWordBits ? load_lanes(p) : load_lanes(p, count);
}

// Turns the 32 popcounts of one row and panel into values or bits.
inline void finish_panel(const BmmArgs& a, int64_t row, int64_t panel, const float* row_scale,
                         const int32_t* pops) {
  const int64_t first = panel * kWordBits;
  const int64_t count = a.out_features - first < kWordBits ? a.out_features - first : kWordBits;
  alignas(64) int32_t dot[kWordBits];
  for (int l = 0; l < kWordBits; ++l)
    dot[l] =
        static_cast<int32_t>(static_cast<uint32_t>(a.size) - 2u * static_cast<uint32_t>(pops[l]));
  if (a.out_int != nullptr) {
    std::memcpy(a.out_int + row * a.out_features + first, dot,
                static_cast<size_t>(count) * sizeof(int32_t));
    return;
  }
  Lanes v = int_lanes(dot);
  if (row_scale != nullptr) {
    Lanes scale = broadcast_lanes(*row_scale);
    if (a.out_scale != nullptr) scale = mul(scale, load_some(a.out_scale + first, count));
    v = mul(scale, v);
  } else if (a.out_scale != nullptr) {
    v = mul(load_some(a.out_scale + first, count), v);
  }
  if (a.bias != nullptr) v = add(v, load_some(a.bias + first, count));
  if (a.out_float != nullptr) {
    float* out = a.out_float + row * a.out_features + first;
    if (count == kWordBits) {
      store_lanes(out, v);
    } else {
      alignas(64) float buffer[kWordBits];
      store_lanes(buffer, v);
      std::memcpy(out, buffer, static_cast<size_t>(count) * sizeof(float));
    }
    return;
  }
  const Lanes threshold =
      a.threshold != nullptr ? load_some(a.threshold + first, count) : zero_lanes();
  uint32_t bits = ge_mask(v, threshold);
  if (a.flip != nullptr) bits ^= static_cast<uint32_t>(a.flip[panel]);
  if (count < kWordBits) bits &= (1u << count) - 1u;
  a.out_bits[row * words_for(a.out_features) + panel] = static_cast<int32_t>(bits);
}

template <int R, int P>
void multiply_tile(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t panel,
                   const float* row_scale) {
  alignas(64) int32_t pops[R * P * kWordBits];
  xor_popcounts<R, P>(x, words, a.panels + panel * words * kWordBits, words, pops);
  for (int r = 0; r < R; ++r)
    for (int p = 0; p < P; ++p)
      finish_panel(a, row + r, panel + p, row_scale != nullptr ? row_scale + r : nullptr,
                   pops + (r * P + p) * kWordBits);
}

template <int P>
void multiply_rows(const BmmArgs& a, const int32_t* x, int64_t words, int64_t row, int64_t rows,
                   int64_t panel, const float* row_scale) {
  int64_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows)
    multiply_tile<kTileRows, P>(a, x + r * words, words, row + r, panel,
                                row_scale != nullptr ? row_scale + r : nullptr);
  for (; r < rows; ++r)
    multiply_tile<1, P>(a, x + r * words, words, row + r, panel,
                        row_scale != nullptr ? row_scale + r : nullptr);
}

void bmm(const BmmArgs& a, int64_t begin, int64_t end, int64_t panel_begin, int64_t panel_end) {
  const int64_t words = words_for(a.size);
  std::unique_ptr<int32_t[]> packed;
  float packed_scale[kRowBlock];
  if (a.pack != nullptr) packed.reset(new int32_t[static_cast<size_t>(kRowBlock * words + 1)]);
  for (int64_t row = begin; row < end; row += kRowBlock) {
    const int64_t rows = end - row < kRowBlock ? end - row : kRowBlock;
    const int32_t* x = a.x != nullptr ? a.x + row * words : nullptr;
    const float* row_scale = a.row_scale != nullptr ? a.row_scale + row : nullptr;
    if (a.pack != nullptr) {
      PackArgs block = *a.pack;
      block.words = packed.get();
      block.scale = a.packed_scale ? packed_scale : nullptr;
      block.x = advance(block, row);
      pack(block, 0, rows);
      x = packed.get();
      row_scale = block.scale;
    }
    int64_t panel = panel_begin;
    for (; panel + kMaxTilePanels <= panel_end; panel += kMaxTilePanels)
      multiply_rows<kMaxTilePanels>(a, x, words, row, rows, panel, row_scale);
    if (panel < panel_end) multiply_rows<1>(a, x, words, row, rows, panel, row_scale);
  }
}

}  // namespace
}  // namespace bitgnn::cpu::BITGNN_ISA
