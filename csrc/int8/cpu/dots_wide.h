// 8-bit dot products where no instruction multiplies bytes exactly: rows and panels are widened to
// int16 and multiplied in pairs. Included once per capability, with BITGNN_ISA naming the namespace
// of its primitives, for capabilities without primitives of their own as in dots_avx512.h.
#pragma once

#include "capabilities/cpu/kernel_table.h"

namespace bitgnn::cpu::BITGNN_ISA {

constexpr int64_t kCodeBytes = 2;             // of a weight in a panel
constexpr int64_t kCodeStep = kInt8RowBytes;  // codes of a step of a product
constexpr int kCodeTileRows = kFixedRows;

// Rearranges weights [outputs, pitch] of at most 32 outputs, with zeros for missing ones, as
// 32 * pitch * kCodeBytes bytes.
inline void make_code_panel(const int8_t* weight, int64_t outputs, int64_t pitch, void* panel) {
  auto* to = static_cast<int16_t*>(panel);
  for (int64_t k = 0; k < pitch; k += 2)
    for (int64_t o = 0; o < kWordBits; ++o, to += 2)
      for (int64_t i = 0; i < 2; ++i) to[i] = o < outputs ? weight[o * pitch + k + i] : int16_t{0};
}

// Rows of codes [rows, pitch] as products read them, with scratch memory for scratch(rows, pitch)
// integers.
class CodeRows {
 public:
  static int64_t scratch(int64_t rows, int64_t pitch) { return rows * pitch / 2; }
  CodeRows(const int8_t* codes, int64_t rows, int64_t pitch, int32_t* scratch)
      : codes_(reinterpret_cast<int16_t*>(scratch)), pitch_(pitch) {
    auto* to = reinterpret_cast<int16_t*>(scratch);
    for (int64_t k = 0; k < rows * pitch; ++k) to[k] = codes[k];
  }

  // Writes the 32 products of each of `count` rows, at most kCodeTileRows, with a panel.
  void dots(int64_t row, int64_t count, const void* panel, int32_t* to) const {
    if (count == kCodeTileRows) return tile<kCodeTileRows>(row, panel, to);
    for (int64_t r = 0; r < count; ++r) tile<1>(row + r, panel, to + r * kWordBits);
  }

 private:
  template <int R>
  void tile(int64_t row, const void* panel, int32_t* to) const {
    const int64_t whole = 0;
    fixed_dots<R>(codes_ + row * pitch_, pitch_, &whole, 1, pitch_ / 2,
                  static_cast<const int16_t*>(panel),
                  [to](int r, const IntLanes& dot) { store_ints(to + r * kWordBits, dot); });
  }

  const int16_t* codes_;
  int64_t pitch_;
};

// Products of one row with `outputs` rows of weights as they are.
inline void code_dots_in_place(const int8_t* x, const int8_t* weight, int64_t outputs,
                               int64_t pitch, int32_t* dots) {
  for (int64_t o = 0; o < outputs; ++o, weight += pitch) {
    int32_t sum = 0;
    for (int64_t k = 0; k < pitch; ++k) sum += x[k] * weight[k];
    dots[o] = sum;
  }
}

}  // namespace bitgnn::cpu::BITGNN_ISA
